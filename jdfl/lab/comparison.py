"""The outcome of a comparison: runs, tuning, curves, and views at equal cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.display import Tabled, Text
from jdfl.engine import provenance
from jdfl.engine.data_ledger import Standing
from jdfl.engine.result import Result
from jdfl.lab import curves, table, words
from jdfl.lab.curves import AXES, Short, axes_of, metrics_of
from jdfl.lab.entries import grid_text
from jdfl.lab.table import Format, Grid
from jdfl.lab.tuning import Tuned
from jdfl.privacy import PrivacyReport
from jdfl.privacy.report import Together
from jdfl.results import stored
from jdfl.store import manifest
from jdfl.store.files import placed_folder

if TYPE_CHECKING:
    from jdfl.lab.drawing import Drawn


@dataclass(frozen=True, repr=False)
class Comparison(Tabled):
    """What `jdfl.compare` gives back: the comparison at its budget of `by`, and those at other budgets in `views`.

    Each has its own values and reported runs; `at`, `table` and `plot` take the one that was tuned at what they
    show. `tuning` has a row per point, and one for what is not tuned: label, the fields' values, `mean` of the measure
    over the tuning seeds (infinite where a run diverged), `diverged`, `runs`, `extension` (0: of the first grid),
    `chosen`, `edge`. `curves` has a row per record: label, seed, `ending` of the run, round, metrics, and what it has
    cost so far, by all nodes together, but `communications` is the mean over nodes and `seconds` the simulation's wall
    time spread evenly over its rounds.
    """

    results: dict[str, list[Result]]  # by label, a run per seed; none where tuning failed
    tuning: pd.DataFrame
    curves: pd.DataFrame
    algorithms: dict[str, Any]  # by label, with the chosen values
    tuned: dict[str, Tuned]  # by label, what tuning chose
    measure: str  # the metric that tuning judged by
    by: str  # what it is at equal amounts of: "stop", or a column of `curves`
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]  # those that tuning looked at, none of `seeds`
    criterion: str  # the criterion of tuning, in words; empty without tuning
    networks: dict[str, str]  # by label
    title: str  # the problem
    floor: float | None = None  # accuracy of the reference solutions of `suboptimality`; None: it is not recorded
    redrawn: tuple[str, ...] = ()  # "data", "network": what each trial draws besides the algorithms' randomness
    epsilon: float | None = None  # what the noise was set for; None: noise as given
    privacy: dict[str, PrivacyReport] = field(default_factory=dict[str, PrivacyReport])  # of what claims something
    together: Together | None = None  # what publishing all reported runs costs, at all budgets
    budget: float | None = None  # of `by`, which tuning judged at; None: not tuned
    views: "tuple[Comparison, ...]" = ()  # at other budgets
    shown: tuple[str, ...] = ()  # metrics that were asked for, which tables show; empty: the measure
    standing: Standing | None = None  # of the data's ledger when all had ended, tuning included; None: they are in none

    @checked
    def at(self, x: str, value: float | None = None, *, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Every algorithm at equal `x`, a row per label.

        The runs are those whose settings were chosen at this budget, if methods were tuned at it (see `tuned_at`), or
        else those of the comparison itself. Values are those of the last record at or before the budget; there is none
        if the budget pays only for the initial record. A run that diverged has no value at any budget; a run that its
        stop rule ended keeps its last one; an algorithm that spends nothing of `x` shows its last record.

        Args:
            x: What all get equal amounts of: round, communications, bytes, gradients, examples, seconds or, on networks
                with times, network_seconds.
            value: The budget, from 0; infinite: the last records. None: the budget of tuning, or else the largest that
                all reach; except of rounds, at least the cost of ten rounds of each.
            metrics: Names of the metrics that are shown; None: all.

        Returns:
            The columns `budget`; the numbers of `seeds` that have a value, that `diverged` and that `stopped`; `needs`,
                the cost of the first record if the budget does not pay for it, and `after`, its round; and `share`, the
                smallest share of the budget that a run used which ended before it, NaN where all used it. Then come the
                mean amounts that the records used have spent. For each metric follow, over these seeds, its mean NAME,
                sample standard deviation NAME_sd and half-width NAME_ci of the 95 % confidence interval of the mean.
                Of the columns, Python and notebooks show those that differ; `to_string` has all.

        Raises:
            ValueError: For an unknown `x` or metric, and for a budget that is not >= 0.
        """
        checks.one_of(axes_of(self.curves), x=x)
        names = metrics_of(self.curves) if metrics is None else list(metrics)
        for name in names:
            checks.one_of(metrics_of(self.curves), metrics=name)
        if value is not None and value != np.inf:
            checks.not_negative(f"It is an amount of {x}.", value=value)
        view = self.view(x, value)
        own = view.budget if view.by == x else None
        budget = float(value) if value is not None else curves.common(view.curves, x) if own is None else own
        found = curves.at(view.curves, x, names, budget).reindex(list(self.results))
        counts = ["seeds", "diverged", "stopped"]
        found = found.fillna(dict.fromkeys(counts, 0)).astype(dict.fromkeys(counts, int))
        for label, how in view.tuned.items():
            if how.short is not None and budget == own:
                found.loc[label, ["needs", "after"]] = how.short.amount, how.short.rounds
        found.insert(0, "budget", budget)
        return cast(Any, words.Costs)(found.rename_axis("label"))

    @cached_property
    def limits(self) -> pd.DataFrame:
        """`at` its own budget without metrics, which the marks of all labels read."""
        return self.at(self.by, self.budget, metrics=[])

    @checked
    def values(self, x: str | None = None, value: float | None = None, metric: str | None = None) -> pd.DataFrame:
        """One metric of every trial at equal `x`: a row per trial's key, a column per label.

        Values are NaN where a run diverged or the budget pays only for the initial record.

        Args:
            x: An amount, as for `at`, or "stop" for the rounds until the stop rule fired; None: the one that tuning
                compared at.
            value: A budget of it, as for `at`.
            metric: The name of the metric; None: the measure.

        Raises:
            ValueError: For an amount or a metric that the comparison does not have, or a value with "stop".
        """
        x, metric = self.by if x is None else x, self.measure if metric is None else metric
        checks.one_of((*axes_of(self.curves), "stop"), x=x)
        checks.one_of(metrics_of(self.curves), metric=metric)
        budget = np.inf if x == "stop" else float(self.at(x, value, metrics=[])["budget"].iloc[0])
        found = curves.values_at(self.view(x, value).curves, x, metric, budget)
        return found.reindex(index=list(self.seeds), columns=list(self.results))

    @checked
    def differences(
        self,
        x: str | None = None,
        value: float | None = None,
        metric: str | None = None,
        *,
        reference: str | None = None,
    ) -> pd.DataFrame:
        """Differences between methods, paired by trial, with simultaneous 95 % confidence intervals.

        All methods of a trial share data, network and key, so that what the trials differ in cancels. All
        intervals hold together with probability 0.95: with k methods each has confidence 1 - 0.05 / (k - 1) if the
        reference is named, and 1 - 0.05 / (k (k - 1) / 2) if it is the best mean of the same trials (Bonferroni). A
        method is marked as the best only where all of its intervals exclude zero.

        Args:
            x: As for `values`, and so are `value` and `metric`.
            reference: The label that all others are compared with, chosen before looking; None: that of the best mean.

        Returns:
            A row per other label: `reference`, `difference` (mean over trials of its value less that of the reference),
                `low` and `high`, `trials`, and `verdict`: "better", "worse", "not distinguishable", or "not comparable"
                where one method is measured with a model per node and the other with one model of all.

        Raises:
            ValueError: For an unknown amount, metric or label.
        """
        found = self.values(x, value, metric)
        if reference is not None:
            checks.one_of(list(self.results), reference=reference)
        name = self.measure if metric is None else metric
        sign = 1 if (x or self.by) == "stop" else table.better(name)
        own = words.apart(self, name)
        apart = [label for label in self.results if (label in own) != (reference in own)]
        return table.differences(found, sign, reference, apart=apart)

    @checked
    def view(self, x: str, value: float | None = None) -> "Comparison":
        """The comparison that was tuned at `value` of `x`, or else itself.

        What it has are the values that were chosen at that budget, and the runs with these.

        Args:
            x: An amount, as for `at`, or "stop".
            value: A budget of it; None: the comparison's own if it was tuned by `x`, or else the largest budget of `x`.

        Raises:
            ValueError: For an unknown amount.
        """
        checks.one_of((*AXES, "stop"), x=x)
        known = [one for one in (self, *self.views) if one.by == x and value in (None, one.budget)]
        return self if not known or known[0] is self else max(known, key=lambda one: one.budget or 0.0)

    @checked
    def tuned_at(self, x: str, value: float | None = None) -> bool:
        """Whether values were chosen at `value` of `x`; True where nothing is tuned.

        Tables rank no method at a budget where it is False, since the values were chosen for another budget. "stop"
        has no budgets. Without a `value` it is some budget of `x`.
        """
        view = self.view(x, value)
        return view.budget is None or (view.by == x and (value in (None, view.budget) or x == "stop"))

    def equal_costs(self) -> pd.DataFrame:
        """`at` for all amounts that were tuned at (without tuning, for all), at every budget: rows (x, label).

        The column `mark` is that of the algorithm there. `save` puts it into equal_costs.csv, the whole comparison in
        one table of plain numbers.
        """
        given = [(one.by, one) for one in (self, *self.views) if one.budget is not None and one.by != "stop"]
        rows = [(x, self) for x in axes_of(self.curves)] if self.budget is None else given
        found = [one.at(x, one.budget).assign(mark=[one.mark(label) for label in one.results]) for x, one in rows]
        return pd.concat(found, keys=[x for x, _ in rows], names=["x"])

    def to_stop(self) -> pd.DataFrame:
        """Rounds until the stop rule fired, a row per label: `seeds` that stopped, `round` and `round_sd` over them.

        Mean and sample standard deviation are over the runs that the rule has ended, so look at `seeds` first: a method
        with fewer of them may look faster. NaN where none stopped.
        """
        found = curves.to_stop(self.view("stop").curves).reindex(list(self.results))
        return found.fillna({"seeds": 0}).astype({"seeds": int})

    @checked
    def table(
        self,
        format: Format = "text",
        *,
        by: str | None = None,
        value: float | None = None,
        metrics: Sequence[str] | None = None,
    ) -> str:
        """The comparison as a table: mean of `metrics` ± half-width of its 95 % confidence interval.

        The caption says how every algorithm was tuned.

        Args:
            format: "text", "markdown" or "latex".
            by: What all are given equal amounts of, as for `at`, or "stop" for the rounds until the stop rule fired.
                None: the one that tuning compared at; where nothing is tuned, "stop" if there is a stop rule and
                "round" otherwise.
            value: How much of it, as for `at`; none with "stop".
            metrics: Names of the metrics that have a column; None: those that were asked for, or else the measure.

        Raises:
            ValueError: For an unknown format, amount or metric, and for a value with "stop".
        """
        checks.one_of(("text", "markdown", "latex"), format=format)
        return Text(table.write(self.grid(by=by, value=value, metrics=metrics), format))

    @checked
    def grid(self, *, by: str | None = None, value: float | None = None, metrics: Sequence[str] | None = None) -> Grid:
        """The `table` of the same arguments before it is written in some format.

        It has the headers, rows of cells, each with its text and whether it is the best or a tie, and the sentences of
        the caption.
        """
        by = self.by if by is None else by
        checks.one_of((*axes_of(self.curves), "stop"), by=by)
        if by == "stop" and value is not None:
            raise ValueError(f"Expected no budget with by = 'stop', got value = {value!r}. Leave one of them out.")
        for name in () if metrics is None else metrics:
            checks.one_of(metrics_of(self.curves), metrics=name)
        return words.grid(
            self.view(by, value), by, value, list((self.shown or (self.measure,)) if metrics is None else metrics)
        )

    def note(self, label: str) -> str:
        """How the values of an algorithm were chosen, in words.

        The chosen values, the grid they are from, the number of tuning runs, ties, and edges of the grid; or that it
        was not tuned, or why it has no results. `label` is that of an entry; ValueError for another.
        """
        checks.one_of(list(self.tuned), label=label)
        how = self.tuned[label]
        if how.failure:
            return f"no results: {how.failure}"
        if not how.grid:
            return "not tuned"
        values = ", ".join(f"{path} = {value:.3g}" for path, value in how.values.items())
        text = f"{values}, of {grid_text(how.grid)}, {how.runs} tuning runs"
        text += f"; {how.alike}, so the choice means nothing and it is not ranked" if how.alike else ""
        text += f"; {how.ties} points tie for the best" if how.ties > 1 and not how.alike else ""
        text += f"; {how.lone}" if how.lone else ""
        return text + "".join(f"; the best {path} is the {side} tried" for path, side in how.edge.items())

    def mark(self, label: str) -> str:
        """What limits the result of an algorithm at the budget of this comparison, in words; empty where nothing does.

        Tables, figures and pages show it: its first round costs more than the budget, it has no results, all points of
        its grid are alike, its best value lies on the edge of its grid, or it was not tuned (one point at most).
        Raises ValueError for a label that no entry has.
        """
        checks.one_of(list(self.tuned), label=label)
        return words.mark(self, label)

    @property
    def setting(self) -> str:
        """Problem, with its numbers of nodes and parameters, and network in words, as captions begin with them.

        Networks are not named where algorithms have different ones.
        """
        shared = set(self.networks.values())
        return f"{self.title} over {shared.pop() if len(shared) == 1 else 'different networks'}"

    @property
    def provenance(self) -> str:
        """One hash of 16 hexadecimal digits for the provenances of all reported runs, in whatever order they were made.

        Figures carry it in the metadata of their files.
        """
        return provenance.total(run.provenance.hash for label in self.results for run in self.runs(label))

    def runs(self, label: str) -> list[Result]:
        """All reported runs of an algorithm, whatever budget its values were chosen at, each once.

        Empty where tuning failed at every budget. Those of this comparison's own budget come first, by seed; they have
        no `state`, and cannot be resumed. `label` is that of an entry; ValueError for another.
        """
        checks.one_of(list(self.results), label=label)
        found = {id(run): run for one in (self, *self.views) for run in one.results[label]}
        return list(found.values())

    @checked
    def plot(
        self,
        x: str | Sequence[str] | None = None,
        y: str | None = None,
        *,
        marks: bool = True,
        ax: Any = None,
        width: Literal["column", "page"] | float = "column",
        height: float | None = None,
        floor: float | None = None,
    ) -> "Drawn":
        """Draw a metric against what it cost: `fig, ax = comparison.plot(x="bytes")`.

        A line is the mean over the trials, with a band that the legend explains, of the runs whose values were chosen
        at the largest budget of that amount. Runs that diverged are left out. Nothing is written: `fig.savefig` does.

        Args:
            x: An amount, as for `at`, or a list of them; None: the one that tuning compared at.
            y: The metric; None: the measure.
            marks: Whether the legend shows every `mark` and counts runs that diverged, and the axis names the budget
                of tuning. Without them, say so in the caption.
            ax: As for `Result.plot`, and so are `width` and `height`.
            floor: The accuracy of the reference solution, below which nothing is drawn; None: for suboptimality, that
                of the trusted solver.

        Returns:
            The figure and its Axes, an array of Axes for a list of amounts.

        Raises:
            ValueError: For an unknown amount or metric, a bad size, and another number of Axes than amounts.
        """
        from jdfl.lab import drawing, plots  # matplotlib, for those who draw

        y = self.measure if y is None else y
        checks.one_of(metrics_of(self.curves), y=y)
        axes = axes_of(self.curves)
        own = self.by if self.by in axes else "round"
        panels, ends = dict[str, pd.DataFrame](), dict[str, float]()
        for name in plots.amounts(own if x is None else x, axes):
            view = self.view(name)
            title = "\n".join([words.axis(self, name), *words.notes(view)]) if marks else AXES[name]
            panels[title] = curves.band(view.curves, name, y)
            if view.by == name and view.budget is not None:
                ends[title] = view.budget
        names = {label: words.named(self, label) if marks else label for label in self.results}
        floor = self.floor if floor is None and y == "suboptimality" else floor
        how: Any = {"floor": floor, "ax": ax, "width": width, "height": height, "origin": self.provenance}
        return drawing.lines(panels, names, y.replace("_", " "), band=curves.BAND, ends=ends, **how)

    @checked
    def save(self, folder: str | Path, *, config_yaml: str = "", overwrite: bool = False) -> Path:
        """Write the comparison into a folder, whole or not at all; `jdfl.load` reads it back.

        The folder has comparison.json and comparison.npz for `jdfl.load`, curves.csv, curves.parquet, tuning.csv,
        equal_costs.csv, table.txt, table.md, table.tex, figure.png, figure.pdf, report.html, environment.json and
        provenance.json. Algorithm objects are not stored.

        Args:
            folder: Where to write; it is made, with the folders above it. An empty one may be there already.
            config_yaml: The settings as YAML, for config.yaml and the page; empty: neither has them.
            overwrite: Whether a folder with content is replaced; otherwise FileExistsError.

        Returns:
            The path of the folder.
        """
        from jdfl.lab.folder import fill

        with placed_folder(folder, overwrite=overwrite) as partial:
            fill(self, partial, config_yaml)
        return Path(folder)

    @checked
    def report(self, path: str | Path) -> Path:
        """Write one HTML page about the comparison, a single file that loads nothing from elsewhere; returns the path.

        It has tables, curves, tuning and privacy. The file at `path` is replaced if it is there.
        """
        from jdfl.lab.folder import write_page

        return write_page(self, path)

    def _tabled(self) -> tuple[str, list[list[str]], list[str]]:
        return words.of_comparison(self)


stored.KINDS.update({one.__name__: one for one in (Comparison, Short, Tuned)})


@checked
def load(folder: str | Path) -> Result | Comparison:
    """Load what `Result.save`, `Comparison.save`, `jdfl run` or `jdfl compare` has written.

    Numbers are the ones that were saved, bit for bit: history, parameters (as a NumPy array), totals, provenance,
    guarantee and labels. Algorithms and the state of the nodes are not stored; using them raises an error that says
    what to do instead. A claim of a paper is there without what it computes for a number of releases.

    Args:
        folder: The folder.

    Returns:
        The `Result` or the `Comparison`.

    Raises:
        FileNotFoundError: Where there is no such folder, nothing of jdfl in it, or a run that was cut off.
        ValueError: For a folder of another format, or with files that are damaged or not as they were written.
    """
    folder = Path(folder)
    given = f"got {str(folder)!r}"
    if not folder.is_dir():
        raise FileNotFoundError(f"Expected a folder that jdfl has written, {given}, which is not there.")
    here = {path.name for path in folder.iterdir()}
    if "comparison.json" in here:
        found = stored.read_value(folder, "comparison")
        manifest.check(folder, ("comparison.json", "comparison.npz"))
        return found
    if "result.json" in here and "summary.json" in here:
        return stored.read_result(folder)
    if "study.yaml" in here:
        raise ValueError(f"Expected a run or a comparison, {given}, a study. Read its table: results.parquet.")
    if here & {"config.yaml", "result.json"}:
        raise FileNotFoundError(
            f"Expected a finished run, {given}, one that was cut off. Finish it: jdfl resume {folder}"
        )
    raise FileNotFoundError(
        f"Expected a folder that jdfl has written, {given}, which has neither result.json nor comparison.json. Name "
        "the folder that save was given, or that jdfl run printed."
    )
