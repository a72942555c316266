"""Callbacks: objects that receive the state of a run while it goes on, and may end it.

Axes: m nodes.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jdfl.base import arguments, checks
from jdfl.base.settings import Positive
from jdfl.engine.compiling import compiled
from jdfl.engine.result import Cut, Result, Snapshot
from jdfl.engine.spending import release_limits
from jdfl.engine.start import Plan

NEVER = 2**31  # more rounds than any run has


class Callback:
    """A receiver of the events of a run: `jdfl.run` calls the methods in this order, and a subclass overrides some.

    If a run has several processes, each of them has the same callbacks. Arrays of all nodes are exchanged between
    processes, so that all callbacks have to ask a snapshot for them.
    """

    every: int = NEVER
    """Approximate maximum number of rounds between two calls of `on_return`."""
    ending: ClassVar[Cut] = "interrupted"
    """The `ending` of a run that this callback ends."""
    reads_data: ClassVar[bool] = True
    """Whether its reason to end a run depends on more than releases: all see the end, so nothing is claimed."""
    keeps: ClassVar[bool] = False
    """Whether it keeps the run in a folder, which then records checksums of its data."""

    def on_start(self, plan: Plan) -> np.ndarray | None:
        """Receive the `plan` of the run before anything is compiled; may refuse the run by raising ValueError.

        Returns the maximum number of releases of every node [m], or None for no limit.
        """

    def on_return(self, now: Snapshot) -> None:
        """Receive the state before the device continues: at the start, and after each of its returns.

        It cannot end the run, and the snapshot `now` has no new records, which `on_chunk` has received. It is for work
        at rounds where no chunk ends, such as checkpoints.
        """

    def on_chunk(self, now: Snapshot) -> str | None:
        """Receive the state after a chunk of rounds, or at the end of the run.

        Returns a reason, in words, to end the run `now`, or None.
        """

    def on_end(self, result: Result) -> None:
        """Receive the `result` of the run, once, before `close`; it is not called if the run failed.

        It is called also if the run diverged, was interrupted, or was ended by this callback.
        """

    def close(self) -> None:
        """The run is over, also if it failed or was refused by another callback: release files or threads here.

        It is called once for every `on_start`, also if that raised an error, in reverse order of the callbacks.
        """


class FunctionCallback(Callback):
    """A plain `function` of snapshots as a callback, called after every chunk of rounds."""

    def __init__(self, function: Callable[[Snapshot], Any]) -> None:
        self._function = function

    def on_chunk(self, now: Snapshot) -> str | None:
        """The reason that the function returns, or None; raises ValueError for anything else."""
        reason = self._function(now)
        if reason is not None and not isinstance(reason, str):
            raise ValueError(
                f"Expected a callback that returns None, or a reason to end the run in words, got {self._function!r} "
                f"that returns {checks.text(reason)}."
            )
        return reason


@dataclass
class Deadline(Callback):
    """Ends a run after the last chunk of rounds that ends in time, and keeps its results.

    Several runs with the same deadline all have to end in time.

    Args:
        seconds: Seconds since the deadline was made, compilation included.
    """

    seconds: Positive
    ending: ClassVar[Cut] = "time limit"
    reads_data: ClassVar[bool] = False

    def __post_init__(self) -> None:
        arguments.settings(self)
        self._made, self._shortest, self._last = time.monotonic(), math.inf, (0.0, 0.0)

    def on_start(self, plan: Plan) -> None:
        """Forget how long the chunks of an earlier run took; the seconds count from when the deadline was made."""
        self._shortest, self._last = math.inf, (0.0, 0.0)

    def on_return(self, now: Snapshot) -> None:
        """Note when the first chunk begins, and the time of compilation so far, which is no part of it."""
        self._last = self._last if any(self._last) else (time.monotonic(), compiled())

    def on_chunk(self, now: Snapshot) -> str | None:
        """End the run if another chunk, as long as the shortest so far without compilation, would end too late."""
        here = time.monotonic(), compiled()
        self._shortest = min(self._shortest, max(0.0, (here[0] - self._last[0]) - (here[1] - self._last[1])))
        self._last = here
        late = here[0] - self._made + self._shortest > self.seconds
        return "no time is left for another round" if late else None


@dataclass(frozen=True)
class Budget(Callback):
    """Ends a run before the round whose releases would exceed (epsilon, delta) at some node; nothing of it is sent.

    Args:
        epsilon: The budget of all rounds together, > 0.
        delta: As for `jdfl.account`.
    """

    epsilon: Positive
    delta: float | None = None

    def on_start(self, plan: Plan) -> np.ndarray:
        """The number of releases [m] within the budget, by the accounting of `jdfl.account`.

        Raises ValueError if nothing can be claimed of the `plan`, and for an epsilon or delta that makes no sense.
        """
        arguments.settings(self)
        target = float(self.epsilon)
        return release_limits(plan.program, plan.problem, plan.stop, epsilon=target, delta=self.delta)
