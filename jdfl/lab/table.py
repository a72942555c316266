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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from jdfl.base.terminal import width, wrapped
from jdfl.engine.metrics import HIGHER_IS_BETTER, REGISTRY

LEVEL = 0.95
ALIKE = 1e-6  # relative difference up to which two values are the same: rounding in float32
NONE = "–"
USED = "budget used"  # the header of the shares of a budget, of runs that ended before it
PM = "± 95 % CI"  # in headers of means: what ± is in every table, the half-width of the mean's confidence interval
Format = Literal["text", "markdown", "latex"]
ENTIRE = 2**31  # characters of a line in a file, which depends on no terminal
_NAMED = 150  # characters of the names of columns that are not shown
_TURNED = 3  # rows of a table that is turned, at most
_LEAST = (24, 16, 10)  # characters of a header's lines, as few as needed


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
    vital: Collection[int] = (0, 1)  # columns that are shown where there is no room for all


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


def fitted(grid: Grid, rest: str, room: int | None = None) -> tuple[list[str], list[str]]:
    """The lines of a table, `room` characters (None: of the terminal) in each, and the sentences below it.

    Rows with values in other columns than those above are another table. Empty columns are left out, and those of equal
    cells are in a line below. In a table that is too wide, headers and long texts have several lines. If it is still
    too wide and has up to three rows, columns become rows; otherwise it has its vital columns, below each other, each
    time after the first column, then means (headers with PM), then the others from the left, as far as there is room.
    A sentence says how many are in `rest` only.
    """
    lines, left, frames = list[str](), dict[str, None](), _FORMATS["text"][1]
    for rows in _alike(grid.rows) or [grid.rows]:
        columns, alike = dict[int, list[str]](), list[str]()
        for place, (head, *cells) in enumerate(zip(grid.headers, *rows)):
            texts = {cell.text for cell in cells}
            if not place or not rows or (texts - {"", NONE} and (len(texts) > 1 or len(cells) == 1 or PM in head)):
                columns[place] = [head, *(frames[cell.mark].format(cell.text) for cell in cells)]
            elif texts - {"", NONE}:
                alike.append(f"{head}: {cells[0].text}")
        tables, missing = _blocks(columns, grid.vital, width() if room is None else room)
        for one in tables:
            lines += [*padded(one, rule=True), ""]
        lines += [wrapped(f"In all {len(rows)} rows: {'; '.join(alike)}.", room=room), ""] if alike else []
        left |= {grid.headers[place]: None for place in missing}
    names = textwrap.shorten(", ".join(left), _NAMED, placeholder=" ...")
    more = f"{len(left)} more column{'s are' if len(left) > 1 else ' is'} in {rest} ({names})."
    return lines[:-1], [*grid.caption, *[more] * bool(left)]


def _alike(rows: Sequence[list[Cell]]) -> list[list[list[Cell]]]:
    """Rows in groups of those that have values in the same columns, or in half of those of another row."""
    groups: list[tuple[set[int], list[list[Cell]]]] = []
    for row in sorted(rows, key=lambda row: -sum(bool(cell.text) for cell in row)):
        mine = {place for place, cell in enumerate(row) if cell.text} - {0}
        found = next((group for group in groups if mine <= group[0] and 2 * len(mine) >= len(group[0])), None)
        if found is None:
            groups.append(found := (mine, []))
        found[1].append(row)
    place = {id(row): i for i, row in enumerate(rows)}
    ordered = [sorted(members, key=lambda row: place[id(row)]) for _, members in groups]
    return sorted(ordered, key=lambda members: place[id(members[0])])


def _blocks(
    columns: Mapping[int, Sequence[str]], vital: Collection[int], room: int
) -> tuple[list[list[list[str]]], list[int]]:
    """Columns, headers first, as tables that have room in lines, and the places of those that are in none."""
    first, *others = columns
    if _size(columns.values()) <= room:
        return [list(map(list, zip(*columns.values())))], []
    if len(columns[first]) <= 1 + _TURNED < len(columns):
        turned = dict(enumerate(zip(*columns.values())))
        return _blocks(turned, turned, room)
    narrow = dict(columns)
    for least in _LEAST:
        for place, cells in columns.items():
            narrow[place] = _narrowed(cells, least, room // (3 if place else 2))
        if _size(narrow.values()) <= room:
            break
    means = {place for place in others if PM in columns[place][0] or columns[place][0] == USED}
    order = sorted(others, key=lambda place: 0 if place in vital else 1 if place in means else 2)
    blocks, left = [[first]], list[int]()
    for place in order:
        if _size(narrow[one] for one in (*blocks[-1], place)) <= room or len(blocks[-1]) == 1:
            blocks[-1].append(place)
        elif place in vital:
            stems = [columns[one][0].rpartition(", ")[0] for one in (blocks[-1][-1], place)]
            paired = stems[0] == stems[1] != "" and len(blocks[-1]) > 2  # the paper's number and ours
            blocks.append([first, *([blocks[-1].pop()] if paired else []), place])
        else:
            left.append(place)
    return [list(map(list, zip(*(narrow[place] for place in sorted(block))))) for block in blocks], sorted(left)


def _narrowed(cells: Sequence[str], least: int, most: int) -> list[str]:
    """Cells in lines of at most `most` characters, below a header in lines no longer than they or than `least`."""
    longest = max(least, *(min(len(cell), most) for cell in cells[1:]))
    head = textwrap.wrap(cells[0], longest, break_long_words=False, break_on_hyphens=False)
    longest = max(map(len, [*head, *(cell[:most] for cell in cells[1:])]))
    body = (textwrap.wrap(cell, longest, subsequent_indent="  ", break_on_hyphens=False) for cell in cells[1:])
    return ["\n".join(head), *map("\n".join, body)]


def _size(columns: Iterable[Sequence[str]]) -> int:
    """Characters of a line of a table with these columns."""
    return sum(2 + max(len(line) for cell in cells for line in cell.split("\n")) for cells in columns) - 2


def write(grid: Grid, format: Format, rest: str = 'table("markdown")', room: int | None = None) -> str:
    """The `grid` in a `format`, with its caption and what the marks of cells mean.

    A text has what fits lines of `room` characters (None: the terminal's), as `fitted` says; `rest` says where
    everything else is.
    """
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
        lines, caption = fitted(grid, rest, room)
        caption, legend = [wrapped(line, room=room) for line in caption], wrapped(legend, room=room)
    return "\n".join([*lines, "", *caption, legend]).rstrip() + "\n"


def padded(rows: Sequence[Sequence[str]], rule: bool = False) -> list[str]:
    """Rows of cells, which may have several lines, as lines with aligned columns, perhaps with a rule below the first.

    Headers stand on the rule.
    """
    split = [[cell.split("\n") for cell in row] for row in rows]
    widths = [max(len(line) for cell in column for line in cell) for column in zip(*split)]
    lines: list[str] = []
    for place, row in enumerate(split):
        high = max(map(len, row))
        cells = [cell if place else [""] * (high - len(cell)) + cell for cell in row]
        lines += ["  ".join(map(str.ljust, line, widths)).rstrip() for line in zip_longest(*cells, fillvalue="")]
        lines += ["  ".join("-" * one for one in widths)] * (rule and not place)
    return lines


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], aligned: str = "---") -> list[str]:
    """The lines of a table in Markdown."""
    lines = [heads, ["---", *[aligned] * (len(heads) - 1)], *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


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
