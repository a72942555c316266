"""Progress in terminals, logs and notebooks; silence elsewhere."""

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest

import jdfl
from jdfl.engine import progress as module
from jdfl.engine.progress import Progress, announced
from jdfl.engine.result import Snapshot
from tests.refused import refused
from tests.toy import run


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
    assert shown.split("\n")[-1].strip() == ""


def test_without_a_terminal_nothing_is_written_unless_lines_are_asked_for(clock, capsys):
    play(Progress(), clock, [at(5)])
    assert capsys.readouterr() == ("", "")
    play(Progress(lines=2.0), clock, [at(k, steps=200) for k in range(20, 201, 20)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["compiling 0/200", "rounds 20/200  objective 0.125  1.5 kB"]
    assert lines[2] == "rounds 60/200  20 rounds/s  0:07 left  objective 0.125  1.5 kB"
    assert lines[-1].startswith("rounds 200/200")
    assert len(lines) <= 8
    play(Progress(lines=1e-9), clock, [at(5, {"round": 5, "accuracy": 0.5, "gradients": 3})])  # without an objective
    assert capsys.readouterr().err.splitlines()[-1] == "rounds 5/10  accuracy 0.5"
    with refused(lines=0):
        Progress(lines=0)


class Cell:
    """What a notebook does with what is displayed."""

    def __init__(self) -> None:
        self.outputs: list[list[dict[str, str]]] = []

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> "Cell":
        assert raw
        assert display_id
        self.outputs.append([data])
        return self

    def update(self, data: dict[str, str], raw: bool) -> None:
        self.outputs[-1].append(data)


def test_a_notebook_has_one_output_that_is_updated(clock, monkeypatch):
    cell = Cell()
    monkeypatch.setattr(module, "_notebook", lambda: cell.display)
    play(Progress(), clock, [at(5), at(10)])
    (output,) = cell.outputs
    assert [one["text/plain"].split()[0] for one in output] == ["compiling", "rounds", "rounds"]
    assert "value=10 max=10" in output[-1]["text/html"]
    with announced() as announce:
        announce("D-PSGD <b>", "tuning 3/5, compiling")
    assert cell.outputs[1][0]["text/plain"] == "D-PSGD <b>: tuning 3/5, compiling"
    assert "&lt;b&gt;" in cell.outputs[1][0]["text/html"]


def test_comparisons_announce_in_the_way_that_is_asked_for(capsys):
    told: list[tuple[str, str]] = []
    for given in (None, True, False, Progress(), lambda label, what: told.append((label, what))):
        with announced(given) as announce:
            announce("a", "tuning")
    assert told == [("a", "tuning")]
    assert capsys.readouterr() == ("", "")
    with refused(progress=3), announced(3):  # pyright: ignore[reportArgumentType]
        pass


def test_the_numbers_of_a_run_do_not_depend_on_it():
    stream = io.StringIO()
    told = run(steps=6, callbacks=[Progress(lines=1e-9, stream=stream)], options=jdfl.Options(chunk=4))
    assert told.history.equals(run(steps=6, options=jdfl.Options(chunk=4)).history)
    lines = stream.getvalue().splitlines()
    assert [one.split()[0:2] for one in lines] == [["compiling", "0/6"], ["rounds", "4/6"], ["rounds", "6/6"]]
