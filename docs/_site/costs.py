"""Costs and privacy claims of the examples, in costs.json: `python docs/_site/costs.py [NAME ...]` regenerates it.

Counts are per node: the average per round, and before the first round.
"""

import json
import sys
from pathlib import Path
from typing import Any

from examples import example, python

import jdfl
from jdfl.algorithms import REGISTRY

FILE = Path(__file__).with_name("costs.json")


def measured(name: str) -> dict[str, Any]:
    """The example of one algorithm, run as it stands on its page, and once more with noise."""
    made: dict[str, Any] = {}
    exec(python(name, REGISTRY[name].__name__), made)
    result = made["result"]
    m, start, totals = made["problem"].m, result.history.iloc[0], result.totals
    each = m * result.rounds
    return {
        "rounds": result.rounds,
        "bits": totals.message_bits,
        "messages": {channel: round(count / each, 3) for channel, count in totals.messages.items()},
        "gradients": round((totals.gradients - int(start["gradients"])) / each, 3),
        "gradients_before": round(int(start["gradients"]) / m, 3),
        "bytes": totals.bytes,
        "reason": result.guarantee.reason,
        "remedy": result.guarantee.remedy,
        "private": _private(name, made["problem"], made["network"], result.rounds),
    }


def _private(name: str, problem: Any, network: Any, rounds: int) -> str | None:
    """The privacy statement of the example with noise; nothing is run."""
    if not example(name).private:
        return None
    algorithm = eval(example(name).algorithm(REGISTRY[name].__name__, private=True), {"jdfl": jdfl})
    report = jdfl.account_plan(algorithm, problem, network, steps=rounds)
    return report.statement()


def main(names: list[str]) -> None:
    """Write what was measured of these, or of all algorithms."""
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    known |= {name: measured(name) for name in names or REGISTRY}
    FILE.write_text(json.dumps({name: known[name] for name in REGISTRY}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
