"""What observers learn: time to derive the map of a run from its step, and what one node learns of all others.

Run `python -m benchmarks.observers [--quick] [--out DIR]`; three minutes on two cores.
"""

import time

import numpy as np

import jdfl
from benchmarks.common import Options, Row, benchmark, row
from experiments.observer_attack import world
from jdfl.observers import Neighbour
from jdfl.observers.observe import Observed

RESULT = "What one of 1,000 nodes learns in 100 rounds takes {m=1000, 100 rounds -> both} s to compute."


def measured(m: int, steps: int, repeats: int, goal: str) -> list[Row]:
    """Seconds for D-PSGD on a network with about ten neighbours; deriving includes compilation."""
    network = jdfl.network.erdos_renyi(m, min(0.5, 10 / m), seed=1)
    algorithm = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(10.0)))
    case, derived, learnt, seen = f"m={m}, {steps} rounds", [], [], []
    for _ in range(repeats):
        start = time.perf_counter()
        run = Observed.of(algorithm, world(m, 0, 1.0), network, steps=steps, key=0, delta=1e-5)
        between = time.perf_counter()
        seen.append(run.by(Neighbour(0)))
        learnt.append(time.perf_counter() - between)
        derived.append(between - start)
    both = [one + two for one, two in zip(derived, learnt)]
    return [
        row(case, "derive the map", derived, "s"),
        row(case, "one observer, all nodes", learnt, "s"),
        row(case, "both", both, "s", goal),
        Row(case, "vectors that the observer sees", float(seen[0].rows), ""),
        Row(case, "median mu / everyone's", float(np.nanmedian(seen[0].mu)) / (np.sqrt(steps) / 10.0), ""),
    ]


@benchmark("What observers learn")
def main(chosen: Options) -> list[Row]:
    large = [] if chosen.quick else [*measured(100, 100, 3, ""), *measured(1000, 100, 2, "<= 300")]
    return measured(12, 6, 1, "") if chosen.quick else large


if __name__ == "__main__":
    main()
