"""A page that is a single HTML file: text, tables, images and charts, in light and dark, on a phone and on paper.

Nothing is loaded from elsewhere, and there are no scripts. Text comes in the order in which it is read: the conclusion,
what shows it, and details that are folded.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from jdfl.base import checks

_MEDIA = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".svg": "svg+xml"}


@dataclass(frozen=True)
class Table:
    """A table; every cell is shown as `str(cell)`, numbers aligned to the right."""

    headers: Sequence[object]  # of the columns
    rows: Sequence[Sequence[object]]  # of as many cells each


@dataclass(frozen=True)
class Image:
    """A PNG, JPEG or SVG file, put into the page."""

    path: Path  # of the file
    alt: str  # the image in words


@dataclass(frozen=True)
class Chart:
    """Pictures next to each other as far as they fit, made by `jdfl.lab.charts`."""

    pictures: Mapping[tuple[str, str], str]  # SVG by what is on the horizontal axis, and what is shown against it
    alt: str  # the chart in words


@dataclass(frozen=True)
class Code:
    """Text as it is, such as a configuration."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Parts that are folded until a reader opens them; in print they are open."""

    summary: str  # the line that is always shown
    parts: Sequence[Any]  # of Part


Part = str | Table | Image | Chart | Code | Fold  # a text is paragraphs, separated by blank lines


@dataclass(frozen=True)
class Section:
    """A heading and the parts below it."""

    heading: str
    parts: Sequence[Part]  # in this order


def page(path: str | Path, title: str, sections: Sequence[Section], foot: str = "") -> Path:
    """Write a page that is a single HTML file, in which all text is escaped; returns its path.

    Args:
        path: The file, which is replaced if it is there.
        title: The heading of the page.
        sections: The sections in their order, which are listed at the top.
        foot: A line at the end, such as the provenance.

    Raises ValueError for an image that is not PNG, JPEG or SVG and for rows of a table that do not fit its head,
    FileNotFoundError for an image that is not there. Nothing is written then.
    """
    body = "\n".join(
        f'<section id="part-{i}">\n<h2>{_safe(one.heading)}</h2>\n{_parts(one.parts)}\n</section>'
        for i, one in enumerate(sections)
    )
    links = [f'<a href="#part-{i}">{_safe(one.heading)}</a>\n' for i, one in enumerate(sections)]
    text = Template(_file("page.html")).substitute(
        title=_safe(title),
        style=_file("style.css"),
        links="".join(links),
        body=body,
        foot=f"<footer>{_safe(foot)}</footer>" if foot else "",
    )
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


def _safe(text: object) -> str:
    return html.escape(str(text))


def _file(name: str) -> str:
    return files(__name__.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8")


def _parts(parts: Sequence[Part]) -> str:
    return "\n".join(map(_part, parts))


def _part(part: Part) -> str:
    match part:
        case str():
            return "\n".join(f"<p>{_safe(one.strip())}</p>" for one in part.split("\n\n") if one.strip())
        case Table():
            return _table(part)
        case Image():
            path = Path(part.path)
            media = _MEDIA.get(path.suffix.lower())
            if media is None:
                raise ValueError(f"Expected an image of type {', '.join(_MEDIA)}, got {path}.")
            if not path.is_file():
                raise FileNotFoundError(f"Expected an image at {path}, found none.")
            data = base64.b64encode(path.read_bytes()).decode("ascii")
            return f'<img src="data:image/{media};base64,{data}" alt="{_safe(part.alt)}">'
        case Chart():
            plots = "\n".join(
                f'<div class="plot" role="img" aria-label="{_safe(y)} against {_safe(x)}">{svg}</div>'
                for (x, y), svg in part.pictures.items()
            )
            return f'<figure class="chart" aria-label="{_safe(part.alt)}">\n{plots}\n</figure>'
        case Code():
            return f'<pre tabindex="0"><code>{_safe(part.text)}</code></pre>'
        case Fold():
            return f"<details><summary>{_safe(part.summary)}</summary>\n{_parts(part.parts)}\n</details>"


def _table(table: Table) -> str:
    """Every cell has the head of its column for phones, where every row is a list."""
    heads, rows = [_safe(cell) for cell in table.headers], list[str]()
    for i, row in enumerate(table.rows):
        if len(row) != len(heads):
            raise ValueError(f"Expected {len(heads)} cells in every row, got {len(row)} in row {i}.")
        cells = ""
        for cell, head in zip(row, heads):
            number = checks.is_a(cell, int | float | np.number) and not isinstance(cell, bool)
            cells += f'<td role="cell"{" class=number" if number else ""} data-label="{head}">{_safe(cell)}</td>'
        rows.append(f'<tr role="row">{cells}</tr>\n')
    head = "".join(f'<th scope="col" role="columnheader">{cell}</th>' for cell in heads)
    return (
        '<div class="wide" tabindex="0"><table role="table">\n'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{"".join(rows)}</tbody></table></div>'
    )
