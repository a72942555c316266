"""CEPS paper, Figures 5 to 7: rounds, data volume and time against m = 32, 64, 128, for all methods on three problems.

Run `python -m experiments.ceps_figures_5_to_7 [--quick] [--seeds N] [--out DIR]`, seven minutes per seed.

Columns: Example 1 (eps = 2), QSAR oral toxicity (the paper's 'qot') where JDFL_DATA names a folder that has it, and
realsim_like, which is generated and stands in for real-sim (the paper's 'rls'). r = .2, messages every 10 iterations.
The last two are as in `experiments.ceps_example2`: s = 50, no noise, the paper's step size doubled on QSAR and step
sizes of 1 / L_i on text, one-bit messages from double Hadamard sensing. The baselines have the learning rates and
readings of `experiments.ceps_baselines`; IHT-D-PSGD is not in the paper.

A run ends by the paper's rule, after at most 201 iterations. Its objective is shown with that of always predicting the
base rate (on Example 1 with f(w*)), since agreement is not progress. The paper's figures have no numbers; the claims of
its text are checked one by one. Volume is by a formula that fits dense rows of Table V, and the bytes of the messages
sent are given as well.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

import jdfl
from experiments.ceps_baselines import LIMIT, METHODS, PERIOD, follow, setting
from experiments.ceps_example2 import has, network
from experiments.ceps_figure4 import COLOURS
from experiments.common import Options, Row, number, options, row, save, save_figure, show
from jdfl.algorithms.ceps_paper import paper_volume
from jdfl.problems import Problem

NAME = "ceps_figures_5_to_7"
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
        """Of the paper's stop rule."""
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
    """A column of Example 2."""
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
            found: dict[str, list[dict[str, float]]] = {method: [] for method in COLOURS}
            for seed in range(seeds):
                problem = column.problem(m, seed)
                for method in COLOURS:
                    one = measure(column, method, problem, seed)
                    found[method].append(one | {"reference": column.reference(problem)})
            for method, values in found.items():
                name = f"{column.name} m={m} {method}"
                rows += [row(name, key, None, [value[key] for value in values]) for key in values[0]]
    return rows


Numbers = Mapping[tuple[str, int, str], Mapping[str, float]]  # column, m, method


def numbers(rows: Sequence[Row]) -> Numbers:
    """The means, by column, m, method and quantity."""
    found: dict[tuple[str, int, str], dict[str, float]] = {}
    for one in rows:
        column, _, rest = one.case.partition(" m=")
        m, method = rest.split(" ")
        found.setdefault((column, int(m), method), {})[one.column] = one.mean
    return found


def claims(rows: Sequence[Row]) -> list[str]:
    """The claims of the paper's text: the number of cells in which each holds, and the exceptions."""
    found = numbers(rows)
    places = list(dict.fromkeys((column, m) for column, m, _ in found))
    paper = METHODS[:-1]

    def of(place: tuple[str, int], method: str, key: str) -> float:
        return found[*place, method][key]

    def fewest(place: tuple[str, int]) -> str:
        ours = max(of(place, method, "CR") for method in OURS)
        below = [f"{x} {of(place, x, 'CR'):.0f}" for x in METHODS if of(place, x, "CR") <= ours]
        return f"CEPS {ours:.0f}, {', '.join(below)}" if below else ""

    def saves(key: str, others: Sequence[str]) -> Callable[[tuple[str, int]], str]:
        def test(place: tuple[str, int]) -> str:
            least = min(others, key=lambda x: of(place, x, key))
            share = 1 - of(place, "CEPS-1BCS", key) / of(place, least, key)
            return f"{100 * share:.0f} % of {least}'s" if share < 0.9 else ""

        return test

    def below(method: str, others: Sequence[str], key: str) -> Callable[[tuple[str, int]], str]:
        def test(place: tuple[str, int]) -> str:
            value = of(place, method, key)
            least = [f"{x} {number(of(place, x, key))}" for x in others if of(place, x, key) <= value]
            return f"{number(value)}, {', '.join(least)}" if least else ""

        return test

    def progress(place: tuple[str, int]) -> str:
        late = [x for x in COLOURS if of(place, x, "objective") > of(place, x, "reference") + 0.01]
        shown = [f"{x} {number(of(place, x, 'objective'))}" for x in late]
        return f"{number(of(place, 'CEPS-Perf', 'reference'))} against {', '.join(shown)}" if late else ""

    def ended(place: tuple[str, int]) -> str:
        return ", ".join(f"{x} {of(place, x, 'agreed'):.0%}" for x in COLOURS if of(place, x, "agreed") < 1)

    lines = [
        _judged("CEPS has the fewest CR", places, fewest),
        _judged("CEPS-1BCS saves 90 % of the baselines' volume", places, saves("DTV formula, MB", paper)),
        _judged("... and of CEPS-Perf's", places, saves("DTV formula, MB", OURS[:1])),
        _judged("CEPS-1BCS saves 90 % of the baselines' bytes", places, saves("true MB", paper)),
        _judged("... and of IHT-D-PSGD's, with sparse messages", places, saves("true MB", METHODS[-1:])),
        _judged("CEPS-Perf has less volume than the baselines", places, below("CEPS-Perf", paper, "DTV formula, MB")),
        _judged("CEPS-Perf has the shortest time", places, below("CEPS-Perf", [*METHODS, "CEPS-1BCS"], "seconds")),
        _judged(
            "CEPS-1BCS is faster than DFedAvgM and DFedSAM",
            places,
            below("CEPS-1BCS", ("DFedAvgM", "DFedSAM"), "seconds"),
        ),
        _judged("CEPS-1BCS is slower than D-PSGD", places, below("D-PSGD", ("CEPS-1BCS",), "seconds")),
        _judged("(not the paper's) all runs agree in time", places, ended),
        _judged("(not the paper's) the objective is at most the reference + .01", places, progress),
    ]
    return ([_growing(found)] if len({m for _, m in places}) > 1 else []) + lines


def _growing(found: Numbers) -> str:
    """Increasing m gives fewer CR, method by method."""
    pairs = list(dict.fromkeys((column, method) for column, _, method in found))
    sizes = sorted({m for _, m, _ in found})

    def test(pair: tuple[str, str]) -> str:
        values = [found[pair[0], m, pair[1]]["CR"] for m in sizes if (pair[0], m, pair[1]) in found]
        return "" if all(a >= b for a, b in pairwise(values)) else " to ".join(f"{x:.0f}" for x in values)

    return _judged("more nodes, not more CR", pairs, test)


def _judged(claim: str, places: Sequence[tuple[Any, Any]], test: Callable[[Any], str]) -> str:
    against = {place: text for place in places if (text := test(place))}
    words = "".join(f"\n      not {a} {b}: {text}" for (a, b), text in against.items())
    verdict = "true " if not against else "FALSE"
    return f"{verdict} {claim}: in {len(places) - len(against)} of {len(places)}{words}"


def draw(rows: Sequence[Row], columns: Sequence[str], sizes: Sequence[int], chosen: Options) -> None:
    """DIR/NAME.png: a row of panels per figure, a column per problem; hollow where not all runs agree."""
    cell = {(one.case, one.column): one for one in rows}
    fig = Figure(figsize=(4.2 * len(columns) + 1, 9.5), layout="constrained")
    panels = fig.subplots(len(QUANTITIES), len(columns), sharex=True, squeeze=False)
    for quantity, line in zip(QUANTITIES, panels):
        for name, axis in zip(columns, line):
            for method, colour in COLOURS.items():
                some = [cell[f"{name} m={m} {method}", quantity] for m in sizes]
                agreed = [cell[f"{name} m={m} {method}", "agreed"].mean for m in sizes]
                means, deviations = [one.mean for one in some], [one.half for one in some]
                style = "--" if "1BCS" in method else "-"
                axis.errorbar(sizes, means, deviations, color=colour, label=method, linestyle=style)
                for m, mean, share in zip(sizes, means, agreed):
                    axis.plot(m, mean, "o", color=colour, markerfacecolor=colour if share == 1 else "white")
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
    save_figure(fig, chosen.out / f"{NAME}.png")


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """All columns, or with `--quick` two small generated problems on 16 nodes."""
    chosen = options("CEPS paper, Figures 5 to 7", seeds=1, arguments=arguments)
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
    show("CEPS and its baselines, Figures 5 to 7 (r = 0.2)", rows)
    print(f"runs end after at most {LAST} iterations; reference: f(w*), or always predicting the base rate")
    print("\n".join(claims(rows)))
    draw(rows, [column.name for column in columns], sizes, chosen)
    print("written:", save(rows, chosen.out, NAME), chosen.out / f"{NAME}.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
