"""A comparison that is cut off goes on with what is not done, to the same folder; what it reserved is given back."""

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.cli import main
from jdfl.engine import kept
from jdfl.problems import Problem
from jdfl.store import jobs
from jdfl.store.jobs import FailedJobsError, Jobs
from tests.comparing import comparisons

SMALL = """
steps: 6
seeds: 2
problem: {m: 4, n: 20, s: 2, rows: [5, 9]}
network: ring
extend: 0
grids: ["lr=0.01,0.02"]
algorithms:
- d-psgd
- kind: entry
  label: with sparse messages
  algorithm: {kind: d-psgd, codec: {kind: sparse, share: 0.5}}
"""
COMPARE = ["compare", "--config", "small.yaml", "--quiet"]
PROGRAMS = 5  # two methods, each tuned and reported, one of them tuned again at the rounds of its budget
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JDFL_CACHE", "0")
    Path("small.yaml").write_text(SMALL)


@pytest.fixture
def whole() -> Path:
    assert main([*COMPARE, "--folder", "whole"]) == 0
    return Path("whole")


def dies_at(monkeypatch: pytest.MonkeyPatch, place: int, what: Callable[[], Any]) -> list[str]:
    """Something happens in the job number `place`, from 0, when its runs are made; returns the jobs that were made."""
    made: list[str] = []
    usual = Jobs._made

    def dying(self: Jobs, name: str, make: Callable[[Path], None]) -> Path:
        def doomed(folder: Path) -> None:
            make(folder)
            if len(made) == place:
                what()

        found = usual(self, name, doomed)
        made.append(name)
        return found

    monkeypatch.setattr(Jobs, "_made", dying)
    return made


def ctrl_c() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", [0, 2])
def test_the_folder_is_that_of_an_unbroken_one(monkeypatch, capsys, whole, place):
    with monkeypatch.context() as patch:
        made = dies_at(patch, place, ctrl_c)
        assert main([*COMPARE, "--folder", "cut"]) == 130
        assert len(made) == place
    said = capsys.readouterr().err
    if place == 0:  # there is nothing to keep
        assert "nothing is written" in said
        assert not Path("cut").exists()
        return
    assert "jdfl resume cut" in said
    assert not list(Path("cut").glob("jobs/.*"))
    with monkeypatch.context() as patch:
        made = dies_at(patch, -1, ctrl_c)
        assert main(["resume", "cut", "--quiet"]) == 0
        assert len(made) == PROGRAMS - place
    assert comparisons(whole, Path("cut")) == []
    assert not (Path("cut") / jobs.PLACE).exists()


def test_signals_and_the_same_command_again(monkeypatch, capsys, whole):
    with monkeypatch.context() as patch:
        usual = signal.signal(signal.SIGTERM, signal.SIG_DFL)
        dies_at(patch, 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert main([*COMPARE, "--folder", "cut"]) == 143
        signal.signal(signal.SIGTERM, usual)
    assert main([*COMPARE, "--folder", "cut"]) == 0
    assert comparisons(whole, Path("cut")) == []
    capsys.readouterr()
    before = {path: path.stat().st_mtime_ns for path in Path("cut").iterdir()}
    for again in ([*COMPARE, "--folder", "cut", "--json"], ["resume", "cut", "--json"]):  # it is done: it is shown
        assert main(again) == 0
        assert json.loads(capsys.readouterr().out)["folder"] == "cut"
    assert {path: path.stat().st_mtime_ns for path in Path("cut").iterdir()} == before


def test_other_settings_and_other_folders_are_refused(capsys, whole):
    assert main([*COMPARE, "--folder", "whole", "--steps", "7"]) == 2
    assert "got others" in capsys.readouterr().err
    Path("full").mkdir()
    Path("full", "thesis.tex").touch()
    assert main([*COMPARE, "--folder", "full"]) == 2
    assert "thesis.tex" in capsys.readouterr().err
    config = whole / "config.yaml"
    config.write_text(config.read_text().replace("steps: 6", "steps: 5"))
    assert main(["resume", "whole"]) == 2
    assert "as it was written" in capsys.readouterr().err


def test_what_fails_is_tried_again_and_keeps_the_rest(monkeypatch, capsys, whole):
    failures = [2]

    def fails() -> None:
        failures[0] -= 1
        if failures[0] >= 0:
            raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    with monkeypatch.context() as patch:
        dies_at(patch, 1, fails)
        assert main([*COMPARE, "--folder", "cut"]) == 1
        said = capsys.readouterr().err
        assert "out of memory" in said
        assert "jdfl resume cut" in said
        assert main(["resume", "cut", "--quiet", "--retry", "1"]) == 0
    assert comparisons(whole, Path("cut")) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("always:.*done again")
def test_a_damaged_job_is_made_again(monkeypatch, whole, capsys):
    with monkeypatch.context() as patch:
        dies_at(patch, 2, ctrl_c)
        main([*COMPARE, "--folder", "cut"])
    file = sorted(Path("cut").glob("jobs/*/outcomes.npz"))[0]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    capsys.readouterr()
    assert main(["resume", "cut", "--quiet"]) == 0
    assert "is done again" in capsys.readouterr().err
    assert comparisons(whole, Path("cut")) == []


def test_another_version_is_refused_unless_it_is_asked_for(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        dies_at(patch, 1, ctrl_c)
        main([*COMPARE, "--folder", "cut"])
    origin = Path("cut", jobs.ORIGIN)
    origin.write_text(re.sub('"code": "', '"code": "other', origin.read_text()))
    assert main(["resume", "cut", "--quiet"]) == 2
    assert "code: was other" in capsys.readouterr().err
    assert main(["resume", "cut", "--quiet", "--any-version"]) == 0


@pytest.mark.slow
def test_what_a_killed_one_had_reserved_is_given_back(monkeypatch):
    """One that is killed gives nothing back itself; the next one does, and the ledger is as after an unbroken one."""
    private = """
steps: 4
seeds: 2
redraw: []
problem: {kind: example1, m: 4, n: 20, s: 2, rows: [20, 30], public: tuning}
network: ring
extend: 0
grids: ["lr=0.01,0.02,0.04"]
ledger: NAME
algorithms:
- {kind: d-psgd, clip: 1.0, mechanism: {kind: gaussian, multiplier: 30.0}}
"""
    held = []
    for name, killed in (("one", False), ("two", True)):
        jdfl.DataLedger.create(name, epsilon=100.0, delta=1e-5)
        Path("small.yaml").write_text(private.replace("NAME", name))
        if killed:
            with monkeypatch.context() as patch:
                dies_at(patch, 1, ctrl_c)
                patch.setattr("jdfl.engine.booking.Room.__exit__", lambda *_: None)
                patch.setattr("jdfl.engine.data_ledger.Hold.end", lambda *_: None)
                main([*COMPARE, "--folder", f"of {name}"])
            assert jdfl.DataLedger(name).standing().open > 0
        assert main([*COMPARE, "--folder", f"of {name}"]) == 0
        held.append(jdfl.DataLedger(name).standing())
        assert not Path(f"of {name}", "reserved.json").exists()
    one, two = held
    assert two.epsilon == one.epsilon
    assert (two.runs, two.open) == (one.runs, one.open)


def _trial(seed: int) -> Problem:
    return jdfl.problems.example1(m=4, n=20, s=2, rows=(5, 9), seed=seed)


def _experiment(**more: Any) -> jdfl.Experiment:
    network = jdfl.network.ring(4)
    methods = {"D-PSGD": jdfl.DPSGD(lr=0.01), "DSGT": jdfl.DSGT(lr=0.01)}
    how: dict[str, Any] = {"steps": 5, "trials": 2, "tuning": None} | more
    return jdfl.Experiment(problem=_trial, network=network, methods=methods, **how)


def test_in_python_too_and_results_are_the_same_bits(monkeypatch, tmp_path):
    without = _experiment().run()
    with monkeypatch.context() as patch:
        dies_at(patch, 1, ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            _experiment().run(folder=tmp_path / "kept")
    with monkeypatch.context() as patch:
        made = dies_at(patch, -1, ctrl_c)
        found = [_experiment().run(folder=tmp_path / "kept") for _ in range(2)]
        assert len(made) == 1
    for one in found:
        for label, runs in without.results.items():
            for mine, theirs in zip(one.results[label], runs, strict=True):
                np.testing.assert_array_equal(mine.params, theirs.params)
                pd.testing.assert_frame_equal(mine.history, theirs.history)
                assert mine.algorithm == theirs.algorithm
                assert (mine.totals, mine.ending, mine.guarantee) == (theirs.totals, theirs.ending, theirs.guarantee)
                np.testing.assert_array_equal(mine.communication_rounds, theirs.communication_rounds)
                assert mine.provenance == theirs.provenance


@pytest.mark.parametrize(
    "changed",
    [
        {"steps": 4},
        {"every": 2},
        {"trials": (7, 8)},
        {"metrics": ["objective"]},
        {"metrics": [lambda w, problem: w.sum()]},
        {"stop": jdfl.objective_below(0.1)},
        {"batch": 1},
    ],
    ids=lambda changed: "-".join(changed),
)
def test_other_work_has_other_names(monkeypatch, tmp_path, changed):
    """Planted: were a setting left out of the names, the runs of another one would be taken."""
    names: list[list[str]] = []
    usual = kept.outcomes

    def noted(jobs: Jobs | None, about: Any, make: Any) -> Any:
        names[-1].append(kept.name_of(about()))
        return usual(None, about, make)

    monkeypatch.setattr("jdfl.engine.batch.kept.outcomes", noted)
    for more in ({}, {}, changed):
        names.append([])
        _experiment(**more).run(folder=tmp_path / "kept")
    first, same, others = names
    assert first == same
    assert len(set(first)) == 2
    assert not set(first) & set(others)


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="retry = 1 without"):
        _experiment().run(retry=1)
    with pytest.raises(ValueError, match="retry = -1"):
        _experiment().run(folder=tmp_path / "kept", retry=-1)
    with pytest.raises(FileNotFoundError):
        _experiment().run(folder=tmp_path / "missing" / "kept")
    with pytest.raises(ValueError, match="folder"):
        _experiment().run(folder=3)  # pyright: ignore[reportArgumentType]
    with jobs.opened(tmp_path, {"work": "audit", "versions": {}}):
        pass
    with pytest.raises(ValueError, match="other work"):
        _experiment().run(folder=tmp_path)


def test_a_full_disk_is_said_and_the_same_command_goes_on(monkeypatch, whole, capsys):
    usual = np.savez

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        dies_at(patch, 1, lambda: patch.setattr(np, "savez", full))
        assert main([*COMPARE, "--folder", "cut"]) == 5
    assert "No space left" in capsys.readouterr().err
    assert np.savez is usual
    assert main([*COMPARE, "--folder", "cut"]) == 0
    assert comparisons(whole, Path("cut")) == []


def test_a_folder_that_is_removed_meanwhile_ends_it(monkeypatch, capsys):
    dies_at(monkeypatch, 1, lambda: shutil.rmtree("cut"))
    assert main([*COMPARE, "--folder", "cut"]) == 5
    assert "removed" in capsys.readouterr().err
    assert not Path("cut").exists()


def test_failed_jobs_are_no_mistakes_of_settings():
    assert not issubclass(FailedJobsError, ValueError | OSError)
