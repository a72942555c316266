"""CEPS paper, Table III: the four variants on Example 1 over m, epsilon and r; objective, time, iterations.

The paper's own code is not public, and its numbers are of one run per cell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.engine.callbacks import Callback
from jdfl.engine.stopping import StopRule

VARIANTS = ("DP-1BCS", "NoDP-1BCS", "DP-Perf", "NoDP-Perf")


@dataclass(frozen=True)
class Case:
    """One column of Table III: its setting, and the paper's numbers per variant."""

    m: int
    epsilon: float
    rate: float
    rounds: tuple[int, int, int, int]
    objective: tuple[float, float, float, float]
    time: tuple[float, float, float, float]

    def __str__(self) -> str:
        return f"m={self.m} eps={self.epsilon:g} r={self.rate:g}"


# m, epsilon, r; then for the four variants: rounds, objective, seconds
CASES = (
    Case(32, 0.5, 0.2, (32, 29, 28, 27), (0.127, 0.126, 0.127, 0.126), (1.225, 1.105, 0.269, 0.286)),
    Case(64, 0.5, 0.2, (30, 29, 28, 25), (0.125, 0.125, 0.125, 0.125), (3.689, 3.551, 0.587, 0.589)),
    Case(128, 0.5, 0.2, (30, 29, 28, 27), (0.125, 0.125, 0.125, 0.125), (14.2, 13.72, 1.211, 1.195)),
    Case(32, 0.25, 0.2, (30, 29, 28, 27), (0.129, 0.127, 0.129, 0.127), (1.101, 1.095, 0.29, 0.283)),
    Case(32, 0.75, 0.2, (35, 29, 32, 27), (0.126, 0.126, 0.126, 0.125), (1.432, 1.179, 0.3, 0.304)),
    Case(32, 0.5, 0.5, (30, 29, 28, 27), (0.127, 0.127, 0.13, 0.126), (2.412, 2.292, 0.29, 0.291)),
    Case(32, 0.5, 0.8, (26, 23, 24, 21), (0.129, 0.13, 0.131, 0.133), (2.713, 2.607, 0.287, 0.291)),
)

# The setting of the first case is printed three times, in the columns m = 32, epsilon = .5 and r = .2, with different
# numbers: the values of the last two columns, for the four variants: rounds, objective, seconds
AGAIN = {
    "column eps=0.5": ((32, 29, 30, 27), (0.126, 0.126, 0.126, 0.125), (1.322, 1.171, 0.287, 0.294)),
    "column r=0.2": ((32, 29, 28, 27), (0.127, 0.126, 0.126, 0.126), (1.224, 1.086, 0.282, 0.295)),
}


PAIRS = (  # variants whose runs of one seed share data, network and draws
    ("DP-1BCS", "DP-Perf"),
    ("NoDP-1BCS", "NoDP-Perf"),
    ("DP-1BCS", "NoDP-1BCS"),
    ("DP-Perf", "NoDP-Perf"),
)


def algorithm_of(case: Case, variant: str) -> jdfl.CEPS:
    """The paper's preset of one variant."""
    epsilon = case.epsilon if variant.startswith("DP") else None
    return jdfl.CEPS.paper(10, rate=case.rate, epsilon=epsilon, one_bit=variant.endswith("1BCS"))


def network_of(case: Case, seed: int, p: float = 0.45) -> jdfl.network.Static:
    """Erdos-Renyi; its table of neighbours is padded to m - 1 slots, so that all seeds share one compilation."""
    network = jdfl.network.erdos_renyi(case.m, p, seed=seed)
    return replace(network, graph=jdfl.network.pad(network.graph, case.m - 1))


def tolerance(case: Case, variant: str) -> float:
    return 0.0025 / case.epsilon if variant.startswith("DP") else 0.005


def run_variant(
    case: Case,
    variant: str,
    seed: int,
    problem: jdfl.problems.Problem,
    *,
    every: int = 200,
    network: jdfl.network.Static | None = None,
    stop: StopRule | None = None,
    callbacks: Sequence[Callback] = (),
    **fields: Any,
) -> jdfl.Result:
    """One cell and seed of the preset, or of the preset with other `fields` or on another network.

    `callbacks`, if any, are called after every record.
    """
    return jdfl.run(
        replace(algorithm_of(case, variant), **fields),
        problem,
        network_of(case, seed) if network is None else network,
        key=seed,
        steps=200,
        every=every,
        callbacks=callbacks,
        stop=jdfl.consensus_below(tolerance(case, variant), per=10) if stop is None else stop,
        metrics=["objective", "objective_local", "support_recovery"],
        options=jdfl.Options(chunk=every if callbacks else 200),
    )


def collect(cases: Sequence[Case], seeds: int) -> list[Row]:
    rows: list[Row] = []
    for case in cases:
        found: dict[str, list[jdfl.Result]] = {variant: [] for variant in VARIANTS}
        optimum = []
        for seed in range(seeds):
            problem = jdfl.problems.example1(m=case.m, seed=seed)
            optimum.append(jdfl.problems.value_at_truth(problem))
            for variant in VARIANTS:
                found[variant].append(run_variant(case, variant, seed, problem))
        rows += measured(case, found, optimum)
        rows += paired(case, found)
    return [*rows, *again(rows)]


def measured(case: Case, found: Mapping[str, Sequence[jdfl.Result]], optimum: Sequence[float]) -> list[Row]:
    """The numbers of the variants in one setting, from their runs and f(w*), seed by seed."""
    rows: list[Row] = []
    for variant, results in found.items():
        v = VARIANTS.index(variant)
        name = f"{case} {variant}"
        rows += [
            row(name, "rounds", case.rounds[v], [result.rounds for result in results]),
            row(name, "objective", case.objective[v], [result.final["objective"] for result in results]),
            row(name, "above f(w*)", None, [r.final["objective"] - f for r, f in zip(results, optimum)]),
            row(name, "support", None, [result.final["support_recovery"] for result in results]),
            row(name, "seconds", case.time[v], [result.seconds for result in results]),
            row(name, "true kB", None, [result.totals.bytes / 1e3 for result in results]),
            row(name, "DTV formula, kB", None, [(result.published_bytes or 0) / 1e3 for result in results]),
        ]
    return rows


def paired(case: Case, found: Mapping[str, Sequence[jdfl.Result]]) -> list[Row]:
    """The differences between variants, seed by seed, in rounds and objective, and the paper's."""
    rows = []
    for one, other in PAIRS:
        first, second = VARIANTS.index(one), VARIANTS.index(other)
        pairs = list(zip(found[one], found[other], strict=True))
        name, published = f"{case} {one} - {other}", case.rounds[first] - case.rounds[second]
        rows.append(row(name, "rounds, paired", published, [a.rounds - b.rounds for a, b in pairs]))
        published = round(case.objective[first] - case.objective[second], 3)
        values = [a.final["objective"] - b.final["objective"] for a, b in pairs]
        rows.append(row(name, "objective, paired", published, values))
    return rows


def again(rows: Sequence[Row]) -> list[Row]:
    """The two columns of the paper's table that repeat the setting of the first, with our numbers for it."""
    ours = {(one.case, one.column): one for one in rows}
    made = []
    for column, told in AGAIN.items():
        for v, variant in enumerate(VARIANTS):
            for name, numbers in zip(("rounds", "objective", "seconds"), told):
                one = ours.get((f"{CASES[0]} {variant}", name))
                if one is not None:
                    made.append(replace(one, case=f"{CASES[0]} {variant}, {column}", paper=numbers[v]))
    return made


@experiment()
def main(chosen: Options) -> Made:
    """The whole table, or its first column with `--quick`."""
    rows = collect(CASES[:1] if chosen.quick else CASES, chosen.seeds)
    return Made({"CEPS, Table III (Example 1)": rows}, bars(rows, ["rounds"], "rounds to agreement"))
