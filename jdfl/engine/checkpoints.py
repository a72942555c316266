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
    """Writes checkpoints into a folder while a run is under way and when it ends, unless it diverged.

    The two newest are kept, each complete; if one cannot be written, a warning is given and the run continues. Read by
    `jdfl.read_checkpoint`, for another number of devices or processes also. Of several processes the first writes.

    Args:
        folder: The folder of the checkpoints.
        every: Approximate number of rounds between two; None: the minutes decide.
        minutes: Approximate number of minutes between two; None: `every` decides.
    """

    def __init__(self, folder: str | Path, every: Count | None = None, minutes: Positive | None = None) -> None:
        self.folder = Path(arguments.argument("folder", folder, str | Path))
        self.every = NEVER if every is None else int(arguments.argument("every", every, Count))
        self.minutes = None if minutes is None else float(arguments.argument("minutes", minutes, Positive))
        self._rounds, self._written, self._writer = 0, -1, None

    def begin(self, start: Start) -> None:
        """Look at the folder.

        Raises FileNotFoundError where its parent folder is missing, and FileExistsError where a run from the `start`
        would overwrite the checkpoints of another. A run that resumes may go on in a folder that has checkpoints.
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
        """Write a checkpoint of the run as it is `now`, if one is due.

        One is due when the rounds have passed a multiple of `every`, or after the given minutes. The run
        continues while files are written; one that cannot be written causes a warning.
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
        """Write a checkpoint of the run as it ended.

        Nothing is written for a run that diverged, whose last checkpoint stays, nor if these rounds are written
        already. The `result` must have a state.
        """
        if result.diverged is None:
            self._keep(result)

    def close(self) -> None:
        """Wait for checkpoints that are being written, and end the threads.

        It is called after a run that failed, too, so that a checkpoint that was begun is complete. Failed writes cause
        a warning and raise nothing.
        """
        if self._writer is not None:
            with self._warned("what is not yet written is not kept"):
                self._writer.close()
            self._writer = None

    def _keep(self, result: Result) -> None:
        """Begin to write a checkpoint."""
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
