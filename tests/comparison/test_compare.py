"""Tuning, fair reporting and refusals, on the toy problem."""

import re
import warnings
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl import Entry, Tuning
from jdfl.base import struct
from jdfl.engine.batch import keys_of
from jdfl.engine.trials import Trial
from jdfl.lab import words
from jdfl.lab.grids import GRIDS, Plan, beyond_edges
from tests.later import Later
from tests.toy import FEW, SLOW, Gossip, M, network, problem, terms

RATES = [0.01, 0.05, 0.1, 2.0]
TUNE = Tuning(keys=(70, 71), extend=0)
OPTIONS = {"trials": [0, 1, 2], "steps": 12, "metrics": FEW, "every": 3}
RUNS = {name: value for name, value in OPTIONS.items() if name != "trials"}
EVERY = OPTIONS | {"every": 1}


@struct.dataclass
class Tunable(Gossip):
    """The toy algorithm with a rate that comparisons tune."""

    tuned: ClassVar[tuple[str, ...]] = ("rate",)


ENTRIES = {
    "plain": Entry(Gossip(), tune={"rate": RATES}),
    "slow": Entry(SLOW, tune={"rate": RATES}),
    "as given": Gossip(rate=0.02),
}


@pytest.fixture(scope="module")
def compared() -> jdfl.Comparison:
    with pytest.warns(UserWarning, match="Not tuned: as given"):
        return jdfl.compare(ENTRIES, problem, network, tuning=TUNE, **OPTIONS)


def seed(w, problem):
    """A metric with the name of a column."""
    return w[0, 0]


def means(label, algorithm, seeds) -> list[float]:
    """The objective of every rate, mean over seeds; one run at a time, with the noise of its label, rate and seed."""
    found = []
    for rate in RATES:
        runs = [
            jdfl.run(algorithm.replace(rate=rate), problem, network, key=key, steps=12, every=12, metrics=["objective"])
            for key in keys_of(seeds, [(label, {"rate": rate})])
        ]
        found.append(np.mean([np.inf if run.diverged else run.history["objective"].iloc[-1] for run in runs]))
    return found


def test_the_chosen_value_is_the_best_on_the_tuning_seeds(compared):
    for label, algorithm in (("plain", Gossip()), ("slow", SLOW)):
        scores = means(label, algorithm, TUNE.keys)
        rows = compared.tuning[compared.tuning["label"] == label]
        np.testing.assert_allclose(rows["mean"], scores, rtol=1e-4)
        assert rows["rate"].tolist() == RATES
        assert rows["chosen"].tolist() == [i == np.argmin(scores) for i in range(len(RATES))]
        assert compared.algorithms[label].rate == RATES[np.argmin(scores)]
        assert compared.tuned[label].runs == len(RATES) * 2


def test_reported_runs_are_those_of_the_chosen_values_on_the_reported_seeds(compared):
    for label, entry in (("plain", Gossip()), ("as given", ENTRIES["as given"])):
        rate = compared.tuned[label].values.get("rate", 0.02)
        alone = jdfl.repeat(entry.replace(rate=rate), problem, network, keys=[0, 1, 2], **RUNS)
        assert [run.labels["seed"] for run in compared.results[label]] == [0, 1, 2]
        for one, other in zip(compared.results[label], alone):
            np.testing.assert_allclose(one.params, other.params, rtol=1e-4, atol=1e-5)
        mine = compared.curves[compared.curves["label"] == label]
        history = np.concatenate([run.history["objective"] for run in compared.results[label]])
        np.testing.assert_array_equal(mine["objective"], history)
        np.testing.assert_allclose(
            mine["communications"], np.concatenate([run.history["communications"] for run in alone]) / M
        )


@pytest.mark.filterwarnings("ignore:Not tuned")
def test_the_order_of_the_entries_changes_no_number(compared):
    turned = dict(reversed(ENTRIES.items()))
    other = jdfl.compare(turned, problem, network, tuning=TUNE, **OPTIONS)
    columns = ["label", "seed", "round", "objective", "consensus_error", "bytes", "gradients", "communications"]
    one, two = (c.curves[columns].sort_values(["label", "seed", "round"]) for c in (compared, other))
    np.testing.assert_array_equal(one.to_numpy(), two.to_numpy())
    for label in ENTRIES:
        assert compared.tuned[label] == other.tuned[label]
    at = [c.at("bytes").drop(columns="seconds") for c in (compared, other)]
    assert at[0].loc[list(turned)].equals(at[1])


def test_seconds_are_spread_evenly_over_all_rounds(compared):
    for label, runs in compared.results.items():
        mine = compared.curves[compared.curves["label"] == label]
        ends = mine.groupby("seed").tail(1)["seconds"]
        np.testing.assert_allclose(ends.sum(), sum(run.seconds for run in runs))
        rates = mine["seconds"][mine["round"] > 0] / mine["round"][mine["round"] > 0]
        np.testing.assert_allclose(rates, rates.iloc[0])


@pytest.mark.slow
def test_equal_bytes_are_those_of_the_tuning_too():
    entries = {  # the second sends as much in one round as the first in four, the third nothing
        "silent": Entry(Gossip(messages=0), tune={"rate": RATES}),
        "few": Entry(Gossip(), tune={"rate": RATES}),
        "many": Entry(Gossip(messages=4), tune={"rate": RATES}),
    }
    tune, budget = Tuning(keys=(70,), extend=0), {"bytes": 12 * M * 80.0}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The best")
        found = jdfl.compare(entries, problem, network, budget=budget, tuning=tune, **OPTIONS | {"every": 1})
    assert found.by == "bytes"
    rows = found.tuning[found.tuning["label"] == "many"]
    early = jdfl.sweep(
        Gossip(), problem, network, over={"rate": RATES}, keys=[70], steps=3, every=3, metrics=["objective"]
    )
    np.testing.assert_allclose(rows["mean"], [run.history["objective"].iloc[-1] for run in early], rtol=1e-4)
    at = found.at("bytes")
    assert at["budget"].nunique() == 1
    assert at["round"].to_dict() == {"silent": 12, "few": 12, "many": 3}
    assert (at["bytes"] <= at["budget"]).all()


DEAR = {"few": Entry(Gossip(), tune={"rate": RATES}), "many": Entry(Gossip(messages=100), tune={"rate": RATES})}
ROUND = 100 * M * 80.0  # bytes of a round of the second: 6 nodes, 100 messages of 20 numbers of four bytes


@pytest.mark.slow
def test_a_budget_that_nobody_gave_pays_for_ten_rounds_of_the_dearest():
    found = jdfl.compare(DEAR, problem, network, budget={"bytes": None}, tuning=Tuning(keys=(70,), extend=0), **EVERY)
    assert found.budget == 10 * ROUND
    assert found.at("bytes")["round"].to_dict() == {"few": 12, "many": 10}
    assert not any(how.alike or how.failure for how in found.tuned.values())
    for label in DEAR:
        assert found.tuning[found.tuning["label"] == label]["mean"].nunique() == len(RATES)
    assert "less than half of the budget: few" in found.table()


def test_a_budget_below_one_round_is_marked_everywhere_and_never_ranked(tmp_path):
    tune, budget = Tuning(keys=(70,), extend=0), {"bytes": ROUND - 1, "round": None}
    with pytest.warns(UserWarning, match="many has no results: not comparable"):
        found = jdfl.compare(DEAR, problem, network, budget=budget, tuning=tune, **EVERY)
    told = "not comparable: one round needs 48,000 bytes, budget 47,999"
    assert found.mark("many") == told
    assert [(row[-1].text, row[-1].mark) for row in found.grid().rows][1] == (told, "")
    assert found.grid().rows[0][-1].mark == "best"
    folder = found.save(tmp_path / "all")
    for name in ("table.txt", "table.md", "table.tex", "report.html"):
        assert told in (folder / name).read_text(), name
    assert told in words.legend("many", {"bytes": found})
    assert found.at("bytes").loc["many", "needs"] == ROUND
    assert found.table(by="round").count("not comparable") == 0  # at its own budget, with its own values
    assert np.isfinite(found.at("round").loc["many", "objective"])


def test_without_tuning_a_budget_below_one_round_is_marked_too():
    with pytest.warns(UserWarning, match="Not tuned"):
        found = jdfl.compare({"few": Gossip(), "many": Gossip(messages=100)}, problem, network, tuning=None, **EVERY)
    assert found.tuning["label"].tolist() == ["few", "many"]
    assert set(found.equal_costs()["mark"]) == {"not tuned"}
    row = found.grid(by="bytes", value=ROUND - 1).rows[1]
    assert (row[-1].text, row[-1].mark) == ("not comparable: one round needs 48,000 bytes, budget 47,999", "")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The best")
def test_every_budget_has_its_own_tuning_and_its_own_runs():
    rates = [0.1, 0.14, 0.18, 0.25]  # the longest is best after one round and diverges later
    tune, budget = Tuning(keys=(70,), extend=0), {"round": [1, 9], "bytes": 2 * M * 80}
    found = jdfl.compare(
        {"a": Entry(Gossip(), tune={"rate": rates})}, problem, network, budget=budget, tuning=tune, **EVERY
    )
    assert [(one.by, one.budget) for one in (found, *found.views)] == [("round", 1), ("round", 9), ("bytes", 960)]
    for steps, view in zip((1, 9, 2), (found, *found.views)):
        alone = jdfl.sweep(
            Gossip(), problem, network, over={"rate": rates}, keys=[70], steps=steps, every=steps, metrics=["objective"]
        )
        scores = [np.inf if run.diverged else run.history["objective"].iloc[-1] for run in alone]
        np.testing.assert_allclose(view.tuning["mean"].where(np.isfinite(scores)), scores, rtol=1e-4, equal_nan=True)
        assert view.tuned["a"].values == {"rate": rates[int(np.argmin(scores))]}
        assert view.algorithms["a"].rate == view.tuned["a"].values["rate"]
        at = found.at(view.by, view.budget)
        run = jdfl.repeat(view.algorithms["a"], problem, network, keys=[0, 1, 2], steps=steps, metrics=["objective"])
        np.testing.assert_allclose(at["objective"], np.mean([one.final["objective"] for one in run]), rtol=1e-4)
    assert found.view("round", 9).tuned["a"].values != found.tuned["a"].values
    assert {run.labels["seed"] for run in found.runs("a")} == {0, 1, 2}


@pytest.mark.filterwarnings("ignore:a has no results", "ignore:Not tuned")
def test_what_its_own_budget_does_not_pay_for_did_not_diverge_at_another():
    how = EVERY | {"every": 4, "steps": 8}
    entries = {"a": Entry(Gossip(), tune={"rate": [0.05, 0.1]}), "b": Entry(Gossip(), tune={}, steps=3)}
    found = jdfl.compare(entries, problem, network, budget={"round": 3}, tuning=Tuning(keys=(70,), extend=0), **how)
    assert found.grid().rows[0][-1].text.startswith("not comparable")
    assert found.grid(by="round", value=8).rows[0][-1].text == "no results"
    assert "diverged" not in found.table(by="round", value=8)


def test_at_a_budget_that_was_not_tuned_at_nobody_is_ranked(compared):
    assert compared.tuned_at("round")
    assert compared.tuned_at("bytes")
    assert not compared.tuned_at("communications")
    for by, value in (("communications", None), ("bytes", 960), ("round", 6)):
        assert {cell.mark for row in compared.grid(by=by, value=value).rows for cell in row} == {""}
        assert "Nothing was tuned at this budget" in compared.table(by=by, value=value)
    assert [row[-2].mark for row in compared.grid(by="bytes").rows] == ["best", "", ""]  # of the objective
    assert "(not tuned at these)" in words.axis(compared, "communications")
    assert "(tuned at ≤ " in words.axis(compared, "bytes")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The best")
def test_a_grid_on_which_all_points_are_alike_is_marked_everywhere_and_never_ranked(tmp_path):
    """A step that moves nothing: its choice means nothing, however good the value may look."""

    @struct.dataclass
    class Idle(Gossip):
        spare: float = 1.0

    entries = {
        "idle": Entry(Idle(), tune={"spare": [0.5, 1.0, 2.0]}),
        "slow": Entry(Gossip(), tune={"rate": [1e-4, 2e-4]}),
    }
    with pytest.warns(UserWarning, match="Tuning chose nothing for idle"):
        found = jdfl.compare(entries, problem, network, tuning=TUNE, **EVERY)
    assert "all 3 points of the grid have the same objective" in found.tuned["idle"].alike
    at = found.at("round")["objective"]
    assert at["idle"] < at["slow"]
    assert [row[-1].mark for row in found.grid().rows] == ["", "best"]
    folder = found.save(tmp_path / "all")
    for name in ("table.txt", "table.md", "table.tex", "report.html"):
        assert "working points alike" in (folder / name).read_text(), name
        assert "all 3 points of the grid have the same objective" in (folder / name).read_text(), name
    assert "alike" in words.legend("idle", {"round": found})
    assert found.tuned["slow"].alike == ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The best")
def test_points_that_work_are_alike_though_another_diverges(tmp_path):
    entries = {
        "idle": Entry(Gossip(), tune={"rate": [1e-14, 1e-13, 1e20]}),
        "alone": Entry(Gossip(), tune={"rate": [1e-13, 1e20]}),
        "slow": Entry(Gossip(), tune={"rate": [1e-4, 2e-4]}),
    }
    with (
        pytest.warns(UserWarning, match="Tuning chose nothing for idle"),
        pytest.warns(UserWarning, match=r"Not tuned: alone \(only 1 of 2 points works\)"),
    ):
        found = jdfl.compare(entries, problem, network, tuning=TUNE, **EVERY)
    assert "all 2 points of the grid that work have the same objective" in found.tuned["idle"].alike
    assert found.mark("idle") == "all points of its grid that work are alike"
    assert "not tuned: only 1 of 2 points works" in found.mark("alone")
    assert found.grid().rows[0][-1].mark == ""
    assert "all 2 points of the grid that work" in (found.save(tmp_path / "all") / "table.txt").read_text()


@pytest.mark.filterwarnings("ignore:The best")
def test_points_that_stop_at_once_are_not_alike_where_others_go_on():
    entries = {"a": Entry(Gossip(), tune={"rate": [1e-14, 0.09, 0.1, 1e20]})}
    tune, budget = Tuning(keys=(70,), extend=0), {"stop": None}
    found = jdfl.compare(
        entries, problem, network, budget=budget, tuning=tune, stop=jdfl.objective_below(2.0), **OPTIONS | {"every": 6}
    )
    assert np.isfinite(found.tuning["mean"]).tolist() == [False, True, True, False]
    assert (found.tuned["a"].alike, found.tuned["a"].lone, found.tuned["a"].ties) == ("", "", 2)


def test_how_many_points_tie_for_the_best_is_said():
    def coarse(w, problem):
        return jnp.where(jdfl.engine.metrics.objective(w, problem) < 2.0, 0.0, 1.0)

    entries = {"a": Entry(Gossip(), tune={"rate": [0.001, 0.09, 0.1, 1e20]})}
    found = jdfl.compare(entries, problem, network, tuning=TUNE, **OPTIONS | {"measure": coarse})
    assert found.tuning["mean"].tolist() == [1, 0, 0, np.inf]
    assert found.tuned["a"].ties == 2
    assert "; 2 points tie for the best" in found.note("a")
    assert "2 points tie for the best" in found.table()


@pytest.mark.slow
def test_one_point_is_not_tuned_also_where_an_algorithm_takes_no_other_of_its_grid(tmp_path):
    @struct.dataclass
    class Narrow(Tunable):
        def check(self, problem, network):
            if self.rate > 0.01:
                raise ValueError("too long")

    entries = {
        "one": Entry(Gossip(), tune={"rate": [0.1]}),
        "left": Narrow(),
        "more": Entry(Gossip(), tune={"rate": RATES}),
    }
    with pytest.warns(UserWarning, match=r"Not tuned: one \(one point only\), left \(one point only\)\. "):
        found = jdfl.compare(entries, problem, network, tuning=TUNE, **OPTIONS)
    assert [len(found.tuned[label].grid["rate"]) for label in entries] == [1, 1, len(RATES)]
    assert {label: found.mark(label) for label in entries} == {
        "one": "not tuned: one point only",
        "left": "not tuned: one point only",
        "more": "",
    }
    folder = found.save(tmp_path / "all")
    for name in ("table.txt", "table.md", "table.tex", "report.html"):
        assert (folder / name).read_text().count("(one point only)") >= 2, name
    assert "one point only" in words.legend("one", {"round": found})


def test_a_grid_goes_on_where_its_best_point_is_on_the_edge():
    entries = {"up": Entry(Gossip(), tune={"rate": [0.001, 0.002]}), "down": Entry(Gossip(), tune={"rate": [8.0, 4.0]})}
    found = jdfl.compare(entries, problem, network, tuning=Tuning(keys=(70,), extend=4), **OPTIONS)
    for label, ratio in (("up", 2.0), ("down", 0.5)):
        rows = found.tuning[found.tuning["label"] == label]
        grid = np.sort(rows["rate"])
        np.testing.assert_allclose(grid[1:] / grid[:-1], 2.0, rtol=1e-6)
        assert found.tuned[label].grid["rate"] == tuple(grid)
        assert grid[0] < found.tuned[label].values["rate"] < grid[-1]
        assert found.tuned[label].edge == {}
        outermost = rows["rate"].iloc[-1 if ratio > 1 else 0]
        assert rows.set_index("rate")["extension"][outermost] == rows["extension"].max() > 0
    assert "tuning runs" in found.note("up")


def test_an_edge_that_stays_one_is_said(tmp_path):
    entries = {"up": Entry(Gossip(), tune={"rate": [0.0005, 0.0006]})}
    with pytest.warns(UserWarning, match="The best rate of up, .* is the highest of its grid"):
        found = jdfl.compare(entries, problem, network, tuning=Tuning(keys=(70,), extend=1), **OPTIONS)
    assert found.tuned["up"].edge == {"rate": "highest"}
    assert len(found.tuning) == 5
    assert found.tuning["edge"].tolist() == ["", "", "", "", "highest rate"]
    for format in ("text", "markdown", "latex"):
        assert "(highest tried)" in found.table(format)
    assert found.mark("up") == "best rate on the edge of its grid"
    assert "edge" in words.legend("up", {"round": found})
    page = (found.save(tmp_path / "all") / "report.html").read_text()
    assert "best rate on the edge of its grid" in page


def test_the_end_of_what_an_algorithm_takes_is_no_edge():
    @struct.dataclass
    class Bounded(Gossip):
        def check(self, problem, network):
            if self.rate > 0.06:
                raise ValueError("too long")

    entries = {"a": Entry(Bounded(), tune={"rate": [0.015, 0.03, 0.06]})}
    found = jdfl.compare(entries, problem, network, tuning=Tuning(keys=(70,)), **OPTIONS)
    assert found.tuned["a"].values == {"rate": 0.06}
    assert found.tuned["a"].edge == {}
    assert found.tuned["a"].runs == 3


@struct.dataclass
class Limited(Gossip):
    """Takes rates up to `most`, or below it."""

    most: float = struct.field(pytree_node=False, default=0.1)
    open: bool = struct.field(pytree_node=False, default=False)

    def check(self, problem, network):
        if self.rate > self.most or (self.open and self.rate == self.most):
            raise ValueError("too long")


@pytest.mark.slow
def test_a_step_that_is_refused_is_shortened_to_the_end_of_what_an_algorithm_takes():
    entries = {
        "closed": Entry(Limited(), tune={"rate": [0.0005, 0.02]}),
        "open": Entry(Limited(most=0.0334, open=True), tune={"rate": [0.0005, 0.02]}),
    }
    found = jdfl.compare(entries, problem, network, budget={"round": None}, tuning=Tuning(keys=(70,)), **OPTIONS)
    assert found.tuned["closed"].grid["rate"] == (0.0005, 0.02, 0.1)
    assert 0.98 * 0.0334 < found.tuned["open"].grid["rate"][-1] < 0.0334
    for label in entries:
        assert found.tuned[label].values == {"rate": found.tuned[label].grid["rate"][-1]}
        assert found.mark(label) == ""


def test_what_an_algorithm_takes_beyond_the_best_point_is_said_where_the_whole_step_is_refused():
    entries = {"a": Entry(Limited(), tune={"rate": [0.0005, 0.02]})}
    with pytest.warns(UserWarning, match=r"The best rate of a, 0\.02, is the highest of its grid"):
        found = jdfl.compare(entries, problem, network, tuning=TUNE, **OPTIONS)
    assert found.tuned["a"].edge == {"rate": "highest"}
    assert found.mark("a") == "best rate on the edge of its grid"


def test_steps_by_differences_are_shortened_too():
    for last, beyond in ((0.06, {"rate": [0.1]}), (0.1, {})):
        plan = Plan(Limited(), (), (Trial(0, problem, network),), 1, {"rate": (0.0, last)}, True)
        assert beyond_edges(plan, {"rate": last}, plan.grid) == beyond


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Not tuned", "ignore:The best", "ignore:Tuning chose nothing")
def test_files_of_numbers_have_the_marks_too(tmp_path):
    entries = {
        "idle": Entry(Gossip(), tune={"rate": [1e-14, 1e-13]}),
        "edge": Entry(Gossip(), tune={"rate": [0.001, 0.002]}),
        "given": Gossip(),
    }
    tune, budget = Tuning(keys=(70,), extend=0), {"round": None, "bytes": 2 * M * 80}
    found = jdfl.compare(entries, problem, network, budget=budget, tuning=tune, **EVERY)
    folder = found.save(tmp_path / "all")
    marks = {label: found.mark(label) for label in entries}
    assert all(marks.values())
    tuning = pd.read_csv(folder / "tuning.csv")
    assert [len(tuning[tuning["label"] == label]) for label in entries] == [4, 4, 2]
    curves = pd.read_parquet(folder / "curves.parquet")
    for frame in (tuning, curves, pd.read_csv(folder / "curves.csv"), pd.read_csv(folder / "equal_costs.csv")):
        assert set(zip(frame["label"], frame["mark"])) == set(marks.items())
    given = tuning[(tuning["label"] == "given") & (tuning["by"] == "round")].iloc[0]
    alone = jdfl.run(Gossip(), problem, network, key=70, steps=12, every=12, metrics=["objective"])
    np.testing.assert_allclose(given["mean"], alone.final["objective"], rtol=1e-4)
    page = (folder / "report.html").read_text()
    assert "<th>edge</th><th>mark</th>" in re.sub(r"<th[^>]*>", "<th>", page)


@pytest.mark.filterwarnings("ignore:Not tuned")
def test_an_algorithm_that_always_diverges_has_no_results_and_every_table_says_so(tmp_path):
    entries = {"wild": Entry(Gossip(), tune={"rate": [1e20, 1e21]}), "tame": Entry(Gossip(), tune={"rate": [0.1]})}
    with pytest.warns(UserWarning, match=r"wild has no results: no point of the grid rate = 1e\+20"):
        found = jdfl.compare(entries, problem, network, tuning=TUNE, **OPTIONS)
    assert found.results["wild"] == []
    assert found.tuning["diverged"].tolist() == [2, 2, 0]
    assert np.isinf(found.tuning["mean"][:2]).all()
    assert not found.tuning["chosen"][:2].any()
    for format in ("text", "markdown", "latex"):
        assert "diverged" in found.table(format)
        assert "stayed finite" in found.table(format)
    assert found.at("round").loc["wild", "seeds"] == 0
    fig, _ = found.plot()
    fig.savefig(tmp_path / "a.png")


def test_nothing_but_divergence_is_still_a_result(tmp_path):
    entries = {"wild": Entry(Gossip(), tune={"rate": [1e20, 1e21]})}
    with pytest.warns(UserWarning, match="no results"):
        found = jdfl.compare(entries, problem, network, tuning=TUNE, **OPTIONS)
    assert "diverged" in found.table()
    assert found.save(tmp_path / "all").is_dir()


def test_reported_runs_that_diverge_are_counted_and_never_best():
    fails = Gossip(fails=((5, 2),))
    with pytest.warns(UserWarning, match="Not tuned"):
        found = jdfl.compare({"fails": fails, "runs": Gossip()}, problem, network, tuning=None, **OPTIONS)
    at = found.at("round")
    assert at["diverged"].tolist() == [3, 0]
    assert at["budget"].iloc[0] == 12
    assert "3 of 3 diverged" in words.legend("fails", {"round": found})
    (line,) = (line for line in found.table().splitlines() if line.startswith("fails "))
    assert line.endswith("diverged")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The best", "ignore:Not tuned")
def test_with_a_stop_rule_rounds_to_it_are_told():
    target = jdfl.objective_below(2.0)
    entries = {"fast": Entry(Gossip(), tune={"rate": RATES}), "never": Entry(Gossip(), tune={"rate": [1e-4]})}
    tune = Tuning(keys=(70, 71), extend=0)
    found = jdfl.compare(entries, problem, network, tuning=tune, stop=target, **OPTIONS | {"every": 1})
    stops = found.to_stop()
    rounds = [run.rounds for run in found.results["fast"]]
    assert stops["seeds"].to_dict() == {"fast": 3, "never": 0}
    np.testing.assert_allclose(stops.loc["fast", ["round", "round_sd"]], [np.mean(rounds), np.std(rounds, ddof=1)])
    assert "rounds to stop" in found.table(by="stop")
    assert "not stopped" in found.table(by="stop")
    swift = jdfl.compare(
        {"fast": entries["fast"]},
        problem,
        network,
        budget={"stop": None},
        tuning=Tuning(keys=(70, 71), extend=0),
        stop=target,
        **OPTIONS,
    )
    assert np.isfinite(swift.tuning["mean"]).any()
    chosen = swift.tuning[swift.tuning["chosen"]]["mean"].iloc[0]
    assert chosen == swift.tuning["mean"].min() <= 12


def test_default_grids_come_from_the_curvature_and_from_the_value():
    @struct.dataclass
    class WithLr(Gossip):
        lr: float = 0.3
        gamma: float = 0.5
        tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma", "rate")

    from jdfl.lab.entries import plans

    (plan,) = plans({"a": WithLr()}, terms(problem, network, [0], 1, tune=TUNE)).values()
    steepest = float(np.max(problem.curvature))
    np.testing.assert_allclose(plan.grid["lr"], np.array(GRIDS["lr"]) / steepest)
    assert plan.grid["gamma"] == GRIDS["gamma"]
    np.testing.assert_allclose(plan.grid["rate"], 0.05 * 2.0 ** np.arange(-3, 4))
    (plan,) = plans({"a": WithLr()}, terms(problem, network, [0], 1, tune=Tuning(grids={"lr": [3, 1]}))).values()
    assert plan.grid["lr"] == (1.0, 3.0)
    unbounded = jdfl.problems.neural_classification("digits", network.m, model="mlp")  # there is no curvature to go by
    (plan,) = plans({"a": WithLr()}, terms(unbounded, network, [0], 1, tune=TUNE)).values()
    np.testing.assert_allclose(plan.grid["lr"], 0.3 * 2.0 ** np.arange(-3, 4))
    assert plan.grid["gamma"] == GRIDS["gamma"]
    (plan,) = plans({"a": Entry(Tunable(), tune={})}, terms(problem, network, [0], 1, tune=TUNE)).values()
    assert plan.grid == {}


def test_equally_good_points_give_the_middle_one():
    def flat(w, problem):
        return 0.0 * w[0, 0]

    entries = {"a": Entry(Gossip(), tune={"rate": [0.01, 0.02, 0.03]})}
    with pytest.warns(UserWarning, match="Tuning chose nothing for a"):
        found = jdfl.compare(
            entries, problem, network, tuning=TUNE, **OPTIONS | {"measure": flat, "steps": 2, "every": 2}
        )
    assert found.tuned["a"].values == {"rate": 0.02}
    assert found.measure == "flat"
    assert {"objective", "consensus_error", "flat"} <= set(found.curves)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"methods": {}}, ["methods", "{}"]),
        ({"methods": [Gossip()]}, ["mapping", "methods"]),
        ({"methods": {"": Gossip()}}, ["label", "''"]),
        ({"methods": {"a": 3}}, ["algorithm", "methods['a'] = 3"]),
        ({"methods": {"a": Entry(Gossip)}}, ["algorithm", "methods['a']"]),
        ({"methods": {"a": Entry(Gossip(), tune={"speed": [1.0]})}}, ["Gossip", "'speed'", "rate"]),
        ({"methods": {"a": Entry(Gossip(), tune={"messages": [1.0]})}}, ["'messages' = 1", "separate entries"]),
        ({"methods": {"a": Entry(Gossip(), tune={"mechanism.sigma": [1.0]})}}, ["'mechanism.sigma'"]),
        ({"methods": {"a": Entry(Gossip(), tune={"rate": []})}}, ["list of numbers", "'rate'", "[]"]),
        ({"methods": {"a": Entry(Gossip(), tune={"rate": [np.nan]})}}, ["finite", "rate", "nan"]),
        ({"methods": {"a": Entry(Gossip(), tune={"rate": [0.1, -1.0]})}}, ["methods['a']", "rate > 0", "-1.0"]),
        ({"methods": {"a": Entry(Gossip(), tune=["rate"])}}, ["values by field", "'a'"]),
        (
            Later(lambda: {"methods": {"a": Entry(Gossip(), network=jdfl.network.ring(4))}}),
            ["methods['a']", "network.m = 4"],
        ),
        ({"methods": {"a": Entry(Gossip(), steps=0)}}, ["methods['a']", "steps = 0"]),
        ({"trials": 0}, ["trials >= 1", "trials = 0"]),
        ({"trials": iter([1])}, ["trials", "<"]),
        ({"trials": []}, ["list of seeds", "trials = []"]),
        ({"trials": [1, 1]}, ["different seeds", "[1, 1]"]),
        ({"trials": [-1]}, ["seed", "-1"]),
        ({"trials": [5, 71]}, ["[71]", "tuning.keys", "others"]),
        ({"steps": 0}, ["steps = 0"]),
        ({"every": 0}, ["every = 0"]),
        ({"metrics": ["beauty"]}, ["'beauty'"]),
        ({"metrics": [seed]}, ["another name", "'seed'"]),
        ({"measure": "beauty"}, ["'beauty'"]),
        ({"measure": "accuracy"}, ["accuracy", "lacks"]),
        ({"tuning": "yes"}, ["Tuning", "'yes'"]),
        ({"budget": {"moons": None}}, ["budget", "'moons'", "bytes"]),
        ({"budget": {"stop": None}}, ["stop rule", "stop = None"]),
        ({"budget": {"stop": 5.0}, "stop": jdfl.consensus_below(1e-3)}, ["no amount", "'stop'", "5.0"]),
        ({"budget": {"round": -1.0}}, ["budget['round']", "-1.0"]),
        ({"budget": ["bytes"]}, ["a mapping", "['bytes']"]),
        ({"budget": {}}, ["at least one budget", "{}"]),
        ({"budget": {"bytes": "3"}}, ["budget['bytes']", "'3'"]),
        ({"budget": {"bytes": [0.0]}}, ["budget['bytes'] = 0.0"]),
        ({"budget": {"bytes": 10.0}, "tuning": None}, ["no budget without tuning", "bytes"]),
        ({"tuning": Tuning(extend=-1)}, ["tuning.extend = -1"]),
        ({"tuning": Tuning(keys=())}, ["tuning.keys", "()"]),
        ({"tuning": Tuning(grids={"lr": [1.0]})}, ["grids = 'lr'", "No method tunes"]),
    ],
)
def test_mistakes_are_refused_in_words_before_anything_runs(changes, said, compilations):
    given = {"methods": {"a": Gossip()}, "tuning": TUNE, **OPTIONS, **changes}
    methods = given.pop("methods")
    with pytest.raises(ValueError) as error:
        jdfl.compare(methods, problem, network, **given)
    for one in said:
        assert one in str(error.value), str(error.value)


def test_views_refuse_what_is_not_there(compared, tmp_path):
    for call, said in (
        (lambda: compared.at("moons"), ["x", "'moons'", "bytes"]),
        (lambda: compared.at("bytes", -1), ["value", "-1"]),
        (lambda: compared.at("bytes", metrics=["beauty"]), ["metric", "beauty"]),
        (lambda: compared.table("word"), ["format", "'word'", "latex"]),
        (lambda: compared.table(by="moons"), ["by", "'moons'"]),
        (lambda: compared.table(by="stop", value=3), ["value = 3", "'stop'"]),
        (lambda: compared.plot([]), ["an amount or a list", "x = []"]),
        (lambda: compared.plot("moons"), ["x", "'moons'", "bytes"]),
        (lambda: compared.plot(["round", "round"]), ["once", "round"]),
        (lambda: compared.plot(y="beauty"), ["y", "beauty"]),
        (lambda: compared.plot(width="wall"), ["width", "'wall'", "column"]),
        (lambda: compared.plot(height=-1), ["height > 0", "-1"]),
        (lambda: compared.plot(floor=-1.0), ["floor >= 0", "-1.0"]),
        (lambda: compared.plot(ax="here"), ["Axes", "'here'"]),
    ):
        with pytest.raises(ValueError) as error:
            call()
        for word in said:
            assert word in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_given_step_size_that_tuning_replaces_is_said():
    from jdfl.lab.entries import plans

    given = terms(problem, network, [0], 1, tune=TUNE)
    with pytest.warns(
        UserWarning, match=r"Tuning chooses lr of mine from .*in place of the given 0\.0123\. Keep it by"
    ):
        plans({"mine": jdfl.DPSGD(lr=0.0123)}, given)
    own = terms(problem, network, [0], 1, tune=Tuning(keys=(70, 71), grids={"lr": [1.0]}))
    for method, how in (  # as it is by default, kept, tuned as was asked for, and around the given value
        (jdfl.DPSGD(), given),
        (Entry(jdfl.DPSGD(lr=0.0123), tune={}), given),
        (Entry(jdfl.DPSGD(lr=0.0123), tune={"lr": [0.1]}), given),
        (jdfl.DPSGD(lr=0.0123), own),
        (Tunable(rate=0.07), given),
    ):
        plans({"mine": method}, how)


def test_models_of_nodes_are_not_ranked_with_one_model_for_all():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(60, 2))
    y = (X[:, 0] > 0) ^ (np.arange(60) % 6 < 3)
    opposite = jdfl.from_arrays(X, y, clients=np.arange(60) % 6, test_fraction=0.0)
    methods = {
        "one": jdfl.DPSGD(),
        "own": jdfl.LocalOnly(),
        "worse": Entry(jdfl.DPSGD(lr=1e-3), tune={"lr": [1e-3, 2e-3]}),
    }
    how = {"steps": 6, "trials": 2, "every": 3, "tuning": Tuning(keys=(7,), extend=0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = jdfl.compare(methods, opposite, jdfl.network.complete(6), **how)
        alone = jdfl.compare({"own": jdfl.LocalOnly()}, opposite, jdfl.network.complete(6), **how)
    assert (found.measure, alone.measure) == ("suboptimality", "objective")
    assert found.at("round").loc["own", "suboptimality"] < -0.05
    text = str(found.table())
    assert "A model per node: own." in text
    marked = [line.split()[0] for line in text.splitlines() if line.rstrip().endswith("*")]
    assert marked == ["one"]
    assert "own" in [
        line.split()[0] for line in str(found.table(metrics=["objective_local"])).splitlines() if "*" in line
    ]
    assert "A model per node" not in str(alone.table())
    (axis,) = found.plot(x="round")[0].axes
    lowest = min(float(np.min(np.asarray(line.get_ydata(), float))) for line in axis.lines)
    assert lowest == pytest.approx(found.at("round").loc["own", "suboptimality"], rel=1e-5)
