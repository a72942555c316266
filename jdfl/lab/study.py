"""A study in its folder: groups of points, each stored when it is done, and at the end one table.

study.yaml         the configuration
environment.json   platform, device, date of the last start
versions.json      versions of code and libraries, which may not change while a study goes on
parts/             two tables per finished group, named after its work
results.parquet    a row per run: point, its values, seed, ending, metrics, totals, epsilon, ledger, times, provenance
results.csv        the same
curves.parquet     a row per record: point, seed, round, metrics, totals so far
table.md           mean and standard deviation over the seeds, a row per point, the best first
"""

import contextlib
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd

from jdfl.base import checks
from jdfl.config.study import StudyConfig, to_yaml
from jdfl.engine.data_ledger import Intent
from jdfl.engine.metrics import COUNTS, REGISTRY
from jdfl.engine.provenance import Provenance, provenance
from jdfl.engine.result import BAD
from jdfl.lab.files import read, write
from jdfl.lab.groups import REFUSED, Group, Point, groups, intents, run_group
from jdfl.lab.results import environment
from jdfl.lab.space import config_at, points
from jdfl.lab.table import better
from jdfl.privacy import Ledger
from jdfl.privacy.together import Together

Engine = Callable[[Path, Sequence[Group]], None]  # runs groups and stores their results
_VERSIONS = "versions.json"
_OTHERS = "point seed rounds delta epsilon promise ledger seconds compile_seconds"  # columns that are no metrics


@dataclass(frozen=True)
class Study:
    """A study that was checked: its groups, and which of them are done."""

    config: StudyConfig
    folder: Path
    groups: tuple[Group, ...]

    @staticmethod
    def of(config: StudyConfig, folder: Path) -> "Study":
        """The study of a configuration; ValueError for invalid settings and points.

        Args:
            config: The points and the number of seeds of each; seeds are consecutive, from that of `base`.
            folder: The folder of the study; nothing is written yet.
        """
        checks.whole(1, seeds=config.seeds)
        checks.whole(0, draw=config.draw)
        if config.base.key_file is not None:
            raise ValueError(
                f"Expected no key file for a study, whose runs have seeds, got key_file = {config.base.key_file}."
            )
        last = 2**32 - config.seeds
        checks.whole(0, last, "The seeds are `seed` to `seed` + seeds - 1.", seed=config.base.seed)
        tried = points(config.over, config.random, config.draw)
        made = [Point(i, values, config_at(config.base, values)) for i, values in enumerate(tried)]
        seeded = [point for point in made if "seed" in point.values]
        if seeded:
            raise ValueError("Expected `seeds`, how many runs every point has, got seed among what is tried.")
        first = config.base.seed
        if any("privacy.ledger" in point.values for point in made):
            raise ValueError("Expected one ledger for all points, got privacy.ledger among what is tried.")
        return Study(config, folder, tuple(groups(made, range(first, first + config.seeds))))

    @property
    def left(self) -> list[Group]:
        """The groups that are not done yet."""
        return [group for group in self.groups if not _part(self.folder, group, "curves").is_file()]

    def begin(self, *, any_version: bool = False) -> None:
        """Write the configuration of the study.

        ValueError for a study that was begun with other code or libraries, unless `any_version`: its table would mix
        numbers of both.
        """
        versions, begun = provenance().versions, self.folder / _VERSIONS
        if begun.is_file() and not any_version:
            changed, _ = Provenance(versions, {}).differences(Provenance(read(begun), {}))
            if changed:
                raise ValueError(
                    f"Expected the code and libraries that the study {self.folder} was begun with, got others: "
                    f"{'; '.join(changed)}. Begin a new one, or mix both with --any-version."
                )
        (self.folder / "parts").mkdir(parents=True, exist_ok=True)
        write(self.folder / "study.yaml", to_yaml(self.config))
        write(self.folder / "environment.json", environment())
        write(begun, versions)

    def intents(self) -> list[Intent]:
        """The planned runs of the groups that are left, for the ledger of the data."""
        return [run for group in self.left for run in intents(group)]

    def end(self) -> pd.DataFrame:
        """Join the parts that are done; returns the table of all runs, which is empty if there are none."""
        left = {group.name for group in self.left}
        done = [group for group in self.groups if group.name not in left]
        if not done:
            return pd.DataFrame({"point": [], "ending": []})
        table, curves = (
            _joined([pd.read_parquet(_part(self.folder, group, what)) for group in done]) for what in ("runs", "curves")
        )
        table = table.sort_values([name for name in ("point", "seed") if name in table], ignore_index=True)
        write(self.folder / "results.parquet", table)
        write(self.folder / "results.csv", table)
        write(self.folder / "curves.parquet", curves)
        return table


def keep(folder: Path, group: Group) -> None:
    """Run a `group` and store its results in a `folder`, curves last, so that a group with curves is complete.

    Args:
        folder: The folder of the study.
        group: Points and seeds; files of an earlier attempt are replaced.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("once")
        runs, curves = run_group(group)
    for name, table in (("runs", runs), ("curves", curves)):
        write(_part(folder, group, name), _writable(table))


def one_after_another(
    max_seconds: float | None = None, tell: Callable[[Group, int, int], None] = lambda group, done, count: None
) -> Engine:
    """An engine that runs groups in this process, one after another, and starts none after `max_seconds`.

    Args:
        max_seconds: Seconds since the engine was called; a group that has started is finished. None: no limit.
        tell: Called with every group when it starts, its index among the groups that are left, from 0, and their
            number.
    """

    def work(folder: Path, todo: Sequence[Group]) -> None:
        begun = time.monotonic()
        for i, group in enumerate(todo):
            if max_seconds is not None and time.monotonic() - begun >= max_seconds:
                return
            tell(group, i, len(todo))
            keep(folder, group)

    return work


def jobs(cluster: str, options: dict[str, Any]) -> Engine:
    """An engine that submits every group as a job by submitit, and waits for all.

    The logs of the jobs are in jobs/ of the folder.

    Args:
        cluster: "slurm", or "local" for processes on this machine.
        options: Those of submitit's `update_parameters`: timeout_min, cpus_per_task, gpus_per_node, mem_gb,
            slurm_partition and more. The engine raises ValueError for options that submitit does not know.

    Raises:
        OSError: If submitit is not installed; from the engine, if the cluster is not available.
        FailedJobsError: From the engine, when all other jobs are done; it names the log of a failed job.
    """
    try:
        submitit: Any = import_module("submitit")
    except ModuleNotFoundError as error:
        raise OSError(_MISSING) from error

    def work(folder: Path, todo: Sequence[Group]) -> None:
        try:
            executor = submitit.AutoExecutor(folder=folder / "jobs", cluster=cluster)
        except RuntimeError as error:
            raise OSError(f"Expected the cluster {cluster!r} here, got: {error}.") from error
        try:
            executor.update_parameters(name="jdfl", **options)
        except (NameError, TypeError) as error:
            raise ValueError(f"Expected options of submitit, got {options}: {error}.") from error
        started = executor.map_array(keep, [folder.resolve()] * len(todo), todo)
        failed: list[str] = []
        for job in started:
            with contextlib.suppress(Exception):  # reported below, with the others
                job.result()
                continue
            failed.append(str(job.paths.stderr))
        if failed:
            raise FailedJobsError(f"{len(failed)} of {len(started)} jobs failed; the first one's log: {failed[0]}")

    return work


class FailedJobsError(OSError):
    """Some jobs failed; the results of the others are stored."""


_MISSING = "Expected the package submitit for jobs of a cluster, found none. Install it: pip install 'jdfl[slurm]'"


def best_first(table: pd.DataFrame, fields: Sequence[str], by: str) -> pd.DataFrame:
    """Mean and standard deviation over seeds, a row per point, sorted by `by`, the best first; NaN if a run diverged.

    Args:
        table: A row per run, as `run_group` gives them; those of refused points are left out.
        fields: Dotted paths of the settings that were tried, columns of `table`.
        by: The metric by which points are sorted; accuracies are best when high, all others when low.

    Returns:
        The columns point, the `fields`, `seeds` that have a result, `diverged` (runs that violated an invariant
            included), and NAME and NAME_sd of every metric, of rounds and bytes.

    Raises:
        ValueError: For a metric that no run has.
    """
    done = table[table["ending"] != REFUSED]
    others = (*fields, *_OTHERS.split(), *COUNTS)
    names = [str(name) for name in (*REGISTRY, *table.columns) if name in table and name not in others]
    metrics = [name for name in names if all(isinstance(value, int | float) for value in done[name].tolist())]
    checks.one_of(tuple(dict.fromkeys(metrics)), by=by)
    rows: list[dict[str, Any]] = []
    for point, runs in done.groupby("point", sort=False):
        diverged = int(runs["ending"].isin(BAD).sum())
        row = {"point": point, **{field: runs[field].tolist()[0] for field in fields}}
        row |= {"seeds": len(runs), "diverged": diverged}
        for name in dict.fromkeys((by, *metrics, "rounds", "bytes")):
            numbers = [float(value) for value in runs[name]]
            row[name] = np.nan if diverged else fmean(numbers)
            row[f"{name}_sd"] = np.nan if diverged or len(numbers) < 2 else stdev(numbers)
        rows.append(row)
    found = pd.DataFrame(rows)
    return found.sort_values(by, ascending=better(by) > 0, na_position="last", kind="stable", ignore_index=True)


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


def _part(folder: Path, group: Group, what: str) -> Path:
    return folder / "parts" / f"{group.name}.{what}.parquet"


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    filled = [table for table in tables if len(table)]
    return _writable(pd.concat(filled, ignore_index=True)) if filled else pd.DataFrame()


def _writable(table: pd.DataFrame) -> pd.DataFrame:
    """The table with one type per column: values of several types become text."""
    table, numbers = table.copy(), {int, float, np.int64, np.float64}
    for name in table.columns:
        kinds: set[type] = {type(value) for value in table[name] if not (value is None or value != value)}
        if len(kinds) > 1 and not kinds <= numbers:
            table[name] = [None if value is None or value != value else str(value) for value in table[name]]
        elif kinds <= numbers and table[name].dtype == object:
            table[name] = pd.to_numeric(table[name])
    return table
