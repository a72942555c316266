"""The cost of the rules that are checked in every round: rounds with and without sums of W, push-sum mass and counters.

Run `python -m benchmarks.invariants [--quick] [--out DIR]`, three minutes on two cores. W is checked in the rounds of
networks that change; of a fixed one it is before the run. Variants with and without the rules take turns, 50 rounds
each, so often that the median of the ratios is known to a percent on a machine whose speed varies by a quarter.
"""

from typing import Any

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from jdfl.algorithms.program import planned

RESULT = "The rules take {SGP, one peer per round, m=100 n=1000 -> time of the rules} % of a round of SGP."
DEGREE, LR = 8, 1e-3
MOST = 500  # rounds that noise is planned for; later ones have the last one's


def methods(m: int, n: int) -> dict[str, tuple[Any, Any]]:
    """Algorithms and networks by the name of the case."""
    fixed, turns = jdfl.network.k_regular(m, DEGREE), jdfl.network.one_peer_exponential(m)
    lossy = jdfl.network.link_loss(fixed, 0.1)
    owned = jdfl.network.link_loss(jdfl.network.exponential(m), 0.1, directed=True, weights="sender")
    ceps = jdfl.CEPS(s=max(1, n // 100), rate=0.5, sigma_rule="safe")
    clipped = jdfl.Gradients(clip=1.0, norm="l1", per="batch")
    push = jdfl.PartPSP(lr_shared=LR, gradients=clipped, dpps=jdfl.DPPS(b=1.0, noise_rate=1e-6))
    return {
        "D-PSGD, fixed network": (jdfl.DPSGD(lr=LR), fixed),
        "D-PSGD, one peer per round": (jdfl.DPSGD(lr=LR), turns),
        "D-PSGD, lost messages": (jdfl.DPSGD(lr=LR), lossy),
        "PartPSP with noise, fixed network": (push, jdfl.network.exponential(m)),
        "SGP, one peer per round": (jdfl.SGP(lr=LR), turns),
        "SGP, lost messages": (jdfl.SGP(lr=LR), owned),
        "CEPS, fixed network": (ceps, fixed),
        "CEPS, lost messages": (ceps, lossy),
    }


@benchmark("The cost of the rules that hold in every round", goals=False)
def main(chosen: Options) -> list[Row]:
    """Rounds per second and the cost in percent of a round."""
    m, n, rounds, repeats = (12, 40, 5, 2) if chosen.quick else (100, 1_000, 50, 201)
    problem = jdfl.problems.example1(m=m, n=n, s=max(1, n // 100), rows=(10, 20))
    rows: list[Row] = []
    for case, (algorithm, network) in methods(m, n).items():
        program = planned(algorithm, problem, network, MOST)
        works = {
            kind: rounds_of(program, problem, network, rounds, checked=kind == "with") for kind in ("without", "with")
        }
        seconds = interleaved(works, repeats)
        case = f"{case}, m={m} n={n}"
        rows += [
            row(case, f"rounds per second {kind} the rules", [rounds / one for one in s], "")
            for kind, s in seconds.items()
        ]
        cost = [100 * (one - 1) for one in ratios(seconds["with"], seconds["without"])]
        rows.append(row(case, "time of the rules", cost, "% of a round", "<= 2"))
    return rows


if __name__ == "__main__":
    main()
