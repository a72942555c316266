"""The contract of experiments and benchmarks: what is written."""

import json
import re

import pytest
from matplotlib.figure import Figure
from PIL import Image

from benchmarks import doadp, mixing, noise, projection
from experiments import common
from jdfl.engine import provenance

BENCHMARK_ROW = {"case", "measure", "value", "unit", "goal", "met"}
EXPERIMENT_ROW = {"case", "column", "paper", "mean", "sd", "seeds"}


def test_rows_hold_mean_and_deviation(tmp_path):
    rows = [common.row("a", "rounds", 28, [27, 29]), common.row("a", "kB", None, [3.0])]
    written = json.loads(common.save(rows, tmp_path, "name").read_text())
    assert [set(one) for one in written] == [EXPERIMENT_ROW] * 2
    assert [written[0][name] for name in ("case", "column", "paper", "mean", "seeds")] == ["a", "rounds", 28, 28.0, 2]
    assert written[0]["sd"] == pytest.approx(2**0.5)
    assert (written[1]["paper"], written[1]["sd"]) == (None, 0.0)


def test_a_table_and_its_figure_have_one_provenance_that_runs_change(tmp_path):
    def saved() -> dict:
        common.save([common.row("a", "rounds", None, [1.0])], tmp_path, "name")
        return json.loads((tmp_path / "name.provenance.json").read_text())

    common.options("text", arguments=["--out", str(tmp_path)])
    first = saved()
    common.save_figure(Figure(), tmp_path / "name.png")
    with Image.open(tmp_path / "name.png") as drawn:
        assert drawn.info["Description"] == f"Made by jdfl; provenance {first['hash']}"
    assert f"provenance {first['hash']}".encode() in (tmp_path / "name.pdf").read_bytes()
    assert saved() == first
    run = provenance.provenance(x=2.0).hash  # as every run makes one
    second = saved()
    assert (first["runs"], second["runs"]) == ([], [run])
    assert second["hash"] not in (first["hash"], run)


def test_table_shows_paper_beside_ours(capsys):
    common.show("title", [common.row("a", "rounds", 28, [27, 29]), common.row("b", "kB", None, [3.0])])
    lines = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert ["case", "rounds, paper", "rounds, ours ± 95 % CI", "kB"] in lines
    assert ["a", "28", "28 ± 13"] in lines


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("script", [mixing, noise, projection, doadp], ids=lambda script: script.NAME)
def test_small_benchmarks_write_their_rows(script, tmp_path):
    rows = script.main(["--quick", "--out", str(tmp_path)])
    written = json.loads((tmp_path / f"{script.NAME}.json").read_text())["rows"]
    assert len(written) == len(rows)
    assert all(set(one) >= BENCHMARK_ROW for one in written)
