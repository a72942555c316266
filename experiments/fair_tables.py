"""Budgets of the fair comparison, the value of every algorithm at each, and the best ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table

import jdfl
from experiments.common import Row, number, row
from jdfl.lab.curves import last_within, metrics_of, share
from jdfl.lab.table import PM
from jdfl.problems import Problem, optimum, sparse_optimum, value_at_truth

Cells = dict[tuple[str, str, str], np.ndarray]  # (metric, budget, label) -> values by seed
USED = "share of the budget that was used"  # NaN: all of it


@dataclass(frozen=True)
class Setting:
    """One problem and its budgets."""

    problem: str
    m: int
    steps: int
    longer: int  # factor on the rounds of methods that send sparse models
    shares: tuple[float, ...]  # budgets in bytes, as shares of a round of dense messages to all neighbours
    rounds: tuple[int, ...]
    communications: tuple[int, ...]
    gradients: tuple[int, ...]  # evaluations per node
    n: int = 1000  # of Example 1
    s: int = 10
    examples: tuple[int, int] = (250, 750)  # smallest and largest number per node, for Example 1
    wider: tuple[int, ...] = ()  # other numbers of nonzeros for sparse models

    def draw(self, seed: int) -> Problem:
        """The problem with data of a seed; all seeds share shapes."""
        if self.problem == "example1":
            return jdfl.problems.example1(m=self.m, n=self.n, s=self.s, rows=self.examples, seed=seed)
        return jdfl.problems.classification(self.problem, self.m, seed=seed)

    def network(self, seed: int) -> jdfl.network.Static:
        """Erdos-Renyi, padded and with one name, so that all seeds share one compilation."""
        drawn = jdfl.network.erdos_renyi(self.m, 0.45, seed=seed)
        return replace(drawn, graph=jdfl.network.pad(drawn.graph, self.m - 1), name="Erdos-Renyi(0.45)")


def budgets(setting: Setting, seeds: Sequence[int]) -> Iterator[tuple[str, str, float]]:
    """The budgets' names, columns and amounts, over all nodes together where that applies."""
    n = setting.draw(0).n
    links = float(np.mean([2 * jdfl.network.summary(setting.network(seed)).edges for seed in seeds]))
    for part in setting.shares:
        amount = part * links * 4 * n
        yield f"{number(amount / 1e3)} kB", "bytes", amount
    for k in setting.rounds:
        yield f"{k} rounds", "round", float(k)
    for k in setting.communications:
        yield f"{k} communications", "communications", float(k)
    for k in setting.gradients:
        yield f"{k} gradients per node", "gradients", float(k * setting.m)


def values_of(setting: Setting, found: jdfl.Comparison) -> Cells:
    """Every algorithm at every budget, with what was tuned for it; none where a seed diverged or paid for no round.

    An algorithm for which all step sizes gave the same result is left out: its choice is meaningless.
    """
    cells: Cells = {}
    for name, column, amount in budgets(setting, found.seeds):
        view = found.view(column, amount)
        known = view.curves[~view.curves["label"].isin([label for label, how in view.tuned.items() if how.alike])]
        runs = {label: [run for _, run in one.groupby("seed")] for label, one in known.groupby("label", sort=False)}
        for label, one in runs.items():
            records = [record for run in one if (record := last_within(run, column, amount)) is not None]
            if len(records) == len(found.seeds):
                for metric in ("round", *metrics_of(found.curves)):
                    cells[metric, name, str(label)] = np.array([record[metric] for record in records], float)
                cells[USED, name, str(label)] = np.array([share(run, column, amount) for run in one])
    return cells


def show_table(setting: Setting, cells: Cells, metric: str) -> list[Row]:
    """Print one metric, a row per algorithm and a column per budget; returns the same as rows for the file."""
    here = {(name, label): values for (one, name, label), values in cells.items() if one == metric}
    names, labels = (list(dict.fromkeys(key[place] for key in here)) for place in (0, 1))
    table = Table(title=f"{setting.problem}: {metric.replace('_', ' ')} within a budget, mean {PM} over seeds")
    for header in ("algorithm", *names):
        table.add_column(header, no_wrap=True)
    rows: list[Row] = []
    for label in labels:
        line = [""] * len(names)
        for place, name in enumerate(names):
            if (name, label) in here:
                one = row(f"{setting.problem} {label}", f"{metric} at {name}", None, here[name, label].tolist())
                rows.append(one)
                used = np.fmin.reduce(cells[USED, name, label])
                line[place] = number(one.mean) + (f" ± {number(one.half)}" if one.sd else "")
                line[place] += "" if np.isnan(used) else f" ({used:.0%} of the budget)"
        table.add_row(label, *line)
    console = Console(markup=False)
    console.width = max(console.width, Console(width=1000, markup=False).measure(table).maximum)
    console.print(table)
    return rows


def lines(setting: Setting, seeds: int) -> list[Row]:
    """Print the values for all data in one place, and for the truth."""
    found: dict[str, list[float]] = {}

    def note(column: str, value: float) -> None:
        found.setdefault(column, []).append(value)

    for seed in range(seeds):
        problem = setting.draw(seed)
        best = optimum(problem, tolerance=1e-3)
        note("objective, dense minimiser", best.value)
        if problem.truth is None:
            continue
        truth = np.asarray(problem.truth, np.float64)
        sparse = sparse_optimum(problem, setting.s)
        note("objective, sparse minimiser", sparse.value)
        note("objective, truth", value_at_truth(problem))
        for column, w in (("distance, dense minimiser", best.w), ("distance, sparse minimiser", sparse.w)):
            assert w is not None  # of what was solved here
            note(column, float(np.linalg.norm(w - truth) / np.linalg.norm(truth)))
    rows = [row(f"{setting.problem}, all data in one place", column, None, values) for column, values in found.items()]
    for one in rows:
        print(f"{one.case}: {one.column} {number(one.mean)} ± {number(one.half)} (95 % CI)")
    return rows
