"""Trackers get every record once, and a run goes on without them."""

import struct
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import jdfl
from jdfl.cli import main
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
    return jdfl.run(jdfl.DPSGD(lr=0.05), problem, ring(), steps=steps, callbacks=callbacks, options=options)


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
    callback.begin(None)
    callback(SimpleNamespace(rows=[{"round": 3, "objective": float("nan"), "bytes": 2.0}]))
    assert kept[1].records == [(3, {"bytes": 2.0})]


def test_one_that_cannot_begin_is_told_before_the_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert main(["run", "--steps", "2", "--track", "tensorboard", "--out", str(tmp_path)]) == 2
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


def test_weights_and_biases_is_called_as_it_asks_to_be(monkeypatch, tmp_path):
    run = MagicMock(summary={})
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=run.init))
    run.init.return_value = run
    result = play(Trackers(["wandb"], tmp_path, {"lr": 0.05}))
    assert run.init.call_args.kwargs["config"] == {"lr": 0.05}
    assert [one.kwargs["step"] for one in run.log.call_args_list] == list(range(8))
    assert run.summary["provenance"] == result.provenance.hash
    run.finish.assert_called_once()
