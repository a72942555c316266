"""The contract of every benchmark: `python -m benchmarks.NAME [--quick] [--out DIR]`.

It prints a table and writes DIR/NAME.json: the machine, and rows (case, measure, value, unit, goal, met, spread).
Variants that are compared run interleaved in one process, after compilation; the value is a median, followed by the
range.

A benchmark is a file in this folder with

    a docstring        its first line states what is measured, in lists and on the page
    NEEDS = ("...",)   optional packages that it imports, if any; without them it is skipped
    RESULT = "..."     a sentence for the page, in which {CASE -> MEASURE} stands for the value of this row
    LIMIT = "..."      why goals are missed, and what else was tried; for --show
    main               made by `@benchmark` from a function of the options that returns the rows

and is found without being registered anywhere.
"""

import argparse
import ast
import inspect
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from rich.console import Console
from rich.table import Table

from benchmarks.machine import Machine, describe
from jdfl.algorithms.program import Program
from jdfl.base.keys import typed_key
from jdfl.engine import loop, stepping
from jdfl.engine.placement import placed

FOLDER = Path(__file__).parent
SPREAD = re.compile(r"(\S+)–(\S+) \(of \d+\)")


@dataclass(frozen=True)
class Options:
    """The command-line options."""

    quick: bool
    out: Path


@dataclass(frozen=True)
class Row:
    """One figure; `goal` reads like ">= 1.5" and is empty where there is none."""

    case: str
    measure: str
    value: float
    unit: str
    goal: str = ""
    met: bool | None = None
    spread: str = ""

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest measurement, as `spread` shows them; the value where it has none."""
        found = SPREAD.match(self.spread)
        return (float(found[1]), float(found[2])) if found else (self.value, self.value)

    def cells(self) -> dict[str, str]:
        """The fields as a table shows them."""
        met = "" if self.met is None else "yes" if self.met else "NO"
        return asdict(self) | {"value": f"{self.value:.3g}", "met": met}


@dataclass(frozen=True)
class Record:
    """What a benchmark writes."""

    machine: Machine
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Benchmark:
    """What is known of a benchmark without running it."""

    name: str
    about: str
    needs: tuple[str, ...] = ()
    result: str = ""
    limit: str = ""


def discover(folder: Path = FOLDER) -> dict[str, Benchmark]:
    """All benchmarks of a folder in alphabetical order; their files are read, not imported."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        values = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if "RESULT" in values and "main" in functions:
            about = (ast.get_docstring(tree) or "").partition("\n")[0]
            needs, result, limit = (
                ast.literal_eval(values.get(one, ast.Constant(""))) for one in ("NEEDS", "RESULT", "LIMIT")
            )
            found[path.stem] = Benchmark(path.stem, about, tuple(needs), result, limit)
    return found


Make = Callable[[Options], list[Row]]


def benchmark(title: str, *, goals: bool = True) -> Callable[[Make], Callable[..., list[Row]]]:
    """Make a function of the options a command, which reports the rows that it returns, if there are any.

    Args:
        title: The title of the table.
        goals: Whether goals count in quick runs, too; otherwise they are for real sizes.
    """

    def of(make: Make) -> Callable[..., list[Row]]:
        def main(arguments: Sequence[str] | None = None) -> list[Row]:
            parser = argparse.ArgumentParser(
                description=make.__globals__["__doc__"], formatter_class=argparse.RawDescriptionHelpFormatter
            )
            parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
            parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the JSON; out")
            chosen = Options(**vars(parser.parse_args(arguments)))
            chosen.out.mkdir(parents=True, exist_ok=True)
            rows = make(chosen)
            if chosen.quick and not goals:
                rows = [replace(one, goal="", met=None) for one in rows]
            if rows:
                report(title, rows, chosen.out, Path(inspect.getfile(make)).stem, chosen.quick)
            return rows

        return main

    return of


def row(case: str, measure: str, values: Sequence[float], unit: str, goal: str = "") -> Row:
    """The median of some measurements, compared with a goal such as ">= 1.5" or "<= 0.35"."""
    median = float(np.median(values))
    met = None
    if goal:
        relation, bound = goal.split()
        met = {">=": median >= float(bound), "<=": median <= float(bound), "<": median < float(bound)}[relation]
    return Row(case, measure, median, unit, goal, met, f"{min(values):.3g}–{max(values):.3g} (of {len(values)})")


def interleaved(variants: Mapping[str, Callable[[], Any]], repeats: int, rest: float = 0.0) -> dict[str, list[float]]:
    """Seconds of every variant, interleaved A B A B ..., after one warm-up each (results are waited for).

    `rest` seconds pass before each.
    """
    for work in variants.values():
        jax.block_until_ready(work())
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, work in variants.items():
            time.sleep(rest)
            began = time.perf_counter()
            jax.block_until_ready(work())
            seconds[name].append(time.perf_counter() - began)
    return seconds


def rounds_of(
    algorithm: Any, problem: Any, network: Any, rounds: int, mesh: Mesh | None = None, checked: bool = True
) -> Callable[[], Any]:
    """A function that runs `rounds` rounds, as `jdfl.run` does between two records, and returns the state.

    `checked=False` leaves out the rules of `jdfl.engine.invariants`, which no run can.
    """
    program = algorithm if isinstance(algorithm, Program) else Program(algorithm)
    setting = stepping.setting(program, problem, network, None, typed_key(0))
    setting = setting if checked else replace(setting, weights=None)
    setting, layout = (setting, None) if mesh is None else placed(setting, mesh)
    program, carry, _ = loop.start(setting, (), layout)
    ready, carries = replace(setting, program=program), [carry]
    end = np.int32(2**30)

    def work() -> Any:
        carry, _ = loop.advance(carries.pop(), ready, end, rounds, 1, (), layout)
        carries.append(carry)
        return carry.state

    return work


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Ratios pair by pair, so that a drift of the machine cancels."""
    return [a / b for a, b in zip(over, under)]


def report(title: str, rows: Sequence[Row], out: Path, name: str, quick: bool = False) -> None:
    """Print the table and write DIR/NAME.json; `quick` measures the machine's bandwidth on little memory."""
    show(title, [one.cells() for one in rows])
    record = Record(describe(quick), tuple(rows))
    print(record.machine)
    path = out / f"{name}.json"
    path.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")
    print("written:", path)


def read(path: Path) -> Record:
    """What `report` wrote."""
    told = json.loads(path.read_text(encoding="utf-8"))
    return Record(Machine(**told["machine"]), tuple(Row(**one) for one in told["rows"]))


def show(title: str, lines: Iterable[Mapping[str, str]]) -> None:
    """Print a table of lines that have the same columns, as wide as it gets."""
    lines = list(lines)
    table = Table(title=title)
    for column in lines[0] if lines else ():
        table.add_column(column, no_wrap=True)
    for line in lines:
        table.add_row(*line.values())
    console = Console(markup=False)  # [m, n] is no style
    console.width = max(console.width, Console(width=1000, markup=False).measure(table).maximum)
    console.print(table)
