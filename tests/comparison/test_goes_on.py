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
from jdfl.engine import trials
from jdfl.problems import Problem
from jdfl.store import jobs, manifest
from jdfl.store.jobs import FailedJobsError, Jobs
from tests.comparing import comparisons
from tests.fuzz.judge import tried
from tests.refused import refused

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
RESUME = ["resume", "cut", "--quiet"]
PROGRAMS = 5  # two methods, each tuned and reported, one of them tuned again at the rounds of its budget
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("undrawn")]


@pytest.fixture(scope="module")
def whole(undrawn, tmp_path_factory) -> Path:
    """The folder of a comparison that nothing cut off."""
    base = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base)
        Path("small.yaml").write_text(SMALL)
        assert main([*COMPARE, "--folder", "whole"]) == 0
    return base / "whole"


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)


def dies_at(patch: pytest.MonkeyPatch, place: int, what: Callable[[], Any]) -> list[str]:
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

    patch.setattr(Jobs, "_made", dying)
    return made


def ctrl_c() -> None:
    raise KeyboardInterrupt


def cut_at(place: int, what: Callable[[], Any], *args: str) -> tuple[int, list[str]]:
    """The status of a command in which something happens in a job, and the jobs that it has made."""
    with pytest.MonkeyPatch.context() as patch:
        made = dies_at(patch, place, what)
        return main(list(args or (*COMPARE, "--folder", "cut"))), made


def test_whatever_cuts_it_off_the_folder_is_that_of_an_unbroken_one(capsys, whole):
    usual = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status, made = cut_at(1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    signal.signal(signal.SIGTERM, usual)
    assert (status, len(made)) == (143, 1)
    assert "jdfl resume cut" in capsys.readouterr().err
    assert not list(Path("cut").glob("jobs/.*"))

    def no_memory() -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    assert cut_at(0, no_memory) == (1, [])
    assert re.search("out of memory.*jdfl resume cut", capsys.readouterr().err, re.DOTALL)
    with pytest.MonkeyPatch.context() as patch:
        status, made = cut_at(0, lambda: patch.setattr(np, "savez", full), *RESUME)
    assert (status, len(made)) == (5, 1)
    assert "No space left" in capsys.readouterr().err
    origin = Path("cut", jobs.ORIGIN)
    text = origin.read_text()
    origin.write_text(re.sub('"code": "', '"code": "other', text))
    assert main(RESUME) == 2
    assert "code: was other" in capsys.readouterr().err
    failures = iter([no_memory, lambda: None])
    status, made = cut_at(0, lambda: next(failures)(), *RESUME, "--any-version", "--retry", "1")
    assert (status, len(made)) == (0, PROGRAMS - 2)
    assert comparisons(whole, Path("cut")) == []
    assert not (Path("cut") / jobs.PLACE).exists()


def test_what_is_done_is_shown_and_what_has_done_nothing_leaves_nothing(capsys, whole):
    shutil.copytree(whole, "cut")
    before = {path: path.stat().st_mtime_ns for path in Path("cut").iterdir()}
    for again in ([*COMPARE, "--folder", "cut", "--json"], ["resume", "cut", "--json"]):
        assert main(again) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["folder"], told["budget"], list(told["algorithms"])) == (
            "cut",
            6,
            ["d-psgd", "with sparse messages"],
        )
        assert told["algorithms"]["d-psgd"]["values"]["lr"] in (0.01, 0.02)
    assert {path: path.stat().st_mtime_ns for path in Path("cut").iterdir()} == before
    for status, what in ((130, ctrl_c), (5, lambda: shutil.rmtree("cut"))):
        shutil.rmtree("cut", ignore_errors=True)
        assert cut_at(0 if what is ctrl_c else 1, what)[0] == status
        assert not Path("cut").exists()


def test_other_settings_and_other_folders_are_refused(capsys, whole):
    shutil.copytree(whole, "cut")
    Path("full").mkdir()
    Path("full", "thesis.tex").touch()
    assert main([*COMPARE, "--folder", "cut", "--steps", "7"]) == 2
    assert "got others" in capsys.readouterr().err
    assert main([*COMPARE, "--folder", "full"]) == 2
    assert "thesis.tex" in capsys.readouterr().err
    config = Path("cut", "config.yaml")
    config.write_text(config.read_text().replace("steps: 6", "steps: 5"))
    assert main(RESUME) == 2
    assert "as it was written" in capsys.readouterr().err


def test_a_comparison_is_shown_and_goes_on_only_where_its_files_are_whole(capsys, whole):
    folder = Path(shutil.copytree(whole, "cut"))
    lines = (folder / "equal_costs.csv").read_text().splitlines(keepends=True)
    (folder / "equal_costs.csv").write_text("".join([lines[0], *lines[:0:-1]]))
    assert main(RESUME) == 2
    assert "equal_costs.csv was changed" in capsys.readouterr().err
    (folder / manifest.NAME).unlink()
    for number, said in ((jobs._FORMAT, "other settings"), (1, "got 1. Use")):
        origin = {"format": number, "work": "comparison", "settings": "others", "versions": {}}
        (folder / jobs.ORIGIN).write_text(json.dumps(origin))
        assert main(RESUME) == 2
        assert said in capsys.readouterr().err
    content = (folder / "comparison.npz").read_bytes()
    (folder / "comparison.npz").write_bytes(content[:-200])
    tried(lambda: jdfl.load(folder), "cut")


def _trial(seed: int) -> Problem:
    return jdfl.problems.example1(m=4, n=20, s=2, rows=(5, 9), seed=seed)


def _experiment(**more: Any) -> jdfl.Experiment:
    methods = {"D-PSGD": jdfl.DPSGD(lr=0.01), "slower": jdfl.DPSGD(lr=0.005)}
    how: dict[str, Any] = {"steps": 5, "trials": 2, "tuning": None} | more
    return jdfl.Experiment(problem=_trial, network=jdfl.network.ring(4), methods=methods, **how)


def test_in_python_too_and_results_are_the_same_bits(monkeypatch):
    without = _experiment().run()
    with monkeypatch.context() as patch:
        dies_at(patch, 1, ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            _experiment().run(folder="kept")
    made = dies_at(monkeypatch, -1, ctrl_c)
    found = [_experiment().run(folder="kept") for _ in range(2)]
    assert len(made) == 1
    for one in found:
        for label, runs in without.results.items():
            for mine, theirs in zip(one.results[label], runs, strict=True):
                np.testing.assert_array_equal(mine.params, theirs.params)
                pd.testing.assert_frame_equal(mine.history, theirs.history)
                np.testing.assert_array_equal(mine.communication_rounds, theirs.communication_rounds)
                for name in ("algorithm", "totals", "ending", "guarantee", "provenance"):
                    assert getattr(mine, name) == getattr(theirs, name)


def test_other_work_has_other_names(monkeypatch):
    """Were a setting left out of the names, the runs of another one would be taken."""

    def noted(jobs: Jobs | None, about: Any, make: Any) -> Any:
        found.append(trials.name_of(about()))
        raise KeyboardInterrupt

    monkeypatch.setattr("jdfl.engine.batch.kept_or_made", noted)
    found: list[str] = []
    other = {"problem": _trial, "network": jdfl.network.ring(4), "methods": {"D-PSGD": jdfl.DPSGD(lr=0.02)}}
    changes = [{"steps": 4}, {"every": 2}, {"trials": (7, 8)}, {"metrics": ["objective"]}, {"batch": 1}]
    changes += [{"metrics": [lambda w, problem: w.sum()]}, {"stop": jdfl.objective_below(0.1)}]
    for more in ({}, {}, *changes):
        with pytest.raises(KeyboardInterrupt):
            _experiment(**more).run(folder="kept")
    with pytest.raises(KeyboardInterrupt):
        jdfl.Experiment(**other, steps=5, trials=2, tuning=None).run(folder="kept")
    assert found[0] == found[1]
    assert len(set(found)) == len(changes) + 2


def test_mistakes():
    with refused(retry=1):
        _experiment().run(retry=1)
    with refused(retry=-1):
        _experiment().run(folder="kept", retry=-1)
    with pytest.raises(FileNotFoundError):
        _experiment().run(folder="missing/kept")
    with jobs.opened(Path.cwd(), {"work": "audit", "versions": {}}):
        pass
    with refused("other work"):
        _experiment().run(folder=Path.cwd())
    assert not issubclass(FailedJobsError, ValueError | OSError)  # no mistakes of settings
