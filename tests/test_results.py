"""Run directories are whole or not there; summaries claim nothing; figures are what they say."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.cli import main
from jdfl.cli.runs import spread_text
from jdfl.results import folder as results
from jdfl.results.folder import FILES, new_run_folder, read_run, write_run
from jdfl.results.summary import summary, summary_text
from tests.refused import refused

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def result() -> jdfl.Result:
    algorithm = jdfl.CEPS(s=2, codec=jdfl.OneBit(d=40), mechanism=jdfl.Gaussian(0.5), sensitivity=0.1, periods=(2, 3))
    problem = jdfl.problems.example1(4, 20, 2, (5, 9))
    return jdfl.run(
        algorithm, problem, jdfl.network.ring(4), key=0, steps=12, every=4, stop=jdfl.consensus_below(1e9, after=8)
    )


def test_a_run_directory_holds_everything(result, tmp_path):
    folder = write_run(tmp_path / "a" / "run", result, config_yaml="steps: 12\n")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*FILES, "config.yaml", "figure.png", "checkpoints", "journal", "manifest.json", "private.key"]
    )
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    run = read_run(folder)
    assert run.config_yaml == "steps: 12\n"
    pd.testing.assert_frame_equal(run.history, result.history)
    assert list(pd.read_csv(folder / "metrics.csv").columns) == list(result.history.columns)
    np.testing.assert_array_equal(run.params, result.params)
    assert {"python", "jax", "jaxlib", "numpy", "jdfl", "platform", "device", "x64", "date"} <= set(run.environment)
    assert run.summary == json.loads(json.dumps(summary(result)))


def test_a_failure_leaves_no_directory_and_an_occupied_one_is_refused_or_replaced_whole(result, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(results, "summary_text", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_run(folder, result)
    assert list(tmp_path.iterdir()) == []
    folder.mkdir()
    write_run(folder, result, config_yaml="first: 1\n")  # an empty one will do
    with refused(FileExistsError, "overwrite=True"):
        write_run(folder, result, config_yaml="second: 1\n")
    rename, calls = Path.rename, []

    def second_fails(self, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("no")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", second_fails)
        with pytest.raises(OSError):
            write_run(folder, result, config_yaml="second: 1\n", overwrite=True)
    assert read_run(folder).config_yaml == "first: 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    write_run(folder, result, config_yaml="second: 1\n", overwrite=True)
    assert read_run(folder).config_yaml == "second: 1\n"
    (folder / "params.npz").unlink()
    with refused(FileNotFoundError, "params.npz"):
        read_run(folder)


def test_run_folders_never_collide(tmp_path):
    assert len({new_run_folder(tmp_path / "runs", "x") for _ in range(5)}) == 5


def test_a_summary_counts_and_claims_nothing(result):
    told = summary(result)
    text = summary_text(told)
    assert told["bytes"] == result.totals.messages["model"] * (40 + 64) / 8
    assert told["communication_rounds"]["max"] == result.communication_rounds.max()
    assert told["privacy"]["releases"] == result.totals.releases > 0
    assert told["network_seconds"] is None
    assert result.ending == "stop rule"
    assert result.guarantee.reason in text
    assert "OneBit messages" in result._repr_html_()
    for words in ("epsilon", "converge", "simulated"):  # agreement alone is no convergence
        assert words not in (text + json.dumps(told)).lower()


def test_a_summary_tells_of_time_divergence_and_runs_that_learnt_nothing(result):
    told = summary(replace(result, clock=np.array([1.0, 2.0, 3.0, 1234.0])))
    assert told["network_seconds"] == {"mean": 310.0, "last": 1234.0}
    history = result.history.assign(objective=np.nan)
    told = summary(replace(result, ending="diverged", diverged=(3, 1), reason="node 1 has ...", history=history))
    assert json.loads(json.dumps(told, allow_nan=False))["metrics"]["objective"] is None
    assert told["diverged"] == {"round": 3, "node": 1}
    for last, where in ((3.0, "above"), (2.0, "still at"), (1.0, "")):
        history = pd.DataFrame({"round": [0, 10], "objective": [2.0, last], "bytes": [0, 1]})
        told = summary(replace(result, history=history))
        assert len(told["warnings"]) == bool(where)
        assert (f"{where} its initial value 2: nothing was learnt" in summary_text(told)) == bool(where)


def test_several_runs_have_a_mean_and_a_spread(result):
    assert "| rounds | 9 ± 13 | 2 |" in spread_text([summary(result) | {"rounds": rounds} for rounds in (8, 10)])


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that nobody can write to")
def test_a_place_that_cannot_be_written_to_is_refused_before_the_run(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    tiny = ["--problem.m", "4", "--problem.n", "8", "--problem.s", "2", "--problem.rows", "5", "8"]
    for place in ("/proc/jdfl", str(tmp_path / "file"), str(tmp_path / "file" / "runs")):
        assert main(["run", *tiny, "--network", "ring", "--algorithm", "d-psgd", "--quiet", "--out", place]) == 2
        assert repr(place) in capsys.readouterr().err.splitlines()[-1]
