"""What a run gives back: plain host data, with sums as exact Python ints.

Axes: m nodes, n parameters.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import numpy as np
import pandas as pd
from jax import Array

from jdfl.arrays.ops import from_limbs
from jdfl.engine.intervals import wilson
from jdfl.engine.ledger_file import Standing
from jdfl.engine.provenance import Provenance
from jdfl.network import Graph
from jdfl.privacy import Guarantee

Cut = Literal["time limit", "interrupted", "terminated"]  # endings that leave the rest for another time
Ending = Literal["steps", "stop rule", "diverged", "budget"] | Cut


@dataclass(frozen=True)
class Totals:
    """Exact totals over nodes and rounds, the start included.

    They are whole numbers of Python, which never overflow. A vector sent to three neighbours is three messages, and a
    message that gets lost was sent. Bits are what the codec says of a message. `history` has the same totals record by
    record.
    """

    messages: dict[str, int]  # by channel
    message_bits: dict[str, int]  # size of one message, by channel
    gradients: int  # evaluations of a node's gradient, whatever number of examples it looks at
    examples: int  # gradients of single examples
    communications: int  # how often nodes combined what they received
    releases: int  # noisy functions of data that others may come to see

    @property
    def bits(self) -> int:
        """Bits that crossed the wires.

        A whole number: of every channel the messages times the size of one, of all nodes and rounds. It is what codecs
        say of their messages, without the headers of any transport.
        """
        return sum(count * self.message_bits[channel] for channel, count in self.messages.items())

    @property
    def bytes(self) -> float:
        """Bytes that crossed the wires; bits / 8, since messages are counted in bits.

        It is no whole number where messages do not fill their last byte, and a float, which rounds very large numbers;
        `bits` never is rounded.
        """
        return self.bits / 8


@dataclass(frozen=True)
class Result:
    """A finished run.

    `jdfl.run` gives it, `sweep` and `repeat` a list of them. `ending` says whether all rounds were done, a stop rule
    fired, a budget was spent, or the run diverged or was interrupted. Hand it to `jdfl.account` for its epsilon, and to
    `jdfl.run(..., resume=...)` to go on.
    """

    algorithm: Any  # its settings
    problem_name: str  # the problem's `name`
    network_name: str  # the network's
    params: Array  # [m, n] the nodes' parameters at the end
    state: Any  # the algorithm's last state, which no guarantee covers; None for runs made side by side
    history: pd.DataFrame  # a row per record: round, metrics, and totals so far
    rounds: int
    ending: Ending
    reason: str  # the ending in words
    diverged: tuple[int, int] | None  # (round, node) of the first number that is not finite, or too large
    totals: Totals
    communication_rounds: np.ndarray  # [m] how often each node combined messages
    releases: np.ndarray  # [m] how many noisy functions of its data of each node others may come to see
    clock: np.ndarray | None  # [m] simulated seconds after which every node was done; None: its network has no times
    published_bytes: float | None  # by a formula that fits its paper's tables; None where there is none
    guarantee: Guarantee
    records: np.ndarray  # [m] how many records of its own each node has
    privacy_warnings: tuple[str, ...]  # what this run did that its guarantee does not cover
    key: tuple[int, ...]  # data of the run's key
    sums: dict[str, int]  # exact totals by counter, as `totals` has them
    seconds: float  # wall time without compilation
    compile_seconds: float  # of tracing and compiling
    provenance: Provenance  # code, libraries, settings, data
    ready: Any = None  # what the algorithm computed before the first round, such as its nodes' constants
    labels: dict[str, Any] = field(default_factory=dict)  # seed and swept values
    clock_rest: np.ndarray | None = None  # [m] seconds that rounding has left out of `clock`
    moments: dict[int, np.ndarray] = field(default_factory=dict)  # `releases` after some rounds, of noise
    standing: Standing | None = None  # of the data's ledger when this run had ended; None: it is in none
    test_examples: int | None = None  # of which the metric `accuracy` is a share; None: it is none

    @property
    def final(self) -> dict[str, float]:
        """The last record; of a run that diverged, every column's last finite value (NaN where there is none).

        By the names of the columns of `history`: the round, the metrics, and the totals so far over all nodes, such as
        bytes.
        """
        rows = self.history.astype(float)
        if self.diverged is not None:
            rows = rows.where(np.isfinite(rows)).ffill()
        return {str(name): float(value) for name, value in rows.iloc[-1].items()}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % interval of `accuracy` in the last record, by Wilson's formula for the number of test examples.

        It is about this one run and a test set drawn at random. Empty where no such accuracy was recorded.
        """
        share = self.final.get("accuracy", float("nan"))
        return {} if self.test_examples is None or np.isnan(share) else {"accuracy": wilson(share, self.test_examples)}


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees of a run; the functions copy from a state that is gone later: call them at once.

    Numbers and records are on the host. Arrays of all nodes come when they are asked for, so that they cost nothing
    otherwise; of several processes all have to ask.
    """

    rounds: int
    """Rounds that are done."""
    steps: int
    """Rounds that the run may have."""
    row: dict[str, Any]
    """The last record."""
    rows: list[dict[str, Any]]
    """The records since the chunk before; with the first chunk, also of the start."""
    params: Callable[[], Array]
    """Gives the parameters [m, n]."""
    communications: Callable[[], np.ndarray]
    """Gives how often each node has combined messages so far [m]."""
    releases: Callable[[], np.ndarray]
    """Gives how many noisy functions of its data of each node others may see by now [m]."""
    graph: Callable[[], Graph]
    """Gives the graph of the last round, with the rows of all nodes."""
    result: Callable[[], "Result"]
    """Gives what the run has come to, as one that was interrupted now."""
    chunk: int = 1
    """Rounds between two snapshots, which lie at its multiples and where the run ends."""


class Tally:
    """Adds up the device's partial sums into history rows and totals."""

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
