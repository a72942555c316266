"""Curves at equal budgets against plain numpy, on made-up runs."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jdfl.lab import curves

ENDINGS = ("steps", "stop rule", "diverged")


def run(label: str, seed: int, bytes_: list[float], values: list[float], ending: str = "steps") -> pd.DataFrame:
    rounds = np.arange(len(bytes_))
    columns = {"label": label, "seed": seed, "ending": ending, "round": rounds, "objective": values, "bytes": bytes_}
    return pd.DataFrame(columns | {"seconds": 0.5 * rounds})


@st.composite
def many(draw) -> pd.DataFrame:
    """Runs of two or three algorithms, a few seeds each, costs that never fall."""
    frames = []
    for label in ("a", "b", "c")[: draw(st.integers(2, 3))]:
        for seed in range(draw(st.integers(1, 3))):
            steps = draw(st.lists(st.integers(0, 9), min_size=2, max_size=6))
            values = draw(st.lists(st.integers(-50, 50), min_size=len(steps), max_size=len(steps)))
            cost = np.cumsum(steps).astype(float).tolist()
            frames.append(run(label, seed, cost, [float(v) for v in values], draw(st.sampled_from(ENDINGS))))
    return pd.concat(frames, ignore_index=True)


def by_hand(table: pd.DataFrame, label: str, x: str, budget: float) -> list[tuple[float, float]]:
    """(cost, value) of every run that did not diverge, from its last row within the budget but that of the start."""
    found = []
    rows = table[table["label"] == label]
    for seed in rows["seed"].unique():
        mine = rows[rows["seed"] == seed]
        if mine["ending"].iloc[0] == "diverged":
            continue
        fits = [(cost, value) for cost, value in zip(mine[x], mine["objective"]) if cost <= budget]
        found += fits[1:][-1:]
    return found


@given(many(), st.integers(0, 40))
def test_a_value_is_that_of_the_last_record_within_the_budget(table, budget):
    found = curves.at(table, "bytes", ["objective"], budget)
    for label in table["label"].unique():
        pairs = by_hand(table, label, "bytes", budget)
        row = found.loc[label]
        assert row["seeds"] == len(pairs)
        if not pairs:
            assert np.isnan(row["objective"])
            continue
        cost, value = np.array(pairs).T
        assert (cost <= budget).all()
        np.testing.assert_allclose([row["bytes"], row["objective"]], [cost.mean(), value.mean()])
        sd = value.std(ddof=1) if len(value) > 1 else np.nan
        np.testing.assert_allclose(row["objective_sd"], sd)


def test_who_sends_nothing_limits_nobody_and_shows_its_last_record():
    table = pd.concat([run("alone", 0, [0, 0, 0], [3, 2, 1]), run("talks", 0, [0, 5, 10, 15], [9, 8, 7, 6])])
    assert curves.reach(table, "bytes") == 15
    found = curves.at(table, "bytes", ["objective"], 12)
    assert found["objective"].to_dict() == {"alone": 1, "talks": 7}
    assert found["round"].to_dict() == {"alone": 2, "talks": 2}


def test_who_stopped_keeps_its_last_record_and_who_diverged_has_none():
    table = pd.concat(
        [
            run("a", 0, [0, 5], [9, 1], "stop rule"),
            run("a", 1, [0, 5, 10], [9, 8, np.nan], "diverged"),
            run("b", 0, [0, 20, 40], [9, 8, 7]),
        ]
    )
    assert curves.reach(table, "bytes") == 40
    found = curves.at(table, "bytes", ["objective"], 40).loc["a"]
    assert (found["objective"], found["seeds"], found["diverged"], found["stopped"]) == (1, 1, 1, 1)
    early = curves.at(table, "bytes", ["objective"], 4).loc["a"]
    assert (early["seeds"], early["needs"], early["after"]) == (0, 5, 1)
    assert np.isnan(early["objective"])


def test_a_budget_that_nobody_gave_pays_for_ten_rounds_of_everybody():
    rounds = np.arange(21)
    table = pd.concat([run("dear", 0, list(100.0 * rounds), list(9.0 - rounds)), run("cheap", 0, [0, 1, 2], [3, 2, 1])])
    assert curves.reach(table, "bytes") == 2
    assert curves.common(table, "bytes") == 1000
    assert curves.common(table, "round") == 2
    few = pd.concat([run("dear", 0, [0, 50, 100], [9, 8, 7]), run("cheap", 0, [0, 1, 2], [3, 2, 1])])
    assert curves.common(few, "bytes") == 100
    wild = pd.concat([table, run("wild", 0, [0, 1e9], [9, np.inf], "diverged")])
    assert curves.common(wild, "bytes") == 1000


def test_a_budget_that_pays_for_no_round_gives_no_value_but_the_price_of_one():
    table = pd.concat([run("dear", i, [0, 100 + i, 300], [9, 8, 7]) for i in (0, 1)])
    row = curves.at(table, "bytes", ["objective"], 99).loc["dear"]
    assert (row["seeds"], row["needs"], row["after"]) == (0, 100, 1)
    assert np.isnan(row["objective"])
    row = curves.at(table, "bytes", ["objective"], 100).loc["dear"]
    assert (row["seeds"], row["objective"]) == (1, 8)
    assert np.isnan(row["needs"])
    assert curves.at(run("late", 0, [6, 12], [2, 1]), "bytes", ["objective"], 5)["seeds"].to_list() == [0]
    sparse = table.assign(round=5 * table["round"])  # a record every five rounds
    (_, one), (_, two) = sparse.groupby("seed")
    assert "5 rounds" in curves.short([one, two], "bytes", 99).words("bytes", 99)
    told = curves.Short(1, 357_120).words("bytes", 14_000)
    assert told == "not comparable: one round needs 357,120 bytes, budget 14,000"


def test_a_share_is_that_of_the_last_record_unless_one_more_would_have_been_too_much():
    one = pd.DataFrame({"bytes": [0.0, 10.0, 20.0, 30.0], "ending": "steps"})
    assert [curves.share(one, "bytes", budget) for budget in (60.0, 40.0)] == [0.5, 0.75]
    assert np.isnan([curves.share(one, "bytes", budget) for budget in (39.0, np.inf)]).all()
    assert np.isnan(curves.share(one.assign(ending="diverged"), "bytes", 60.0))


def test_bands_are_numpys():
    values = np.array([[5.0, 4.0, 3.0, 2.0], [7.0, 4.0, 1.0, 1.0], [6.0, 6.0, 5.0, np.nan]])
    cost = np.array([[0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 4.0, 6.0], [0.0, 3.0, 6.0, np.nan]])
    table = pd.concat(
        [run("a", i, list(cost[i, :n]), list(values[i, :n]), "stop rule") for i, n in enumerate((4, 4, 3))]
        + [run("a", 9, [0, 1], [1e9, np.inf], "diverged"), run("b", 0, [0, 1], [2, 1])],
        ignore_index=True,
    )
    values[2, 3], cost[2, 3] = 5.0, 6.0  # what stopped stays where it is
    half = stats.t.ppf(0.975, 2) * values.std(axis=0, ddof=1) / np.sqrt(3)
    for x, spent in (("bytes", cost), ("round", np.array([[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 2]]))):
        band = curves.band(table, x, "objective")
        mine = band[band["label"] == "a"]
        np.testing.assert_allclose(mine[x], spent.mean(axis=0))
        np.testing.assert_allclose(mine["mean"], values.mean(axis=0))
        np.testing.assert_allclose(mine["low"], values.mean(axis=0) - half)
        np.testing.assert_allclose(mine["high"], values.mean(axis=0) + half)
        assert (band["label"] == "b").sum() == 2


def test_amounts_that_some_run_does_not_count_are_no_axis():
    timed = run("timed", 0, [0, 5], [2.0, 1.0]).assign(network_seconds=[0.0, 1.0])
    assert "network_seconds" in curves.axes_of(timed)
    table = pd.concat([timed, run("plain", 0, [0, 5], [2.0, 1.0])], ignore_index=True)
    assert "network_seconds" not in curves.axes_of(table)
    assert "bytes" in curves.axes_of(table)
