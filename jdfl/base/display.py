"""What Python and notebooks show of a value: at most twelve lines, as text and as HTML."""

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

LINES = 12
_WIDE = 110  # characters of a line
_LEFT = "style='text-align:left'"


def line(text: object, most: int = _WIDE) -> str:
    """Text in one line."""
    words = " ".join(str(text).split())
    return words if len(words) <= most else f"{words[: most - 4]} ..."


class Text(str):
    """Text that Python and notebooks show as it is, as far as it fits; `print` writes all of it."""

    __slots__ = ()

    def __repr__(self) -> str:
        lines = self.rstrip("\n").split("\n")
        more = f"... and {len(lines) - LINES + 1} more lines, which print() writes"
        return "\n".join(lines if len(lines) <= LINES else [*lines[: LINES - 1], more])


class Described:
    """A value that is shown as a heading and named lines, which `_described` gives."""

    def _described(self) -> tuple[str, Iterable[tuple[str, str]]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        title, rows = self._described()
        rows = [(name, line(text)) for name, text in rows]
        width, indent = max((len(name) for name, _ in rows), default=0), "  " if title else ""
        return "\n".join([*[title] * bool(title), *(f"{indent}{name:<{width}}  {text}" for name, text in rows)][:LINES])

    def _repr_html_(self) -> str:
        title, rows = self._described()
        cells = (
            f"<tr><th {_LEFT}>{escape(name)}</th><td {_LEFT}>{escape(line(text))}</td></tr>" for name, text in rows
        )
        caption = f"<caption>{escape(title)}</caption>" if title else ""
        return f"<table>{caption}<tbody>{''.join([*cells][: LINES - bool(title)])}</tbody></table>"


class Tabled:
    """A value that is shown as a table, which `_tabled` gives: a title, rows with the headers first, and lines below.

    Rows and columns that do not fit are counted.
    """

    def _tabled(self) -> tuple[str, Sequence[Sequence[str]], Sequence[str]]:
        raise NotImplementedError

    def _fitted(self) -> tuple[str, list[list[str]], list[str]]:
        title, (head, *rows), foot = self._tabled()
        most = LINES - len(foot) - bool(title) - 2
        shown = [[line(cell, 40) for cell in row] for row in (head, *rows[: most + 1])]
        sizes = np.cumsum([2 + max(map(len, column)) for column in zip(*shown)])
        fitting = int(np.searchsorted(sizes, _WIDE + 2, "right"))
        more = [f"{len(head) - fitting} more columns"] if fitting < len(head) else []
        if len(rows) > most + (not more):
            more.insert(0, f"{len(rows) - most} more rows")
            shown = shown[: most + 1]
        last = [f"... and {' and '.join(more)}"] if more else []
        return line(title), [row[:fitting] for row in shown], [*map(line, foot), *last]

    def __repr__(self) -> str:
        title, rows, foot = self._fitted()
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join([*[title] * bool(title), *lines, *foot])

    def _repr_html_(self) -> str:
        title, (head, *rows), foot = self._fitted()
        above = "".join(f"<th {_LEFT}>{escape(cell)}</th>" for cell in head)
        cells = ("".join(f"<td {_LEFT}>{escape(cell)}</td>" for cell in row) for row in rows)
        below = "".join(f"<tr>{row}</tr>" for row in cells)
        texts = (f"<div>{escape(one)}</div>" for one in foot)
        return f"<div>{escape(title)}</div><table><tr>{above}</tr>{below}</table>{''.join(texts)}"
