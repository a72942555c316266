from . import charts, comparison, drawing, overview, page, study, table, trackers, watch

__all__ = [
    "charts",
    "comparison",
    "drawing",
    "overview",
    "page",
    "study",
    "table",
    "trackers",
    "watch",
]
