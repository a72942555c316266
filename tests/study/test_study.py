"""A study's table holds what the runs alone would give, and what is cut off goes on."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.base.run_keys import RunKey
from jdfl.cli import main
from jdfl.config import StudyConfig, build, from_yaml
from jdfl.lab import study
from jdfl.lab.points import Group, config_at
from jdfl.lab.study import Study, best_first
from jdfl.lab.table import half_width
from tests.refused import refused

TINY = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9", "--network", "ring"]
SWEEP = ["sweep", *TINY, "--stop", "none", "--steps", "6", "--algorithm", "d-psgd", "--algorithm.batch", "2"]
OVER = ["--over", "algorithm.lr=0.01,0.02", "network=ring,complete", "--seeds", "2"]


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """In an empty folder."""
    monkeypatch.chdir(tmp_path)


def folder() -> Path:
    (found,) = Path("runs").iterdir()
    return found


def test_the_table_has_what_the_runs_alone_would_give(capsys):
    assert main([*SWEEP, *OVER, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    table = pd.read_parquet(folder() / "results.parquet")
    curves = pd.read_parquet(folder() / "curves.parquet")
    assert table["point"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table["seed"].tolist() == [0, 1] * 4
    base = from_yaml((folder() / "study.yaml").read_text(), StudyConfig).base
    for row in table.to_dict("records")[::3]:
        values = {name: row[name] for name in ("algorithm.lr", "network")}
        algorithm, problem, network, _ = build(config_at(base, values))
        alone = jdfl.run(algorithm, problem, network, key=RunKey.of(row["seed"]).derived(values), steps=6)
        assert row["bytes"] == alone.totals.bytes
        assert row["gradients"] == alone.totals.gradients
        assert row["objective"] == pytest.approx(alone.final["objective"], rel=1e-5)
        one = curves[(curves["point"] == row["point"]) & (curves["seed"] == row["seed"])]
        np.testing.assert_allclose(one["objective"], alone.history["objective"], rtol=1e-5)
        assert row["provenance"] == alone.provenance.hash
    best, means = told["points"][0], table.groupby("point")["objective"].mean()
    values = table[table["point"] == best["point"]]["objective"].to_numpy()
    assert best["point"] == means.idxmin()
    assert (best["objective"], best["objective_ci"]) == pytest.approx((means.min(), half_width(values)))
    files = {path.name for path in folder().iterdir()}
    assert {"study.yaml", "jobs.json", "manifest.json", "results.csv", "table.md", "report.html"} < files


def test_a_study_that_is_cut_off_goes_on_with_what_is_left(monkeypatch, capsys):
    assert main([*SWEEP, *OVER, "--quiet"]) == 0
    whole = pd.read_parquet(folder() / "results.parquet")
    folder().rename("whole")
    made: list[Group] = []
    work = study.run_group

    def cut(group: Group, token: str):
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(group)
        return work(group, token)

    with monkeypatch.context() as patch:
        patch.setattr(study, "run_group", cut)
        assert main([*SWEEP, *OVER]) == 130
    assert f"jdfl resume {folder()}" in capsys.readouterr().err
    assert len(pd.read_parquet(folder() / "results.parquet")) == 4
    before = {path.name: path.stat().st_mtime_ns for path in (folder() / "jobs").iterdir()}
    assert main([*SWEEP, *OVER, "--quiet", "--folder", str(folder())]) == 0
    after = {path.name: path.stat().st_mtime_ns for path in (folder() / "jobs").iterdir()}
    assert before.items() <= after.items()  # what was done is not done again
    measured = [name for name in whole if "seconds" not in name]
    pd.testing.assert_frame_equal(pd.read_parquet(folder() / "results.parquet")[measured], whole[measured])
    asked = (folder() / "study.yaml").read_text()
    for text in (asked.replace("seed: 0", "seed: 1"), asked.replace("0.02", "0.03"), asked[: len(asked) // 2]):
        assert text != asked
        (folder() / "study.yaml").write_text(text)
        assert main(["resume", str(folder()), "--quiet"]) == 2
        assert "other settings" in capsys.readouterr().err


def test_out_of_time_is_told_and_resumed_by_the_same_code(capsys):
    assert main([*SWEEP, *OVER, "--max-seconds", "1e-9"]) == 124
    versions = folder() / "jobs.json"
    versions.write_text(versions.read_text().replace('"code": "', '"code": "other'))
    assert main(["resume", str(folder())]) == 2
    assert "code: was other" in capsys.readouterr().err
    again = ["resume", str(folder()), "--any-version", "--quiet", "--max-seconds"]
    assert main([*again, "600"]) == 0
    shutil.rmtree(next((folder() / "jobs").iterdir()))  # as of one of its two groups that was cut off
    assert main([*again, "1e-9"]) == 124
    assert "2 of 4 points are not done" in (folder() / "table.md").read_text()


def test_what_is_refused_or_diverges_is_in_the_table_and_not_best(capsys):
    assert main([*SWEEP, "--steps", "40", "--over", "algorithm.lr=-1.0,0.01,1e30", "--json"]) == 3
    out, err = capsys.readouterr()
    assert "refused, point 0: Expected lr > 0" in err
    assert "1 of 3 runs diverged: point 2\n" in err
    table = pd.read_parquet(folder() / "results.parquet")
    assert table["ending"].tolist() == ["refused", "steps", "diverged"]
    ranked = json.loads(out)["points"]
    assert [one["point"] for one in ranked] == [1, 2]
    assert ranked[1]["objective"] is None
    assert "refused" in (folder() / "report.html").read_text(encoding="utf-8")


PRIVATE = ["--algorithm.clip", "1", "--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "3"]


def test_runs_with_a_budget_keep_it():
    flags = ["--privacy.epsilon", "1", "--privacy.delta", "1e-3", "--steps", "50", "--quiet"]
    assert main([*SWEEP, *PRIVATE, *flags, "--over", "algorithm.lr=0.01,0.02"]) == 0
    table = pd.read_parquet(folder() / "results.parquet")
    assert set(table["ending"]) == {"budget"}
    assert (table["epsilon"] <= 1).all()
    assert (table["rounds"] < 50).all()


def test_whole_nodes_of_several_problems_do_not_add_up_and_tables_say_what_an_epsilon_is_worth():
    over = ["--over", "algorithm.adjacency=replace-one,add-remove", "--quiet"]
    assert main([*SWEEP, *PRIVATE, *over]) == 0
    told = [one.split(" against")[0] for one in pd.read_parquet(folder() / "results.parquet")["promise"]]
    assert told == ["for one record (replace-one)", "for one record (add-remove)"]
    folder().rename("records")
    over = ["--over", "problem.seed=0,1", "--quiet"]
    assert main([*SWEEP, *PRIVATE, "--algorithm.per", "batch", *over]) == 0
    assert "have no epsilon together" in (folder() / "table.md").read_text()


def test_mistakes_are_told_before_anything_is_written(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "submitit", None)
    jdfl.DataLedger.create("book.json", epsilon=1e-3, delta=1e-6)
    for flags, words in (
        ("", "at least one setting"),
        ("--over algorithm.lr=0.1 --by beauty", "by = 'beauty'"),
        ("--over algorithm.lr=0.1 --seeds 0", "seeds = 0"),
        ("--over seed=0,1", "`seeds`"),
        (f"{' '.join(PRIVATE)} --over algorithm.lr=0.1,-1 --privacy.ledger book.json --privacy.epsilon 9", "0.001"),
        ("--over algorithm.lr=0.1 --engine-options a=1", "engine_options = ('a=1',)"),
        ("--over algorithm.beauty=1", "Unknown key algorithm.beauty"),
        ("--over algorithm.lr=0.1 --engine local --max-seconds 9", "max_seconds = 9.0"),
        ("--over algorithm.lr=0.1 --max-seconds -4", "max_seconds = -4.0"),
        ("--over algorithm.lr=0.1 --seeds 2 --seed 4294967295", "seed = 4294967295"),
        ("--over algorithm.lr=0.1 --engine slurm", "pip install 'jdfl[slurm]'"),
    ):
        assert main([*SWEEP, *flags.split()]) == 2
        assert words in capsys.readouterr().err
        assert not any(Path("runs").glob("*")) or "slurm" in flags
    with refused(draw=-1):
        Study.of(StudyConfig(over=("algorithm.lr=0.1",), draw=-1), Path("runs"))
    rows = {"point": range(3), "a": range(3), "accuracy": [0.0, 0.1, 0.2], "objective": 1.0, "ending": "steps"}
    table = pd.DataFrame(rows | {"seed": 0, "rounds": 1, "bytes": 1.0})
    assert best_first(table, ["a"], "accuracy")["point"].tolist() == [2, 1, 0]  # where higher is better


@pytest.mark.slow
def test_groups_go_to_processes_of_their_own():
    pytest.importorskip("submitit")
    assert main([*SWEEP, *OVER, "--quiet", "--engine", "local", "--engine-options", "timeout_min=5"]) == 0
    assert len(pd.read_parquet(folder() / "results.parquet")) == 8
    assert any((folder() / "logs").iterdir())
