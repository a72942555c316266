"""Trackers get every record once, and a run goes on without them; progress in terminals, logs and notebooks."""

import io
import re
import struct
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

import jdfl
from jdfl.cli import main
from jdfl.engine import progress as module
from jdfl.engine.progress import Progress, announced
from jdfl.engine.result import Snapshot
from jdfl.lab import trackers
from jdfl.lab.trackers import Trackers
from tests.refused import refused
from tests.toy import problem, ring


class Kept:
    """A tracker that remembers."""

    def __init__(self, folder, config):
        self.config, self.records, self.end, self.closed = config, [], None, 0

    def record(self, round, values):
        self.records.append((round, dict(values)))

    def finish(self, values, texts):
        self.end = dict(values), dict(texts)

    def close(self):
        self.closed += 1


@pytest.fixture
def kept(monkeypatch):
    """All trackers that were made."""
    made = []
    monkeypatch.setitem(trackers.NAMES, "mine", lambda *given: made.append(Kept(*given)) or made[-1])
    return made


def play(tracking, *others, steps=7):
    callbacks, options = [tracking, *others], jdfl.Options(chunk=3)
    return jdfl.run(jdfl.DPSGD(lr=0.05), problem(), ring(), steps=steps, callbacks=callbacks, options=options)


def test_every_record_is_told_once_and_the_end(kept, tmp_path):
    result = play(Trackers(["mine", "mine"], tmp_path, {"lr": 0.05}))
    (one,) = kept
    assert [k for k, _ in one.records] == list(range(8))
    assert [row["objective"] for _, row in one.records] == result.history["objective"].tolist()
    assert "round" not in one.records[0][1]
    values, texts = one.end
    assert values["objective"] == result.final["objective"]
    assert texts == {"ending": "steps", "reason": result.reason, "provenance": result.provenance.hash}
    assert (one.config, one.closed) == ({"lr": 0.05}, 1)


def test_one_that_fails_is_given_up_with_a_warning(kept, monkeypatch, tmp_path):
    monkeypatch.setattr(Kept, "record", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="mine") as told:
        assert play(Trackers(["mine"], tmp_path, {})).rounds == 7
    assert (len(told), kept[0].end) == (1, None)


def test_trackers_are_closed_where_the_run_fails_and_what_is_not_finite_is_not_told(kept, tmp_path):
    with pytest.raises(ZeroDivisionError):
        play(Trackers(["mine"], tmp_path, {}), lambda now: 1 / 0)
    assert kept[0].closed == 1
    callback = Trackers(["mine"], tmp_path, {})
    callback.on_start(None)
    callback.on_chunk(SimpleNamespace(rows=[{"round": 3, "objective": float("nan"), "bytes": 2.0}]))
    assert kept[1].records == [(3, {"bytes": 2.0})]


def test_one_that_cannot_begin_is_told_before_the_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    tiny = ["--problem.m", "4", "--problem.n", "8", "--problem.s", "2", "--problem.rows", "5", "8"]
    assert main(["run", *tiny, "--algorithm", "d-psgd", "--track", "tensorboard", "--out", str(tmp_path)]) == 2
    assert "pip install 'jdfl[tensorboard]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(trackers.NAMES, "mine", lambda *_: 1 / 0)
    with refused(OSError, "mine", "ZeroDivisionError"):
        play(Trackers(["mine"], tmp_path, {}))
    with refused(tracker="nothing"):
        Trackers(["nothing"], tmp_path, {})


def test_tensorboard_can_read_what_is_written(tmp_path):
    """Records of length, checksum, content, checksum."""
    Event = pytest.importorskip("tensorboardX.proto.event_pb2").Event
    result = play(Trackers(["tensorboard"], tmp_path, {"lr": 0.05}))
    (path,) = (tmp_path / "tensorboard").iterdir()
    data, told = path.read_bytes(), {}
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + size])
        told.update((event.step, one.simple_value) for one in event.summary.value if one.tag == "objective")
        data = data[16 + size :]
    assert told == dict(enumerate(pytest.approx(one) for one in result.history["objective"]))


def test_weights_and_biases_and_mlflow_are_called_as_they_ask_to_be(monkeypatch, tmp_path):
    run, mlflow = MagicMock(summary={}), MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=run.init))
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    run.init.return_value = run
    mlflow.environment_variables.MLFLOW_EXPERIMENT_NAME.get.return_value = None
    result = play(Trackers(["wandb", "mlflow"], tmp_path, {"lr": 0.05}))
    assert run.init.call_args.kwargs["config"] == {"lr": 0.05}
    assert [one.kwargs["step"] for one in run.log.call_args_list] == list(range(8))
    assert run.summary["provenance"] == result.provenance.hash
    run.finish.assert_called_once()
    client = mlflow.MlflowClient.return_value
    name = client.create_run.return_value.info.run_id
    mlflow.set_experiment.assert_called_once_with("jdfl")
    client.log_param.assert_called_once_with(name, "lr", "0.05")
    told = [(one.kwargs["step"], one.args[2]) for one in client.log_metric.mock_calls if one.args[1] == "objective"]
    assert told == list(enumerate(result.history["objective"]))
    client.set_tag.assert_any_call(name, "provenance", result.provenance.hash)
    client.set_terminated.assert_called_once_with(name)


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


def shown_by(progress: Progress, clock: list[float], snapshots: list[Snapshot]) -> None:
    progress.on_start(SimpleNamespace(before=None, steps=snapshots[0].steps))  # pyright: ignore[reportArgumentType]
    for one in snapshots:
        clock[0] += 1.0
        progress.on_chunk(one)
    progress.close()


def test_a_terminal_shows_one_line_in_place(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    stream, asked = Terminal(), []
    progress = Progress("seed 3", stream=stream, epsilon=lambda releases: asked.append(releases) or 2.501)
    shown_by(progress, clock, [at(4), at(6), at(8)])
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    for said in ("seed 3: compiling", "8/10", "2 rounds/s", "0:01 left", "objective 0.125", "1.5 kB", "epsilon 2.51"):
        assert said in shown, said
    assert asked == [0.5, 0.5]  # three times within two seconds


def test_without_a_terminal_nothing_is_written_unless_lines_are_asked_for(clock, capsys):
    shown_by(Progress(), clock, [at(5)])
    assert capsys.readouterr() == ("", "")
    shown_by(Progress(lines=2.0), clock, [at(k, steps=200) for k in range(20, 201, 20)])
    lines = capsys.readouterr().err.splitlines()
    assert lines[2] == "rounds 60/200  20 rounds/s  0:07 left  objective 0.125  1.5 kB"
    assert len(lines) <= 8
    shown_by(
        Progress(lines=1e-9), clock, [at(5, {"round": 5, "accuracy": 0.5, "gradients": 3})]
    )  # without an objective
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
    shown_by(Progress(), clock, [at(5), at(10)])
    assert [one["text/plain"].split()[0] for one in first + later] == ["compiling", "rounds", "rounds", "rounds"]
    assert "value=10 max=10" in later[-2]["text/html"]
    assert "ended after 0:02" in later[-1]["text/html"]
    assert "<progress" not in later[-1]["text/html"]  # the bar ends when the cell does
    with announced() as announce:
        announce("D-PSGD <b>", "tuning 3/5, compiling")
    assert "&lt;b&gt;: tuning 3/5, compiling" in first[1]["text/html"]
