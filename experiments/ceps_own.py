"""CEPS: is node i one of the neighbours N_i^k that it averages? What each reading does to rounds and objective.

Run `python -m experiments.ceps_own [--quick] [--seeds N] [--out DIR]`: three columns of the paper's Table III with
perfect communication, under the three readings of `CEPS.own`, the paper's numbers beside them.
"""

import sys
from collections.abc import Sequence

import jdfl
from experiments.ceps_table3 import CASES, VARIANTS, run_variant
from experiments.common import Row, beside, options, row, save, show

NAME = "ceps_own"
READINGS = ("absent", "sampled", "always")


def collect(seeds: int, quick: bool) -> list[Row]:
    """The cells over all seeds."""
    rows: list[Row] = []
    for case in (CASES[0],) if quick else (CASES[0], CASES[3], CASES[6]):
        problems = [jdfl.problems.example1(m=case.m, seed=seed) for seed in range(seeds)]
        for variant in VARIANTS[2:]:
            v = VARIANTS.index(variant)
            for own in READINGS:
                results = [run_variant(case, variant, seed, problems[seed], own=own) for seed in range(seeds)]
                name = f"{case} {variant} own={own}"
                rows.append(row(name, "rounds", case.rounds[v], [result.rounds for result in results]))
                rows.append(row(name, "objective", case.objective[v], [r.final["objective"] for r in results]))
    return rows


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Three columns of the table, or one with `--quick`."""
    chosen = options("CEPS: is a node one of its own neighbours?", arguments=arguments)
    rows = collect(chosen.seeds, chosen.quick)
    show("CEPS, Table III, by reading of N_i", rows)
    beside(rows, "objective", "objective at agreement", chosen.out / f"{NAME}.png")
    print("written:", save(rows, chosen.out, NAME), chosen.out / f"{NAME}.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
