"""Trials of different data and networks as lanes of one compiled program."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest

import jdfl
from jdfl.engine import trials
from jdfl.engine.batch import across
from jdfl.engine.trials import Trial
from tests.refused import refused
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
}


def drawn(network, keys):
    found = []
    for key in keys:
        rng = np.random.default_rng(key)
        sizes = rng.integers(2, 7, M)
        parts = [(rng.normal(size=(q, 4)), rng.normal(size=q)) for q in sizes]
        found.append(Trial(key, jdfl.problems.linear_regression(*zip(*parts)), network(key)))
    return found


@functools.cache
def six():
    """Trials of several sizes, and their runs side by side."""
    given = drawn(NETWORKS["erdos-renyi"], range(6))
    before = trials.loop.lanes._cache_size()
    return given, across(Gossip(), given, over={}, **OPTIONS), trials.loop.lanes._cache_size() - before


def near(one, other):
    np.testing.assert_allclose(one.params, other.params, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one.history.to_numpy(), other.history.to_numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.rotated(6)
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_every_lane_is_the_run_of_its_trial(network):
    given = dict(zip((3, 4), drawn(network, [3, 4])))
    lanes = across(Gossip(), [*given.values()], over={"rate": [0.05, 0.01]}, batch=3, **OPTIONS)
    assert [(one.labels["rate"], one.labels["seed"]) for one in lanes] == [(r, k) for r in (0.05, 0.01) for k in given]
    for lane in lanes:
        trial = given[lane.labels["seed"]]
        alone = jdfl.run(Gossip(rate=lane.labels["rate"]), trial.problem, trial.network, key=lane.run_key, **OPTIONS)
        near(lane, alone)
        assert lane.totals == alone.totals
        np.testing.assert_array_equal(lane.records, alone.records)


def test_trials_share_one_compiled_program_or_are_stacked_in_equal_parts(monkeypatch):
    given, whole, programs = six()
    assert len({(one.problem.weight.shape, one.network.graph.senders.shape) for one in given}) > 2
    assert programs == 1
    one = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(trials._of_equal_shapes(given)[0]))
    monkeypatch.setattr(trials, "MOST_DATA", 3 * one)
    assert [len(places) for places, _ in trials._stacks(given)] == [3, 3]
    for a, b in zip(whole, across(Gossip(), given, over={}, **OPTIONS), strict=True):
        near(a, b)


def test_problems_of_another_structure_are_run_too():
    given, whole, _ = six()
    known = given[1]._replace(problem=replace(given[1].problem, truth=np.zeros(4, np.float32)))  # a further leaf
    mixed = [given[0], known, given[2]]
    for one, other in zip(across(Gossip(), mixed, over={}, **OPTIONS), whole):
        near(one, other)
    with refused("distance_to_truth"):
        across(Gossip(), mixed, over={}, steps=2, metrics=["distance_to_truth"])
