"""Runs that end before the compared budget go on, or are marked wherever somebody may read them."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jdfl
from experiments import ledger, pages
from experiments.common import Row
from jdfl.algorithms.codes import sends_dense
from jdfl.cli.compare import told
from jdfl.lab import curves

pytestmark = pytest.mark.filterwarnings("ignore:.*of its grid, so better ones")
BUDGET = 4000.0  # bytes: D-PSGD sends 384 in a round, CHOCO-SGD with one entry 48
ROOT = Path(__file__).parents[2]


def compared(**how):
    problem = jdfl.problems.example1(m=4, n=12, s=2, rows=(8, 12))
    methods = {
        "D-PSGD": jdfl.DPSGD(),
        "few": jdfl.CHOCO(codec=jdfl.Sparse(s=1)),
        "CHOCO-SGD": jdfl.CHOCO(codec=jdfl.Dense(), gamma=1.0),
    }
    grids = {"lr": [0.02, 0.05, 0.1], "gamma": [0.1, 1.0]}
    how = {"steps": 15, "trials": 2, "budget": {"bytes": BUDGET}, "progress": False} | how
    tuning = jdfl.Tuning(grids=grids, extend=0)
    return jdfl.compare(methods, problem, jdfl.network.ring(4), tuning=tuning, **how)


@pytest.fixture(scope="module")
def cut():
    return compared(longer=1)


def test_runs_go_on_until_the_budget_is_used():
    found = compared()
    at = found.at("bytes")
    assert at["share"].isna().all()
    assert at["round"]["few"] > 15
    assert (at["bytes"] > 0.85 * BUDGET).all()
    assert "budget" not in found.mark("few")
    again = jdfl.Experiment(
        problem=jdfl.problems.example1(m=4, n=12, s=2, rows=(8, 12)),
        network=jdfl.network.ring(4),
        methods={"few": jdfl.CHOCO(codec=jdfl.Sparse(s=1))},
        steps=15,
        trials=2,
        tuning=jdfl.Tuning(grids={"lr": [0.02, 0.05, 0.1], "gamma": [0.1, 1.0]}, extend=0),
        budget={"bytes": BUDGET},
    ).remade(found, "few")
    assert [one.rounds for one in again] == [one.rounds for one in found.results["few"]]


def test_what_ends_before_the_budget_is_marked_everywhere(cut, tmp_path):
    at = cut.at("bytes")
    used = f"{at['share']['few']:.0%}"
    assert at["share"]["few"] == pytest.approx(cut.curves.query("label == 'few'")["bytes"].max() / BUDGET)
    assert at["share"].drop("few").isna().all()
    for format in ("text", "markdown", "latex"):
        table = cut.table(format).replace("\\%", "%").replace("\n", " ")
        assert "budget used" in table
        assert f"few after {used} of the budget (its rounds were done)" in table
    fig, _ = cut.plot("bytes")
    text = " ".join(one.get_text() for one in fig.findobj(lambda one: hasattr(one, "get_text")))
    assert f"ended after {used}" in " ".join(text.split())
    cut.save(tmp_path / "cut")
    for name in ("report.html", "table.txt", "table.tex", "equal_costs.csv"):
        assert used.rstrip("%") in (tmp_path / "cut" / name).read_text(encoding="utf-8"), name
    costs = pd.read_csv(tmp_path / "cut" / "equal_costs.csv").set_index("label")
    assert "of the budget" in costs["mark"]["few"]
    assert told(cut)["algorithms"]["few"]["share"] == at["share"]["few"]
    row = next(row for row in cut.grid().rows if row[0].text == "few")
    assert {cell.mark for cell in row} == {""}  # not ranked


def test_what_was_sent_dense_is_said(cut):
    assert [row[0].text for row in cut.grid().rows] == ["D-PSGD", "few", "CHOCO-SGD, dense"]
    assert sends_dense(cut.algorithms["CHOCO-SGD"])


def test_the_metric_that_tells_methods_apart_leads(cut):
    assert cut.measure == "suboptimality"
    assert cut.grid().headers[-1] == "suboptimality ± 95 % CI"
    assert compared(longer=1, metrics=["consensus_error"]).grid().headers[-1] == "consensus error ± 95 % CI"


def test_a_share_is_that_of_the_last_record_unless_one_more_would_have_been_too_much():
    run = pd.DataFrame({"bytes": [0.0, 10.0, 20.0, 30.0], "ending": "steps"})
    assert curves.share(run, "bytes", 60.0) == 0.5
    assert np.isnan(curves.share(run, "bytes", 39.0))
    assert curves.share(run, "bytes", 40.0) == 0.75
    assert np.isnan(curves.share(run, "bytes", np.inf))
    assert np.isnan(curves.share(run.assign(ending="diverged"), "bytes", 60.0))


def test_recorded_tables_at_equal_budgets_mark_what_ended_early():
    """The recorded rows have the round of every value: the last one at a budget that a smaller one reaches, too."""
    marked = 0
    for path in sorted(ledger.RESULTS.glob("*.json")):
        cells = {(one.case, one.column): one for one in ledger.rows_of(path.stem)}
        for row in cells.values():
            marked += bool(pages.used(row, cells))
    assert marked > 50
    rows = [Row("a", f"{what} at {amount} kB", None, value, 0.0, 1) for what, amount, value in (
        ("round", "10", 5.0), ("round", "1,000", 50.0), ("objective", "10", 2.0), ("objective", "1,000", 1.0),
    )]  # fmt: skip
    cells = {(one.case, one.column): one for one in rows}
    assert [pages.used(one, cells) for one in rows] == ["", "", "", " (≤ 10 % used)"]


def test_no_table_of_a_page_repeats_a_value_at_a_larger_budget_without_a_mark():
    amount = re.compile(r"([\d,.]+) (kB|MB|rounds|communications|gradients)\b.*")
    seen = 0
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        tables = re.findall(r"((?:^\|.*\|\n)+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        for heads, _, *rows in ([line.strip("|\n").split(" | ") for line in table.splitlines()] for table in tables):
            units = [found.groups() if (found := amount.fullmatch(head.strip())) else None for head in heads]
            for row in rows:
                for i, one in enumerate(units):
                    for j, other in enumerate(units):
                        if one and other and i != j and one[1] == other[1] and len(row) == len(heads):
                            first, second = row[i].strip(" *"), row[j].strip(" *")
                            seen += 1
                            assert first != second or "used" in first or not re.match(r"[\d.]+$", first), (path, row)
    assert seen
