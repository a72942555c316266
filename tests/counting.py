"""What the slow harnesses have tried, kept for the documentation in the file that JDFL_COUNTS names.

JDFL_COUNTS=docs/_site/crashes.json python -m pytest -m slow -n 0 tests/test_crash_points.py tests/test_killed_runs.py
"""

import json
import os
from collections.abc import Sized
from pathlib import Path


def note(harness: str, work: str, tried: int, wrong: Sized) -> None:
    """Print how many crashes of a piece of work a harness has tried, and what went wrong; keep the counts."""
    print(f"{harness}, {work}: {tried} tried, wrong: {wrong}", flush=True)
    if place := os.environ.get("JDFL_COUNTS"):
        path = Path(place)
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        known.setdefault(harness, {})[work] = {"tried": tried, "wrong": len(wrong)}
        path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
