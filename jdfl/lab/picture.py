"""Figures that carry the provenance of their numbers in the metadata of their files, and show themselves in notebooks.

pyplot does not know them: nothing has to be closed, no window opens, and the figures of a script do not accumulate.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import matplotlib
from matplotlib.figure import Figure


class Picture(Figure):
    """A figure with an `origin`, the hash of its provenance: PNG, PDF and SVG files carry it; nothing of it is drawn.

    A notebook shows a figure that is on the last line of a cell.
    """

    origin: str = ""

    def savefig(self, fname: Any, *, metadata: Any = None, **options: Any) -> None:
        """Save the figure as matplotlib does, with the provenance in its metadata."""
        suffix = "" if hasattr(fname, "write") else Path(fname).suffix.removeprefix(".")
        kind = options.get("format") or suffix or matplotlib.rcParams["savefig.format"]
        known = {**_origin(kind, self.origin), **(metadata or {})}
        given: dict[str, Any] = {"dpi": 200, **options} | ({"metadata": known} if known else {})
        context: Any = cast(Any, matplotlib).rc_context  # whose type matplotlib leaves open
        with context({"pdf.fonttype": 42}):
            super().savefig(fname, **given)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()


class Drawn(NamedTuple):
    """A figure and its axes, to be taken apart: `fig, ax = result.plot()`. On the last line of a cell it is shown."""

    fig: Figure
    ax: Any  # Axes, or an array of them

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.fig.savefig(content, format="png")
        return content.getvalue()


def save_figure(drawing: Figure, path: str | Path, origin: str = "", also: Sequence[str] = ()) -> Path:
    """Save a figure with the hash of its provenance in the metadata."""
    path = Path(path)
    context: Any = cast(Any, matplotlib).rc_context
    for one in (path, *(path.with_suffix(suffix) for suffix in also)):
        known = _origin(one.suffix.removeprefix(".") or "png", origin)
        with context({"pdf.fonttype": 42}):
            drawing.savefig(one, dpi=200, metadata=known or None)
    return path


def _origin(kind: str, origin: str) -> dict[str, str]:
    """Metadata that name the provenance, in files of this kind; nothing in formats that have none."""
    place = {"png": "Description", "pdf": "Subject", "svg": "Description", "svgz": "Description"}.get(kind.lower())
    return {place: f"Made by jdfl; provenance {origin}"} if place and origin else {}
