"""A progress bar for `jdfl.run`, on stderr and only where that is a terminal."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from jdfl.result import Snapshot


class Progress:
    """A callback of `jdfl.run` that shows rounds done, rounds per second, the objective and the time left.

        with Progress("my run") as progress:
            result = jdfl.run(..., callbacks=[progress])

    `jdfl.run(..., progress=True)` does the same.
    Elsewhere than on a terminal it writes nothing.
    """

    def __init__(self, label: str = "", console: Console | None = None) -> None:
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
        self._label = label
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
        notes = []
        speed = self._bar.tasks[0].speed
        if speed:
            notes.append(f"{speed:.0f} rounds/s")
        if "objective" in snapshot.row:
            notes.append(f"objective {snapshot.row['objective']:.4g}")
        self._bar.update(
            self._task,
            description=self._label or "rounds",
            completed=snapshot.rounds,
            total=snapshot.steps,
            note="  ".join(notes),
        )
