"""Checkpoints while a run goes on."""

import contextlib
import time
import warnings
from collections.abc import Generator
from pathlib import Path

from jdfl.base import arguments, storage
from jdfl.base.settings import Count, Positive
from jdfl.devices import processes
from jdfl.engine.callbacks import NEVER, Callback
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.start import Start


class Checkpoints(Callback):
    """Writes what a run needs to go on into a folder, where it ends, unless it diverged, and while it goes on.

    The two newest are kept, each whole; one that cannot be written is warned of, and the run goes on. They are read by
    `jdfl.read_checkpoint`, for another number of devices or processes also. Of several processes the first writes.

    Args:
        folder: Where they are kept.
        every: Rounds, about, between two; None: as the minutes say.
        minutes: Minutes, about, between two; None: as `every` says.
    """

    def __init__(self, folder: str | Path, every: Count | None = None, minutes: Positive | None = None) -> None:
        self.folder = Path(arguments.argument("folder", folder, str | Path))
        self.every = NEVER if every is None else int(arguments.argument("every", every, Count))
        self.minutes = None if minutes is None else float(arguments.argument("minutes", minutes, Positive))
        self._rounds, self._written, self._writer = 0, -1, None

    def begin(self, start: Start) -> None:
        """Look at the folder.

        Raises FileNotFoundError where the folder around it is missing, and FileExistsError where a run from the `start`
        would write over what another has kept. A run that resumes may go on in a folder that has checkpoints.
        """
        self._rounds, self._written, self._since = -1, -1, time.monotonic()
        if not processes.leads():
            return
        if not self.folder.parent.is_dir():
            raise FileNotFoundError(
                f"Expected a folder around the checkpoints' folder = {str(self.folder)!r}, found none. Make it first."
            )
        if self.folder.is_file():
            raise FileExistsError(f"Expected a folder, got folder = {str(self.folder)!r}, a file. Name another.")
        if storage.newest(self.folder) is not None and start.before is None:
            raise FileExistsError(
                f"Expected no checkpoints in folder = {str(self.folder)!r}, found some. Go on from them with "
                "resume = jdfl.read_checkpoint(...), or name another folder."
            )
        self._writer = storage.Writer(self.folder)

    def between(self, now: Snapshot) -> None:
        """Write where the run is `now`, if it is time.

        It is time where the rounds have passed a multiple of `every`, or where so many minutes have gone by. The run
        goes on while files are written; one that cannot be written is warned of.
        """
        if self._rounds < 0:
            self._rounds = now.rounds
            if self._writer is not None and storage.newest(self.folder) == now.rounds:
                self._written = now.rounds
        due = now.rounds // self.every > self._rounds // self.every
        if self.minutes is not None:
            late = time.monotonic() - self._since >= 60 * self.minutes
            due = bool(processes.highest(late)) or due
            self._since = time.monotonic() if late else self._since
        if due:
            self._keep(now.result())

    def end(self, result: Result) -> None:
        """Write where the run has ended.

        Nothing is written for a run that diverged, whose last checkpoint before stays, nor where these rounds are
        written already. The `result` has to have a state.
        """
        if result.diverged is None:
            self._keep(result)

    def close(self) -> None:
        """Wait for what is being written, and end the threads.

        It comes after a run that failed, too, so that what was begun by then is whole. What could not be written is
        warned of, and raises nothing.
        """
        if self._writer is not None:
            with self._warned("what is not yet written is not kept"):
                self._writer.close()
            self._writer = None

    def _keep(self, result: Result) -> None:
        """Begin to write where a run stands."""
        self._rounds = result.rounds
        if self._writer is None or self._written == result.rounds:
            return
        then = "the run goes on, and tries again at the next"
        with self._warned(then):
            self._writer.finish()  # the one before
        with self._warned(then):
            self._writer.write(result.rounds, *Checkpoint.of(result).stored())
            self._written = result.rounds

    @contextlib.contextmanager
    def _warned(self, then: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            warnings.warn(f"{error}; {then}.", stacklevel=4)
