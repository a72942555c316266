"""CEPS paper, Table V: CEPS and its baselines over r; Example 1, m = 64, eps = 2, messages every 10 iterations.

"DTV" is the paper's data transmission volume, a formula; the bytes of the messages sent are shown as well. "study" is
an independent NumPy re-implementation of the baselines. The baselines' learning rates and readings are those of
`experiments.ceps_baselines`. A run ends where the nodes agree, which does not indicate progress: "rounds to learn" are
the iterations until the objective is at most f(w*) + 0.01.
"""

from collections.abc import Sequence
from math import nan

import jdfl
from experiments.ceps_baselines import MARGIN, STUDY, cells, follow, setting
from experiments.ceps_table3 import VARIANTS, Case, network_of, paired, run_variant
from experiments.ceps_table4 import learnt_in
from experiments.common import Made, Options, Row, bars, experiment, row

CASES = (  # m, epsilon, r; rounds and objective of the four variants; the paper gives no times
    Case(64, 2, 0.2, (38, 29, 28, 29), (0.126, 0.126, 0.126, 0.125), (nan, nan, nan, nan)),
    Case(64, 2, 0.5, (28, 29, 28, 27), (0.126, 0.126, 0.126, 0.125), (nan, nan, nan, nan)),
    Case(64, 2, 0.8, (26, 23, 24, 21), (0.126, 0.127, 0.126, 0.125), (nan, nan, nan, nan)),
)
VOLUMES = ((0.78, 0.63, 3.65, 3.78), (1.36, 1.44, 9.13, 8.80), (2.05, 1.95, 12.52, 10.96))  # the paper's DTV, MB
METHODS = ("D-PSGD-PC", "DFedAvgM", "DFedSAM", "IHT-D-PSGD")
BASELINES = {  # method, r: objective, rounds, DTV in MB
    ("D-PSGD-PC", 0.2): (0.131, 81, 13.27),
    ("D-PSGD-PC", 0.5): (0.128, 61, 24.99),
    ("D-PSGD-PC", 0.8): (0.128, 51, 33.42),
    ("DFedAvgM", 0.2): (0.140, 61, 9.99),
    ("DFedAvgM", 0.5): (0.128, 51, 20.89),
    ("DFedAvgM", 0.8): (0.133, 31, 20.32),
    ("DFedSAM", 0.2): (0.151, 61, 9.99),
    ("DFedSAM", 0.5): (0.166, 51, 20.89),
    ("DFedSAM", 0.8): (0.208, 31, 20.32),
}


def collect(cases: Sequence[Case], seeds: int) -> list[Row]:
    rows: list[Row] = []
    problems = [jdfl.problems.example1(m=64, seed=seed) for seed in range(seeds)]
    targets = [jdfl.problems.value_at_truth(problem) + MARGIN for problem in problems]
    for case, volumes in zip(cases, VOLUMES):
        runs: dict[str, list[jdfl.Result]] = {}
        for v, variant in enumerate(VARIANTS):
            results = [run_variant(case, variant, seed, problem, every=1) for seed, problem in enumerate(problems)]
            runs[variant] = results
            name, rounds = f"{case} {variant}", [result.rounds for result in results]
            learnt = [learnt_in(result, target) for result, target in zip(results, targets)]
            rows += [
                row(name, "rounds", case.rounds[v], rounds),
                row(name, "objective", case.objective[v], [result.final["objective"] for result in results]),
                row(name, "DTV formula, MB", volumes[v], [(r.published_bytes or 0) / 1e6 for r in results]),
                row(name, "true MB", None, [result.totals.bytes / 1e6 for result in results]),
                row(name, "seconds", None, [result.seconds for result in results]),
            ]
            found = [rounds for rounds in learnt if rounds is not None]
            rows += [row(name, "rounds to learn", None, found)] if found else []
        rows += paired(case, runs)
        for method in METHODS:
            paths = []
            for seed, problem in enumerate(problems):
                given = setting(method, problem, network_of(case, seed), epsilon=case.epsilon, rate=case.rate)
                paths.append(follow(given, problem, seed))
            objective, stop, volume = BASELINES.get((method, case.rate), (None, None, None))
            rows += cells(
                f"{case} {method}",
                paths,
                0.0025 / case.epsilon,
                targets,
                paper=None if objective is None or stop is None else (objective, stop, None),
                study=STUDY.get((method, case.epsilon)) if case.rate == 0.2 else None,
                formula=None if volume is None else (case.m, case.rate, volume),
            )
    return rows


@experiment()
def main(chosen: Options) -> Made:
    """The whole table, or its first column with `--quick`."""
    rows = collect(CASES[:1] if chosen.quick else CASES, chosen.seeds)
    fig = bars(rows, ["rounds"], "iterations to agreement", marks="rounds, study")
    return Made({"CEPS, Table V (Example 1, m = 64, eps = 2)": rows}, fig)
