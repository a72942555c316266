"""The tables of attacks from outside and of crashes.

Their counts are in robustness.json, written by `python -m tests.robustness --out`, and in crashes.json, written by the
slow tests with JDFL_COUNTS (tests/counting.py).
"""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("robustness.json")
CRASHES = Path(__file__).with_name("crashes.json")
_PARTS = {"folders": "damaged folders", "calls": "calls with wrong arguments", "inputs": "wrong flags and YAML files"}
_BAD = ("traceback from inside", "hang", "silent wrong result")


def known() -> dict[str, Any]:
    """The counts, by the part of the attacks."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def table() -> str:
    """A row per part, as Markdown."""
    rows = ["| | attacks | what came of them | tracebacks from inside | hangs | silent wrong results |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for part, words in _PARTS.items():
        told = known()[part]
        good = sorted((count, name) for name, count in told["outcomes"].items() if name not in _BAD)
        came = "; ".join(f"{count:,} {name}" for count, name in reversed(good))
        cells = [words, f"{told['attacks']:,}", came, *(f"{told[name]:,}" for name in _BAD)]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def crashes() -> str:
    """A row per harness and piece of work, as Markdown."""
    rows = ["| | work | tried | wrong |", "| --- | --- | --- | --- |"]
    for harness, works in json.loads(CRASHES.read_text(encoding="utf-8")).items():
        for work, told in works.items():
            rows.append(f"| {harness} | {work} | {told['tried']:,} | {told['wrong']:,} |")
        total, wrong = (sum(told[name] for told in works.values()) for name in ("tried", "wrong"))
        rows.append(f"| {harness} | all | {total:,} | {wrong:,} |")
    return "\n".join(rows)
