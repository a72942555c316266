"""CEPS paper, Table V and the CEPS rows of Table IV: m = 64 on Example 1 over r and epsilon.

Run `python -m experiments.ceps_table5 [--quick] [--seeds N] [--out DIR]`. "DTV" is the paper's data transmission
volume, a formula beside which the bytes of the messages sent are shown; "study" is an independent numpy
re-implementation.

Table IV repeats the setting r = 0.2, eps = 2 of Table V with other results (22 rounds against 28 and 38), and its
rounds do not rise as epsilon does although the tolerance 0.0025/eps falls. Its rows are shown, and not aimed at.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from math import nan

import jdfl
from experiments.ceps_table3 import VARIANTS, Case, run_variant
from experiments.common import Row, beside, options, row, save, show

NAME = "ceps_table5"
GOAL = 6  # rounds between ours and the paper's, or the study's, which are up to 6 apart themselves


CASES = (  # m, epsilon, r; rounds, the study's rounds and objective of the four variants; the paper gives no times
    Case(64, 2, 0.2, (38, 29, 28, 29), (32, 26.3, 32, 26.3), (0.126, 0.126, 0.126, 0.125), (nan, nan, nan, nan)),
    Case(64, 2, 0.5, (28, 29, 28, 27), (30, 25, 29.7, 25), (0.126, 0.126, 0.126, 0.125), (nan, nan, nan, nan)),
    Case(64, 2, 0.8, (26, 23, 24, 21), (28.7, 21, 27.3, 21), (0.126, 0.127, 0.126, 0.125), (nan, nan, nan, nan)),
)
VOLUMES = ((0.78, 0.63, 3.65, 3.78), (1.36, 1.44, 9.13, 8.80), (2.05, 1.95, 12.52, 10.96))  # the paper's DTV, MB
TABLE4 = {0.5: (24, 0.123, 24, 0.124), 1.0: (22, 0.123, 22, 0.123), 2.0: (22, 0.123, 22, 0.123)}  # 1BCS, then Perf


def collect(cases: Sequence[Case], seeds: int) -> list[Row]:
    """All cells of Table V over all seeds."""
    rows: list[Row] = []
    problems = [jdfl.problems.example1(m=64, seed=seed) for seed in range(seeds)]
    for case, volumes in zip(cases, VOLUMES):
        for v, variant in enumerate(VARIANTS):
            results = [run_variant(case, variant, seed, problem) for seed, problem in enumerate(problems)]
            name, rounds = f"{case} {variant}", [result.rounds for result in results]
            rows += [
                row(name, "rounds", case.rounds[v], rounds),
                row(name, "rounds, study", case.study[v], rounds),
                row(name, "objective", case.objective[v], [result.final["objective"] for result in results]),
                row(name, "DTV formula, MB", volumes[v], [(r.published_bytes or 0) / 1e6 for r in results]),
                row(name, "true MB", None, [result.totals.bytes / 1e6 for result in results]),
                row(name, "seconds", None, [result.seconds for result in results]),
            ]
    return rows


def table4(seeds: int) -> list[Row]:
    """The CEPS rows of Table IV."""
    rows: list[Row] = []
    problems = [jdfl.problems.example1(m=64, seed=seed) for seed in range(seeds)]
    for epsilon, (coded, coded_value, perfect, perfect_value) in TABLE4.items():
        case = replace(CASES[0], epsilon=epsilon)
        for variant, rounds, value in (("DP-1BCS", coded, coded_value), ("DP-Perf", perfect, perfect_value)):
            results = [run_variant(case, variant, seed, problem) for seed, problem in enumerate(problems)]
            name = f"Table IV: {case} {variant}"
            rows.append(row(name, "rounds", rounds, [result.rounds for result in results]))
            rows.append(row(name, "objective", value, [result.final["objective"] for result in results]))
    return rows


def verdict(rows: Sequence[Row]) -> str:
    """How far the rounds are from the paper's and from the study's."""
    lines = []
    for column, who in (("rounds", "paper"), ("rounds, study", "study")):
        off = {one.case: one.mean - one.paper for one in rows if one.column == column and one.paper is not None}
        worst = max(off, key=lambda case: abs(off[case]))
        lines.append(f"largest |rounds - {who}|: {abs(off[worst]):.1f} ({worst}; goal {GOAL})")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """The whole table, or its first column with `--quick`."""
    chosen = options("CEPS paper, Table V, beside ours", arguments=arguments)
    rows = collect(CASES[:1] if chosen.quick else CASES, chosen.seeds)
    show("CEPS, Table V (Example 1, m = 64, eps = 2)", rows)
    print(verdict(rows))
    beside(rows, "rounds", "rounds to agreement", chosen.out / f"{NAME}.png", study="rounds, study")
    if not chosen.quick:
        other = table4(chosen.seeds)
        show("CEPS, Table IV (Example 1, m = 64, r = 0.2): contradicts Table V", other)
        rows += other
    print("written:", save(rows, chosen.out, NAME), chosen.out / f"{NAME}.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
