"""What a person looks at: figures for a paper, and pages that are a single HTML file."""

from jdfl.report.drawing import COLOURS, bands, figure, save_figure
from jdfl.report.page import Chart, Code, Fold, Gallery, Image, Part, Section, Table, Tiles, page

__all__ = [
    "COLOURS",
    "Chart",
    "Code",
    "Fold",
    "Gallery",
    "Image",
    "Part",
    "Section",
    "Table",
    "Tiles",
    "bands",
    "figure",
    "page",
    "save_figure",
]
