"""Checkpoints while a run is under way."""

import contextlib
import warnings
from collections.abc import Generator
from pathlib import Path

from jdfl.base import checks, storage
from jdfl.devices import processes
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.result import Result

_NEVER = 2**31  # rounds, more than a run has


class Keeper:
    """Writes a run's checkpoints, where and when it was asked to; of several processes only the first writes and looks.

    One that cannot be written is warned of, and the run goes on.

    Raises ValueError for rounds without a folder, FileNotFoundError where the folder around it is missing, and
    FileExistsError where a run from the start would write over what another has kept.
    """

    def __init__(self, folder: str | Path | None, every: int | None, resumed: bool) -> None:
        if every is not None:
            checks.whole(1, remedy="It is a number of rounds.", checkpoint_every=every)
        self.every, self.rounds, self.written, self._writer = int(every or _NEVER), 0, -1, None
        if folder is None and every is not None:
            raise ValueError(f"Expected checkpoint, a folder, beside checkpoint_every = {every!r}, got None.")
        if folder is None or not processes.leads():
            return
        folder = Path(folder)
        if not folder.parent.is_dir():
            raise FileNotFoundError(
                f"Expected a folder around checkpoint = {str(folder)!r}, found none. Make it first."
            )
        if folder.is_file():
            raise FileExistsError(f"Expected a folder at checkpoint = {str(folder)!r}, found a file. Name another.")
        if storage.newest(folder) is not None and not resumed:
            raise FileExistsError(
                f"Expected no checkpoints at checkpoint = {str(folder)!r}, found some. Go on from them with "
                "resume = jdfl.read_checkpoint(...), or name another folder."
            )
        self._writer = storage.Writer(folder)

    def start(self, rounds: int) -> None:
        """The run begins after so many rounds, of which there may be a checkpoint already."""
        self.rounds = rounds
        if self._writer is not None and storage.newest(self._writer.folder) == rounds:
            self.written = rounds

    def due(self, rounds: int) -> bool:
        """Whether it is time for a checkpoint, so many rounds being done."""
        return rounds // self.every > self.rounds // self.every

    def keep(self, result: Result) -> None:
        """Begin to write where a run stands."""
        self.rounds = result.rounds
        if self._writer is None or self.written == result.rounds:
            return
        then = "the run goes on, and tries again at the next"
        with self._warned(then):
            self._writer.finish()  # the one before
        with self._warned(then):
            self._writer.write(result.rounds, *Checkpoint.of(result).stored())
            self.written = result.rounds

    def __enter__(self) -> "Keeper":
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what is being written, and end the threads."""
        if self._writer is not None:
            with self._warned("what is not yet written is not kept"):
                self._writer.close()

    @contextlib.contextmanager
    def _warned(self, then: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            warnings.warn(f"{error}; {then}.", stacklevel=4)
