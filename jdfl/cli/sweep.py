"""`jdfl sweep`: runs over values of any settings, into one table."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from rich.console import Console

from jdfl.base import checks
from jdfl.cli import flags, folders
from jdfl.config import RunConfig, ledger_of, yaml_text
from jdfl.config.study import StudyConfig, from_yaml, to_yaml
from jdfl.engine.booking import Room
from jdfl.engine.compiling import use_cache
from jdfl.engine.metrics import REGISTRY
from jdfl.engine.provenance import versions
from jdfl.engine.result import BAD
from jdfl.lab.files import write
from jdfl.lab.points import REFUSED, field_of
from jdfl.lab.study import Study, best_first, one_after_another, submitted, together, write_page
from jdfl.lab.summary import finite
from jdfl.lab.table import PM, Cell, Grid, fitted, markdown, rounded, wrapped
from jdfl.lab.table import write as write_text
from jdfl.store import jobs

_ABOUT = """Run over values of any settings: all combinations, or points drawn at random.

Points whose algorithms differ only in floats run side by side in one compiled program. Every group is saved when it is
done, and `jdfl resume` continues an interrupted study. One table, results.parquet, has all runs."""

_AGAIN = """Continue an interrupted study. Groups that are done stay as they are."""

_EXAMPLES = """examples:
  jdfl sweep --over algorithm.rate=0.1,0.2,0.5 problem.m=32,64 --seeds 3
  jdfl sweep --algorithm d-psgd --stop none --over algorithm.lr=log:1e-3:0.1 --random 30 --by objective
  jdfl sweep --over algorithm=d-psgd,dsgt,extra network=ring,complete --stop none --steps 100
  jdfl sweep --over algorithm.rate=0.1,0.2 --engine slurm --engine-options slurm_partition=gpu timeout_min=60
  jdfl sweep --config runs/NAME/study.yaml --seeds 5   an earlier study, with more seeds
  jdfl resume runs/NAME                                the rest of an interrupted study

exit status: 0 done, 1 a group failed, 2 a mistake in the settings, 3 a run diverged or a point was refused (the table
says which), 5 the results could not be written, or somebody has removed or changed the folder, 124 the time limit
--max-seconds was reached, 130 interrupted, 143 terminated (SIGTERM, SIGHUP); finished groups are kept
"""
_CONFIG = "study.yaml"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engines:
    """How a study is executed; its numbers do not depend on it."""

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
    """Options of a study besides the configuration of a run."""

    over: tuple[str, ...] = ()
    """Values to try: setting=value,value,... or, with --random, setting=uniform:LOW:HIGH, or log, or int."""
    random: int | None = None
    """Number of points to draw at random; none: all combinations of the values."""
    draw: int = 0
    """Seed of these points."""
    seeds: int = 1
    """Number of runs of every point, with the seeds `seed`, `seed` + 1, ..."""
    config: Path | None = None
    """File study.yaml to start from; other flags override it."""
    out: Path = Path("runs")
    """Folder in which the study's new folder is made."""
    folder: Path | None = None
    """The study's own folder, instead of a new one in --out: it begins there, or goes on if it has begun."""


def parse(args: list[str]) -> tuple[StudyConfig, Options]:
    """The configuration and options behind the flags of `jdfl sweep`."""
    file = flags.given(args, "config")
    start = StudyConfig() if file is None else from_yaml(flags.read(file))
    own = {name: getattr(start, name) for name in ("over", "random", "draw", "seeds")}
    parsed = flags.parse(args, start.base, Options(**own), prog="jdfl sweep", about=_ABOUT, examples=_EXAMPLES)
    base: RunConfig = parsed.config
    return StudyConfig(base=base, **{name: getattr(parsed.options, name) for name in own}), parsed.options


def parse_again(args: list[str]) -> tuple[Path, Engines]:
    """The folder of a study and the options behind the arguments of `jdfl resume`."""
    how: dict[str, Any] = {"prog": "jdfl resume SWEEP_DIR", "about": _AGAIN, "examples": _EXAMPLES}
    return Path(args[0]), flags.parse_options(args[1:], Engines, **how)


def again(folder: Path, options: Engines) -> int:
    """Continue a study; returns the exit status."""
    if not (folder / jobs.ORIGIN).is_file():
        raise ValueError(
            f"Expected a study of this version of jdfl, got {folder}, which an earlier one has begun. Make it again: "
            f"jdfl sweep --config {folder / _CONFIG}"
        )
    return work(Study.of(from_yaml(flags.read(str(folder / _CONFIG))), folder), options)


def sweep(config: StudyConfig, options: Options) -> int:
    """Run all points, write and show them; returns the exit status."""
    if not config.over:
        raise ValueError(
            "Expected at least one setting to try, got over = (). For example --over algorithm.lr=0.1,0.2."
        )
    _check(options)
    checks.one_of(config.base.metrics or tuple(REGISTRY), by=options.by)
    study = Study.of(config, Path())  # refused before there is a folder
    if options.folder is not None and (options.folder / _CONFIG).is_file():
        if yaml_text.plain(from_yaml(flags.read(str(options.folder / _CONFIG)))) != yaml_text.plain(config):
            raise ValueError(
                f"Expected the settings of the study in --folder {options.folder}, got others. Leave them as they "
                "were, or name another folder."
            )
        return again(options.folder, options)
    folder = folders.begun(options.out, options.folder, f"sweep-{config.base.algorithm.kind}")
    return work(dataclasses.replace(study, folder=folder), options)


def work(study: Study, options: Engines) -> int:
    """Run the remaining groups of a study, write and show it; returns the exit status."""
    _check(options)
    checks.one_of(study.config.base.metrics or tuple(REGISTRY), by=options.by)
    use_cache()
    ledger = ledger_of(study.config.base)
    origin = {"work": "study", "settings": jobs.name_of(to_yaml(study.config)), "versions": versions()}
    with jobs.opened(study.folder, origin, any_version=options.any_version, retry=options.retry) as kept:
        try:
            with Room(ledger, study.folder) as room, _engine(options) as engine:
                _keep(room, study)
                study.begin()
                engine(kept, study.left)
        except (KeyboardInterrupt, jobs.FailedJobsError) as error:
            study.end()
            error.add_note(f"finished groups are kept. To continue: jdfl resume {study.folder}")
            raise
        table = folders.written(study.folder, study.end)
        if len(table):
            folders.written(
                study.folder,
                lambda: show(study, table, by=options.by, as_json=options.json, quiet=options.quiet),
            )
        if study.left:
            print(f"jdfl: time limit reached. To continue: jdfl resume {study.folder}", file=sys.stderr)
            return 124
        folders.written(study.folder, study.complete)
    return 3 if {REFUSED, *BAD} & set(table["ending"].tolist()) else 0


def _keep(room: Room, study: Study) -> None:
    """Reserve budget for the remaining runs of a study; ValueError without enough, and its empty folder is removed."""
    try:
        room.keep(study.intents)
    except ValueError:
        if not any((study.folder / jobs.PLACE).glob("*")):
            folders.discard(study.folder)
        raise


def _check(options: Engines) -> None:
    """Refuse settings of another engine: ValueError naming them."""
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


@contextlib.contextmanager
def _engine(options: Engines) -> Generator[Any]:
    """The engine of the options; groups are shown on stderr if it is a terminal."""
    if options.engine != "here":
        yield submitted(options.engine, dict(_option(line) for line in options.engine_options))
        return
    console = Console(stderr=True, markup=False)
    if options.quiet or not console.is_terminal:
        yield one_after_another(options.max_seconds)
        return
    with console.status("beginning") as status:
        yield one_after_another(
            options.max_seconds,
            lambda group, i, count: status.update(
                f"group {i + 1} of {count}: {len(group.points)} points, {len(group.seeds)} seeds each"
            ),
        )


def _option(line: str) -> tuple[str, Any]:
    name, values = field_of(line)
    if not isinstance(values, list) or len(values) != 1:
        raise ValueError(f"Expected name=value in --engine-options, got {line!r}.")
    return name, values[0]


_SHOWN = 20  # points


def show(study: Study, table: pd.DataFrame, *, by: str, as_json: bool, quiet: bool) -> None:
    """Write the table and the page of a study, and print its points, those that were refused or diverged on stderr."""
    fields = list(study.groups[0].points[0].values)
    refused = [row for row in table.to_dict("records") if row["ending"] == REFUSED]
    for reason in dict.fromkeys(str(row["reason"]) for row in refused):
        where = [str(row["point"]) for row in refused if str(row["reason"]) == reason]
        print(f"jdfl: refused, {_points(where)}: {reason}", file=sys.stderr)
    for ending, words in BAD.items():
        bad = table.loc[table["ending"] == ending, "point"].astype(str)
        if len(bad):
            where = _points(list(bad.unique()))
            print(f"jdfl: {len(bad)} of {len(table)} runs {words}: {where}", file=sys.stderr)
    ranked = best_first(table, fields, by) if len(refused) < len(table) else pd.DataFrame()
    measured = [str(name) for name in ranked if f"{name}_ci" in ranked]
    heads, rows = _cells(ranked, fields, measured)
    sum_of_all = together(table)
    ledger = ledger_of(study.config.base)
    standing = None if ledger is None else ledger.standing()
    which = f"of all {table.loc[table['ending'] != REFUSED, 'point'].nunique()} points"
    said = [sum_of_all and sum_of_all.statement(which), standing and standing.statement()]
    spent = " ".join(filter(None, said))
    left = _left(study)
    below = "".join(f"\n{line}\n" for line in (left, spent) if line)
    lines = "".join(f"{line}\n" for line in markdown(heads, rows))
    write(study.folder / "table.md", lines + below)
    write_page(study.folder / "report.html", study.config, table, measured, heads, rows, spent, left)
    if as_json:
        found = [{str(name): _plain(value) for name, value in row.items()} for row in ranked.to_dict("records")]
        told: dict[str, Any] = {"folder": str(study.folder), "by": by, "points": found}
        told["together"] = None if sum_of_all is None else sum_of_all.as_dict()
        told["ledger"] = None if standing is None else standing.as_dict()
        print(json.dumps(told, indent=2, allow_nan=False))
    elif quiet:
        print(study.folder)
    else:
        few = [name for name in measured if name in (by, "rounds", "bytes")]
        heads, best = _cells(ranked.head(_SHOWN), fields, few)
        said = [f"The best {len(best)} of {len(rows)} points by {by}, means over seeds.", *([spent] if spent else [])]
        lead = 1 + len(fields)
        shown = fitted(Grid(heads, [list(map(Cell, row)) for row in best], said), lead)
        print(wrapped(write_text(shown, "text")), end="")
        print(f"table:  {study.folder / 'results.parquet'}\npage:   {study.folder / 'report.html'}")


def _left(study: Study) -> str:
    """The points that an interrupted study lacks, in words; empty for a complete one."""
    points = sum(len(group.points) for group in study.left)
    whole = sum(len(group.points) for group in study.groups)
    return f"{points} of {whole} points are not done and not shown here." if points else ""


def _points(numbers: list[str]) -> str:
    return f"point{'s' * (len(numbers) > 1)} {', '.join(numbers[:10])}{' ...' * (len(numbers) > 10)}"


def _cells(ranked: pd.DataFrame, fields: list[str], measured: list[str]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows: the fields, and mean ± half-width of its 95 % interval of every metric."""
    rows: list[list[str]] = []
    for row in ranked.to_dict("records"):
        cells = [_number(row[name]) for name in ("point", *fields)]
        for name in measured:
            cells.append(rounded(row[name], row[f"{name}_ci"]))
        rows.append([*cells, str(row["diverged"])])
    last = [name.rpartition(".")[2] for name in fields]
    short = [end if last.count(end) == 1 else name for name, end in zip(fields, last, strict=True)]
    return ["point", *short, *(f"{name.replace('_', ' ')} {PM}" for name in measured), "diverged"], rows


def _number(value: Any) -> str:
    if value is None or value != value:
        return "none"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """For JSON: numbers that are not finite become None."""
    if isinstance(value, float):
        return finite(value)
    return value.item() if hasattr(value, "item") else value
