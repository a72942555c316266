"""`jdfl sweep`: runs over values of any settings, into one table."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from jdfl.base import checks
from jdfl.base.terminal import say
from jdfl.cli import flags
from jdfl.cli.running import begun, written
from jdfl.config import StudyConfig, from_yaml, ledger_of, to_yaml
from jdfl.engine.booking import Room
from jdfl.engine.metrics import REGISTRY
from jdfl.engine.provenance import versions
from jdfl.engine.result import BAD
from jdfl.lab.points import REFUSED, field_of
from jdfl.lab.study import Study, best_first, one_after_another, submitit, submitted, together, write_page
from jdfl.lab.table import PM, Cell, Grid, markdown, rounded
from jdfl.lab.table import write as write_text
from jdfl.results.summary import finite
from jdfl.store import jobs
from jdfl.store.files import write

_CONFIG = "study.yaml"
_SHOWN = 20  # points


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engines:
    """Continue an interrupted study. Groups that are done stay as they are.

    Examples:
      jdfl resume runs/NAME                                the rest of an interrupted study
      jdfl resume runs/NAME --engine slurm --engine-options slurm_partition=gpu timeout_min=60
    """

    engine: Literal["here", "local", "slurm"] = "here"
    """Where groups of points run: here in this process, local in a process each, slurm in a job each (by submitit)."""
    engine_options: tuple[str, ...] = ()
    """Options name=value of submitit for slurm, such as timeout_min=60, gpus_per_node=1, slurm_partition=gpu."""
    max_seconds: float | None = None
    """Time limit in seconds for the engine here, after which no group is started. Finished groups are kept."""
    retry: int = 0
    """How often a group that fails is tried again."""
    any_version: bool = False
    """Continue with other versions of jdfl or of libraries than the study's."""
    by: str = "objective"
    """Metric by which points are ranked."""
    quiet: bool = False
    """No progress and no table; without --json, only the folder's name."""
    json: bool = False
    """Print the points as JSON, the best first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Engines):
    """Run over values of any settings: all combinations, or points drawn at random.

    Points whose algorithms differ only in floats run side by side in one compiled program. Every group is saved when it
    is done, and `jdfl resume` continues an interrupted study. One table, results.parquet, has all runs.

    Examples:
      jdfl sweep --over algorithm.rate=0.1,0.2,0.5 problem.m=32,64 --seeds 3
      jdfl sweep --algorithm d-psgd --stop none --over algorithm.lr=log:1e-3:0.1 --random 30 --by objective
      jdfl sweep --over algorithm=d-psgd,dsgt,extra network=ring,complete --stop none --steps 100
      jdfl sweep --over algorithm.rate=0.1,0.2 --engine slurm --engine-options slurm_partition=gpu timeout_min=60
      jdfl sweep --config runs/NAME/study.yaml --seeds 5   an earlier study, with more seeds
      jdfl resume runs/NAME                                the rest of an interrupted study

    exit status: 0 done, 1 a group failed, 2 a mistake in the settings, 3 a run diverged or a point was refused (the
    table says which), 5 the results could not be written, or somebody has removed or changed the folder, 124 the time
    limit --max-seconds was reached, 130 interrupted, 143 terminated (SIGTERM, SIGHUP); finished groups are kept
    """

    config: Path | None = None
    """File study.yaml to start from; other flags override it."""
    out: Path = Path("runs")
    """Folder in which the study's new folder is made."""
    folder: Path | None = None
    """The study's own folder, instead of a new one in --out: it begins there, or goes on if it has begun."""


def resume_sweep(folder: Path, options: Engines) -> int:
    """Continue a study; returns the exit status."""
    return _work(Study.of(from_yaml(flags.read(str(folder / _CONFIG)), StudyConfig), folder), options)


def sweep(config: StudyConfig, options: Options) -> int:
    """Run all points, write and show them; returns the exit status."""
    if not config.over:
        raise ValueError(
            "Expected at least one setting to try, got over = (). For example --over algorithm.lr=0.1,0.2."
        )
    _check(config, options)
    study = Study.of(config, Path())  # refused before there is a folder
    folder = options.folder
    if folder is None or not (folder / _CONFIG).is_file():
        folder = begun(options.out, folder, f"sweep-{config.base.algorithm.kind}")
    elif to_yaml(from_yaml(flags.read(str(folder / _CONFIG)), StudyConfig)) != to_yaml(config):
        raise ValueError(
            f"Expected the settings of the study in --folder {folder}, got others. Leave them as they were, or name "
            "another folder."
        )
    return _work(dataclasses.replace(study, folder=folder), options)


def _work(study: Study, options: Engines) -> int:
    """Run the remaining groups of a study, write and show it; returns the exit status."""
    _check(study.config, options)
    folder, ledger = study.folder, ledger_of(study.config.base)
    chosen = dict(map(_option, options.engine_options))
    package = None if options.engine == "here" else submitit()
    origin = {"work": "study", "settings": jobs.name_of(to_yaml(study.config)), "versions": versions()}
    with jobs.opened(folder, origin, any_version=options.any_version, retry=options.retry) as kept:
        try:
            with Room(ledger, folder) as room:
                try:
                    room.keep(study.intents)
                except ValueError:  # without enough budget
                    if not any((folder / jobs.PLACE).glob("*")):
                        shutil.rmtree(folder, ignore_errors=True)
                    raise
                study.begin()
                if options.engine == "here":
                    one_after_another(kept, study.left, options.max_seconds)
                else:
                    submitted(kept, study.left, package, options.engine, chosen)
                say("writing the table and the page")
        except (KeyboardInterrupt, jobs.FailedJobsError) as error:
            study.end()
            error.add_note(f"finished groups are kept. To continue: jdfl resume {folder}")
            raise
        table = written(folder, study.end)
        if len(table):
            written(folder, lambda: _show(study, table, options))
        if study.left:
            print(f"jdfl: time limit reached. To continue: jdfl resume {folder}", file=sys.stderr)
            return 124
        written(folder, study.complete)
    return 3 if {REFUSED, *BAD} & set(table["ending"].tolist()) else 0


def _check(config: StudyConfig, options: Engines) -> None:
    """Refuse an unknown metric, and settings of another engine: ValueError naming them."""
    if options.max_seconds is not None:
        checks.positive("None means without.", max_seconds=options.max_seconds)
    if options.engine == "here" and options.engine_options:
        raise ValueError(
            f"Expected --engine-options with --engine slurm, got engine_options = {options.engine_options!r} with "
            "--engine here, which has none."
        )
    if options.engine != "here" and options.max_seconds is not None:
        raise ValueError(
            f"Expected --max-seconds with --engine here, got max_seconds = {options.max_seconds!r} with --engine "
            f"{options.engine}. Limit its jobs instead: --engine-options timeout_min=60."
        )
    checks.one_of(config.base.metrics or tuple(REGISTRY), by=options.by)


def _option(line: str) -> tuple[str, Any]:
    name, values = field_of(line)
    if not isinstance(values, list) or len(values) != 1:
        raise ValueError(f"Expected name=value in --engine-options, got {line!r}.")
    return name, values[0]


def _show(study: Study, table: pd.DataFrame, options: Engines) -> None:
    """Write the table and the page of a study, and print its points, those that were refused or diverged on stderr."""
    fields, by = list(study.groups[0].points[0].values), options.by
    refused = table[table["ending"] == REFUSED]
    for reason, runs in refused.groupby("reason", sort=False):
        print(f"jdfl: refused, {_points(runs)}: {reason}", file=sys.stderr)
    for ending, words in BAD.items():
        if len(bad := table[table["ending"] == ending]):
            print(
                f"jdfl: {len(bad)} of {len(table)} runs {words}: {_points(bad.drop_duplicates('point'))}",
                file=sys.stderr,
            )
    ranked = best_first(table, fields, by) if len(refused) < len(table) else pd.DataFrame()
    measured = [str(name) for name in ranked if f"{name}_ci" in ranked]
    heads, rows = _cells(ranked, fields, measured)
    sum_of_all, ledger = together(table), ledger_of(study.config.base)
    standing = None if ledger is None else ledger.standing()
    which = f"of all {table.loc[table['ending'] != REFUSED, 'point'].nunique()} points"
    spent = " ".join(filter(None, [sum_of_all and sum_of_all.statement(which), standing and standing.statement()]))
    missing, points = (sum(len(group.points) for group in groups) for groups in (study.left, study.groups))
    left = f"{missing} of {points} points are not done and not shown here." if missing else ""
    lines = [*markdown(heads, rows), *(f"\n{line}" for line in (left, spent) if line)]
    write(study.folder / "table.md", "".join(f"{line}\n" for line in lines))

    def few(count: int) -> Grid:
        names = [name for name in measured if name in (by, "rounds", "bytes")]
        heads, best = _cells(ranked.head(count), fields, names)
        notes = [f"The best {len(best)} of {len(rows)} points by {by}, means over seeds.", *([spent] if spent else [])]
        return Grid(heads, [list(map(Cell, row)) for row in best], notes, range(1 + len(fields)))

    write(study.folder / "table.tex", write_text(few(len(ranked)), "latex"))
    write_page(study.folder / "report.html", study.config, table, measured, heads, rows, spent, left)
    if options.json:
        content: dict[str, Any] = {"folder": str(study.folder), "by": by}
        content["points"] = [
            {str(name): finite(one) if isinstance(one, float) else one for name, one in row.items()}
            for row in ranked.to_dict("records")
        ]
        content["together"] = None if sum_of_all is None else sum_of_all.as_dict()
        content["ledger"] = None if standing is None else standing.as_dict()
        print(json.dumps(content, indent=2, allow_nan=False))
    elif options.quiet:
        print(study.folder)
    else:
        print(write_text(few(_SHOWN), "text", str(study.folder / "table.md")), end="")
        print(f"table:  {study.folder / 'results.parquet'}\npage:   {study.folder / 'report.html'}")


def _points(runs: pd.DataFrame) -> str:
    numbers = [str(point) for point in runs["point"]]
    return f"point{'s' * (len(numbers) > 1)} {', '.join(numbers[:10])}{' ...' * (len(numbers) > 10)}"


def _cells(ranked: pd.DataFrame, fields: list[str], measured: list[str]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the fields, and mean ± half-width of its 95 % interval of every metric."""
    rows: list[list[str]] = []
    for row in ranked.to_dict("records"):
        means = [rounded(row[name], row[f"{name}_ci"]) for name in measured]
        rows.append([*(_number(row[name]) for name in ("point", *fields)), *means, str(row["diverged"])])
    last = [name.rpartition(".")[2] for name in fields]
    short = [end if last.count(end) == 1 else name for name, end in zip(fields, last, strict=True)]
    return ["point", *short, *(f"{name.replace('_', ' ')} {PM}" for name in measured), "diverged"], rows


def _number(value: Any) -> str:
    if value is None or value != value:
        return "none"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
