"""All benchmarks, or the named ones: `python -m benchmarks [NAME ...] [--quick] [--out DIR]`.

They run in alphabetical order, each in its own process, so that they share neither memory peaks nor compiled programs,
and their output is shown as it comes. A benchmark whose optional packages are missing is skipped. A table of all goals
follows at the end. The exit code is 1 if a benchmark crashed; a missed goal is a finding and leaves it 0.

`--list` lists the benchmarks, `--page` generates docs/benchmarks.md from benchmarks/results; neither measures anything.
"""

import argparse
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from benchmarks import page
from benchmarks.common import Benchmark, Row, discover, read, show


@dataclass(frozen=True)
class Outcome:
    """The result of one benchmark; `why` explains missing rows."""

    name: str
    rows: tuple[Row, ...] = ()
    why: str = ""
    crashed: bool = False


def measure(benchmark: Benchmark, quick: bool, out: Path) -> Outcome:
    """Run one benchmark in its own process, and read what it wrote."""
    missing = [package for package in benchmark.needs if find_spec(package) is None]
    if missing:
        return Outcome(benchmark.name, why=f"skipped: {', '.join(missing)} is not installed")
    path = out / f"{benchmark.name}.json"
    before = _written(path)
    command = [sys.executable, "-u", "-m", f"benchmarks.{benchmark.name}", "--out", str(out)]
    code = subprocess.run([*command, *(["--quick"] if quick else [])]).returncode
    if code:
        return Outcome(benchmark.name, why=f"crashed with exit code {code}", crashed=True)
    if _written(path) == before:
        return Outcome(benchmark.name, why="skipped: it wrote no figures")
    return Outcome(benchmark.name, read(path).rows)


def _written(path: Path) -> int | None:
    """The modification time in nanoseconds, which identifies figures of an earlier run."""
    return path.stat().st_mtime_ns if path.exists() else None


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
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="list the benchmarks and measure nothing")
    instead.add_argument("--page", action="store_true", help="write docs/benchmarks.md and measure nothing")
    given = parser.parse_args(arguments)
    try:
        names = chosen(given.names, known)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        show("Benchmarks", [{"name": name, "measures": known[name].about} for name in names])
        return 0
    if given.page:
        if given.names:
            parser.error("The page covers all benchmarks: --page takes no names.")
        print("written:", page.write())
        return 0
    outcomes = []
    for number, name in enumerate(names, 1):
        print(f"\n{name} ({number} of {len(names)})", flush=True)
        outcomes.append(measure(known[name], given.quick, given.out))
    return conclude(outcomes)


if __name__ == "__main__":
    sys.exit(main())
