"""The rounds after which a run returns from the device, calls its callbacks, and records the releases so far.

They depend on `every`, `chunk` and the number of rounds only, not on where a run began, so that a resumed run has the
same moments as one that was never interrupted.

Axes: m nodes.
"""

from collections.abc import Callable, Mapping

import numpy as np

MOST = 20  # moments that are remembered; at least half as many, of a run that has them


class Returns:
    """The rounds after which the device returns: of every chunk, and of every checkpoint.

    `chunk` and `checkpoint` are rounds between two of either; both are taken as whole numbers of `every` rounds, from
    record to record, since a return is the end of a record.
    """

    def __init__(self, every: int, chunk: int, checkpoint: int) -> None:
        self.chunk = max(1, chunk // every) * every
        self._checkpoint = -(-checkpoint // every) * every
        self.records = min(self.chunk, self._checkpoint) // every  # between two returns, at most

    def after(self, done: int, last: int) -> int:
        """The next return after `done` rounds, no later than the `last` round."""
        return min(last, *((done // rounds + 1) * rounds for rounds in (self.chunk, self._checkpoint)))


class Moments:
    """Every node's releases [m] at up to MOST moments, which lie the same number of chunks apart, and at the last."""

    def __init__(self, chunk: int, before: Mapping[int, np.ndarray]) -> None:
        self._chunk, self._kept = chunk, dict(before)

    def add(self, rounds: int, releases: Callable[[], np.ndarray]) -> None:
        """Record the releases after a number of rounds."""
        self._kept = self._chosen(rounds) | {rounds: np.asarray(releases())}

    def until(self, rounds: int) -> dict[int, np.ndarray]:
        """The recorded moments up to a number of rounds."""
        return self._chosen(rounds)

    def _chosen(self, rounds: int) -> dict[int, np.ndarray]:
        apart = self._chunk
        while rounds // apart >= MOST:
            apart *= 2
        return {k: released for k, released in self._kept.items() if k == rounds or k % apart == 0}
