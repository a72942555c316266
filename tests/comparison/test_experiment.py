"""Experiments: trials that redraw data and network, intervals, paired differences, and who is called the best."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import jdfl
from jdfl.engine import trials as lanes
from jdfl.lab import table
from tests.refused import each_refused, refused
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


RUNS = {"steps": 6, "metrics": ["objective"], "every": 2}
HOW = {"problem": data, "network": graph, "trials": 6, **RUNS}


@pytest.fixture(scope="module")
def found() -> jdfl.Comparison:
    methods = {
        "tuned": jdfl.Entry(Gossip(), tune={"rate": [0.02, 0.1]}),
        "given": jdfl.Entry(Gossip(rate=0.1), tune={}),
        "slow": jdfl.Entry(Gossip(rate=0.001), tune={}),
    }
    return jdfl.Experiment(
        methods=methods, budget={"round": None}, tuning=jdfl.Tuning(keys=(70, 71), extend=0), **HOW
    ).run()


def test_every_trial_has_data_and_network_of_its_own_that_all_methods_share(found):
    experiment = jdfl.Experiment(methods={"a": Gossip()}, **HOW)
    assert found.redrawn == ("data", "network")
    assert repr(experiment).splitlines()[1].startswith("6 trials of 6 rounds, each with a problem and a network of")
    assert found.seeds == tuple(range(6))
    assert len({run.provenance.hash for run in found.results["given"]}) == 6
    for key, run in enumerate(found.results["given"][:2]):
        one = experiment.trial(key)
        alone = jdfl.run(Gossip(rate=0.1), one.problem, one.network, key=key, **RUNS)
        np.testing.assert_allclose(run.history.to_numpy(), alone.history.to_numpy(), rtol=1e-4, atol=1e-5)
    assert found.tuned["tuned"].values == {"rate": 0.1}  # the same settings in the same trials are the same runs
    np.testing.assert_allclose(found.values()["tuned"], found.values()["given"], rtol=1e-5)


def test_tuning_looks_at_trials_that_are_not_reported(found):
    assert not set(found.seeds) & set(found.tuning_seeds)
    experiment = jdfl.Experiment(methods={"a": Gossip()}, **HOW)
    tuning = [experiment.trial(key) for key in found.tuning_seeds]
    means = []
    for rate in (0.02, 0.1):
        runs = [jdfl.run(Gossip(rate=rate), one.problem, one.network, key=one.key, **RUNS) for one in tuning]
        means.append(np.mean([run.final["objective"] for run in runs]))
    np.testing.assert_allclose(found.tuning[found.tuning["label"] == "tuned"]["mean"], means, rtol=1e-4)


def test_problem_and_network_get_different_seeds_that_only_the_key_decides():
    seen = []

    def noted(made):
        return lambda key: (seen.append(key), made(key))[1]

    experiment = jdfl.Experiment(problem=noted(data), network=noted(graph), methods={"a": Gossip()}, **RUNS)
    for key in (0, 1, 0):
        experiment.trial(key)
    assert seen[:2] == seen[4:]
    assert len(set(seen)) == 4


def test_one_program_per_method_for_all_trials():
    before = lanes.loop.lanes._cache_size()
    jdfl.Experiment(methods={"a": Gossip(messages=2)}, tuning=None, **HOW).run()
    assert lanes.loop.lanes._cache_size() == before + 1


def test_a_method_may_have_a_network_that_is_redrawn():
    methods = {"b": jdfl.Entry(Gossip(), network=graph)}
    found = jdfl.compare(methods, data(0), NETWORK, tuning=None, trials=4, **RUNS)
    assert (found.redrawn, "seed" in found.networks["b"]) == (("network",), False)
    assert len({run.provenance.hash for run in found.results["b"]}) == 4


def test_tuning_judges_by_the_distance_to_the_minimum_where_it_is_known_and_common():
    def measure(method, **changes):
        how = HOW | {"problem": data(0), "metrics": None} | changes
        return jdfl.Experiment(methods={"a": method}, **how)._terms(lambda *_: None, None).measure.__name__

    assert measure(Gossip()) == "suboptimality"
    assert measure(jdfl.LocalOnly()) == "objective"  # whose nodes' models are above no common minimum
    assert measure(Gossip(), metrics=["consensus_error"]) == "objective"


def test_an_interval_is_students_and_differences_are_paired_by_trial(found):
    values, at, frame = found.values(), found.at("round"), found.differences(reference="given")
    for label in values:
        half = stats.t.interval(0.95, 5, loc=values[label].mean(), scale=stats.sem(values[label]))
        mean, width = at.loc[label, ["objective", "objective_ci"]]
        np.testing.assert_allclose([mean - width, mean + width], half, rtol=1e-10)
    assert set(frame.index) == {"tuned", "slow"}
    gaps = values["slow"] - values["given"]
    row = frame.loc["slow"]
    expected = stats.t.interval(1 - 0.05 / 2, 5, loc=gaps.mean(), scale=stats.sem(gaps))
    np.testing.assert_allclose([row["low"], row["high"]], expected, rtol=1e-10)
    assert row["difference"] == pytest.approx(gaps.mean())
    assert row["verdict"] == "worse"
    assert found.differences(reference="slow").loc["given", "verdict"] == "better"


def test_leaders_are_found_in_differences_of_common_trials():
    rng = np.random.default_rng(0)
    shared = 100 * rng.normal(size=10)
    values = pd.DataFrame({"a": shared + 1 + 0.1 * rng.normal(size=10), "b": shared + 0.1 * rng.normal(size=10)})
    assert table.leaders(values, 1) == ["b"]
    assert table.leaders(values, -1) == ["a"]
    apart = values.assign(a=rng.permutation(values["a"]))  # unpaired
    assert len(table.leaders(apart, 1)) == 2
    values = pd.DataFrame({"a": [1.0, np.nan, 1.0], "b": [2.0, 2.1, 2.2]})
    assert table.leaders(values, 1) == ["b"]
    assert table.leaders(values.iloc[:1], 1) == []
    assert table.differences(values, 1).loc["a", "trials"] == 2
    rounded = values.assign(a=values["b"] * (1 + 1e-8))
    assert set(table.differences(rounded, 1)["verdict"]) == {"not distinguishable"}


def covered(truth, repeats, *how, named=False):
    """How often all differences lie in their intervals: from a method, or from the best mean, as if it were `named`."""
    rng, count = np.random.default_rng(2), 0
    for _ in range(repeats):
        draws = truth + rng.normal(size=(10, 1)) + rng.normal(size=(10, len(truth)))
        draws = pd.DataFrame(draws, columns=list(map(str, range(len(truth)))))
        found = table.differences(draws, 1, *how)
        if named:
            found = table.differences(draws, 1, found["reference"].iloc[0])
        gaps = truth[found.index.astype(int)] - truth[found["reference"].astype(int)]
        count += bool(((found["low"] <= gaps) & (gaps <= found["high"])).all())
    return count / repeats


@pytest.mark.slow
def test_all_differences_are_covered_together_also_from_the_best_mean(monkeypatch):
    truth = np.array([0.0, 0.3, -0.2, 1.0, 0.5])
    assert covered(truth, 1000, "0") >= 0.94
    for methods in (2, 5, 10):
        assert covered(np.zeros(methods), 600) >= 0.94
        assert methods == 2 or covered(np.zeros(methods), 600, named=True) < 0.92  # without counting all pairs
    monkeypatch.setattr(table, "LEVEL", 1 - 0.05 * 4)  # 95 % each, as without the rule for multiple comparisons
    assert covered(truth, 1000, "0") < 0.9


def test_mistakes_are_refused_before_anything_runs():
    def door(**given):
        jdfl.Experiment(**HOW | {"methods": {"a": Gossip()}} | given).run()

    each_refused(door, {"problem": 3}, {"trials": 0}, {"trials": 2.5}, {"trials": "ten"}, {"steps": 0}, {"methods": {}})
    small = jdfl.problems.example1(m=4, n=8, s=2)
    for changes, *names in (
        ({"problem": lambda key: "nothing"}, "problem", "'nothing'"),
        ({"problem": lambda key: data(key) if key % 2 else small}, "network.m"),
        ({"network": lambda key: jdfl.network.ring(4)}, "network.m = 4"),
        ({"network": lambda key: jdfl.network.ring(-1)}, "network", "m = -1"),
        ({"budget": {"moons": 3}}, "budget", "'moons'", "bytes"),
    ):
        with refused(*names):
            door(**changes)
