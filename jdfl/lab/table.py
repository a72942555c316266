"""Numbers with their uncertainty, which of several methods is the best, and tables that say so.

All intervals are Student's, for independent trials whose values are about normal: mean +- t sd / sqrt(T), with T - 1
degrees of freedom. Where k methods are compared, each paired difference has an interval of confidence
1 - (1 - level) / c (Bonferroni), so that all intervals that are shown hold together with probability `level`. With a
reference that was named beforehand c is k - 1, the number of differences from it. The method with the best mean is
chosen by looking at the same trials, which makes it look better than it is; c is then k (k - 1) / 2, the number of all
pairs, among which these differences are whatever is chosen. A method is the best only where all of its intervals
exclude zero. The probability that one is called the best while another one is at least as good is then at most
(1 - level) / 2: for that, an interval of the differences from the truly best method would have to miss zero on one
side.

Axes: T trials, k methods.
"""

import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from jdfl.engine.metrics import HIGHER_IS_BETTER, REGISTRY

LEVEL = 0.95
ALIKE = 1e-6  # relative difference up to which two values are the same: rounding in float32
NONE = "–"
USED = "budget used"  # the header of the shares of a budget, of runs that ended before it
WIDTH = 80  # characters of a line in a terminal
PM = "± 95 % CI"  # in headers of means: what ± is in every table, the half-width of the mean's confidence interval
Format = Literal["text", "markdown", "latex"]


def half_width(values: np.ndarray, level: float = LEVEL) -> float:
    """Half the length of the confidence interval of a mean; NaN for fewer than two values, or with one not finite."""
    size = len(values)
    if size < 2 or not np.isfinite(values).all():
        return float("nan")
    return float(stdtrit(size - 1, (1 + level) / 2) * np.std(values, ddof=1) / np.sqrt(size))


def half_widths(values: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """`half_width` of the values [k, T] of every row, without those that are NaN; returns [k]."""
    missing = np.isnan(values)
    size = values.shape[1] - missing.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(missing, 0.0, values).sum(axis=1) / size
        spread = np.sqrt((np.where(missing, 0.0, values - mean[:, None]) ** 2).sum(axis=1) / (size - 1))
        half = stdtrit(size - 1, (1 + level) / 2) * spread / np.sqrt(size)
    return np.where((size > 1) & np.isfinite(half), half, np.nan)


def differences(
    values: pd.DataFrame, sign: int, reference: str | None = None, apart: Sequence[str] = ()
) -> pd.DataFrame:
    """Paired differences of all methods from one of them, with simultaneous confidence intervals.

    Those in `apart` are never the reference, and have no difference.
    """
    values = values.drop(columns=list(apart))
    columns = ["reference", "difference", "low", "high", "trials", "verdict"]
    named = reference is not None
    if reference is None:
        reference = min(_everywhere(values), key=lambda name: sign * float(values[name].mean()), default=None)
    if reference is None:
        return pd.DataFrame(columns=columns).rename_axis("label")
    others = [str(name) for name in values.columns if name != reference]
    comparisons = max(1, len(others)) * (1 if named else (len(others) + 1) / 2)
    each = 1 - (1 - LEVEL) / comparisons
    rows: dict[str, list[object]] = {}
    for label in others:
        pairs = values[[label, reference]].to_numpy(float)
        pairs = pairs[np.isfinite(pairs).all(axis=1)]
        gaps = pairs[:, 0] - pairs[:, 1]
        mean = float(gaps.mean()) if len(gaps) else float("nan")
        half = half_width(gaps, each)
        same = len(gaps) > 0 and np.ptp(gaps) == 0 == mean
        far = abs(mean) > max(half, ALIKE * float(np.abs(pairs).max(initial=0.0)))
        verdict = "not distinguishable" if same or not far else "better" if sign * mean < 0 else "worse"
        rows[label] = [reference, mean, mean - half, mean + half, len(gaps), verdict]
    rows |= {label: [reference, np.nan, np.nan, np.nan, 0, "not comparable"] for label in apart}
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("label")


def leaders(values: pd.DataFrame, sign: int) -> list[str]:
    """The method with the best mean, first, and all that cannot be distinguished from it.

    Methods without a value in some trial are left out; with a single trial there are no intervals, and no leader.
    """
    present = _everywhere(values)
    if len(values) < 2 or not present:
        return []
    found = differences(values[present], sign)
    (best,) = set(present) - set(found.index)
    return [best, *(str(label) for label in found.index[found["verdict"] == "not distinguishable"])]


def _everywhere(values: pd.DataFrame) -> list[str]:
    """The methods that have a value in every trial."""
    return [str(name) for name in values.columns if len(values) and np.isfinite(values[name]).all()]


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


def column(
    found: pd.DataFrame,
    name: str,
    values: pd.DataFrame,
    *,
    sign: int | None = None,
    missing: str = "diverged",
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
            cells.append(Cell((reasons or {}).get(str(label), missing if have == 0 else NONE)))
            continue
        lacking = "" if have == len(values) else f" ({len(values) - have} of {len(values)} {missing})"
        cells.append(Cell(rounded(mean, half, "deterministic") + lacking, marks.get(str(label), "")))
    return cells


def fitted(grid: Grid, first: int = 1) -> Grid:
    """The part of a table that a terminal shows.

    Empty columns are left out. Columns whose cells are all equal are in the caption, and so are the names of columns
    that do not fit: the `first` ones stay, then means (headers with PM), then the others from the left.
    """
    if not grid.rows:
        return grid
    columns = list(zip(grid.headers, map(list, zip(*grid.rows))))
    caption, fitting, rest = list(grid.caption), set(range(min(first, len(columns)))), list[int]()
    for place, (head, cells) in enumerate(columns[first:], first):
        texts = {cell.text for cell in cells}
        if len(texts) == 1 and len(cells) > 1 and PM not in head and not texts <= {"", NONE}:
            caption.append(f"{head}: {cells[0].text} in all rows.")
        elif not texts <= {"", NONE}:
            rest.append(place)
    widths = [2 + max(len(head), *(len(cell.text) + 2 * bool(cell.mark) for cell in cells)) for head, cells in columns]
    size = sum(widths[place] for place in fitting) - 2
    for place in sorted(rest, key=lambda one: (columns[one][0] != USED) + (PM not in columns[one][0])):
        if size + widths[place] <= WIDTH or not fitting - set(range(first)):
            fitting.add(place)
            size += widths[place]
    if more := [columns[place][0] for place in rest if place not in fitting]:
        caption.append(f"Not shown here, but in files and pages: {', '.join(more)}.")
    shown = sorted(fitting)
    return Grid([grid.headers[i] for i in shown], [[row[i] for i in shown] for row in grid.rows], caption)


def write(grid: Grid, format: Format) -> str:
    """The `grid` in a `format`, with its caption and what the marks of cells mean."""
    grid = fitted(grid, first=2) if format == "text" else grid
    escaped, frames, meanings = _FORMATS[format]
    heads, caption = list(map(escaped, grid.headers)), list(map(escaped, grid.caption))
    rows = [[frames[cell.mark].format(escaped(cell.text)) for cell in row] for row in grid.rows]
    used = {cell.mark for row in grid.rows for cell in row} - {""}
    legend = "; ".join(words for mark, words in meanings.items() if mark in used) + "." * bool(used)
    if format == "latex":
        head, *body = (" & ".join(row) + r" \\" for row in (heads, *rows))
        begin = [r"\begin{table}", r"\centering", rf"\caption{{{' '.join(filter(None, [*caption, legend]))}}}"]
        begin.append(rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}")
        end = [r"\hline", r"\end{tabular}", r"\end{table}", ""]
        return "\n".join([*begin, r"\hline", head, r"\hline", *body, *end])
    if format == "markdown":
        lines, caption = markdown(heads, rows, "---:"), [f"{line}  " for line in caption]
    else:
        lines = padded([heads, *rows], rule=True)
    return "\n".join([*lines, "", *caption, legend]).rstrip() + "\n"


def padded(rows: Sequence[Sequence[str]], rule: bool = False) -> list[str]:
    """Rows of cells as lines with aligned columns, perhaps with a rule below the first one."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [lines[0], *["  ".join("-" * width for width in widths)] * rule, *lines[1:]]


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], aligned: str = "---") -> list[str]:
    """The lines of a table in Markdown."""
    lines = [heads, ["---", *[aligned] * (len(heads) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def wrapped(text: str) -> str:
    """Text for a terminal: the sentences below a table in lines of 80 columns."""
    how: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False, "drop_whitespace": True}
    return "\n".join(line if len(line) <= WIDTH else textwrap.fill(line, WIDTH, **how) for line in text.split("\n"))


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
# By format: how text is escaped, what cells with a mark look like, and what the marks mean.
_FORMATS: dict[Format, tuple[Callable[[str], str], dict[str, str], dict[str, str]]] = {
    "text": (str, {"best": "{} *", "tie": "{} ~", "": "{}"}, {"best": "* best", "tie": f"~ {_NEAR}"}),
    "markdown": (
        _marked_down,
        {"best": "**{}**", "tie": "_{}_", "": "{}"},
        {"best": "Bold: best", "tie": f"italic: {_NEAR}"},
    ),
    "latex": (
        _tex,
        {"best": r"\textbf{{{}}}", "tie": r"\underline{{{}}}", "": "{}"},
        {"best": "Bold: best", "tie": f"underlined: {_NEAR}"},
    ),
}
