"""A whole comparison as a newcomer runs it: five methods, tuned, with ten trials of new data and networks each.

Run `python -m benchmarks.comparison [--quick] [--out DIR]`, a minute on two cores. The data are breast_cancer with a
Dirichlet partition over 16 nodes and an Erdos-Renyi graph per trial. Seconds include compilation and
tuning, not the import of jdfl; compiled programs are not cached between processes. Programs are those that run rounds:
one per method for its tuning, and one for all of its reported trials.
"""

import time
import warnings
from typing import Any

import jdfl
from benchmarks.common import Options, Row, benchmark, row
from jdfl.engine import loop
from jdfl.problems import Problem

RESULT = (
    "Tuning, compilation and all runs take {5 methods, 10 trials, 200 rounds -> tuning, compilation and all runs} s."
)
METHODS: dict[str, Any] = {
    "D-PSGD": jdfl.DPSGD(),
    "CHOCO-SGD": jdfl.Entry(jdfl.CHOCO(codec=jdfl.Sparse(share=0.1), gamma=0.4), tune={"lr": [0.5, 1, 2, 4, 8]}),
    "EXTRA": jdfl.EXTRA(),
    "NIDS": jdfl.NIDS(),
    "DSGT": jdfl.DSGT(),
}


def data(seed: int) -> Problem:
    """breast_cancer, partitioned again over 16 nodes."""
    return jdfl.problems.classification("breast_cancer", 16, partition="dirichlet", alpha=0.5, seed=seed)


def graph(seed: int) -> jdfl.network.Network:
    """A new graph."""
    return jdfl.network.erdos_renyi(16, 0.4, seed=seed)


@benchmark("A comparison of five methods with ten trials", goals=False)
def main(chosen: Options) -> list[Row]:
    """Seconds of the comparison and the programs that it compiles."""
    methods = dict(list(METHODS.items())[:2]) if chosen.quick else METHODS
    trials, steps = (2, 10) if chosen.quick else (10, 200)
    how: dict[str, Any] = {"steps": steps, "every": 5, "trials": trials, "budget": {"round": None}}
    experiment = jdfl.Experiment(problem=data, network=graph, methods=methods, **how)
    compiled: Any = loop.lanes
    before, start = compiled._cache_size(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # edges of grids, which the table marks
        found = experiment.run(progress=False)
    seconds = time.perf_counter() - start
    programs = compiled._cache_size() - before
    print(found.table())
    case = f"{len(methods)} methods, {trials} trials, {steps} rounds"
    return [
        row(case, "tuning, compilation and all runs", [seconds], "s", "<= 60"),
        row(case, "programs per method, its tuning among them", [programs / len(methods)], "", "<= 2"),
        row(case, "tuning runs", [sum(how.runs for how in found.tuned.values())], ""),
    ]


if __name__ == "__main__":
    main()
