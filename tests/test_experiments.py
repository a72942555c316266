"""The contract of experiments: what is written."""

import json

import pytest
from matplotlib.figure import Figure
from PIL import Image

from experiments import common
from jdfl.engine import provenance

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
