"""A progress bar for runs, on stderr and only where that is a terminal."""

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from jdfl.devices import processes
from jdfl.engine.callbacks import Callback
from jdfl.engine.result import Snapshot
from jdfl.engine.start import Start
from jdfl.privacy.relation import upper

_APART = 2.0  # seconds between two epsilons


class Progress(Callback):
    """Shows rounds done, rounds per second, objective, bytes sent and the time left.

        result = jdfl.run(..., callbacks=[jdfl.Progress()])

    Elsewhere than on a terminal nothing is written, and of several processes the first writes.

    Args:
        label: What stands before the bar; empty: what the run is doing.
        console: Where it is shown; None: on stderr.
        epsilon: Gives what releases [m] of the nodes add up to, which is shown, too; asked every two seconds at most.
    """

    def __init__(
        self, label: str = "", console: Console | None = None, epsilon: Callable[[np.ndarray], float] | None = None
    ) -> None:
        shown_on = Console(stderr=True) if console is None else console
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=shown_on,
            disable=not shown_on.is_terminal,
        )
        self._label, self._epsilon, self._spent, self._asked = label, epsilon, "", -_APART
        self._task = self._bar.add_task(label or "compiling", total=None, note="")

    def begin(self, start: Start) -> None:
        """Show the bar, of several processes in the first one alone.

        Until the first chunk of rounds is done it shows its label, or that the run is compiling, and no number of
        rounds. Nothing is read from the `start`.
        """
        if processes.leads():
            self._bar.start()

    def close(self) -> None:
        """Leave the bar as it is.

        What it showed last stays on the terminal, also after a run that failed, and nothing more is drawn. It is
        `jdfl.run` that calls it.
        """
        self._bar.stop()

    def __call__(self, now: Snapshot) -> None:
        """Take in what a chunk of rounds brought."""
        notes: list[str] = []
        speed = self._bar.tasks[0].speed
        if speed:
            notes.append(f"{speed:.0f} rounds/s")
        if "objective" in now.row:
            notes.append(f"objective {now.row['objective']:.4g}")
        if "bytes" in now.row:
            notes.append(decimal(int(now.row["bytes"])))
        if self._epsilon is not None and not self._bar.disable and time.monotonic() - self._asked >= _APART:
            self._spent = f"epsilon {upper(self._epsilon(now.releases()), 3)}"
            self._asked = time.monotonic()
        notes += [self._spent] if self._spent else []
        self._bar.update(
            self._task,
            description=self._label or "rounds",
            completed=now.rounds,
            total=now.steps,
            note="  ".join(notes),
        )
