"""After which rounds a run returns from the device, tells its callbacks, and remembers what has been released.

All of it follows from `every`, `chunk` and the rounds that are done, never from where a run began, so that one that is
resumed has the same moments as one that was never interrupted.

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
        """The next one after `done` rounds; none is later than the `last` round."""
        return min(last, *((done // rounds + 1) * rounds for rounds in (self.chunk, self._checkpoint)))


class Moments:
    """Every node's releases [m] at up to MOST moments, which lie the same number of chunks apart, and at the last."""

    def __init__(self, chunk: int, before: Mapping[int, np.ndarray]) -> None:
        self._chunk, self._kept = chunk, dict(before)

    def add(self, rounds: int, releases: Callable[[], np.ndarray]) -> None:
        """Remember those of a run of so many rounds."""
        self._kept = self._chosen(rounds) | {rounds: np.asarray(releases())}

    def until(self, rounds: int) -> dict[int, np.ndarray]:
        """Those of a run of so many rounds."""
        return self._chosen(rounds)

    def _chosen(self, rounds: int) -> dict[int, np.ndarray]:
        apart = self._chunk
        while rounds // apart >= MOST:
            apart *= 2
        return {k: released for k, released in self._kept.items() if k == rounds or k % apart == 0}
