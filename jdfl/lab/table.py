"""Tables of a comparison as text, Markdown and LaTeX, with everything in the caption that decides what they mean."""

import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from jdfl.engine.metrics import HIGHER_IS_BETTER, REGISTRY
from jdfl.lab.paired import leaders

NONE = "–"
USED = "budget used"  # the header of the shares of a budget, of runs that ended before it
WIDTH = 80  # characters of a line in a terminal
PM = "± 95 % CI"  # in headers of means: what ± is in every table, the half-width of the mean's confidence interval
Format = Literal["text", "markdown", "latex"]


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and whether it is the best of its column, or not distinguishable from it."""

    text: str
    mark: Literal["", "best", "tie"] = ""


@dataclass(frozen=True)
class Grid:
    """A table before it is written in some format."""

    headers: list[str]
    rows: list[list[Cell]]
    caption: list[str]  # sentences


def number(value: float, digits: int = 4) -> str:
    """A value as tables show it."""
    if not np.isfinite(value):
        return NONE
    if 10**digits <= round(abs(value)) < 1e9:
        return f"{value:,.0f}"
    fits = value == 0 or 1e-3 <= abs(value) < 1e4
    return f"{value:.{digits}g}" if fits else f"{value:.{digits - 1}e}"


def rounded(mean: float, half: float, same: str = "same in all runs") -> str:
    """A mean ± its uncertainty, without digits beyond the uncertainty, which has two."""
    if not np.isfinite(half):
        return number(mean)
    if half <= 1e-12 * abs(mean):
        return f"{number(mean)} ({same})"
    place = int(np.floor(np.log10(half))) - 1  # of the second digit
    largest = int(np.floor(np.log10(max(abs(mean), half))))
    if -3 <= largest < 9:
        digits = max(0, -place)
        return f"{round(mean, -place):,.{digits}f} ± {round(half, -place):,.{digits}f}"
    digits = max(0, largest - place)
    return f"({mean / 10.0**largest:.{digits}f} ± {half / 10.0**largest:.{digits}f})e{largest:+03d}"


def better(metric: str) -> int:
    """1 where lower values of a `metric` are better, -1 where higher ones are (shares of what is right)."""
    return -1 if metric in HIGHER_IS_BETTER and metric in REGISTRY else 1


def column(
    found: pd.DataFrame,
    name: str,
    values: pd.DataFrame,
    *,
    sign: int | None = None,
    whole: str = "diverged",
    beside: Collection[str] = (),
    reasons: Mapping[str, str] | None = None,
) -> list[Cell]:
    """The cells of one quantity, with a mark on the best one, or on all that cannot be distinguished from it."""
    sign = better(name) if sign is None else sign
    first = leaders(values[[label for label in values.columns if label not in beside]], sign)
    marks: dict[str, Literal["best", "tie"]] = {label: "tie" if len(first) > 1 else "best" for label in first}
    cells: list[Cell] = []
    for label, row in found.iterrows():
        mean, half, have = float(row[name]), float(row[f"{name}_ci"]), int(row["seeds"])
        if not np.isfinite(mean):
            cells.append(Cell((reasons or {}).get(str(label), whole if have == 0 else NONE)))
            continue
        lacking = "" if have == len(values) else f" ({len(values) - have} of {len(values)} {whole})"
        cells.append(Cell(rounded(mean, half, "deterministic") + lacking, marks.get(str(label), "")))
    return cells


def fitted(grid: Grid, first: int = 1, width: int = WIDTH) -> Grid:
    """The part of a table that a terminal of `width` columns shows.

    Empty columns are left out. Columns whose cells are all equal are in the caption, and so are the names of columns
    that do not fit: the first ones stay, then means (headers with PM), then the others from the left.
    """
    columns = list(zip(grid.headers, map(list, zip(*grid.rows)))) if grid.rows else []
    caption, kept, size = list(grid.caption), set(range(min(first, len(columns)))), 0
    rest: list[int] = []
    for place, (head, cells) in enumerate(columns[first:], first):
        texts = {cell.text for cell in cells}
        if texts <= {"", NONE}:
            continue
        if len(texts) == 1 and len(cells) > 1 and PM not in head:
            caption.append(f"{head}: {cells[0].text} in all rows.")
        else:
            rest.append(place)
    widths = [2 + max(len(head), *(len(cell.text) + 2 * bool(cell.mark) for cell in cells)) for head, cells in columns]
    size = sum(widths[place] for place in kept) - 2
    for place in sorted(rest, key=lambda one: (columns[one][0] != USED) + (PM not in columns[one][0])):
        if size + widths[place] <= width or not kept - set(range(first)):
            kept.add(place)
            size += widths[place]
    if more := [columns[place][0] for place in rest if place not in kept]:
        caption.append(f"Not shown here, but in files and pages: {', '.join(more)}.")
    shown = sorted(kept)
    heads = [grid.headers[place] for place in shown] if columns else grid.headers
    return Grid(heads, [[row[place] for place in shown] for row in grid.rows], caption)


def write(grid: Grid, format: Format) -> str:
    """The `grid` in a `format`, with its caption and what the marks of cells mean."""
    grid = fitted(grid, first=2) if format == "text" else grid
    lay, escaped, frames, legend = _FORMATS[format]
    rows = [[frames[cell.mark].format(escaped(cell.text)) for cell in row] for row in grid.rows]
    used = {cell.mark for row in grid.rows for cell in row} - {""}
    told = "; ".join(words for mark, words in legend.items() if mark in used) + "." * bool(used)
    return lay(list(map(escaped, grid.headers)), rows, list(map(escaped, grid.caption)), told)


def wrapped(text: str) -> str:
    """Text for a terminal: the sentences below a table in lines of 80 columns."""
    how: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False, "drop_whitespace": True}
    return "\n".join(line if len(line) <= WIDTH else textwrap.fill(line, WIDTH, **how) for line in text.split("\n"))


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], aligned: str = "---") -> list[str]:
    """The lines of a table in Markdown."""
    lines = [heads, ["---", *[aligned] * (len(heads) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _text(heads: list[str], rows: list[list[str]], caption: list[str], legend: str) -> str:
    widths = [max(map(len, words)) for words in zip(heads, *rows)]
    rule = ["-" * width for width in widths]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (heads, rule, *rows)]
    return "\n".join([*lines, "", *caption, legend]).rstrip() + "\n"


def _markdown(heads: list[str], rows: list[list[str]], caption: list[str], legend: str) -> str:
    return "\n".join([*markdown(heads, rows, "---:"), "", *(f"{line}  " for line in caption), legend]).rstrip() + "\n"


def _latex(heads: list[str], rows: list[list[str]], caption: list[str], legend: str) -> str:
    told = " ".join(filter(None, [*caption, legend]))
    head, *body = (" & ".join(row) + r" \\" for row in (heads, *rows))
    begin = r"\begin{table}", r"\centering", rf"\caption{{{told}}}", rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}"
    end = r"\hline", r"\end{tabular}", r"\end{table}", ""
    return "\n".join([*begin, r"\hline", head, r"\hline", *body, *end])


def _plain(text: str) -> str:
    return text


def _marked_down(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text.replace("\n", " "))


def _tex(text: str) -> str:
    """Text with LaTeX's own signs escaped and powers of ten set as such."""
    escaped = "".join(_TEX.get(sign, sign) for sign in text.replace("\n", " "))
    return re.sub(r"(\d|\))e([+-]\d+)\b", lambda found: rf"{found[1]}$\cdot10^{{{int(found[2])}}}$", escaped)


_TEX = (
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "≤": r"$\le$", "±": r"$\pm$", "–": "--"}
)
_NEAR = "the best mean and all that are not distinguishable from it"
_FORMATS: dict[str, tuple[Callable[..., str], Callable[[str], str], dict[str, str], dict[str, str]]] = {
    "text": (_text, _plain, {"best": "{} *", "tie": "{} ~", "": "{}"}, {"best": "* best", "tie": f"~ {_NEAR}"}),
    "markdown": (
        _markdown,
        _marked_down,
        {"best": "**{}**", "tie": "_{}_", "": "{}"},
        {"best": "Bold: best", "tie": f"italic: {_NEAR}"},
    ),
    "latex": (
        _latex,
        _tex,
        {"best": r"\textbf{{{}}}", "tie": r"\underline{{{}}}", "": "{}"},
        {"best": "Bold: best", "tie": f"underlined: {_NEAR}"},
    ),
}
