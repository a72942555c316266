"""The contract of every experiment: `python -m experiments.NAME [--quick] [--seeds N] [--out DIR]`.

It prints the paper's numbers and ours, and whether they bear out what `papers/*.yaml` says of them. It writes
DIR/NAME.json, a list of rows (case, column, paper, mean, sd, seeds), the same as tables, DIR/NAME.md and DIR/NAME.tex,
DIR/NAME.provenance.json, and the figure as DIR/NAME.png and DIR/NAME.pdf. The provenance is one hash of all runs since
the command line was read, of the scripts in this folder and of XLA_FLAGS; it is in the metadata of the figure.
"""

import argparse
import ctypes
import inspect
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np
from matplotlib.figure import Figure
from scipy.special import stdtrit

from jdfl.base.terminal import say, wrapped
from jdfl.engine import provenance
from jdfl.lab import drawing, page
from jdfl.lab.drawing import COLOURS
from jdfl.lab.table import PM, Cell, Grid, rounded, write
from jdfl.store.jobs import TerminatedError
from jdfl.store.lease import LostError, UnwrittenError

QUICK_SEEDS = 2

_runs: set[str] = set()  # hashes of all runs since the command line was read


def _count(run: str) -> None:
    _runs.add(run)
    say(f"computing; {len(_runs)} runs are done", new=False)


provenance.listen(_count)


@dataclass(frozen=True)
class Options:
    quick: bool
    seeds: int
    out: Path
    more: Mapping[str, Any] = field(default_factory=dict)  # the values of flags that only one script has


@dataclass(frozen=True)
class Row:
    """One number of a table: the paper's and ours."""

    case: str
    column: str
    paper: float | None
    mean: float
    sd: float
    seeds: int

    @property
    def half(self) -> float:
        """Half of Student's 95 % interval of the mean; 0 for a single value."""
        if self.seeds < 2 or not math.isfinite(self.sd):
            return 0.0
        return float(stdtrit(self.seeds - 1, 0.975)) * self.sd / math.sqrt(self.seeds)


class Made(NamedTuple):
    tables: Mapping[str, Sequence[Row]]  # Rows by the title under which they are printed
    figure: Figure | None = None
    hidden: Sequence[Row] = ()  # Rows that are written and not printed


def experiment(
    *,
    seeds: int = 5,
    few: int = QUICK_SEEDS,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[Callable[[Options], Made]], Callable[..., list[Row]]]:
    """Make a function of the options a command, which prints and writes what it makes and returns all rows.

    In a script that is started as `python -m experiments.NAME` the command runs at once: the function is the last one.

    Args:
        seeds: Number of seeds, if `--seeds` is not given.
        few: The most seeds of a quick run, if `--seeds` is not given.
        flags: Further flags with their arguments of `argparse`, whose values are in `Options.more`.
    """

    def of(make: Callable[[Options], Made]) -> Callable[..., list[Row]]:
        def main(arguments: Sequence[str] | None = None) -> list[Row]:
            text = str(make.__globals__["__doc__"])
            chosen = options(text, seeds=seeds, few=few, arguments=arguments, flags=flags or {})
            return _finish(Path(inspect.getfile(make)).stem, make(chosen), chosen)

        if make.__module__ == "__main__":
            main()
        return main

    return of


def options(
    description: str,
    *,
    seeds: int = 5,
    few: int = QUICK_SEEDS,
    arguments: Sequence[str] | None = None,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
) -> Options:
    """Read the command line that all experiments share, and cache compiled programs for the next one."""
    parser = argparse.ArgumentParser(
        description=reflowed(description), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    few = min(few, seeds)
    parser.add_argument("--quick", action="store_true", help="a small version that ends in a few minutes")
    parser.add_argument("--seeds", type=int, help=f"number of seeds; {seeds}, with --quick {few}, if not given")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the JSON and the figure; out")
    for flag, how in (flags or {}).items():
        parser.add_argument(flag, **how)
    given = vars(parser.parse_args(arguments))
    quick, number, out = (given.pop(name) for name in ("quick", "seeds", "out"))
    number = number if number is not None else few if quick else seeds
    if number < 1:
        parser.error(f"Expected --seeds >= 1, got {number}.")
    _end_at_once()
    out.mkdir(parents=True, exist_ok=True)
    _runs.clear()
    say("computing")
    return Options(quick, number, out, given)


def reflowed(text: str) -> str:
    """The paragraphs of a docstring in lines that fit the terminal; indented ones stay as they are."""
    parts = (part if part.startswith("  ") else " ".join(part.split()) for part in text.split("\n\n"))
    return wrapped("\n\n".join(parts))


def refuse(message: str) -> NoReturn:
    """End a script whose command line makes no sense, with argparse's status."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


def _finish(name: str, made: Made, chosen: Options) -> list[Row]:
    """Print tables and what the ledger says of them, and write everything."""
    from experiments import ledger  # which reads rows of this module

    rows = [one for table in made.tables.values() for one in table] + list(made.hidden)
    for title, table in made.tables.items():
        show(title, table, chosen.out / f"{name}.md")
    for claim in ledger.claims(run=name):
        try:
            sentence = claim.sentence(rows)
        except KeyError:  # of numbers that only a full run has
            continue
        holds = "DOES NOT HOLD HERE" if claim.faults(rows) else "holds"
        print(wrapped(f"{claim.name}: {holds}. {claim.place}: {sentence}"))
    written = [save(rows, chosen.out, name)]
    if made.figure is not None:
        written.append(chosen.out / f"{name}.png")
        save_figure(made.figure, written[-1])
    print("written:", *written)
    return rows


def _end_at_once() -> None:
    """Let signals end a script of this folder, whose rows must not be those of runs that were cut off.

    Without a handler of its own a script would go on with the next run, since each keeps the rounds that it has.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name.startswith("experiments."):
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), _end)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


_MORTAL = """import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # SIGKILL at the death of the parent
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def end_with_parent() -> None:
    """On Linux, let this process end together with the one that has started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def mortal(*words: str) -> list[str]:
    """The command of Python with these arguments, in a process that on Linux does not outlive the one that starts it.

    The start of such a process must not be left to a thread that ends before it.
    """
    return [sys.executable, "-c", _MORTAL, *words]


def cut_off(error: OSError | KeyboardInterrupt, what: str) -> int:
    """Say on stderr what ended work in jobs; returns the exit status.

    Args:
        error: What ended it.
        what: The work, as its command is called.
    """
    if isinstance(error, KeyboardInterrupt):
        print(f"{what}: interrupted. What is done is kept, and the same command goes on", file=sys.stderr)
        return 143 if isinstance(error, TerminatedError) else 130
    print(f"{what}: {error}", file=sys.stderr)
    return 5 if isinstance(error, UnwrittenError | LostError) else 2


def compile_sooner(environment: MutableMapping[str, str]) -> None:
    """Compile without XLA's fusion emitters: a quarter less compile time, equal speed, different last digits.

    For processes of this environment that have not computed anything yet. From jax 0.11 on XLA has no such option.
    """
    if jax.__version_info__ < (0, 11):
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()


def row(case: str, column: str, paper: float | None, values: Sequence[float]) -> Row:
    """Mean and sample standard deviation of one number over seeds (0 for a single seed)."""
    array = np.asarray(values, dtype=float)
    sd = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return Row(case, column, paper, float(array.mean()), sd, len(array))


def save(rows: Sequence[Row], out: Path, name: str) -> Path:
    """Write DIR/NAME.json, .md, .tex and .provenance.json; returns the first path."""
    made = origin()
    (out / f"{name}.provenance.json").write_text(json.dumps(made.as_dict() | {"runs": sorted(_runs)}, indent=1) + "\n")
    path = out / f"{name}.json"
    path.write_text(json.dumps([asdict(one) for one in rows], indent=1, allow_nan=False) + "\n")
    table = grid(rows)
    (out / f"{name}.md").write_text(write(table, "markdown"), encoding="utf-8")
    (out / f"{name}.tex").write_text(write(table, "latex"), encoding="utf-8")
    return path


def origin() -> provenance.Provenance:
    """The provenance of these scripts and of all runs since the command line was read."""
    scripts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parent.glob("*.py"))}
    made = provenance.provenance(
        scripts=provenance.total(scripts.values()),
        runs=provenance.total(_runs),
        compiler=os.environ.get("XLA_FLAGS", ""),
    )
    _runs.discard(made.hash)  # it is not a run
    return made


def save_figure(fig: Figure, path: str | Path) -> None:
    """Save a figure as PNG and PDF, with the hash of `origin` in the metadata of the files."""
    drawing.save_figure(fig, path, origin().hash, also=(".pdf",))


_STUDY = ", study"


def grid(rows: Sequence[Row]) -> Grid:
    """A line per case, with a column for the paper's number, where there is one, and a column for ours.

    A column "X, study" has the number of the independent study of X alone, since ours is in the column "X".
    """
    columns = {one.column: False for one in rows}
    columns |= {one.column: True for one in rows if one.paper is not None or one.column.endswith(_STUDY)}
    vital = list[int]()  # the paper's numbers, and ours
    cells = {(one.case, one.column): one for one in rows}
    heads = ["case"]
    for column, published in columns.items():
        study = column.endswith(_STUDY)
        pm = f" {PM}" if any(one.column == column and one.half for one in rows) else ""
        vital += range(len(heads), len(heads) + 2 - study) if published else []
        heads += (
            [column] if study else [f"{column}{pm}"] if not published else [f"{column}, paper", f"{column}, ours{pm}"]
        )
    lines: list[list[Cell]] = []
    for case in dict.fromkeys(one.case for one in rows):
        line = [Cell(case)]
        for column, published in columns.items():
            one = cells.get((case, column))
            line += [Cell(_paper(one))] * published + [Cell(_ours(one))] * (not column.endswith(_STUDY))
        lines.append(line)
    return Grid(heads, lines, ["Ours: mean over seeds ± half-width of its 95 % confidence interval."], vital)


def html_table(rows: Sequence[Row]) -> page.Table:
    table = grid(rows)
    return page.Table(table.headers, [[cell.text for cell in line] for line in table.rows])


def show(title: str, rows: Sequence[Row], file: Path) -> None:
    """Print what a terminal shows of a table, whose other columns are in a file: a line per case."""
    print(f"{wrapped(title)}\n\n{write(grid(rows), 'text', str(file))}")


def bars(rows: Sequence[Row], columns: Sequence[str], label: str, *, marks: str = "") -> Figure:
    """Bars of some columns case by case, with the paper's numbers as crosses.

    Args:
        rows: The rows of a table.
        columns: The columns, one colour for each.
        label: The name of the axis.
        marks: A column whose numbers are lines across the bars; of a study, they are those in the paper's place.
    """
    cases = list(dict.fromkeys(one.case for one in rows if one.column in columns))
    fig = Figure(figsize=(9, 1.4 + 0.3 * len(cases)), layout="constrained")
    axis, height = fig.subplots(), 0.8 / len(columns)
    for k, (column, colour) in enumerate(zip(columns, COLOURS)):
        mine = [one for one in rows if one.column == column]
        place = [cases.index(one.case) + (k - (len(columns) - 1) / 2) * height for one in mine]
        halves = [one.half for one in mine]
        axis.barh(place, [one.mean for one in mine], height, xerr=halves, color=colour, label=column)
        papers = [math.nan if one.paper is None else one.paper for one in mine]
        if not all(map(math.isnan, papers)):
            axis.plot(papers, place, "kx", label=f"{column}, paper")
    others = [one for one in rows if one.column == marks and one.case in cases]
    values = [one.paper if marks.endswith(_STUDY) else one.mean for one in others]
    axis.plot([math.nan if one is None else one for one in values], [cases.index(one.case) for one in others], "k|")
    axis.set_yticks(range(len(cases)), cases, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel(f"{label} (line: {marks})" if marks else label)
    fig.legend(loc="outside upper center", ncols=3, frameon=False)
    return fig


def _paper(one: Row | None) -> str:
    return "" if one is None else "–" if one.paper is None else f"{one.paper:g}"


def _ours(one: Row | None) -> str:
    """The mean without digits beyond the uncertainty, which has two."""
    if one is None:
        return ""
    return rounded(one.mean, one.half) if one.seeds > 1 and math.isfinite(one.mean) else number(one.mean)


def number(value: float) -> str:
    """Three significant digits, without an exponent where possible."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.3g}"
