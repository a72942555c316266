"""Experiments: trials that redraw data and network, intervals, paired differences, and who is called the best."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import jdfl
from jdfl.engine import trials as lanes
from jdfl.lab import paired, table
from tests.toy import Gossip

pytestmark = pytest.mark.filterwarnings("ignore:Not tuned", "ignore:The best")
M, N = 6, 4
NETWORK = jdfl.network.ring(M)


def data(key, noise=1.0):
    rng = np.random.default_rng(key)
    sizes = rng.integers(3, 6, M)
    truth = np.ones(N)
    X = [rng.normal(size=(q, N)) for q in sizes]
    return jdfl.problems.linear_regression(X, [x @ truth + noise * rng.normal(size=len(x)) for x in X])


def graph(key):
    return jdfl.network.erdos_renyi(M, 0.6, seed=key)


HOW = {"steps": 6, "metrics": ["objective"], "every": 2, "budget": {"round": None}}


@pytest.fixture(scope="module")
def found() -> jdfl.Comparison:
    methods = {
        "tuned": jdfl.Entry(Gossip(), tune={"rate": [0.02, 0.1]}),
        "given": jdfl.Entry(Gossip(rate=0.1), tune={}),
        "slow": jdfl.Entry(Gossip(rate=0.001), tune={}),
    }
    return jdfl.Experiment(problem=data, network=graph, methods=methods, trials=8, **HOW).run()


def test_every_trial_has_data_and_network_of_its_own_that_all_methods_share(found):
    experiment = jdfl.Experiment(problem=data, network=graph, methods={"a": Gossip()}, trials=8, **HOW)
    assert found.redrawn == ("data", "network")
    assert found.seeds == tuple(range(8))
    assert len({run.provenance.hash for run in found.results["given"]}) == 8
    assert len({run.provenance.hash for run in found.results["given"]}) == 8
    for key, run in enumerate(found.results["given"]):
        trial = experiment.trial(key)
        alone = jdfl.run(
            Gossip(rate=0.1), trial.problem, trial.network, key=key, steps=6, every=2, metrics=["objective"]
        )
        np.testing.assert_allclose(run.history.to_numpy(), alone.history.to_numpy(), rtol=1e-4, atol=1e-5)
    if found.tuned["tuned"].values == {"rate": 0.1}:  # the same settings in the same trials are the same runs
        np.testing.assert_allclose(found.values()["tuned"], found.values()["given"], rtol=1e-5)


def test_tuning_looks_at_trials_that_are_not_reported(found):
    assert not set(found.seeds) & set(found.tuning_seeds)
    experiment = jdfl.Experiment(problem=data, network=graph, methods={"a": Gossip()}, trials=8, **HOW)
    tuning = [experiment.trial(key) for key in found.tuning_seeds]
    means = []
    for rate in (0.02, 0.1):
        runs = [jdfl.run(Gossip(rate=rate), one.problem, one.network, key=one.key, steps=6) for one in tuning]
        means.append(np.mean([run.final["objective"] for run in runs]))
    rows = found.tuning[(found.tuning["label"] == "tuned") & (found.tuning["extension"] == 0)]
    np.testing.assert_allclose(rows["mean"], means, rtol=1e-4)


def test_problem_and_network_get_different_seeds_that_only_the_key_decides():
    seen = {"problem": [], "network": []}

    def problem(key):
        seen["problem"].append(key)
        return data(key)

    def network(key):
        seen["network"].append(key)
        return graph(key)

    experiment = jdfl.Experiment(problem=problem, network=network, methods={"a": Gossip()}, **HOW)
    for key in (0, 1, 0):
        experiment.trial(key)
    assert seen["problem"][0] == seen["problem"][2] != seen["problem"][1]
    assert seen["network"][0] == seen["network"][2] != seen["network"][1]
    assert not set(seen["problem"]) & set(seen["network"])
    assert all(isinstance(one, int) and 0 <= one < 2**32 for some in seen.values() for one in some)


def test_one_program_per_method_for_all_trials():
    methods = {"a": Gossip(), "b": Gossip(messages=2)}
    before = lanes.loop.lanes._cache_size()
    jdfl.Experiment(problem=data, network=graph, methods=methods, trials=9, tuning=None, steps=6).run()
    assert lanes.loop.lanes._cache_size() == before + len(methods)


def test_an_interval_is_students(found):
    values = found.values()
    at = found.at("round")
    for label in values:
        half = stats.t.interval(0.95, 7, loc=values[label].mean(), scale=stats.sem(values[label]))
        low, high = (
            at.loc[label, "objective"] - at.loc[label, "objective_ci"],
            at.loc[label, "objective"] + at.loc[label, "objective_ci"],
        )
        np.testing.assert_allclose([low, high], half, rtol=1e-10)


def test_differences_are_paired_by_trial(found):
    values, frame = found.values(), found.differences(reference="given")
    assert set(frame.index) == {"tuned", "slow"}
    gaps = values["slow"] - values["given"]
    row = frame.loc["slow"]
    level = 1 - 0.05 / 2
    expected = stats.t.interval(level, 7, loc=gaps.mean(), scale=stats.sem(gaps))
    np.testing.assert_allclose([row["low"], row["high"]], expected, rtol=1e-10)
    assert row["verdict"] == "worse"
    assert row["difference"] == pytest.approx(gaps.mean())
    assert found.differences(reference="slow").loc["given", "verdict"] == "better"


def test_variation_that_the_trials_share_does_not_hide_a_difference():
    rng = np.random.default_rng(0)
    shared = 100 * rng.normal(size=10)
    values = pd.DataFrame({"a": shared + 1 + 0.1 * rng.normal(size=10), "b": shared + 0.1 * rng.normal(size=10)})
    assert paired.leaders(values, 1) == ["b"]
    assert paired.leaders(values, -1) == ["a"]
    apart = values.assign(a=rng.permutation(values["a"]))  # unpaired
    assert len(paired.leaders(apart, 1)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("methods", [2, 5])
def test_a_method_is_rarely_called_best_where_all_are_equal(methods):
    """At most 2.5 % of experiments, whatever the number of methods: the rule for multiple comparisons."""
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(2000):
        draws = rng.normal(size=(10, 1)) + rng.normal(size=(10, methods))
        # The method "0" is truly the best by nothing: whoever else is called the best is called so wrongly.
        first = paired.leaders(pd.DataFrame(draws, columns=[str(i) for i in range(methods)]), 1)
        wrong += len(first) == 1 and first != ["0"]
    assert wrong <= 2000 * 0.025 + 3 * np.sqrt(2000 * 0.025)


def covered_together(level):
    """How often all differences of five methods lie in their intervals, where each has this level before the rule."""
    rng, truth, covered = np.random.default_rng(2), np.array([0.0, 0.3, -0.2, 1.0, 0.5]), 0
    for _ in range(1000):
        draws = pd.DataFrame(truth + rng.normal(size=(8, 1)) + rng.normal(size=(8, 5)), columns=list("abcde"))
        found = paired.differences(draws, 1, "a", level)
        covered += bool(((found["low"] <= truth[1:]) & (truth[1:] <= found["high"])).all())
    return covered / 1000


@pytest.mark.slow
def test_all_differences_are_covered_together():
    assert covered_together(0.95) >= 0.94
    assert covered_together(1 - 0.05 * 4) < 0.9  # with 95 % each, as without the rule for multiple comparisons


@pytest.mark.slow
@pytest.mark.parametrize("methods", [2, 5, 10])
def test_differences_from_the_best_mean_are_covered_together_though_it_is_chosen(methods):
    rng, covered, named = np.random.default_rng(5), 0, 0
    for _ in range(600):
        draws = pd.DataFrame(rng.normal(size=(10, methods)), columns=[str(i) for i in range(methods)])
        found = paired.differences(draws, 1)
        covered += bool(((found["low"] <= 0) & (found["high"] >= 0)).all())
        found = paired.differences(draws, 1, found["reference"].iloc[0])  # as if it had been named beforehand
        named += bool(((found["low"] <= 0) & (found["high"] >= 0)).all())
    assert covered / 600 >= 0.94
    assert methods == 2 or named / 600 < 0.92  # without counting all pairs


def test_who_lacks_a_trial_is_not_ranked_and_one_trial_ranks_nobody():
    values = pd.DataFrame({"a": [1.0, np.nan, 1.0], "b": [2.0, 2.1, 2.2]})
    assert paired.leaders(values, 1) == ["b"]
    assert paired.leaders(values.iloc[:1], 1) == []
    assert paired.differences(values, 1).loc["a", "trials"] == 2


def test_equal_up_to_rounding_is_not_distinguishable():
    values = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": np.array([1.0, 2.0, 3.0]) * (1 + 1e-8)})
    assert set(paired.differences(values, 1)["verdict"]) == {"not distinguishable"}


def test_on_one_problem_intervals_cover_the_algorithms_randomness_alone():
    problem = data(0)
    fixed = jdfl.compare({"a": Gossip(), "b": Gossip(rate=0.1)}, problem, NETWORK, trials=3, tuning=None, steps=4)
    assert fixed.redrawn == ()
    assert "share data and network" in fixed.table()
    drawn = jdfl.compare({"a": Gossip()}, data, NETWORK, trials=3, tuning=None, steps=4)
    assert drawn.redrawn == ("data",)
    assert "data of its own" in drawn.table()


def test_a_method_may_have_a_network_that_is_redrawn():
    def sparse(key):
        return jdfl.network.erdos_renyi(M, 0.5, seed=key)

    methods = {"a": Gossip(), "b": jdfl.Entry(Gossip(), network=sparse)}
    found = jdfl.compare(methods, data(0), NETWORK, trials=4, tuning=None, steps=3)
    assert found.redrawn == ("network",)
    assert "seed" not in found.networks["b"]
    assert len({run.provenance.hash for run in found.results["b"]}) == 4


@settings(max_examples=200, deadline=None)
@given(st.floats(-1e12, 1e12).filter(lambda x: abs(x) > 1e-9), st.floats(1e-12, 1e12))
def test_no_digits_beyond_the_uncertainty(mean, half):
    text = table.rounded(mean, half, "deterministic")
    if "deterministic" in text:
        assert half <= 1e-12 * abs(mean)
        return
    body, _, exponent = text.replace(",", "").strip("(").partition(")e")
    left, right = (float(part) * 10.0 ** int(exponent or 0) for part in body.split(" ± "))
    assert left == pytest.approx(mean, abs=half * 0.06)
    assert right == pytest.approx(half, rel=0.06)
    shown, uncertainty = body.split(" ± ")
    assert len(shown.partition(".")[2]) == len(uncertainty.partition(".")[2])
    assert len(uncertainty.replace(".", "").strip("0")) <= 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"problem": 3}, ["problem", "3"]),
        ({"problem": lambda key: "nothing"}, ["a problem", "nothing"]),
        ({"problem": lambda key: data(key) if key % 2 else jdfl.problems.example1(m=4, n=8, s=2)}, ["network.m"]),
        ({"network": lambda key: jdfl.network.ring(4)}, ["network.m = 4"]),
        ({"network": lambda key: jdfl.network.ring(-1)}, ["network(", "m = -1"]),
        ({"trials": 0}, ["trials"]),
        ({"trials": 2.5}, ["trials", "2.5"]),
        ({"trials": "ten"}, ["trials", "ten"]),
        ({"methods": {}}, ["methods"]),
        ({"steps": 0}, ["steps = 0"]),
        ({"budget": {"moons": 3}}, ["moons", "bytes"]),
    ],
    ids=lambda value: "",
)
def test_mistakes_are_refused_before_anything_runs(changes, words):
    settings = {"problem": data, "network": graph, "methods": {"a": Gossip()}, **HOW, **changes}
    with pytest.raises(ValueError) as error:
        jdfl.Experiment(**settings).run()
    for word in words:
        assert word in str(error.value), str(error.value)


def test_a_mistyped_setting_is_answered_with_the_right_one():
    for call, meant in (
        (lambda: jdfl.Experiment(problem=data, network=graph, methods={}, steps=3, trails=4), "trials"),
        (lambda: jdfl.compare({"a": Gossip()}, data, graph, step=3), "steps"),
        (lambda: jdfl.Tuning(key=[1]), "keys"),
        (lambda: jdfl.Entry(Gossip(), tuned={}), "tune"),
    ):
        with pytest.raises(TypeError, match=f"Did you mean '{meant}'"):
            call()


def test_an_experiment_is_shown_in_two_lines():
    experiment = jdfl.Experiment(problem=data, network=NETWORK, methods={"a": Gossip(), "b": Gossip()}, steps=3)
    assert repr(experiment).splitlines() == [
        "Experiment: a, b",
        "10 trials of 3 rounds, each with a problem of its own; .run() compares",
    ]
