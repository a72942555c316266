"""A page about runs says what their folders hold, and groups them by their settings."""

import html
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl.cli import main
from jdfl.lab import charts, overview
from jdfl.lab.curves import band
from jdfl.lab.overview import _entries as read
from jdfl.lab.overview import _final
from jdfl.privacy import ledger
from jdfl.results import folder as results
from jdfl.store import files, manifest

TINY = ["--problem.m", "4", "--problem.n", "20", "--problem.s", "2", "--problem.rows", "5", "9", "--network", "ring"]
BATCH = ["--algorithm.batch", "2"]
pytestmark = pytest.mark.usefixtures("undrawn")
PRIVATE = ["--algorithm.clip", "1", "--algorithm.mechanism", "gaussian", "--algorithm.mechanism.multiplier", "4"]


@pytest.fixture(scope="module")
def runs(undrawn, tmp_path_factory) -> dict[str, list[Path]]:
    """Folders of runs of D-PSGD: two seeds, two with other promises, one with another step."""
    base = tmp_path_factory.mktemp("runs")

    def made(name: str, *flags: str) -> list[Path]:
        given = ["--stop", "none", "--steps", "6", "--algorithm", "d-psgd", "--out", str(base / name)]
        assert main(["run", *TINY, *given, *BATCH, *flags, "--quiet"]) == 0
        return sorted((base / name).iterdir())

    return {
        "two": made("two", "--algorithm.lr", "0.01", "--repeats", "2"),
        "private": made("private", "--algorithm.lr", "0.01", *PRIVATE),
        "removed": made("removed", *PRIVATE, "--algorithm.adjacency", "add-remove"),
        "other": made("other", "--algorithm.lr", "0.02"),
    }


def views(folders: list[Path]) -> dict[tuple[str, str], list[dict]]:
    """The curves of a page, by amount and metric."""
    by, found = {"by": "label", "sort": False, "observed": True}, overview._Curves(read(folders))
    frames = {(x, y): band(found.table, x, y) for x in found.axes for y in found.metrics}
    return {pair: [one.to_dict("list") for _, one in frame.groupby(**by)] for pair, frame in frames.items()}


def test_one_run_under_two_versions_has_no_sum(runs, tmp_path):
    """Both have the same noise: 2 first - second may be the exact run."""
    (folder,) = runs["private"]
    other = shutil.copytree(folder, tmp_path / "other")
    told = json.loads((other / "provenance.json").read_text())
    pages = []
    for versions in (told["versions"], told["versions"] | {"jdfl": "0.0.1"}):
        (other / "provenance.json").write_text(json.dumps(told | {"versions": versions}))
        (other / "manifest.json").write_text(json.dumps(manifest.of(other)))
        overview.write_overview([folder, other], tmp_path / "page.html")
        pages.append((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert ["runs, if they are published" in page for page in pages] == [True, False]
    assert ["No total is given" in page for page in pages] == [False, True]


def test_a_page_of_one_run_has_its_numbers(runs, tmp_path, capsys):
    (folder,) = runs["private"]
    assert main(["report", str(folder), "--out", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "page.html")
    (run,) = read([folder])[0].runs
    found = views([folder])
    assert {"round", "bytes", "epsilon"} == {x for x, _ in found}
    (line,) = found["round", "objective"]
    assert line["x"] == list(range(7))
    assert line["mean"] == run.history["objective"].tolist()
    (line,) = found["epsilon", "objective"]
    assert line["x"][0] == 0
    assert line["x"][-1] == pytest.approx(run.summary["privacy"]["report"]["epsilon"], rel=1e-4)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    statement = run.summary["privacy"]["statement"].splitlines()[0].removeprefix("- ")
    (bound,) = re.findall(r"privacy: \((\S+), ", statement)
    assert _final(read([folder])).rows[0][-1].startswith(f"{bound}, at delta")
    assert text.count('<div class="plot"') <= 12  # few of all metrics and costs
    assert text.index("<svg") < text.index("<table")
    for told in (run.provenance["hash"], f"{run.summary['bytes']:,.1f}", "lr: 0.01", html.escape(statement)):
        assert told in text


def test_the_curve_of_epsilon_is_computed_by_the_page_and_bounds_that_of_every_record(tmp_path, monkeypatch):
    asked = []
    accounted = ledger.epsilon
    monkeypatch.setattr(
        ledger, "epsilon", lambda event, count, *a, **b: asked.append(count) or accounted(event, count, *a, **b)
    )
    flags = ["--algorithm", "d-psgd", "--algorithm.batch", "2", "--algorithm.sampling", "poisson", *PRIVATE]
    assert main(["run", *TINY, *flags, "--stop", "none", "--steps", "6", "--out", str(tmp_path), "--quiet"]) == 0
    assert set(asked) <= {0, 6}  # of the whole run alone
    (folder,) = tmp_path.iterdir()
    assert main(["report", str(folder)]) == 0
    assert set(asked) == set(range(7))
    (line,) = views([folder])["epsilon", "objective"]
    run = jdfl.load(folder)
    exact = [jdfl.account(replace(run, releases=run.moments[k])).epsilon for k in range(1, 7)]
    assert line["x"] == pytest.approx([0.0, *exact], rel=1e-4)
    assert all(bound >= epsilon * (1 - 1e-5) for bound, epsilon in zip(line["x"][1:], exact))


def test_bands_are_the_intervals_of_the_means(runs, tmp_path):
    path = overview.write_overview([*runs["two"], *runs["other"]], tmp_path / "page.html", "Steps")
    both, other = views([*runs["two"], *runs["other"]])["round", "objective"]
    found = [run.history["objective"].to_numpy() for run in read(runs["two"])[0].runs]
    means = [sum(pair) / 2 for pair in zip(*found)]
    halves = [12.7062 * abs(one - other) / 2 for one, other in zip(*found)]  # t of one degree of freedom
    assert both["mean"] == pytest.approx(means)
    assert both["low"] == pytest.approx([mean - half for mean, half in zip(means, halves)], rel=1e-4, abs=1e-4)
    assert both["high"] == pytest.approx([mean + half for mean, half in zip(means, halves)], rel=1e-4, abs=1e-4)
    assert other["low"] == other["high"]
    text = path.read_text(encoding="utf-8")
    assert "<h1>Steps</h1>" in text
    best = min(
        np.mean([run.history["objective"].iloc[-1] for run in one.runs]) for one in read([*runs["two"], *runs["other"]])
    )
    assert f"has the lowest objective, {best:.2f}" in text[: text.index("<svg")]
    assert "epsilon" not in {x for x, _ in views([*runs["two"], *runs["private"]])}  # which not all runs have


def test_epsilons_of_other_promises_are_told_apart(runs, tmp_path):
    both = [*runs["private"], *runs["removed"]]
    first, second = (row[-1] for row in _final(read(both)).rows)
    assert "for one record (replace-one) against an observer of all messages at delta" in first
    assert "for one record (add-remove) against" in second
    path = overview.write_overview(both, tmp_path / "page.html")
    assert "epsilon" not in {x for x, _ in views(both)}
    assert "Epsilons do not promise the same" in path.read_text(encoding="utf-8")


def test_a_page_is_written_over_nothing_else_and_tells_how_to_resume_a_run(runs, tmp_path, capsys):
    folder = tmp_path / "run"
    shutil.copytree(runs["two"][0], folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for place in ("metrics.csv", "config.yaml", "", "nowhere/page.html"):
        assert main(["report", str(folder), "--out", str(folder / place)]) == 2
        assert "--out" in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    for name in ("manifest.json", "summary.json", "provenance.json", "metrics.parquet", "params.npz"):
        (folder / name).unlink()  # as of a run that was cut off
    with (folder / "metrics.csv").open("a") as file:
        file.write("7,0.5")  # under way
    path = overview.write_overview([folder], tmp_path / "page.html")
    assert f"jdfl resume {folder}" in path.read_text(encoding="utf-8")
    assert views([folder])["round", "objective"][0]["x"] == list(range(7))


def test_what_is_no_run_is_refused(runs, tmp_path, capsys):
    (folder,) = runs["other"]
    broken, curves, swept = tmp_path / "broken", tmp_path / "compared", tmp_path / "swept"
    shutil.copytree(folder, broken)
    (broken / "nodes.csv").write_text("round,node\n1,what\n")
    for place, name, text in ((curves, "curves.csv", "label\n"), (swept, "study.yaml", "over: [seed=0,1]\n")):
        place.mkdir()
        (place / name).write_text(text)
    for given, words in (
        ([tmp_path / "nowhere"], "nowhere"),
        ([folder, folder], "twice"),
        ([broken], "nodes.csv"),
        ([curves], "report.html"),
        ([swept], "sweep"),
    ):
        assert main(["report", *map(str, given), "--out", str(tmp_path / "page.html")]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_tables_by_node_have_the_names_of_nodes_and_are_read_back(tmp_path):
    table = pd.DataFrame({"round": [1, 1], "node": [1, 0], "hears": [0, -1]})
    files.write(tmp_path / "links.csv", results._named(table, ("hosp-a", "hosp-b")))
    found = files.read(tmp_path / "links.csv")
    assert found["name"].tolist() == ["hosp-b", "hosp-a"]
    assert found["hears_name"].fillna("").tolist() == ["hosp-a", ""]
    assert found["node"].tolist() == [1, 0]
    assert results._named(table, range(2)) is table
    moments = pd.DataFrame({"round": [0, 0], "node": [0, 1], "name": ["hosp-a", "hosp-b"], "shared": [1, 2]})
    (picture,) = charts.network(moments, table.assign(round=0), "").pictures.values()
    assert picture.index("hosp-a") < picture.index("hosp-b")
