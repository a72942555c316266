"""What Python and notebooks show of results and comparisons: at most twelve lines."""

import html as escape
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jdfl.engine.accountant import account
from jdfl.engine.metrics import COUNTS
from jdfl.engine.result import Result
from jdfl.lab.summary import bytes_text, described
from jdfl.lab.table import number
from jdfl.privacy.report import upper

if TYPE_CHECKING:
    from jdfl.lab.comparison import Comparison

LINES = 12
_METRICS = 6  # of a run, at most
# Nothing here sets a colour, so that the page around it, light or dark, decides.
_TABLE = '<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">'
_CELL = 'style="text-align:left;vertical-align:top;padding:2px 10px 2px 0;border:0;background:transparent"'


def of_result(result: Result) -> list[tuple[str, str]]:
    """A run in at most twelve named lines.

    What ran, how it ended, the final metrics, what was sent, and epsilon.
    """
    m, n = result.params.shape
    final = {name: value for name, value in result.final.items() if name not in COUNTS}
    more = len(final) - _METRICS
    metrics = [f"{name.replace('_', ' ')} {number(value)}" for name, value in list(final.items())[:_METRICS]]
    lines = [
        ("result", f"{described(result.algorithm)} on {result.problem_name} over {result.network_name}"),
        ("size", f"{m} nodes, paired {result.pairing or 'by position'}; {n:,} parameters each"),
        ("rounds", f"{result.rounds:,}, ended by {result.ending}: {result.reason}"),
        ("metrics", ", ".join(metrics) + (f", and {more} more" if more > 0 else "") or "none recorded"),
        ("sent", f"{bytes_text(result.totals.bytes)} by all nodes, {sum(result.totals.messages.values()):,} messages"),
        ("epsilon", _epsilon(result)),
        ("time", f"{result.seconds:.3g} s, and {result.compile_seconds:.3g} s of compilation"),
        ("provenance", result.provenance.hash),
    ]
    lines += [("minimises", result.minimises)] if result.minimises else []
    lines += [("warning", warning) for warning in result.warnings[: LINES - len(lines) - 1]]
    if result.labels:
        lines.insert(2, ("labels", ", ".join(f"{name} = {value}" for name, value in result.labels.items())))
    return [(name, _short(text)) for name, text in lines]


def html(lines: Sequence[tuple[str, str]]) -> str:
    """Named lines as a small table."""
    rows = "".join(
        f"<tr><th {_CELL}>{escape.escape(name)}</th><td {_CELL}>{escape.escape(text)}</td></tr>" for name, text in lines
    )
    return f"{_TABLE}{rows}</table>"


def of_comparison(comparison: "Comparison") -> str:
    """The table of a comparison with its setting, in at most twelve lines."""
    head, rows, foot = _table(comparison)
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (head, *rows)]
    return "\n".join([_short(f"Comparison on {comparison.setting}"), *lines, *foot])


def html_of_comparison(comparison: "Comparison") -> str:
    """The same as a small table."""
    head, rows, foot = _table(comparison)
    line = "".join(f"<th {_CELL}>{escape.escape(one)}</th>" for one in head)
    body = "".join("<tr>" + "".join(f"<td {_CELL}>{escape.escape(one)}</td>" for one in row) + "</tr>" for row in rows)
    told = escape.escape(_short(f"Comparison on {comparison.setting}"))
    last = "".join(f"<div>{escape.escape(one)}</div>" for one in foot)
    return f"<div>{told}</div>{_TABLE}<thead><tr>{line}</tr></thead><tbody>{body}</tbody></table>{last}"


def _table(comparison: "Comparison") -> tuple[list[str], list[list[str]], list[str]]:
    """Head, rows and the lines below; rows that do not fit are counted."""
    grid = comparison.grid()
    marks = {"best": " *", "tie": " ~", "": ""}
    rows = [[_short(cell.text, 40) + marks.get(cell.mark, "") for cell in row] for row in grid.rows]
    room = LINES - 4
    more = len(rows) - room
    runs = {label: len(found) for label, found in comparison.results.items()}
    foot = [f"and {more} more methods"] if more > 0 else []
    foot.append(_short(f"{max(runs.values(), default=0)} runs each; .table(), .plot(), .save(folder), .report(path)"))
    return [str(one) for one in grid.headers], rows[:room], foot


def _epsilon(result: Result) -> str:
    """Epsilon of the run, or why there is none."""
    if not result.guarantee.claimed:
        return f"no guarantee is claimed: {result.guarantee.reason}"
    report = account(result)
    return f"{upper(report.epsilon)} at delta = {report.delta:g}, of the worst node"


def _short(text: str, most: int = 110) -> str:
    """Text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 4]} ..."
