"""Tables of a comparison as text, Markdown and LaTeX, with everything in the caption that decides what they mean."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from jdfl.lab.curves import NONE, better, number

Format = Literal["text", "markdown", "latex"]


@dataclass(frozen=True)
class Cell:
    """What stands in one place, and whether it is the best of its column or equal to it within its deviation."""

    text: str
    mark: Literal["", "best", "tie"] = ""


@dataclass(frozen=True)
class Grid:
    """A table before it is written in some format."""

    headers: list[str]
    rows: list[list[Cell]]
    caption: list[str]  # sentences


def spread(mean: float, sd: float) -> str:
    """Mean ± sd, the deviation with two digits; in words where all values are the same."""
    if sd <= 1e-12 * abs(mean):
        return f"{number(mean)} (same in all runs)"
    return number(mean) + (f" ± {number(sd, 2)}" if np.isfinite(sd) else "")


def column(
    found: pd.DataFrame,
    name: str,
    seeds: int,
    *,
    sign: int | None = None,
    whole: str = "diverged",
    beside: Collection[str] = (),
    reasons: Mapping[str, str] | None = None,
) -> list[Cell]:
    """The cells of a quantity NAME, NAME_sd of a frame of `at`: the best bold, and those within its deviation of it.

    Where some seeds have no value the cell says so (they are lacking for the reason `whole`) and is never the best. A
    `sign` of 1 or -1 says whether low or high values are good; None: the metric's own. Labels that stand `beside` the
    others are never the best. `reasons` say for a label why it has no value.
    """
    sign = better(name) if sign is None else sign
    means, deviations = found[name].to_numpy(float), found[f"{name}_sd"].to_numpy(float)
    fit = np.isfinite(means) & (found["seeds"].to_numpy() == seeds) & ~found.index.isin(list(beside))
    best = np.min(np.where(fit, sign * means, np.inf)) if len(found) else np.inf
    near = np.nanmax(np.where(fit & (sign * means == best), np.nan_to_num(deviations), 0.0)) if fit.any() else 0.0
    cells: list[Cell] = []
    for label, mean, sd, good, have in zip(found.index.astype(str), means, deviations, fit, found["seeds"]):
        if not np.isfinite(mean):
            cells.append(Cell((reasons or {}).get(label, whole if have == 0 else NONE)))
            continue
        lacking = "" if have == seeds else f" ({seeds - int(have)} of {seeds} {whole})"
        mark = "" if not good else "best" if sign * mean == best else "tie" if sign * mean - best <= near else ""
        cells.append(Cell(spread(mean, sd) + lacking, mark))
    return cells


def write(grid: Grid, format: Format) -> str:
    """The table in a format."""
    return {"text": _text, "markdown": _markdown, "latex": _latex}[format](grid)


def _text(grid: Grid) -> str:
    rows = [[cell.text + {"best": " *", "tie": " ~", "": ""}[cell.mark] for cell in row] for row in grid.rows]
    widths = [max(map(len, words)) for words in zip(grid.headers, *rows)]
    lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in (grid.headers, *rows)]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return (
        "\n".join([*lines, "", *grid.caption, _marks(grid, "* best", "~ within one standard deviation of it")]).rstrip()
        + "\n"
    )


def _markdown(grid: Grid) -> str:
    frame = {"best": "**{}**", "tie": "_{}_", "": "{}"}
    body = [[frame[cell.mark].format(_escaped(cell.text)) for cell in row] for row in grid.rows]
    heads = [_escaped(word) for word in grid.headers]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *body]
    table = ["| " + " | ".join(line) + " |" for line in lines]
    marks = _marks(grid, "Bold: best", "italic: within one standard deviation of it")
    return "\n".join([*table, "", *(f"{_escaped(line)}  " for line in grid.caption), marks]).rstrip() + "\n"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text.replace("\n", " "))


def _latex(grid: Grid) -> str:
    frame = {"best": "\\textbf{{{}}}", "tie": "\\underline{{{}}}", "": "{}"}
    body = [" & ".join(frame[cell.mark].format(_tex(cell.text)) for cell in row) + r" \\" for row in grid.rows]
    marks = _marks(grid, "Bold: best", "underlined: within one standard deviation of it")
    caption = " ".join(filter(None, [*map(_tex, grid.caption), marks]))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(grid.headers) - 1)}}}",
            r"\hline",
            " & ".join(map(_tex, grid.headers)) + r" \\",
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "≤": r"$\le$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def _tex(text: str) -> str:
    """Text with LaTeX's own signs escaped and powers of ten set as such."""
    escaped = "".join(_TEX.get(sign, sign) for sign in text.replace("\n", " "))
    return re.sub(r"(\d)e([+-]\d+)\b", lambda found: rf"{found[1]}$\cdot10^{{{int(found[2])}}}$", escaped)


def _marks(grid: Grid, best: str, tie: str) -> str:
    """What the marks mean, as far as there are any."""
    used = {cell.mark for row in grid.rows for cell in row}
    return "; ".join(words for mark, words in (("best", best), ("tie", tie)) if mark in used) + (
        "." if used - {""} else ""
    )
