"""Trials of different data and networks as lanes of one compiled program."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.engine import trials
from jdfl.engine.batch import across
from jdfl.engine.trials import Trial
from tests.toy import Gossip

M = 6
OPTIONS = {"steps": 9, "every": 3, "metrics": ["objective", "consensus_error"]}
NETWORKS = {
    "erdos-renyi": lambda key: jdfl.network.erdos_renyi(M, 0.5, seed=key),
    "buckets": lambda key: jdfl.network.erdos_renyi(M, 0.5, seed=key, format="buckets"),
    "mixed formats": lambda key: jdfl.network.erdos_renyi(M, 0.5, seed=key, format=["padded", "dense"][key % 2]),
    "links drawn per round": lambda key: jdfl.network.random_links(jdfl.network.erdos_renyi(M, 0.5, seed=key), 0.7),
    "bursty loss": lambda key: jdfl.network.bursty_loss(jdfl.network.erdos_renyi(M, 0.5, seed=key), 0.3, 0.5),
    "timed": lambda key: jdfl.network.timed(jdfl.network.erdos_renyi(M, 0.5, seed=key)),
    "partial communication": lambda key: jdfl.network.partial_communication(
        jdfl.network.erdos_renyi(M, 0.5, seed=key), 0.5
    ),
}


def drawn(network, keys, uneven=True):
    found = []
    for key in keys:
        rng = np.random.default_rng(key)
        sizes = rng.integers(2, 7, M) if uneven else np.full(M, 5)
        parts = [(rng.normal(size=(q, 4)), rng.normal(size=q)) for q in sizes]
        found.append(
            Trial(
                key,
                jdfl.problems.linear_regression([part[0] for part in parts], [part[1] for part in parts]),
                network(key),
            )
        )
    return found


@pytest.mark.parametrize("batch", [1, 3, 6])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_every_lane_is_the_run_of_its_trial(network, batch):
    given = drawn(network, [3, 4, 5])
    lanes = across(Gossip(), given, over={"rate": [0.05, 0.01]}, batch=batch, **OPTIONS)
    assert [(one.labels["rate"], one.labels["seed"]) for one in lanes] == [
        (rate, key) for rate in (0.05, 0.01) for key in (3, 4, 5)
    ]
    for lane in lanes:
        trial = given[[3, 4, 5].index(lane.labels["seed"])]
        alone = jdfl.run(Gossip(rate=lane.labels["rate"]), trial.problem, trial.network, key=lane.run_key, **OPTIONS)
        np.testing.assert_allclose(lane.params, alone.params, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(lane.history.to_numpy(), alone.history.to_numpy(), rtol=1e-4, atol=1e-5)
        assert lane.totals == alone.totals
        assert lane.provenance.hash == alone.provenance.hash
        np.testing.assert_array_equal(lane.records, alone.records)


def test_trials_of_any_sizes_share_one_compiled_program():
    given = drawn(NETWORKS["erdos-renyi"], range(12))
    assert len({one.problem.weight.shape for one in given}) > 1
    assert len({one.network.graph.senders.shape for one in given}) > 1
    before = trials.loop.lanes._cache_size()
    across(Gossip(), given, over={}, **OPTIONS)
    assert trials.loop.lanes._cache_size() == before + 1


def test_trials_that_do_not_fit_are_stacked_in_equal_parts(monkeypatch):
    network = NETWORKS["erdos-renyi"]
    whole = across(Gossip(), drawn(network, range(6)), over={}, **OPTIONS)
    one = sum(
        jnp.asarray(leaf).nbytes
        for leaf in trials.jax.tree.leaves(trials._of_equal_shapes(drawn(network, range(6)))[0])
    )
    monkeypatch.setattr(trials, "MOST_DATA", 3 * one)
    assert [len(places) for places, _ in trials._stacks(drawn(network, range(6)))] == [3, 3]
    parts = across(Gossip(), drawn(network, range(6)), over={}, **OPTIONS)
    for a, b in zip(whole, parts):
        np.testing.assert_allclose(a.params, b.params, rtol=1e-4, atol=1e-5)


def test_problems_of_another_structure_are_run_too():
    regression = drawn(NETWORKS["erdos-renyi"], [1, 2, 3], uneven=False)
    known = replace(regression[1].problem, truth=jnp.zeros(4))  # a further leaf
    mixed = [regression[0], regression[1]._replace(problem=known), regression[2]]
    found = across(Gossip(), mixed, over={}, **OPTIONS)
    for one, other in zip(found, across(Gossip(), regression, over={}, **OPTIONS)):
        np.testing.assert_allclose(one.params, other.params, rtol=1e-4, atol=1e-5)


def test_a_metric_that_one_of_the_problems_cannot_give_is_refused():
    given = drawn(NETWORKS["erdos-renyi"], [1, 2], uneven=False)
    known = given[0]._replace(problem=replace(given[0].problem, truth=jnp.ones(4)))
    with pytest.raises(ValueError, match="distance_to_truth"):
        across(Gossip(), [known, given[1]], over={}, steps=2, metrics=["distance_to_truth"])
