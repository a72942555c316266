"""Table II at full size: runs that go on after an interruption, and how long they will take."""

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import jdfl
from experiments import full_size
from experiments.full_size import Run
from experiments.partpsp_tasks import reduced, vit_task


@pytest.fixture(scope="module")
def small():
    """A run of a small transformer."""
    return Run("vit", vit_task(small=True), "PartPSP-1")


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_to_the_same_parameters(small, tmp_path):
    (tmp_path / "whole").mkdir()
    whole = full_size.trained(small, tmp_path / "whole", minutes=10)
    assert full_size.done(small, tmp_path) == 0

    def cut(now: jdfl.Snapshot):
        return "no more time" if now.rounds >= 10 else None

    algorithm, problem, network = small.parts()
    steps = small.rounds(problem)
    store = jdfl.Checkpoints(tmp_path / small.folder, minutes=10)
    given = {"steps": steps, "every": 5, "metrics": ["consensus_error"], "options": jdfl.Options(chunk=5)}
    jdfl.run(algorithm, problem, network, callbacks=[cut, store], **given)
    assert full_size.done(small, tmp_path) == 10
    assert "for 1 of 1 runs" in full_size.expected([small], tmp_path)
    later = full_size.trained(small, tmp_path, minutes=10)
    np.testing.assert_array_equal(later.params, whole.params)
    assert later.final == whole.final
    rows = full_size.lines(small, later)
    full_size.keep(small, rows, tmp_path)
    assert full_size.kept(small, tmp_path) == rows
    assert not (tmp_path / small.folder).exists()
    assert full_size.expected([small], tmp_path) == "expected: 0.0 h for 0 of 1 runs"


def test_all_cells_of_the_table_are_there_once_at_full_size():
    every = full_size.everything()
    assert len(every) == 3 * 4 * 4 * 4
    assert len({one.folder for one in every}) == len(every)
    for one in [*every, *full_size.night()]:
        assert not reduced(one.task)
        assert one.task.batch == 100
        assert one.task.epochs == 12
        assert one.task.examples is None
        assert one.task.model.shape[0] in (8, 28, 32)
    assert {one.task.model.n for one in every} <= {one.task.model.n for one in full_size.night()}
    assert len({one.folder for one in full_size.night()}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_script_that_is_cut_off_has_no_table(number, tmp_path):
    words = [
        sys.executable,
        "-m",
        "experiments.partpsp_start",
        "--quick",
        "--seeds",
        "1",
        "--out",
        str(tmp_path / "here"),
    ]
    script = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while script.poll() is None and not (tmp_path / "here").is_dir():
        time.sleep(0.1)
    time.sleep(8)  # compiling the first of three runs
    script.send_signal(number)
    assert script.wait(120) == 128 + number
    assert not list((tmp_path / "here").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "status"), [("interrupted", 130), ("terminated", 143)])
def test_a_signal_while_a_round_is_measured_ends_the_script_in_words(ending, status, small, monkeypatch, capsys):
    cut = SimpleNamespace(ending=ending, reason=ending)
    monkeypatch.setattr(full_size.jdfl, "run", lambda *_, **__: cut)
    with pytest.raises(SystemExit) as ended:
        full_size.seconds_of_a_round(small)
    assert ended.value.code == status
    assert "the same command goes on" in capsys.readouterr().err


def test_several_seeds_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        full_size.main(["--quick", "--seeds", "2", "--out", str(tmp_path)])
    assert "Expected --seeds 1" in capsys.readouterr().err
