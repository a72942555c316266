"""What is told of a run while it goes on, and may end it.

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
from jdfl.engine.clock import compiled
from jdfl.engine.result import Cut, Result, Snapshot
from jdfl.engine.spending import release_limits
from jdfl.engine.start import Start

NEVER = 2**31  # rounds, more than a run has


class Callback:
    """What `jdfl.run` tells of a run, in this order; a class of one's own overrides what it wants to know.

    Where a run has several processes, every one of them has callbacks of its own, alike: what a snapshot gives of all
    nodes is exchanged, so all have to ask for it.
    """

    every: int = NEVER
    """Rounds, about, after which the device returns at the latest, for `between`."""
    ending: ClassVar[Cut] = "interrupted"
    """What a run is that this one has ended."""
    reads_data: ClassVar[bool] = True
    """Whether its reasons depend on more than is released: all see when a run ends, and nothing is claimed then."""

    def begin(self, start: Start) -> np.ndarray | None:
        """What the run is, as `start`, before anything is compiled; may refuse it by raising ValueError.

        Returns how many releases [m] every node may make in all, or None for no limit.
        """

    def between(self, now: Snapshot) -> None:
        """Where the run is, `now` that the device is about to go on: at first, and after each of its returns.

        Nothing that it gives ends the run, and the snapshot has no new records, which `__call__` has been told. It is
        for work at other rounds than those where chunks end, such as checkpoints.
        """

    def __call__(self, now: Snapshot) -> str | None:
        """Where the run is after a chunk of rounds, or at its end.

        Returns a reason to end it `now`, in words, or None.
        """

    def end(self, result: Result) -> None:
        """What the run has come to, as its `result`; not called for one that failed.

        It comes once, before `close`, also for a run that diverged, was interrupted, or that this callback has ended.
        What `jdfl.run` gives back is the same value.
        """

    def close(self) -> None:
        """The run is over, also where it failed or another callback has refused it.

        It is called once for every `begin`, also for one that raised, the last callback first. Give back here what
        `begin` has taken, such as files, threads or a terminal.
        """


class Told(Callback):
    """A plain function of snapshots as a callback.

    Args:
        function: Called after every chunk of rounds; returns None, or a reason to end the run.
    """

    def __init__(self, function: Callable[[Snapshot], Any]) -> None:
        self._function = function

    def __call__(self, now: Snapshot) -> str | None:
        """What the function says of the run `now`; raises ValueError where that is neither None nor a reason."""
        reason = self._function(now)
        if reason is not None and not isinstance(reason, str):
            raise ValueError(
                f"Expected a callback that returns None, or a reason to end the run in words, got {self._function!r} "
                f"that returns {checks.shown(reason)}."
            )
        return reason


@dataclass
class Deadline(Callback):
    """Ends a run after the last chunk of rounds that ends in time, and keeps what there is.

    Of several runs with one deadline, all have to end in time.

    Args:
        seconds: How many of them, from when this is made, compilation included.
    """

    seconds: Positive
    ending: ClassVar[Cut] = "time limit"
    reads_data: ClassVar[bool] = False

    def __post_init__(self) -> None:
        arguments.settings(self)
        self._made, self._shortest, self._last = time.monotonic(), math.inf, (0.0, 0.0)

    def begin(self, start: Start) -> None:
        """A run, of whose chunks none is known.

        How long chunks take is forgotten, since another run's may be longer. The seconds are not: they count from when
        the deadline was made, so that several runs may share one.
        """
        self._shortest, self._last = math.inf, (0.0, 0.0)

    def between(self, now: Snapshot) -> None:
        """The first chunk begins.

        The time is noted, with what has been compiled so far, so that compilation makes the first chunk no longer than
        it is. Before later chunks nothing has to be done.
        """
        self._last = self._last if any(self._last) else (time.monotonic(), compiled())

    def __call__(self, now: Snapshot) -> str | None:
        """Whether another chunk, as long as the shortest so far without compilation, would end too late."""
        here = time.monotonic(), compiled()
        self._shortest = min(self._shortest, max(0.0, (here[0] - self._last[0]) - (here[1] - self._last[1])))
        self._last = here
        late = here[0] - self._made + self._shortest > self.seconds
        return "no time is left for another round" if late else None


@dataclass(frozen=True)
class Budget(Callback):
    """Ends a run before the round whose releases would take some node beyond (epsilon, delta); nothing of it is sent.

    Args:
        epsilon: What all rounds together may spend.
        delta: As for `jdfl.account`.
    """

    epsilon: Positive
    delta: float | None = None

    def begin(self, start: Start) -> np.ndarray:
        """How many releases [m] are within it; ValueError where nothing may be claimed.

        They follow from the noise, records and stop rule of the `start` by the accounting of `jdfl.account`. An epsilon
        that is no positive number, and a delta that promises nothing, raise ValueError as well.
        """
        arguments.settings(self)
        target = float(self.epsilon)
        return release_limits(start.program, start.problem, start.stop, epsilon=target, delta=self.delta)
