"""Tuning, budgets and marks, on the toy problem: the same numbers of points, seeds and trials, so few programs."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jdfl
from jdfl import Entry, Tuning
from jdfl.base import struct
from jdfl.engine.trials import Trial
from jdfl.lab import words
from jdfl.lab.entries import GRIDS, Plan, beyond_edges, plans
from jdfl.lab.folder import write_page
from tests.later import Later
from tests.refused import refused
from tests.toy import FEW, SLOW, Gossip, M, network, problem, terms

pytestmark = [
    pytest.mark.usefixtures("undrawn"),
    pytest.mark.filterwarnings("ignore:(Not tuned|The best|Tuning chose|.* has no results|many. not)"),
]
RATES = [0.02, 0.1, 2.0]  # the last one diverges
TUNE = Tuning(keys=(70, 71), extend=0)
OPTIONS = {"trials": [0, 1, 2], "steps": 12, "metrics": FEW, "tuning": TUNE, "longer": 1}
MANY = Gossip(messages=4)
ROUND = 4 * M * 80.0  # bytes of its rounds: 6 nodes, 4 messages of 20 numbers of four bytes


def compare(entries, **changes) -> jdfl.Comparison:
    """A comparison of grids of rates by label, or of other entries."""
    methods = {name: Entry(Gossip(), tune={"rate": one}) if isinstance(one, list) else one for name, one in entries}
    return jdfl.compare(methods, problem(), network(), **OPTIONS | changes)


@struct.dataclass
class Tunable(Gossip):
    """The toy algorithm with a rate that comparisons tune."""

    tuned: ClassVar[tuple[str, ...]] = ("rate",)


ENTRIES = {"plain": RATES, "slow": Entry(SLOW, tune={"rate": RATES}), "as given": Gossip(rate=0.02)}


@pytest.fixture(scope="module")
def compared() -> jdfl.Comparison:
    with pytest.warns(UserWarning, match="Not tuned: as given"):
        return compare(ENTRIES.items())


def test_curves_are_the_histories_of_the_reported_runs(compared):
    for label in ("plain", "as given"):
        mine = compared.curves[compared.curves["label"] == label]
        history = pd.concat([run.history for run in compared.results[label]])
        np.testing.assert_array_equal(mine["objective"], history["objective"])
        np.testing.assert_allclose(mine["communications"], history["communications"] / M)
        ends = mine.groupby("seed").tail(1)["seconds"]
        np.testing.assert_allclose(ends.sum(), sum(run.seconds for run in compared.results[label]))
        later = mine[mine["round"] > 0]
        assert np.ptp(later["seconds"] / later["round"]) < 1e-12  # evenly over all rounds


def test_at_a_budget_that_was_not_tuned_at_nobody_is_ranked(compared):
    assert [compared.tuned_at(by) for by in ("round", "bytes", "communications")] == [True, True, False]
    for by, value in (("communications", None), ("bytes", 960)):
        assert {cell.mark for row in compared.grid(by=by, value=value).rows for cell in row} == {""}
        assert "Nothing was tuned at this budget" in compared.table(by=by, value=value)
    assert [row[-2].mark for row in compared.grid(by="bytes").rows] == ["best", "", ""]  # of the objective
    assert "(not tuned at these)" in words.axis(compared, "communications")


def test_every_budget_has_its_own_tuning_and_its_own_runs():
    rates = [0.1, 0.14, 0.25]  # the longest is best after one round and diverges later
    budget = {"round": [1, 9], "bytes": 3 * ROUND}  # of which few has 12 rounds and many 3
    found = compare({"few": rates, "many": Entry(MANY, tune={"rate": rates})}.items(), budget=budget)
    assert [(one.by, one.budget) for one in (found, *found.views)] == [("round", 1), ("round", 9), ("bytes", 5760)]
    how = {"steps": 12, "metrics": ["objective"]}
    alone = jdfl.sweep(Gossip(), problem(), network(), over={"rate": rates}, keys=TUNE.keys, **how)
    curves = np.stack([run.history["objective"] for run in alone]).reshape(3, 2, -1)
    for view, rounds in zip((found, *found.views), ((1, 1), (9, 9), (12, 3))):
        for label, after in zip(("few", "many"), rounds):
            scores = curves[:, :, after].mean(axis=1)
            rows = view.tuning[view.tuning["label"] == label]
            np.testing.assert_allclose(rows["mean"], scores, rtol=1e-4)
            chosen = rates[int(np.argmin(scores))]
            assert view.tuned[label].values == {"rate": chosen}
            assert view.algorithms[label].rate == chosen
            runs = jdfl.repeat(Gossip(rate=chosen), problem(), network(), keys=[0, 1, 2], steps=12, metrics=FEW)
            at = found.at(view.by, view.budget).loc[label]
            np.testing.assert_allclose(at["objective"], np.mean([r.history["objective"][after] for r in runs]), 1e-4)
            assert at["round"] == after
            assert at["bytes"] == after * ROUND / (4 if label == "few" else 1)
    assert found.view("round", 9).tuned["few"].values != found.tuned["few"].values
    assert {run.labels["seed"] for run in found.runs("few")} == {0, 1, 2}


EDGE = "best rate on the edge of its grid"
LIMITED = {  # a grid or another entry, its mark at a budget of bytes and rounds, and what its row says of the choice
    "good": (RATES, "", "rate = 0.1"),
    "many": (Entry(MANY, tune={"rate": RATES}), "not comparable: one round needs 1920 bytes, budget 1919", "none"),
    "idle": ([1e-14, 1e-13, 1e-12], "all points of its grid that work are alike", "working points alike"),
    "most": ([1e-14, 1e-13, 1e20], "all points of its grid that work are alike", "working points alike"),
    "alone": ([1e-13, 1e20, 1e21], f"not tuned: only 1 of 3 points works; {EDGE}", "only 1 of 3 points works"),
    "wild": ([1e20, 1e21, 1e22], "no results", "none works"),
    "edge": ([0.001, 0.002, 0.003], EDGE, "(highest tried)"),
    "one": ([0.1], "not tuned: one point only", "one point only"),
    "given": (Gossip(), "not tuned", "not tuned"),
}


@pytest.fixture(scope="module")
def limited() -> jdfl.Comparison:
    entries = {label: one for label, (one, *_) in LIMITED.items()}
    with pytest.warns(UserWarning, match="Tuning chose nothing for idle") as told:
        found = compare(entries.items(), budget={"bytes": ROUND - 1, "round": None})
    said = " ".join(str(one.message) for one in told)
    for warned in ("many has no results: not comparable", "wild has no results", "The best rate of edge, 0.003, is"):
        assert warned in said
    assert "Not tuned: alone (only 1 of 3 points works), one (one point only), given. " in said
    return found


def test_what_limits_a_result_is_marked_everywhere_and_never_ranked(limited, tmp_path, monkeypatch):
    """Also a step that moves nothing, whose choice means nothing, however good the value may look."""
    monkeypatch.setenv("COLUMNS", "40")  # which files do not depend on
    marks = {label: mark for label, (_, mark, _) in LIMITED.items()}
    assert {label: limited.mark(label) for label in LIMITED} == marks
    ranked = {row[0].text for row in limited.grid().rows if row[-2].mark}
    assert "good" in ranked
    assert not ranked & {"many", "idle", "most", "wild"}
    folder = limited.save(tmp_path / "all")
    texts = {name: (folder / name).read_text() for name in ("table.txt", "table.md", "table.tex", "report.html")}
    notes = words.notes(limited)
    for label, (_, mark, chosen) in LIMITED.items():
        assert all(any(label in note and part in note for note in notes) for part in mark.split("; ") if part)
        assert all(chosen in text for text in texts.values()), label
    for said in ("all 3 points of the grid have the same", "all 2 points of the grid that work have the same"):
        assert all(said in text for text in texts.values())
    assert marks["many"] in texts["table.txt"]
    assert limited.tuned["good"].alike == ""
    tuning = pd.read_csv(folder / "tuning.csv")
    assert tuning["label"].value_counts().to_dict() == dict.fromkeys(LIMITED, 6) | {"one": 2, "given": 2}
    costs = pd.read_csv(folder / "equal_costs.csv").query("x == 'bytes'")
    for frame in (tuning[tuning["by"] == "bytes"], costs):
        assert dict(zip(frame["label"], frame["mark"].fillna(""))) == marks


def test_what_has_no_result_has_no_value_at_any_budget(limited, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert limited.results["wild"] == []
    rows = limited.tuning[limited.tuning["label"] == "wild"]
    assert (rows["diverged"].tolist(), rows["chosen"].any()) == ([2, 2, 2], False)
    assert np.isinf(rows["mean"]).all()
    for format in ("text", "markdown", "latex"):
        assert "stayed finite" in limited.table(format)
    assert limited.at("round").loc["wild", "seeds"] == 0
    assert limited.at("bytes").loc["many", "needs"] == ROUND
    assert np.isfinite(limited.at("round").loc["many", "objective"])  # at its own budget, with its own values
    texts = {row[0].text: row[-1].text for row in limited.grid(by="round", value=8).rows}
    assert (texts["many"], texts["wild"]) == ("no results", "diverged")  # where nothing was tuned
    limited.plot()


def test_nothing_but_divergence_is_still_a_result():
    found = compare({"wild": LIMITED["wild"][0]}.items())
    assert "diverged" in found.table()
    assert len(found.equal_costs()) == 3


def test_without_tuning_a_budget_below_one_round_is_marked_and_diverged_runs_are_counted():
    entries = {"few": Gossip(), "many": MANY, "fails": Gossip(fails=((5, 2),))}
    found = compare(entries.items(), tuning=None)
    assert found.tuning["label"].tolist() == list(entries)
    assert set(found.equal_costs()["mark"]) == {"not tuned"}
    row = found.grid(by="bytes", value=ROUND - 1).rows[1]
    assert (row[-1].text, row[-1].mark) == (LIMITED["many"][1], "")
    at = found.at("round")
    assert at["diverged"].tolist() == [0, 0, 3]
    assert at["budget"].iloc[0] == 12
    assert "fails: 3 of 3 diverged" in words.notes(found)
    assert found.grid().rows[2][-1].text == "diverged"


CUT = {"few": [0.02, 0.05, 0.1], "many": Entry(MANY, tune={"rate": [0.02, 0.05, 0.1]})}


def test_runs_go_on_until_the_budget_is_used():
    how = {"budget": {"bytes": 10 * ROUND}, "longer": 10}
    found = compare(CUT.items(), **how)
    at = found.at("bytes")
    assert at["share"].isna().all()
    assert at["round"].to_dict() == {"few": 40, "many": 10}
    assert "ended" not in found.mark("few")
    methods = {"few": Entry(Gossip(), tune={"rate": CUT["few"]})}
    again = jdfl.Experiment(problem=problem(), network=network(), methods=methods, **OPTIONS | how).remade(found, "few")
    assert [one.rounds for one in again] == [one.rounds for one in found.results["few"]]


def test_what_ends_before_the_budget_is_marked_everywhere(tmp_path):
    cut = compare(CUT.items(), budget={"bytes": 10 * ROUND})
    at = cut.at("bytes")
    assert at["share"]["few"] == 12 / 40
    assert np.isnan(at["share"]["many"])
    for format in ("text", "markdown", "latex"):
        table = cut.table(format).replace("\\%", "%").replace("\n", " ")
        assert "few after 30% of the budget (its rounds were done)" in table
    assert "30%" in write_page(cut, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "of the budget" in cut.equal_costs()["mark"]["bytes", "few"]
    assert {cell.mark for cell in cut.grid().rows[0]} == {""}  # not ranked


def test_with_a_stop_rule_rounds_to_it_are_told_and_points_that_stop_at_once_are_not_alike():
    entries = {"fast": [1e-14, 0.09, 0.1], "never": [1e-4, 2e-4, 3e-4]}
    found = compare(entries.items(), stop=jdfl.objective_below(2.0), budget={"stop": None, "round": None})
    means = found.tuning.groupby("label", sort=False)["mean"].apply(list)
    assert np.isfinite(means["fast"]).tolist() == [False, True, True]
    tuned = found.tuned["fast"]
    assert (tuned.alike, tuned.lone) == ("", "")
    assert means["fast"][[1e-14, 0.09, 0.1].index(tuned.values["rate"])] == min(means["fast"]) < 12
    assert "reached the stop rule" in found.tuned["never"].failure
    stops, rounds = found.view("round").to_stop(), [run.rounds for run in found.results["fast"]]
    assert found.to_stop()["seeds"].to_dict() == {"fast": 3, "never": 0}
    told = found.to_stop().loc["fast", ["round", "round_sd"]]
    np.testing.assert_allclose(told, [np.mean(rounds), np.std(rounds, ddof=1)])
    assert stops["seeds"]["never"] == 0
    assert "rounds to stop" in found.table(by="stop")


def test_equally_good_points_give_the_middle_one():
    def coarse(w, problem):
        return jnp.where(jdfl.engine.metrics.objective(w, problem) < 2.0, 0.0, 1.0)

    entries = {"all": [0.09, 0.1, 0.11], "two": [0.001, 0.1, 0.11]}
    found = compare(entries.items(), measure=coarse)
    assert found.tuning["mean"].tolist() == [0, 0, 0, 1, 0, 0]
    assert found.tuned["all"].values == {"rate": 0.1}
    assert (found.tuned["all"].alike[:24], found.tuned["two"].alike) == ("all 3 points of the grid", "")
    assert found.tuned["two"].ties == 2
    assert "; 2 points tie for the best" in found.note("two")
    assert found.measure == "coarse"
    assert {"objective", "consensus_error", "coarse"} <= set(found.curves)


def test_a_grid_goes_on_where_its_best_point_is_on_the_edge():
    entries = {"up": [0.001, 0.002, 0.004], "down": [8.0, 4.0, 2.0], "little": [0.0005, 0.0006, 0.0007]}
    found = compare(entries.items(), tuning=Tuning(keys=TUNE.keys, extend=3))
    for label, rates in entries.items():
        rows = found.tuning[found.tuning["label"] == label].set_index("rate").sort_index()
        assert found.tuned[label].grid["rate"] == tuple(rows.index)
        assert len(rows) > len(rates)
        assert (rows["extension"][rates] == 0).all()
    for label in ("up", "down"):
        grid = found.tuned[label].grid["rate"]
        np.testing.assert_allclose(np.divide(grid[1:], grid[:-1]), 2.0, rtol=1e-6)
        assert grid[0] < found.tuned[label].values["rate"] < grid[-1]
        assert found.tuned[label].edge == {}
    assert found.tuned["little"].edge == {"rate": "highest"}
    assert found.tuning[found.tuning["label"] == "little"]["edge"].tolist()[-1] == "highest rate"


def limit(monkeypatch, most: float, *, open: bool = False) -> None:
    """The algorithm takes rates up to `most`, or below it."""

    def check(self, problem, network):
        if self.rate > most or (open and self.rate == most):
            raise ValueError("too long")

    monkeypatch.setattr(Gossip, "check", check)


def test_the_end_of_what_an_algorithm_takes_is_no_edge(monkeypatch):
    limit(monkeypatch, 0.1)
    entries = {"end": [0.025, 0.05, 0.1], "before": [0.0005, 0.001, 0.02]}
    found = compare(entries.items(), tuning=Tuning(keys=TUNE.keys, extend=1))
    assert [found.tuned[label].values["rate"] for label in entries] == [0.1, 0.1]
    assert [found.mark(label) for label in entries] == ["", ""]
    assert found.tuned["before"].grid["rate"] == (0.0005, 0.001, 0.02, 0.1)
    (plan,) = plans({"a": Tunable(rate=0.1)}, terms(problem(), network(), [0], 1, tune=TUNE)).values()
    assert [point["rate"] for point in plan.taken()] == [0.0125, 0.025, 0.05, 0.1]  # of a default grid, what it takes


def test_a_step_that_is_refused_is_shortened_to_the_end_of_what_an_algorithm_takes(monkeypatch):
    def beyond(*grid: float) -> list[float]:
        plan = Plan(Gossip(), (), (Trial(0, problem(), network()),), 1, {"rate": grid}, True)
        return beyond_edges(plan, {"rate": grid[-1]}, plan.grid).get("rate", [])

    assert beyond(1.0, 2.0) == [4.0, 8.0, 16.0]
    limit(monkeypatch, 0.1)
    assert beyond(0.0005, 0.02) == [0.1]
    assert beyond(0.0, 0.06) == [0.1]  # by differences
    assert beyond(0.0, 0.1) == []
    limit(monkeypatch, 0.0334, open=True)
    assert 0.98 * 0.0334 < beyond(0.0005, 0.02)[0] < 0.0334


def test_default_grids_come_from_the_curvature_and_from_the_value():
    @struct.dataclass
    class WithLr(Gossip):
        lr: float = 0.3
        gamma: float = 0.5
        tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma", "rate")

    def grid(method, tune=TUNE, of=None):
        return plans({"a": method}, terms(of or problem(), network(), [0], 1, tune=tune))["a"].grid

    np.testing.assert_allclose(grid(WithLr())["lr"], np.array(GRIDS["lr"]) / float(np.max(problem().curvature)))
    assert grid(WithLr())["gamma"] == GRIDS["gamma"]
    np.testing.assert_allclose(grid(WithLr())["rate"], 0.05 * 2.0 ** np.arange(-3, 4))
    assert grid(WithLr(), Tuning(grids={"lr": [3, 1]}))["lr"] == (1.0, 3.0)
    unbounded = problem().replace(curvature=jnp.zeros(M))  # there is none to go by
    np.testing.assert_allclose(grid(WithLr(), of=unbounded)["lr"], 0.3 * 2.0 ** np.arange(-3, 4))
    assert grid(Entry(Tunable(), tune={})) == {}


def test_a_given_step_size_that_tuning_replaces_is_said():
    given = terms(problem(), network(), [0], 1, tune=TUNE)
    with pytest.warns(UserWarning, match=r"lr of mine from .*in place of the given 0\.0123"):
        plans({"mine": jdfl.DPSGD(lr=0.0123)}, given)
    own = terms(problem(), network(), [0], 1, tune=Tuning(keys=(70, 71), grids={"lr": [1.0]}))
    for method, how in (  # as it is by default, kept, tuned as was asked for, and around the given value
        (jdfl.DPSGD(), given),
        (Entry(jdfl.DPSGD(lr=0.0123), tune={}), given),
        (Entry(jdfl.DPSGD(lr=0.0123), tune={"lr": [0.1]}), given),
        (jdfl.DPSGD(lr=0.0123), own),
        (Tunable(rate=0.07), given),
    ):
        plans({"mine": method}, how)


def seed(w, problem):
    """A metric with the name of a column."""
    return w[0, 0]


WRONG_METHODS = {  # methods, or the entry of "a", and what the refusal names
    "{}": ({}, "methods"),
    "mapping": ([Gossip()], "methods"),
    "''": ({"": Gossip()}, "labels"),
    "methods['a']": (Entry(Gossip), "algorithm"),
    "'speed'": (Entry(Gossip(), tune={"speed": [1.0]}), "rate"),
    "'messages' = 1": (Entry(Gossip(), tune={"messages": [1.0]}), "entries"),
    "'mechanism.sigma'": (Entry(Gossip(), tune={"mechanism.sigma": [1.0]}), "'a'"),
    "tune": (Entry(Gossip(), tune=["rate"]), "'a'"),
    "[]": (Entry(Gossip(), tune={"rate": []}), "'rate'"),
    "nan": (Entry(Gossip(), tune={"rate": [np.nan]}), "rate"),
    "rate > 0": (Entry(Gossip(), tune={"rate": [0.1, -1.0]}), "methods['a']"),
    "network.m = 4": (Later(lambda: Entry(Gossip(), network=jdfl.network.ring(4))), "methods['a']"),
    "steps = 0": (Entry(Gossip(), steps=0), "methods['a']"),
}
WRONG = {
    "trials": [0, [], [1, 1], [-1]],
    "[71]": [{"trials": [5, 71]}],
    "steps": [0],
    "metrics": [["beauty"]],
    "'seed'": [{"metrics": [seed]}],
    "measure": ["beauty"],
    "accuracy": [{"measure": "accuracy"}],
    "tuning": ["yes"],
    "budget": [{"moons": None}, {"stop": None}, {"round": -1.0}, ["bytes"], {}, {"bytes": "3"}, {"bytes": [0.0]}],
    "stop": [{"budget": {"stop": 5.0}, "stop": jdfl.consensus_below(1e-3)}],
    "without tuning": [{"budget": {"bytes": 10.0}, "tuning": None}],
    "tuning.extend": [{"tuning": Tuning(extend=-1)}],
    "tuning.keys": [{"tuning": Tuning(keys=())}],
    "grids = 'lr'": [{"tuning": Tuning(grids={"lr": [1.0]})}],
}


def test_mistakes_are_refused_in_words_before_anything_runs():
    for value, (methods, name) in WRONG_METHODS.items():
        one = methods() if isinstance(methods, Later) else methods
        with refused(name, value):
            jdfl.compare({"a": one} if isinstance(one, Entry) else one, problem(), network(), **OPTIONS)
    for name, values in WRONG.items():
        for value in values:
            changes = value if isinstance(value, dict) and name != "budget" else {name: value}
            with refused(name):
                compare({"a": Gossip()}.items(), **changes)


def test_views_refuse_what_is_not_there(compared):
    for name, value, call in (
        ("x", "'moons'", lambda: compared.at("moons")),
        ("value", "-1", lambda: compared.at("bytes", -1)),
        ("metrics", "beauty", lambda: compared.at("bytes", metrics=["beauty"])),
        ("format", "'word'", lambda: compared.table("word")),
        ("value = 3", "'stop'", lambda: compared.table(by="stop", value=3)),
        ("x = []", "amount", lambda: compared.plot([])),
        ("once", "round", lambda: compared.plot(["round", "round"])),
        ("y", "beauty", lambda: compared.plot(y="beauty")),
        ("width", "'wall'", lambda: compared.plot(width="wall")),
        ("height", "-1", lambda: compared.plot(height=-1)),
        ("floor", "-1.0", lambda: compared.plot(floor=-1.0)),
        ("Axes", "'here'", lambda: compared.plot(ax="here")),
    ):
        with refused(name, value):
            call()


def test_a_point_that_stops_with_some_seeds_only_is_not_chosen():
    """Half of the trials start at the solution, where any step size stops at once."""
    made = jdfl.problems.example1(4, 20, 2, (5, 9), noise=0.0)

    def drawn(seed: int) -> jdfl.problems.Problem:
        return made.replace(start=made.truth if seed % 2 else jnp.zeros_like(made.truth))

    keys = {int(np.random.SeedSequence([key, 0]).generate_state(1)[0]) % 2: key for key in range(100, 120)}
    tune = Tuning(keys=tuple(keys.values()), extend=0)
    entry = Entry(jdfl.DPSGD(), tune={"lr": [1e-6, 0.05]})
    how = {"steps": 60, "stop": jdfl.objective_below(0.05), "trials": 2, "tuning": tune, "budget": {"stop": None}}
    found = jdfl.compare({"d-psgd": entry}, drawn, jdfl.network.complete(4), **how)
    assert found.tuned["d-psgd"].values == {"lr": 0.05}
