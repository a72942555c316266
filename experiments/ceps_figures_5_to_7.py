"""CEPS paper, Figures 5 to 7: rounds, data volume and time against m = 32, 64, 128, for all methods on three problems.

It takes seven minutes per seed.

Columns: Example 1 (eps = 2), QSAR oral toxicity (the paper's 'qot') where JDFL_DATA names a folder that has it, and
realsim_like, which is generated and stands in for real-sim (the paper's 'rls'). r = .2, messages every 10 iterations.
The last two are as in `experiments.ceps_example2`: s = 50, no noise, the paper's step size doubled on QSAR and step
sizes of 1 / L_i on text, one-bit messages from double Hadamard sensing. The baselines have the learning rates and
readings of `experiments.ceps_baselines`; IHT-D-PSGD is not in the paper.

A run ends by the paper's rule, after at most 201 iterations. Its objective is shown with that of always predicting the
base rate (on Example 1 with f(w*)), since agreement is not progress. The paper's figures have no numbers. Volume is by
a formula that fits dense rows of Table V, and the bytes of the messages sent are given as well.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

import jdfl
from experiments.ceps_baselines import LIMIT, METHODS, PERIOD, follow, setting
from experiments.ceps_example2 import has, network
from experiments.ceps_figure4 import LOOKS
from experiments.common import Made, Options, Row, experiment, row
from jdfl.algorithms.ceps_paper import paper_volume
from jdfl.problems import Problem

RATE, LAST = 0.2, PERIOD * LIMIT + 1
EVERYONE = METHODS[:2]
QUANTITIES = ("CR", "DTV formula, MB", "seconds")  # of Figures 5, 6, 7
OURS = ("CEPS-Perf", "CEPS-1BCS")


@dataclass(frozen=True)
class Column:
    """A column of the figures: one problem, and how it is solved."""

    name: str
    problem: Callable[[int, int], Problem]  # of m and a seed
    reference: Callable[[Problem], float]  # the objective to reach
    s: int
    epsilon: float | None
    one_bit: Any
    ceps: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tolerance(self) -> float:
        return 0.005 if self.epsilon is None else 0.0025 / self.epsilon


def example1(name: str = "Example 1", **sizes: Any) -> Column:
    """The left column, of the paper's sizes or of others."""
    return Column(
        name,
        lambda m, seed: jdfl.problems.example1(m=m, seed=seed, **sizes),
        jdfl.problems.value_at_truth,
        10,
        2.0,
        jdfl.OneBit(inverse="paper"),
        {"noise": "literal", "sensitivity": 0.1},
    )


def real(name: str, data: Any, d: int, **ceps: Any) -> Column:
    known: dict[int, Problem] = {}

    def problem(m: int, seed: int) -> Problem:
        if m not in known:
            known.clear()
            known[m] = jdfl.problems.classification(data, m)
        return known[m]

    return Column(name, problem, jdfl.problems.base_rate, 50, None, jdfl.OneBit(d=d, ensemble="hadamard"), ceps)


def measure(column: Column, method: str, problem: Problem, seed: int) -> dict[str, float]:
    """One run up to where the paper's rule ends it."""
    m, n, base = problem.m, problem.n, network(problem.m, seed)
    if method not in OURS:
        given = setting(method, problem, base, epsilon=column.epsilon, rate=RATE, s=column.s)
        path = follow(given, problem, seed)
        place = path.agreed(column.tolerance, column.s)
        end = len(path.iteration) - 1 if place is None else place
        rounds = float(path.iteration[end])
        rate = 1.0 if method in EVERYONE else RATE
        sparse = jdfl.Sparse(s=column.s, index="enumerative").bits(n) / (32 * n)
        share = sparse if method == "IHT-D-PSGD" else 1.0  # relative to a dense message
        return {
            "CR": rounds,
            "agreed": float(place is not None),
            "objective": float(path.objective[end]),
            "DTV formula, MB": share * paper_volume(rounds, m=m, n=n, rate=rate, period=PERIOD) / 1e6,
            "true MB": float(path.bytes[end]) / 1e6,
            "seconds": float(path.seconds[end]),
        }
    mechanism = None if column.epsilon is None else jdfl.classical_gaussian(column.epsilon, 0.5)
    codec = column.one_bit if "1BCS" in method else jdfl.Dense()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The paper's sigma_i gives step sizes")
        result = jdfl.run(
            jdfl.CEPS(s=column.s, rate=RATE, codec=codec, mechanism=mechanism, **column.ceps),
            problem,
            base,
            key=seed,
            steps=LAST,
            every=LAST,
            stop=jdfl.consensus_below(column.tolerance, per=column.s),
            metrics=["objective"],
            options=jdfl.Options(chunk=LAST),
        )
    return {
        "CR": float(result.rounds),
        "agreed": float(result.ending == "stop rule"),
        "objective": result.final["objective"],
        "DTV formula, MB": (result.published_bytes or 0.0) / 1e6,
        "true MB": result.totals.bytes / 1e6,
        "seconds": result.seconds,
    }


def collect(columns: Sequence[Column], sizes: Sequence[int], seeds: int) -> list[Row]:
    """All numbers of the figures; every seed has its own network and, on Example 1, its own data."""
    rows: list[Row] = []
    for column in columns:
        for m in sizes:
            found: dict[str, list[dict[str, float]]] = {method: [] for method in LOOKS}
            for seed in range(seeds):
                problem = column.problem(m, seed)
                for method in LOOKS:
                    one = measure(column, method, problem, seed)
                    found[method].append(one | {"reference": column.reference(problem)})
            for method, values in found.items():
                name = f"{column.name} m={m} {method}"
                rows += [row(name, key, None, [value[key] for value in values]) for key in values[0]]
    return rows


def draw(rows: Sequence[Row], columns: Sequence[str], sizes: Sequence[int]) -> Figure:
    """A row of panels per figure, a column per problem; hollow where not all runs agree."""
    cell = {(one.case, one.column): one for one in rows}
    fig = Figure(figsize=(4.2 * len(columns) + 1, 9.5), layout="constrained")
    panels = fig.subplots(len(QUANTITIES), len(columns), sharex=True, squeeze=False)
    for quantity, line in zip(QUANTITIES, panels):
        for name, axis in zip(columns, line):
            for method, look in LOOKS.items():
                some = [cell[f"{name} m={m} {method}", quantity] for m in sizes]
                agreed = [cell[f"{name} m={m} {method}", "agreed"].mean for m in sizes]
                means, deviations = [one.mean for one in some], [one.half for one in some]
                axis.errorbar(sizes, means, deviations, label=method, **look | {"marker": None})
                for m, mean, share in zip(sizes, means, agreed):
                    axis.plot(m, mean, **look | {"markerfacecolor": look["color"] if share == 1 else "white"})
            axis.set(xscale="log", yscale="log", title=name if quantity == QUANTITIES[0] else "")
            axis.set_xticks(sizes, [str(m) for m in sizes])
            axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)  # also for a single size
            axis.minorticks_off()
            axis.grid(alpha=0.3)
        line[0].set_ylabel(quantity)
    for axis in panels[-1]:
        axis.set_xlabel("m")
    fig.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=min(4, 2 * len(columns)),
        frameon=False,
    )
    return fig


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """All columns, or with `--quick` two small generated problems on 16 nodes."""
    columns, sizes = [example1()], (16,) if chosen.quick else (32, 64, 128)
    if chosen.quick:
        columns = [example1("Example 1, small", n=400)]
        columns += [real("realsim_like, small", jdfl.problems.realsim_like(2000, 1500), 1024, sigma_rule="safe")]
    else:
        if has("qsar"):
            columns.append(real("QSAR", "qsar", 1024, step_scale=2.0))
        else:
            print("no QSAR column: set JDFL_DATA to a folder that has it")
        columns.append(real("realsim_like", "realsim_like", 2800, sigma_rule="safe"))
    rows = collect(columns, sizes, chosen.seeds)
    fig = draw(rows, [column.name for column in columns], sizes)
    return Made({"CEPS and its baselines, Figures 5 to 7 (r = 0.2)": rows}, fig)
