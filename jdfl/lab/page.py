"""A page that is a single HTML file: text, tables, images and charts, in light and dark, on a phone and on paper.

Nothing is loaded from elsewhere. Charts are drawn as SVG by script.js, which is in the file if it has any.
"""

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from PIL import Image as Picture

from jdfl.base import checks

_MEDIA = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".svg": "svg+xml"}
_THUMBNAIL = (480, 360)  # pixels at most, shown half as large


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
    """A chart with its own controls, made by `jdfl.lab.charts`."""

    kind: str  # the function of script.js that draws it
    data: dict[str, Any]  # plain data
    alt: str  # the chart in words


@dataclass(frozen=True)
class Code:
    """Text as it is, such as a configuration."""

    text: str


@dataclass(frozen=True)
class Tiles:
    """The few numbers that matter most, each with its name and a remark."""

    tiles: Sequence[tuple[str, str, str]]  # name, value, remark


@dataclass(frozen=True)
class Fold:
    """Parts that are folded until a reader opens them; in print they are open."""

    summary: str  # the line that is always shown
    parts: Sequence[Any]  # of Part


@dataclass(frozen=True)
class Gallery:
    """Small pictures that link to sections of the page."""

    items: Sequence[tuple[str, str, Path | None]]  # name of the section, title, PNG or JPEG file where there is one


Part = str | Table | Image | Chart | Code | Tiles | Fold | Gallery  # a text is paragraphs, separated by blank lines


@dataclass(frozen=True)
class Section:
    """A heading and the parts below it."""

    heading: str
    parts: Sequence[Part]  # in this order
    name: str = ""  # the target of links; a section with a name is not listed at the top


def page(path: str | Path, title: str, sections: Sequence[Section], foot: str = "") -> Path:
    """Write a page that is a single HTML file, in which all text is escaped; returns its path.

    Args:
        path: The file, which is replaced if it is there.
        title: The heading of the page.
        sections: The sections in their order; those without a name are listed at the top.
        foot: A line at the end, such as the provenance.

    Raises ValueError for an image that is not PNG, JPEG or SVG and for rows of a table that do not fit its head,
    FileNotFoundError for an image that is not there. Nothing is written then.
    """
    body = "\n".join(
        f'<section id="{_safe(one.name) or f"part-{i}"}">\n{_heading(one)}\n{_parts(one.parts)}\n</section>'
        for i, one in enumerate(sections)
    )
    links = [f'<a href="#part-{i}">{_safe(one.heading)}</a>\n' for i, one in enumerate(sections) if not one.name]
    script = f'<script>"use strict";\n(() => {{\n{_file("script.js")}}})();</script>'
    text = Template(_file("page.html")).substitute(
        title=_safe(title),
        style=_file("style.css"),
        links="".join(links),
        body=body,
        foot=f"<footer>{_safe(foot)}</footer>" if foot else "",
        scripts=script if '<figure class="chart"' in body else "",
    )
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


def _safe(text: object) -> str:
    return html.escape(str(text))


def _file(name: str) -> str:
    return files(__name__.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8")


def _heading(section: Section) -> str:
    head = "h3" if section.name else "h2"
    return f"<{head}>{_safe(section.heading)}</{head}>"


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
            return f'<img src="{_uri(media, path.read_bytes())}" alt="{_safe(part.alt)}">'
        case Chart():
            checks.one_of(("curves", "network", "bars", "timeline"), kind=part.kind)
            data = json.dumps(part.data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
            alt = _safe(part.alt)
            return (
                f'<figure class="chart" data-kind="{part.kind}" aria-label="{alt}">\n<noscript>{alt}</noscript>\n'
                f'<script type="application/json">{data}</script>\n</figure>'
            )
        case Code():
            return f'<pre tabindex="0"><code>{_safe(part.text)}</code></pre>'
        case Tiles():
            tiles = [(_safe(name), _safe(value), _safe(remark)) for name, value, remark in part.tiles]
            shown = (
                f"<div><dt>{name}</dt><dd><strong>{value}</strong></dd>{remark and f'<dd>{remark}</dd>'}</div>"
                for name, value, remark in tiles
            )
            return f'<dl class="tiles">{"".join(shown)}</dl>'
        case Fold():
            return f"<details><summary>{_safe(part.summary)}</summary>\n{_parts(part.parts)}\n</details>"
        case Gallery():
            return '<ul class="gallery">\n' + "\n".join(_thumbnail(*item) for item in part.items) + "\n</ul>"


def _thumbnail(name: str, title: str, path: Path | None) -> str:
    picture = ""
    if path is not None:
        with Picture.open(path) as image:
            small = image.convert("RGB")
        small.thumbnail(_THUMBNAIL)
        data = io.BytesIO()
        small.quantize(64).save(data, "PNG", optimize=True)
        picture = f'<img src="{_uri("png", data.getvalue())}" alt="">'
    return f'<li><a href="#{_safe(name)}">{picture}<span>{_safe(title)}</span></a></li>'


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


def _uri(media: str, data: bytes) -> str:
    return f"data:image/{media};base64,{base64.b64encode(data).decode('ascii')}"
