"""The log of a folder: lines are only appended, and one that was cut off spoils no other."""

import os
from pathlib import Path

import pytest

import jdfl
from jdfl.store import lease
from jdfl.store.jobs import opened

PROBLEM = {"m": 4, "n": 20, "s": 2, "rows": (5, 9)}


def named(folder: Path) -> list[str]:
    return [one["event"] for one in lease.read_log(folder)]


def test_events_come_one_after_another(tmp_path):
    assert lease.read_log(tmp_path) == []
    lease.note(tmp_path, "begun")
    lease.note(tmp_path, "ended", rounds=3)
    begun, ended = lease.read_log(tmp_path)
    assert (begun["event"], ended["event"], ended["rounds"]) == ("begun", "ended", 3)
    assert begun["process"] == os.getpid()
    assert begun["time"] <= ended["time"]
    with pytest.raises(FileNotFoundError):
        lease.note(tmp_path / "gone", "begun")


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path):
    file = tmp_path / lease.LOG
    for cut in (1, 20, 5000):
        lease.note(tmp_path, "one")
        lease.note(tmp_path, "two", said="x" * 6000)
        file.write_bytes(file.read_bytes()[:-cut])
        lease.note(tmp_path, "three")
        assert named(tmp_path) == ["one", *(["two"] if cut == 1 else []), "three"]
        file.write_bytes(b"\xff\0[3]\n" + b"[" * 10**5 + b"\n" + file.read_bytes())
        assert named(tmp_path)[-1] == "three"
        file.unlink()


def test_a_run_logs_its_beginnings_and_ends(tmp_path):
    problem, network = jdfl.problems.example1(**PROBLEM), jdfl.network.ring(4)
    algorithm, folder = jdfl.DPSGD(lr=0.01), tmp_path / "run"

    def enough(now: jdfl.Snapshot) -> str | None:
        return "enough" if now.rounds >= 4 else None

    how = {"steps": 8, "options": jdfl.Options(chunk=2)}
    jdfl.run(algorithm, problem, network, callbacks=[jdfl.Checkpoints(folder), enough], **how)
    before = jdfl.read_checkpoint(folder, algorithm, problem, network)
    jdfl.run(algorithm, problem, network, callbacks=[jdfl.Checkpoints(folder)], resume=before, **how)
    told = [(one["event"], one["rounds"]) for one in lease.read_log(folder)]
    assert [rounds for _, rounds in told] == [0, 4, 4, 8]
    assert [event for event, _ in told][::2] == ["begun", "resumed"]
    assert told[-1][0] == "steps"


def test_work_in_jobs_logs_what_cut_it_off(tmp_path):
    origin = {"work": "test", "versions": {}}
    with pytest.raises(KeyboardInterrupt), opened(tmp_path, origin):
        raise KeyboardInterrupt
    with opened(tmp_path, origin):
        pass
    assert named(tmp_path) == ["begun", "cut off", "resumed"]
    assert lease.read_log(tmp_path)[1]["by"] == "KeyboardInterrupt"
