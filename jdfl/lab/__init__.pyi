from . import charts, comparison, drawing, overview, page, results, study, summary, table, trackers, watch

__all__ = [
    "charts",
    "comparison",
    "drawing",
    "overview",
    "page",
    "results",
    "study",
    "summary",
    "table",
    "trackers",
    "watch",
]
