"""The cost of 64 runs side by side, as one program, and in sequence.

Run `python -m benchmarks.sweep [--quick] [--out DIR]`. D-PSGD on Example 1, 8 learning rates times 8 seeds. Side by
side, a node's data are read once for all trials.
"""

import itertools
from typing import Any

import numpy as np

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, row
from jdfl.testing import compilations

RESULT = (
    "Side by side, 64 runs take {D-PSGD, Example 1, m=32 n=200, 64 trials of 100 rounds -> side by side / one after "
    "another} of the time that they take in sequence."
)


@benchmark("A sweep as one program", goals=False)
def main(chosen: Options) -> list[Row]:
    """All figures."""
    m, n, steps, each = (8, 50, 10, 2) if chosen.quick else (32, 200, 100, 8)
    problem = jdfl.problems.example1(m=m, n=n)
    network = jdfl.network.erdos_renyi(m)
    rates = (np.geomspace(0.02, 0.5, each) / float(problem.curvature.max())).tolist()
    seeds = list(range(each))
    common = {"steps": steps, "every": steps, "metrics": ["objective"]}

    def together() -> Any:
        found = jdfl.sweep(
            jdfl.DPSGD(lr=0.1), problem, network, over={"lr": rates}, keys=seeds, batch=each * each, **common
        )
        return [result.params for result in found]

    def apart() -> Any:
        pairs = itertools.product(rates, seeds)
        return [jdfl.run(jdfl.DPSGD(lr=lr), problem, network, key=seed, **common).params for lr, seed in pairs]

    side_by_side = together()
    before = compilations()
    together()
    again = compilations() - before
    np.testing.assert_allclose(np.stack(side_by_side), np.stack(apart()), rtol=1e-3, atol=1e-4)
    seconds = interleaved({"side by side": together, "apart": apart}, 2 if chosen.quick else 5)
    case = f"D-PSGD, Example 1, m={m} n={n}, {each * each} trials of {steps} rounds"
    return [
        row(case, "side by side", seconds["side by side"], "s"),
        row(case, "one after another", seconds["apart"], "s"),
        row(case, "side by side / one after another", ratios(*seconds.values()), "x", "<= 0.333"),
        row(case, "programs compiled in the second sweep", [float(again)], "", "<= 0"),
    ]


if __name__ == "__main__":
    main()
