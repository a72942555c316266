"""Progress in terminals, logs and notebooks; silence elsewhere."""

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest

from jdfl.engine import progress as module
from jdfl.engine.progress import Progress, announced
from jdfl.engine.result import Snapshot
from tests.refused import refused


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(rounds: int, row: dict[str, float] | None = None, steps: int = 10) -> Snapshot:
    nothing: Any = lambda: pytest.fail("not asked for")  # noqa: E731
    row = {"objective": 0.125, "bytes": 1500.0} if row is None else row
    return Snapshot(rounds, steps, row, [], nothing, nothing, lambda: 0.5, nothing, nothing)


@pytest.fixture
def clock(monkeypatch):
    """Time that goes on by hand."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def play(progress: Progress, clock: list[float], snapshots: list[Snapshot]) -> None:
    progress.begin(SimpleNamespace(before=None, steps=snapshots[0].steps))  # pyright: ignore[reportArgumentType]
    for one in snapshots:
        clock[0] += 1.0
        progress(one)
    progress.close()


def test_a_terminal_shows_one_line_in_place(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    stream, asked = Terminal(), []
    progress = Progress("seed 3", stream=stream, epsilon=lambda releases: asked.append(releases) or 2.501)
    play(progress, clock, [at(4), at(6), at(8)])
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    for said in ("seed 3: compiling", "8/10", "2 rounds/s", "0:01 left", "objective 0.125", "1.5 kB", "epsilon 2.51"):
        assert said in shown, said
    assert asked == [0.5, 0.5]  # three times within two seconds


def test_without_a_terminal_nothing_is_written_unless_lines_are_asked_for(clock, capsys):
    play(Progress(), clock, [at(5)])
    assert capsys.readouterr() == ("", "")
    play(Progress(lines=2.0), clock, [at(k, steps=200) for k in range(20, 201, 20)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[2] == "rounds 60/200  20 rounds/s  0:07 left  objective 0.125  1.5 kB"
    assert len(lines) <= 8
    play(Progress(lines=1e-9), clock, [at(5, {"round": 5, "accuracy": 0.5, "gradients": 3})])  # without an objective
    assert capsys.readouterr().err.splitlines()[-1] == "rounds 5/10  accuracy 0.5"
    with refused(lines=0):
        Progress(lines=0)
    with refused(progress=3), announced(3):  # pyright: ignore[reportArgumentType]
        pass


def test_a_notebook_has_one_output_that_is_updated(clock, monkeypatch):
    first, later = [], []

    def display(data: dict[str, str], **_: bool) -> SimpleNamespace:
        first.append(data)
        return SimpleNamespace(update=lambda data, raw: later.append(data))

    monkeypatch.setattr(module, "_notebook", lambda: display)
    play(Progress(), clock, [at(5), at(10)])
    assert [one["text/plain"].split()[0] for one in first + later] == ["compiling", "rounds", "rounds"]
    assert "value=10 max=10" in later[-1]["text/html"]
    with announced() as announce:
        announce("D-PSGD <b>", "tuning 3/5, compiling")
    assert first[1]["text/plain"] == "D-PSGD <b>: tuning 3/5, compiling"
    assert "&lt;b&gt;" in first[1]["text/html"]
