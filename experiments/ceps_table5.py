"""CEPS paper, Table V: CEPS and its baselines over r; Example 1, m = 64, eps = 2, messages every 10 iterations.

Run `python -m experiments.ceps_table5 [--quick] [--seeds N] [--out DIR]`. "DTV" is the paper's data transmission
volume, a formula; the bytes of the messages sent are shown as well. "study" is an independent NumPy
re-implementation of the baselines.
The baselines' learning rates and readings are those of `experiments.ceps_baselines`. A run ends where the nodes agree,
which does not indicate progress: "rounds to learn" are the iterations until the objective is at most f(w*) + 0.01.
"""

import sys
from collections.abc import Sequence
from math import nan

import jdfl
from experiments.ceps_baselines import MARGIN, STUDY, TABLE4, cells, disagreements, follow, setting
from experiments.ceps_table3 import VARIANTS, Case, network_of, paired, run_variant
from experiments.ceps_table4 import PAPER as TABLE4_CEPS
from experiments.ceps_table4 import learnt_in, order
from experiments.common import Row, beside, options, row, save, show

NAME = "ceps_table5"
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


def collect(cases: Sequence[Case], seeds: int) -> tuple[list[Row], float]:
    """All cells of Table V over all seeds, and the mean objective at which a run has learned."""
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
    return rows, sum(targets) / len(targets)


def verdict(rows: Sequence[Row]) -> str:
    """The largest difference of CEPS's rounds from the paper's."""
    off = {one.case: one.mean - one.paper for one in _ceps(rows) if one.column == "rounds" and one.paper is not None}
    worst = max(off, key=lambda case: abs(off[case]))
    return f"largest |rounds - paper| of CEPS: {abs(off[worst]):.1f} ({worst}: {off[worst]:+.1f})"


def _ceps(rows: Sequence[Row]) -> list[Row]:
    return [one for one in rows if one.case.split(" ")[-1] in VARIANTS]


def contradictions() -> list[str]:
    """Where the paper's Tables IV and V give one setting, r = 0.2 and eps = 2, different rounds."""
    pairs = {name: (TABLE4[name, 2.0], BASELINES[name, 0.2]) for name in METHODS[:3]}
    lines = [f"{name}: {a[1]} rounds in Table IV, {b[1]} in Table V" for name, (a, b) in pairs.items() if a]
    for name, place in (("CEPS-1BCS", 0), ("CEPS-Perf", 2)):
        rounds = TABLE4_CEPS[name, 2.0][1], CASES[0].rounds[place]
        lines.append(f"{name}: {rounds[0]} rounds in Table IV, {rounds[1]} in Table V")
    return lines


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """The whole table, or its first column with `--quick`."""
    chosen = options("CEPS paper, Table V, and ours", arguments=arguments)
    cases = CASES[:1] if chosen.quick else CASES
    rows, target = collect(cases, chosen.seeds)
    show("CEPS, Table V (Example 1, m = 64, eps = 2)", rows)
    print(verdict(rows))
    print("\n".join(order(rows, [str(case) for case in cases])))
    print("\n".join(disagreements([one for one in rows if one not in _ceps(rows)], (), target)))
    print("Contradictions within the paper, at r = 0.2 and eps = 2:", *contradictions(), sep="\n  ")
    beside(rows, "rounds", "iterations to agreement", chosen.out / f"{NAME}.png", study="rounds, study")
    print("written:", save(rows, chosen.out, NAME), chosen.out / f"{NAME}.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
