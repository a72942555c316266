"""All that is recorded about a benchmark, as text for a terminal: `python -m benchmarks NAME ... --show`."""

from collections.abc import Sequence
from itertools import groupby
from textwrap import TextWrapper

from benchmarks.common import Benchmark, Record
from benchmarks.page import age

INDENT = "  "  # of rows below their case


def text(benchmark: Benchmark, record: Record, width: int) -> str:
    """The question, the command, the machine, the age, the figures case by case, and why some goals are missed."""
    facts = (benchmark.about, f"python -m benchmarks.{benchmark.name}", f"{record.machine}.", age(benchmark.name))
    about = [line for fact in facts for line in wrapped(fact, width)]
    reason = ["", *wrapped(benchmark.limit, width)] if benchmark.limit else []
    return "\n".join([benchmark.name, *about, "", *figures(record, width), *reason, ""])


def figures(record: Record, width: int) -> list[str]:
    """A line for every case, followed by its rows; columns that are empty in all rows are left out."""
    rows = [row.cells() for row in record.rows]
    shown = [name for name in rows[0] if name not in ("case", "measure") and any(cells[name] for cells in rows)]
    widths = {name: max(len(cells[name]) for cells in [*rows, {name: name}]) for name in ("measure", *shown)}
    longest = max(len(word) for cells in rows for word in cells["measure"].split())
    left = width - len(INDENT) - sum(widths[name] for name in shown)  # for the measure and the gaps
    gap = 2 if longest + 2 * len(shown) <= left else 1
    widths["measure"] = min(widths["measure"], max(longest, left - gap * len(shown)))

    def aligned(measure: str, cells: Sequence[str]) -> list[str]:
        first, *others = wrapped(measure, widths["measure"])
        columns = [cell.ljust(most) for cell, most in zip([first, *cells], widths.values(), strict=True)]
        return [f"{INDENT}{(' ' * gap).join(columns).rstrip()}", *(f"{INDENT}{INDENT}{other}" for other in others)]

    lines = aligned("measure", shown)
    for case, members in groupby(rows, lambda cells: cells["case"]):
        lines += wrapped(case, width)
        for cells in members:
            lines += aligned(cells["measure"], [cells[name] for name in shown])
    return lines


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text; no word is divided."""
    return TextWrapper(width, break_on_hyphens=False, break_long_words=False).wrap(text)
