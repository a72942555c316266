"""A study in its folder: groups of points, each stored when it is done, and at the end one table.

study.yaml         the configuration
environment.json   platform, device, date of the last start
jobs.json          versions of code and libraries, which may not change while a study goes on
jobs/              two tables per finished group, named after its work
results.parquet    a row per run: point, its values, seed, ending, metrics, totals, epsilon, ledger, times, provenance
results.csv        the same
curves.parquet     a row per record: point, seed, round, metrics, totals so far
table.md           means over the seeds with 95 % confidence intervals, a row per point, the best first
table.tex          the same for LaTeX, with the metric by which points are ranked
manifest.json      size and SHA-256 of every file of a study that is complete
"""

import contextlib
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from jdfl.base import checks
from jdfl.base.terminal import say
from jdfl.config import StudyConfig, to_yaml
from jdfl.engine import provenance
from jdfl.engine.data_ledger import Intent
from jdfl.engine.metrics import COUNTS, REGISTRY
from jdfl.engine.result import BAD
from jdfl.lab import charts
from jdfl.lab.page import Code, Fold, Part, Section, Table, page
from jdfl.lab.points import REFUSED, Group, Point, config_at, groups, intents, points, run_group
from jdfl.lab.table import better, half_width
from jdfl.privacy import Ledger
from jdfl.privacy.report import Together
from jdfl.results.folder import environment
from jdfl.store import lease, manifest
from jdfl.store.files import tidy, write
from jdfl.store.jobs import FailedJobsError, Jobs

RUNS, CURVES = "runs.parquet", "curves.parquet"  # of a group
MEANS = "minimum to maximum"  # what low and high of `means` are
_SHOWN, _POINTS = 20, 500  # rows of the table of a page that are open, and all of them
_OTHERS = "point seed rounds delta epsilon promise ledger seconds compile_seconds"  # columns that are no metrics


@dataclass(frozen=True)
class Study:
    """A study that was checked: its groups, and which of them are done."""

    config: StudyConfig
    folder: Path
    groups: tuple[Group, ...]

    @staticmethod
    def of(config: StudyConfig, folder: Path) -> "Study":
        """The study of a configuration in a folder, where nothing is written yet; ValueError for invalid settings."""
        checks.integer(1, seeds=config.seeds)
        checks.integer(0, draw=config.draw)
        if config.base.key_file is not None:
            raise ValueError(
                f"Expected no key file for a study, whose runs have seeds, got key_file = {config.base.key_file}."
            )
        last = 2**32 - config.seeds
        first = config.base.seed or 0
        checks.integer(0, last, "The seeds are `seed` to `seed` + seeds - 1.", seed=first)
        tried = points(config.over, config.random, config.draw)
        made = [Point(i, values, config_at(config.base, values)) for i, values in enumerate(tried)]
        if any("seed" in values for values in tried):
            raise ValueError("Expected `seeds`, how many runs every point has, got seed among what is tried.")
        if any("privacy.ledger" in values for values in tried):
            raise ValueError("Expected one ledger for all points, got privacy.ledger among what is tried.")
        return Study(config, folder, tuple(groups(made, range(first, first + config.seeds))))

    @property
    def left(self) -> list[Group]:
        """The groups that are not done yet."""
        jobs = Jobs(self.folder)
        return [group for group in self.groups if jobs.find(group.name) is None]

    def begin(self) -> None:
        """Write the configuration of the study; what was complete is not so any more."""
        (self.folder / manifest.NAME).unlink(missing_ok=True)
        tidy(self.folder)
        write(self.folder / "study.yaml", to_yaml(self.config))
        write(self.folder / "environment.json", environment())

    def intents(self) -> list[Intent]:
        """The planned runs of the groups that are left, for the ledger of the data."""
        token = Jobs(self.folder).token
        return [run for group in self.left for run in intents(group, token)]

    def end(self) -> pd.DataFrame:
        """Join the parts that are done; returns the table of all runs, which is empty if there are none."""
        jobs = Jobs(self.folder)
        done = [place for group in self.groups if (place := jobs.find(group.name)) is not None]
        if not done:
            return pd.DataFrame({"point": [], "ending": []})
        table, curves = (_joined([pd.read_parquet(place / name) for place in done]) for name in (RUNS, CURVES))
        table = table.sort_values([name for name in ("point", "seed") if name in table], ignore_index=True)
        write(self.folder / "results.parquet", table)
        write(self.folder / "results.csv", table)
        write(self.folder / "curves.parquet", curves)
        return table

    def complete(self) -> None:
        """Write the manifest, when everything else is written."""
        tidy(self.folder)
        lease.note(self.folder, "ended")
        write(self.folder / manifest.NAME, manifest.of(self.folder))


def keep(jobs: Jobs, group: Group) -> None:
    """Run a `group` and store its results among the `jobs`; raises FailedJobsError."""

    def make(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("once")
            runs, curves = run_group(group, jobs.token)
        for name, table in ((RUNS, runs), (CURVES, curves)):
            write(folder / name, writable(table))

    jobs.done(group.name, make)


def one_after_another(jobs: Jobs, todo: Sequence[Group], max_seconds: float | None) -> None:
    """Run the groups in `todo`, and start none after `max_seconds`; FailedJobsError when all others are done."""
    begun, failed = time.monotonic(), list[str]()
    for i, group in enumerate(todo):
        if max_seconds is not None and time.monotonic() - begun >= max_seconds:
            break
        say(f"group {i + 1} of {len(todo)}: {len(group.points)} points, {len(group.seeds)} seeds each")
        try:
            keep(jobs, group)
        except FailedJobsError as error:
            failed.append(str(error))
    if failed:
        raise FailedJobsError(f"{len(failed)} of {len(todo)} groups failed; the first one: {failed[0]}")


def submitit() -> Any:
    """The package of this name; OSError where it is not installed."""
    try:
        return import_module("submitit")
    except ModuleNotFoundError as error:
        raise OSError(
            "Expected the package submitit for jobs of a cluster, found none. Install it: pip install 'jdfl[slurm]'"
        ) from error


def submitted(jobs: Jobs, todo: Sequence[Group], package: Any, cluster: str, options: Mapping[str, Any]) -> None:
    """Submit all groups in `todo` to a cluster by the `package` submitit, and wait; logs are in logs/ of the folder.

    OSError for a cluster that is not there, ValueError for `options` that submitit's `update_parameters` does not take,
    FailedJobsError when all other jobs are done, naming the log of the first that failed.
    """
    try:
        executor = package.AutoExecutor(folder=jobs.folder / "logs", cluster=cluster)
    except RuntimeError as error:
        raise OSError(f"Expected the cluster {cluster!r} here, got: {error}.") from error
    try:
        executor.update_parameters(name="jdfl", **options)
    except (NameError, TypeError) as error:
        raise ValueError(f"Expected options of submitit, got {options}: {error}.") from error
    elsewhere = Jobs(jobs.folder.resolve(), jobs.retry)  # the lease is this process's
    started = executor.map_array(keep, [elsewhere] * len(todo), todo)
    failed: list[str] = []
    for job in started:
        with contextlib.suppress(Exception):  # reported below, with the others
            job.result()
            continue
        failed.append(str(job.paths.stderr))
    if failed:
        raise FailedJobsError(f"{len(failed)} of {len(started)} jobs failed; the first one's log: {failed[0]}")


def best_first(table: pd.DataFrame, fields: Sequence[str], by: str) -> pd.DataFrame:
    """Means over seeds with intervals, a row per point, the best by the metric `by` first; NaN if a run diverged.

    `table` has a row per run, and `fields` are those of its columns that were tried. The columns are point, the fields,
    `seeds` that have a result, `diverged` (runs that violated an invariant included), and, of every metric, of rounds
    and bytes, the mean NAME and NAME_ci, the half-width of its 95 % confidence interval. ValueError for a metric that
    no run has.
    """
    done = table[table["ending"] != REFUSED]
    others = (*fields, *_OTHERS.split(), *COUNTS)
    names = [str(name) for name in (*REGISTRY, *table.columns) if name in table and name not in others]
    metrics = [name for name in names if all(isinstance(value, int | float) for value in done[name].tolist())]
    checks.one_of(tuple(dict.fromkeys(metrics)), by=by)
    rows: list[dict[str, Any]] = []
    for point, runs in done.groupby("point", sort=False):
        diverged = int(runs["ending"].isin([*BAD]).sum())
        row = {"point": point, **{field: runs[field].tolist()[0] for field in fields}}
        row |= {"seeds": len(runs), "diverged": diverged}
        for name in dict.fromkeys((by, *metrics, "rounds", "bytes")):
            numbers = runs[name].astype(float)
            row[name] = np.nan if diverged else fmean(numbers)
            row[f"{name}_ci"] = np.nan if diverged else half_width(numbers.to_numpy())
        rows.append(row)
    return pd.DataFrame(rows).sort_values(
        by, ascending=better(by) > 0, na_position="last", kind="stable", ignore_index=True
    )


def together(table: pd.DataFrame) -> Together | None:
    """The total epsilon of publishing all runs of a table; None if none claims anything.

    There is no total for the protection of whole nodes on several problems: the data of one node in one of them may be
    spread over many nodes in another.
    """
    if "ledger" not in table:
        return None
    done = table[table["ending"] != REFUSED]
    ledgers = [Ledger.from_dict(json.loads(one)) if isinstance(one, str) else None for one in done["ledger"]]
    several = any(name.partition(".")[0] == "problem" and done[name].nunique() > 1 for name in done.columns)
    return Together.of(ledgers, float(done["delta"].min()), same_data=not several)


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return writable(pd.concat(filled, ignore_index=True)) if filled else pd.DataFrame()


def writable(table: pd.DataFrame) -> pd.DataFrame:
    """The table with one type per column: values of several types become text."""
    table, numbers = table.copy(), {int, float, np.int64, np.float64}
    for name in table.columns:
        kinds: set[type] = {type(value) for value in table[name] if not (value is None or value != value)}
        if len(kinds) > 1 and not kinds <= numbers:
            table[name] = [None if value is None or value != value else str(value) for value in table[name]]
        elif kinds <= numbers and table[name].dtype == object:
            table[name] = pd.to_numeric(table[name])
    return table


def write_page(
    path: Path,
    config: StudyConfig,
    table: pd.DataFrame,
    metrics: Sequence[str],
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    spent: str = "",
    left: str = "",
) -> Path:
    """Write the page of a study: its points, and `metrics` of the runs in `table` against the values that were tried.

    `heads` and `rows` are the table of points, the best one first, `spent` says what publishing all runs costs, `left`
    which points are not done, and `config` has the settings. Returns the path.
    """
    refused, (numeric, done) = table[table["ending"] == REFUSED], varied(config, table)
    few = charts.chosen([name for name in metrics if name not in COUNTS and name != "rounds"], metrics[:1])
    parts, more = list[Part](), list[Part]()
    if rows and len(done):
        best = ", ".join(f"{head} {cell}" for head, cell in zip(heads[: 2 + len(config.over)], rows[0]))
        parts.append(f"The best of {len(rows)} points by {metrics[0].replace('_', ' ')}: {best}.")
    parts += [*filter(None, (left, spent))]
    if numeric and few and len(done):
        labels, axes = [str(one) for one in done["label"].unique()], {name: name for name in numeric}
        for y in few:
            views = (((x, y), means(done, x, y)) for x in numeric)
            chart = charts.curves(views, axes, f"{y} against {', '.join(numeric)}", labels, MEANS)
            (parts if y == few[0] else more).append(chart if y == few[0] else Fold(y.replace("_", " "), [chart]))
    parts.append(Table(heads, rows[:_SHOWN]))
    if len(rows) > _SHOWN:
        parts.append(Fold(f"The next {min(len(rows), _POINTS) - _SHOWN} points", [Table(heads, rows[_SHOWN:_POINTS])]))
    if len(refused):
        why = Table(["point", "reason"], refused[["point", "reason"]].astype(object).to_numpy().tolist())
        more.append(Fold(f"{len(refused)} points were refused", [why]))
    how = "All combinations" if config.random is None else f"{config.random} points drawn at random"
    tried = (
        f"{how} of {'; '.join(config.over)}, with {config.seeds} seed(s) each. results.csv has all runs and metrics."
    )
    more.append(Fold("Settings, as study.yaml", [Code(to_yaml(config))]))
    sections = [Section("Result", parts), Section("Details", [f"{tried} Figures leave diverged runs out.", *more])]
    hashes = table["provenance"].dropna() if "provenance" in table else ()
    foot = f"Made by jdfl; provenance {provenance.total(map(str, hashes))}."
    return page(path, f"Study of {config.base.algorithm.kind} on {config.base.problem.kind}", sections, foot)


def varied(config: StudyConfig, table: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """The numeric settings that a `config` tries, and the runs of a table with a result, with the others as label."""
    done = table[~table["ending"].isin([REFUSED, *BAD])]
    fields = [line.partition("=")[0].strip() for line in config.over]
    numeric = [name for name in fields if pd.api.types.is_numeric_dtype(table[name]) and table[name].dtype != bool]
    named = done[[name for name in fields if name not in numeric]].astype(object)
    named = named.where(named.notna(), "none").astype(str)
    return numeric, done.assign(label=named.agg(", ".join, axis=1) if len(named.columns) else "all")


def means(done: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """The mean, low and high of metric y against a setting x, by label, of the runs `done` that `varied` gives."""
    found = done.assign(x=done[x]).groupby(["label", "x"])[y].agg(mean="mean", low="min", high="max").reset_index()
    return found[np.isfinite(found["mean"])]
