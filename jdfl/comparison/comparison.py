"""The outcome of a comparison: runs, tuning, curves, and views at equal cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jdfl import checks, provenance
from jdfl.comparison import curves, table
from jdfl.comparison.curves import AXES, axes_of, metrics_of
from jdfl.comparison.table import Cell, Format, Grid
from jdfl.comparison.tuning import Tuned, grid_text
from jdfl.privacy import PrivacyReport
from jdfl.result import Result


@dataclass(frozen=True)
class Comparison:
    """What `jdfl.compare` gives back.

    `tuning` has a row per point: label, the fields' values, `mean` of the measure over the tuning seeds (infinite where
    a run diverged), `diverged`, `runs`, `extension` (0: of the first grid), `chosen`, `edge`. `curves` has a row per
    record: label, seed, `ending` of the run, round, metrics, and what it has cost so far, by all nodes together, but
    `communications` is the mean over nodes and `seconds` the simulation's wall time spread evenly over its rounds.
    """

    results: dict[str, list[Result]]  # by label, a run per seed; none where tuning failed
    tuning: pd.DataFrame
    curves: pd.DataFrame
    algorithms: dict[str, Any]  # by label, with the chosen values
    tuned: dict[str, Tuned]  # by label, what tuning chose
    measure: str  # the metric that tuning judged by
    by: str  # what tables are at equal amounts of: "stop", or a column of `curves`
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]  # those that tuning looked at, none of `seeds`
    criterion: str  # what tuning went by, in words; empty without tuning
    networks: dict[str, str]  # by label
    title: str  # the problem
    epsilon: float | None = None  # what the noise was set for; None: noise as given
    privacy: dict[str, PrivacyReport] = field(default_factory=dict[str, PrivacyReport])  # of what claims something

    def at(self, x: str, value: float | None = None, *, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Every algorithm at equal `x`, a row per label; `value` None: the largest amount that all of them reach.

        `x` is round, communications, bytes, gradients, examples, seconds or, on networks with times,
        network_seconds. Values are those of the last record at or
        before the budget. Columns: `budget`, `seeds` that have a value, `diverged` and `stopped` seeds, the means
        of all that `x` may be of the records used, and for each of `metrics` (None: all) its mean NAME and sample
        standard deviation NAME_sd over these seeds. A run that diverged has no value at any budget; one that its stop
        rule ended keeps its last; an algorithm that spends nothing of `x` shows its last record.

        Raises ValueError for an unknown `x` or metric, and for a budget that is not >= 0.
        """
        checks.one_of(axes_of(self.curves), x=x)
        names = metrics_of(self.curves) if metrics is None else list(metrics)
        for name in names:
            checks.one_of(metrics_of(self.curves), metric=name)
        if value is not None and value != np.inf:
            checks.not_negative(f"It is an amount of {x}.", value=value)
        budget = curves.reach(self.curves, x) if value is None else float(value)
        found = curves.at(self.curves, x, names, budget).reindex(list(self.results))
        counts = ["seeds", "diverged", "stopped"]
        found[counts] = found[counts].fillna(0).astype(int)
        found.insert(0, "budget", budget)
        return found.rename_axis("label")

    def equal_costs(self) -> pd.DataFrame:
        """`at` for all amounts, each up to where all algorithms reach: rows (x, label)."""
        return pd.concat({x: self.at(x) for x in axes_of(self.curves)}, names=["x"])

    def to_stop(self) -> pd.DataFrame:
        """Rounds until the stop rule fired, a row per label: `seeds` that stopped, `round` and `round_sd` over them."""
        ends = self.curves.groupby(["label", "seed"], sort=False).tail(1)
        stopped = ends[ends["ending"] == "stop rule"].groupby("label")["round"]
        found = pd.DataFrame({"seeds": stopped.size(), "round": stopped.mean(), "round_sd": stopped.std(ddof=1)})
        found = found.reindex(list(self.results))
        return found.assign(seeds=found["seeds"].fillna(0).astype(int)).rename_axis("label")

    def table(
        self,
        format: Format = "text",
        *,
        by: str | None = None,
        value: float | None = None,
        metrics: Sequence[str] | None = None,
    ) -> str:
        """The comparison as a table: mean ± standard deviation over seeds of `metrics` (None: the measure).

        `by` is what all are given equal amounts of, as for `at`, or "stop" for the rounds until the stop rule fired
        (None: what tuning went by, "stop" where there is a stop rule), `value` how much of it, as for `at`. The caption
        says how every algorithm was tuned.
        Raises ValueError for an unknown format, amount or metric.
        """
        checks.one_of(("text", "markdown", "latex"), format=format)
        return table.write(self.grid(by=by, value=value, metrics=metrics), format)

    def grid(self, *, by: str | None = None, value: float | None = None, metrics: Sequence[str] | None = None) -> Grid:
        """The table before it is written in some format; `by`, `value` and ValueError are as for `table`."""
        by = self.by if by is None else by
        names = [self.measure] if metrics is None else list(metrics)
        checks.one_of((*axes_of(self.curves), "stop"), by=by)
        n = len(self.seeds)
        stop = by == "stop"
        if stop and value is not None:
            raise ValueError(f"Expected no budget with by = 'stop', got value = {value!r}. Leave one of them out.")
        found = self.at("round", np.inf, metrics=names) if stop else self.at(by, value, metrics=names)
        headers = ["algorithm", "values"]
        columns = [[Cell(label) for label in found.index], [Cell(self._values(label)) for label in found.index]]
        if stop:
            columns.append(table.column(self.to_stop(), "round", n, sign=1, whole="not stopped", beside=self._beside))
            headers.append("rounds to stop")
        for name in dict.fromkeys(("bytes",) if stop else ("round", by)):
            columns.append([Cell(table.number(amount)) for amount in found[name]])
            headers.append(AXES[name] if name == "round" else name)
        if self.privacy:
            columns.append([Cell(self._spent(label)) for label in found.index])
            headers.append("epsilon")
        for name in names:
            columns.append(table.column(found, name, n, beside=self._beside))
            headers.append(name.replace("_", " "))
        return Grid(headers, [list(row) for row in zip(*columns)], self._caption(by, found["budget"].iloc[0]))

    def note(self, label: str) -> str:
        """How an algorithm came by its values, in words."""
        how = self.tuned[label]
        if how.failure:
            return f"no results: {how.failure}"
        if not how.grid:
            return "not tuned"
        told = f"{self._values(label)}, of {grid_text(how.grid)}, {how.runs} tuning runs"
        return told + "".join(f"; the best {path} is the {side} tried" for path, side in how.edge.items())

    @property
    def setting(self) -> str:
        """Problem and network in words."""
        shared = set(self.networks.values())
        return f"{self.title} over {shared.pop() if len(shared) == 1 else 'networks of their own'}"

    @property
    def provenance(self) -> str:
        """One hash for the provenances of all runs."""
        return provenance.total(run.provenance.hash for runs in self.results.values() for run in runs)

    def figure(
        self,
        path: str | Path,
        x: Sequence[str] | None = None,
        y: str | None = None,
        *,
        spread: str = "range",
    ) -> Path:
        """Draw a metric y (None: the measure) against amounts x (None: all): mean over seeds, `spread` "range" or "sd".

        A panel per amount, logarithmic where values are far apart. Runs that diverged are left out, and the legend
        counts them. Returns the path. Raises ValueError for an unknown amount, metric or spread.
        """
        from jdfl import report  # matplotlib, for those who draw

        y = self.measure if y is None else y
        checks.one_of(metrics_of(self.curves), y=y)
        checks.one_of(("range", "sd"), spread=spread)
        x = axes_of(self.curves) if x is None else x
        if isinstance(x, str) or not list(x):
            raise ValueError(f"Expected a list of amounts, got x = {x!r}. For example ('round', 'bytes').")
        for name in x:
            checks.one_of(axes_of(self.curves), x=name)
        bands = {name: curves.bands(self.curves, name, y) for name in x}
        panels = {AXES[name]: band.assign(x=band[name]) for name, band in bands.items()}
        if spread == "sd":
            panels = {
                name: one.assign(low=one["mean"] - one["sd"].fillna(0), high=one["mean"] + one["sd"].fillna(0))
                for name, one in panels.items()
            }
        legend = {label: self._legend(label) for label in self.results}
        return report.bands(panels, legend, y.replace("_", " "), path, self.provenance)

    def write(self, folder: str | Path, config_yaml: str = "", *, overwrite: bool = False) -> Path:
        """Write everything into a folder, whole or not at all; returns its path.

        curves.csv, curves.parquet, tuning.csv, table.txt, table.md, table.tex, equal_costs.csv, figure.png, figure.pdf,
        report.html, environment.json, provenance.json, and config.yaml where one is given. An empty folder may be there
        already; FileExistsError for one with content, unless `overwrite`, which replaces it.
        """
        from jdfl.comparison.folder import write_comparison

        return write_comparison(self, folder, config_yaml, overwrite=overwrite)

    def _values(self, label: str) -> str:
        how = self.tuned[label]
        if how.failure:
            return "none works"
        return ", ".join(f"{path} = {value:.3g}" for path, value in how.values.items()) or "not tuned"

    @property
    def _beside(self) -> list[str]:
        """Labels that spend more than the epsilon of the comparison, or promise nothing."""
        if self.epsilon is None:
            return []
        within = {label for label, told in self.privacy.items() if told.epsilon <= self.epsilon}
        return [label for label in self.results if label not in within]

    def _spent(self, label: str) -> str:
        return table.number(self.privacy[label].epsilon) if label in self.privacy else "none"

    def _legend(self, label: str) -> str:
        if self.tuned[label].failure:
            return f"{label} (no results)"
        bad = sum(result.ending == "diverged" for result in self.results[label])
        return (
            label
            + (f" ({bad} of {len(self.seeds)} diverged)" if bad else "")
            + ("" if self.tuned[label].grid else " (not tuned)")
        )

    def _caption(self, by: str, budget: float) -> list[str]:
        n = len(self.seeds)
        over = f"mean ± standard deviation over {n} seeds" if n > 1 else "one seed"
        said = (
            "Values where the runs ended"
            if by == "stop"
            else (f"Values at {AXES[by]} ≤ {table.number(budget)}, of the last record at or before that")
        )
        caption = [f"{self.setting}.", f"{said}; {over}."]
        own = len(set(self.networks.values())) > 1
        where = {label: f" (over {name})" if own else "" for label, name in self.networks.items()}
        caption += [f"{label}{where[label]}: {self.note(label)}." for label in self.results]
        if self.criterion:
            caption.append(f"Tuning: {self.criterion}.")
        if self.privacy:
            deltas = ", ".join(f"{delta:g}" for delta in sorted({told.delta for told in self.privacy.values()}))
            target = "" if self.epsilon is None else f"Noise is the least for epsilon ≤ {table.number(self.epsilon)}"
            target += f"; beside it: {', '.join(self._beside)}. " if self._beside else ". " if target else ""
            tuned = " Tuning looked at the same data, which it does not include." if self.criterion else ""
            caption.append(f"{target}Epsilon is that of a whole run, of the worst seed, at delta = {deltas}.{tuned}")
        if by == "seconds":
            caption.append("Seconds are the simulation's, spread evenly over its rounds; compilation is excluded.")
        return caption
