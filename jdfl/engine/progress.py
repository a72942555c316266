"""A progress bar for `jdfl.run`, on stderr and only where that is a terminal."""

import time
from collections.abc import Callable
from typing import Self

import numpy as np
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from jdfl.engine.result import Snapshot
from jdfl.privacy.relation import upper

_APART = 2.0  # seconds between two epsilons


class Progress:
    """A callback of `jdfl.run` that shows rounds done, rounds per second, objective, bytes sent and the time left.

        with Progress("my run") as progress:
            result = jdfl.run(..., callbacks=[progress])

    `jdfl.run(..., progress=True)` does the same. `epsilon` gives what releases [m] of the nodes add up to; it is shown,
    too, and asked for every two seconds at most. Elsewhere than on a terminal nothing is written.
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

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar as it is."""
        self._bar.stop()

    def __call__(self, snapshot: Snapshot) -> None:
        """Take in what a chunk of rounds brought."""
        notes: list[str] = []
        speed = self._bar.tasks[0].speed
        if speed:
            notes.append(f"{speed:.0f} rounds/s")
        if "objective" in snapshot.row:
            notes.append(f"objective {snapshot.row['objective']:.4g}")
        if "bytes" in snapshot.row:
            notes.append(decimal(int(snapshot.row["bytes"])))
        if self._epsilon is not None and not self._bar.disable and time.monotonic() - self._asked >= _APART:
            self._spent = f"epsilon {upper(self._epsilon(snapshot.releases()), 3)}"
            self._asked = time.monotonic()
        notes += [self._spent] if self._spent else []
        self._bar.update(
            self._task,
            description=self._label or "rounds",
            completed=snapshot.rounds,
            total=snapshot.steps,
            note="  ".join(notes),
        )
