"""Records and exact totals of a run, added up chunk by chunk on the host."""

import itertools
from typing import Any

import jax
import pandas as pd

from jdfl.arrays.ops import from_limbs
from jdfl.engine.result import Totals


class Tally:
    """Adds up the partial sums of the device into rows of the history and totals."""

    def __init__(self, message_bits: dict[str, int]) -> None:
        self.message_bits = message_bits
        self.base: dict[str, int] = {}
        self.rows: list[dict[str, Any]] = []

    def add(self, rounds: Any, metrics: dict[str, Any], counts: dict[str, Any]) -> None:
        """Append the records of a chunk; a record without progress is dropped.

        `rounds`, `metrics` and `counts`, by name, are arrays with a leading record axis.
        """
        rounds, metrics, counts = jax.device_get((rounds, metrics, counts))  # one transfer
        sums: dict[str, int] = {}
        for i, done in enumerate(rounds.tolist()):
            sums = {name: self.base.get(name, 0) + from_limbs(part[i]) for name, part in counts.items()}
            if self.rows and done <= self.rows[-1]["round"]:
                continue
            values = {name: float(value[i]) for name, value in metrics.items()}
            self.rows.append({"round": done, **values, **self._totals_row(sums)})
        self.base = sums

    def _totals_row(self, sums: dict[str, int]) -> dict[str, Any]:
        totals = self._totals(sums)
        return {
            "messages": sum(totals.messages.values()),
            "bytes": totals.bytes,
            "gradients": totals.gradients,
            "examples": totals.examples,
            "communications": totals.communications,
            "releases": totals.releases,
        }

    def _totals(self, sums: dict[str, int]) -> Totals:
        return Totals(
            {name.removeprefix("sent_"): value for name, value in sums.items() if name.startswith("sent_")},
            self.message_bits,
            sums["grads"],
            sums["examples"],
            sums["communications"],
            sums["releases"],
        )

    def since(self, rounds: int) -> list[dict[str, Any]]:
        """The rows after so many rounds."""
        later = itertools.takewhile(lambda row: row["round"] > rounds, reversed(self.rows))
        return list(later)[::-1]

    def totals(self) -> Totals:
        """The totals so far."""
        return self._totals(self.base)

    def history(self) -> pd.DataFrame:
        """The rows so far."""
        return pd.DataFrame({name: [row[name] for row in self.rows] for name in self.rows[0]})
