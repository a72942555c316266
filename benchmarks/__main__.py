"""All benchmarks, or the named ones: `python -m benchmarks [NAME ...] [--quick] [--out DIR]`.

They run in alphabetical order, each in its own process, so that they share neither memory peaks nor compiled programs,
and their output is shown as it comes. A benchmark whose optional packages are missing is skipped. A table of all goals
follows at the end. The exit code is 1 if a benchmark crashed; a missed goal is a finding and leaves it 0.

Until all are measured, what is measured is kept in DIR/unfinished: after an interruption, a kill or a crash the same
command goes on with the rest, as long as code and libraries are the same. Later commands measure all of it again.

`python -m benchmarks basics --compare` is the quick set, ten minutes on two cores. `--compare` shows every ratio that
has drifted from its record in benchmarks/results, and the exit code is 1 where one is worse. Seconds are left out:
they are those of one machine in one hour.

`--list` lists the benchmarks, `--show` prints all that benchmarks/results has about them, and `--page` generates
docs/benchmarks.md from it; none of these measures anything.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from benchmarks import page
from benchmarks.common import FOLDER, Benchmark, Row, discover, read, show
from experiments.common import cut_off, mortal
from jdfl.engine.provenance import total, versions
from jdfl.store import jobs
from jdfl.store.files import placed
from jdfl.store.jobs import FailedJobsError, Jobs

DRIFT = 1.1  # a range that is further away than this from that of the record has drifted
UNFINISHED = "unfinished"  # the folder of a suite until it is measured


@dataclass(frozen=True)
class Outcome:
    """The result of one benchmark; `why` explains missing rows."""

    name: str
    rows: tuple[Row, ...] = ()
    why: str = ""
    crashed: bool = False
    kept: Path | None = None  # where its figures are until all are measured


class CrashedError(RuntimeError):
    """A benchmark ended with another status than 0."""


def measure(benchmark: Benchmark, quick: bool, out: Path, kept: Jobs) -> Outcome:
    """Run one benchmark in its own process, unless it is measured, and bring its figures to `out`."""
    missing = [package for package in benchmark.needs if find_spec(package) is None]
    if missing:
        return Outcome(benchmark.name, why=f"skipped: {', '.join(missing)} is not installed")

    def make(folder: Path) -> None:
        command = mortal("-u", "-m", f"benchmarks.{benchmark.name}", "--out", str(folder), *["--quick"] * quick)
        if code := subprocess.run(command).returncode:
            raise CrashedError(f"exit code {code}")

    code = total(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py")))
    try:
        place = kept.done(jobs.name_of(benchmark.name, quick, code, versions()), make)
    except FailedJobsError as error:
        return Outcome(benchmark.name, why=f"crashed with {error.__cause__!s}", crashed=True)
    name = f"{benchmark.name}.json"
    if not (place / name).is_file():
        return Outcome(benchmark.name, why="skipped: it wrote no figures", kept=place)
    with placed(out / name) as partial:
        shutil.copyfile(place / name, partial)
    print("moved to:", out / name, flush=True)
    return Outcome(benchmark.name, read(out / name).rows, kept=place)


def conclude(outcomes: Sequence[Outcome]) -> int:
    """Print all goals and the benchmarks without figures; returns the exit code."""
    goals = [(done.name, one) for done in outcomes for one in done.rows if one.goal]
    if goals:
        columns = ("case", "measure", "value", "goal", "met")
        show("Goals", [{"benchmark": name} | {key: one.cells()[key] for key in columns} for name, one in goals])
    met, measured = sum(one.met is True for _, one in goals), sum(bool(done.rows) for done in outcomes)
    print(f"{measured} of {len(outcomes)} benchmarks measured, {met} of {len(goals)} goals met")
    for done in outcomes:
        if done.why:
            print(f"{done.name} {done.why}")
    return int(any(done.crashed for done in outcomes))


def drifted(new: Row, old: Row) -> str:
    """How a ratio has moved out of the range of its record by more than DRIFT: "worse", "better" or empty."""
    if new.unit != "x" or old.unit != "x":
        return ""
    (low, high), (least, most) = new.range, old.range
    up = low > most * DRIFT
    if not up and high * DRIFT >= least:
        return ""
    return "worse" if up != new.goal.startswith(">") else "better"


def compare(outcomes: Sequence[Outcome], records: Path) -> int:
    """Print what has drifted from the records; returns the exit code, 1 where something is worse or has no record."""
    lines, without = list[dict[str, str]](), list[str]()
    for done in (done for done in outcomes if done.rows):
        path = records / f"{done.name}.json"
        if not path.is_file():
            without.append(done.name)
            continue
        known = {(one.case, one.measure): one for one in read(path).rows}
        for new in done.rows:
            old = known.get((new.case, new.measure))
            if old is not None and (drift := drifted(new, old)):
                numbers = {"record": f"{old.value:.3g}", "now": f"{new.value:.3g}", "spread": new.spread, "": drift}
                lines.append({"benchmark": done.name, "case": new.case, "measure": new.measure} | numbers)
    if lines:
        show("Drift", lines)
    worse = sum(line[""] == "worse" for line in lines)
    print(f"{worse} ratios worse than their records, {len(lines) - worse} better")
    for name in without:
        print(f"{name}: no record in {records}")
    return int(bool(worse or without))


def show_records(benchmarks: Sequence[Benchmark]) -> int:
    """Print what is recorded about some benchmarks; returns the exit code, 1 where one of them has no record."""
    found, width = page.records(), shutil.get_terminal_size().columns
    try:
        for benchmark in benchmarks:
            record = found.get(benchmark.name)
            none = f"{benchmark.name}: no record in {page.RESULTS}\n"
            print(none if record is None else page.text(benchmark, record, width), flush=True)
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(any(benchmark.name not in found for benchmark in benchmarks))


def chosen(names: Sequence[str], known: Collection[str]) -> list[str]:
    """The requested names, or all known ones; ValueError with the nearest name for an unknown one."""
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=0)
            raise ValueError(f"There is no benchmark {name!r}; the nearest is {nearest[0]!r}, --list shows all.")
    return [name for name in known if not names or name in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the command line; returns the exit code."""
    known = discover()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a benchmark (default: all of them)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the JSON (default: out)")
    parser.add_argument("--retry", type=int, default=0, help="how often one that crashes is tried again")
    parser.add_argument("--compare", action="store_true", help="exit with 1 where a ratio is worse than its record")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="list the benchmarks and measure nothing")
    instead.add_argument("--show", action="store_true", help="print all recorded figures and measure nothing")
    instead.add_argument("--page", action="store_true", help="write docs/benchmarks.md and measure nothing")
    given = parser.parse_args(arguments)
    try:
        names = chosen(given.names, known)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        show("Benchmarks", [{"name": name, "measures": known[name].about} for name in names])
        return 0
    if given.show:
        return show_records([known[name] for name in names])
    if given.page:
        if given.names:
            parser.error("The page covers all benchmarks: --page takes no names.")
        print("written:", page.write())
        return 0
    if given.compare and given.quick:
        parser.error("Small sizes are no measurements: --compare takes no --quick.")
    if given.compare and given.out.resolve() == page.RESULTS:
        parser.error(f"The records would be replaced before they are compared: give another --out than {given.out}.")
    if given.retry < 0:
        parser.error(f"Expected --retry >= 0, got {given.retry}.")
    folder = given.out / UNFINISHED
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with jobs.opened(folder, {"work": "benchmarks", "versions": {}}, retry=given.retry) as kept:
            outcomes = list[Outcome]()
            for number, name in enumerate(names, 1):
                print(f"\n{name} ({number} of {len(names)})", flush=True)
                outcomes.append(measure(known[name], given.quick, given.out, kept))
    except (OSError, KeyboardInterrupt) as error:
        return cut_off(error, "benchmarks")
    if status := conclude(outcomes):
        return status
    drift = compare(outcomes, page.RESULTS) if given.compare else 0
    for place in (done.kept for done in outcomes if done.kept):
        shutil.rmtree(place)
    if not any(folder.glob(f"{jobs.PLACE}/*")):  # nothing of a longer suite that was interrupted
        shutil.rmtree(folder)
    return drift


if __name__ == "__main__":
    sys.exit(main())
