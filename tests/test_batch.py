"""Runs side by side are those of `run`, and settings and seeds come in the order in which they are given."""

from functools import partial

import jax
import numpy as np
import pytest

import jdfl
from jdfl.engine import trials
from jdfl.engine.batch import at, points_of
from tests.refused import each_refused, refused
from tests.toy import Gossip, M, network, problem

OPTIONS = {"steps": 24, "every": 5, "metrics": ["objective", "consensus_error"], "stop": jdfl.consensus_below(0.5)}
NOISY = Gossip(mechanism=jdfl.Gaussian(0.01))
POINTS = [{"rate": 0.05, "mechanism.multiplier": 0.01}, {"rate": 0.01, "mechanism.multiplier": 0.5}]


@pytest.fixture(scope="module")
def grid():
    """Two points side by side, two seeds each."""
    return jdfl.sweep(NOISY, problem(), network(), over=POINTS, keys=[3, 8], batch=4, **OPTIONS)


def test_a_lane_is_the_run_of_its_values_and_ends_on_its_own(grid):
    assert [result.labels for result in grid] == [{"seed": seed, **point} for point in POINTS for seed in (3, 8)]
    assert {result.ending for result in grid} == {"steps", "stop rule"}
    one_by_one = jdfl.sweep(NOISY, problem(), network(), over=POINTS, keys=[3, 8], batch=1, **OPTIONS)
    for result, single in zip(grid, one_by_one, strict=True):
        point = {path: value for path, value in result.labels.items() if path != "seed"}
        assert result.algorithm == at(NOISY, point)
        alone = jdfl.run(result.algorithm, problem(), network(), key=result.run_key, **OPTIONS)
        assert (result.rounds, result.ending, result.totals) == (alone.rounds, alone.ending, alone.totals)
        assert result.history.columns.tolist() == alone.history.columns.tolist()
        np.testing.assert_allclose(result.history.to_numpy(), alone.history.to_numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(result.params, alone.params, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(result.communication_rounds, alone.communication_rounds)
        assert result.history["round"].iloc[-1] == result.rounds
        assert result.totals.messages == {"model": M * result.rounds}
        assert result.state is None
        assert (single.labels, single.rounds, single.totals) == (result.labels, result.rounds, result.totals)
        np.testing.assert_allclose(single.params, result.params, rtol=1e-4, atol=1e-5)


def test_lists_of_two_fields_give_all_their_combinations():
    codec = jdfl.CEPS(s=3, codec=jdfl.OneBit(d=8))
    points = points_of(codec, {"codec.gamma": [3.0, 4.0], "rate": [0.5, 0.1]})
    assert points == [{"codec.gamma": gamma, "rate": rate} for gamma in (3.0, 4.0) for rate in (0.5, 0.1)]
    assert at(codec, points[1]) == jdfl.CEPS(s=3, codec=jdfl.OneBit(d=8, gamma=3.0), rate=0.1)


def test_keys_may_be_any_iterable_typed_keys_included(compilations):
    first = jdfl.repeat(NOISY, problem(), network(), keys=[1, 2], batch=2, **OPTIONS)
    assert [result.labels for result in first] == [{"seed": 1}, {"seed": 2}]
    assert not np.array_equal(first[0].params, first[1].params)
    before = compilations()
    for keys in ((seed for seed in (1, 2)), np.array([1, 2]), [jax.random.key(1), jax.random.key(2)]):
        for one, other in zip(
            first, jdfl.repeat(NOISY, problem(), network(), keys=keys, batch=2, **OPTIONS), strict=True
        ):
            np.testing.assert_array_equal(one.params, other.params)
    assert compilations() <= before + 2  # reading keys, not running


def test_a_lane_that_diverges_says_where_and_leaves_the_others_alone():
    bad, good = jdfl.sweep(NOISY, problem(), network(), over={"rate": [1e20, 0.05]}, batch=2, **OPTIONS)
    assert bad.ending == "diverged"
    assert bad.diverged is not None
    assert good.ending in ("steps", "stop rule")
    assert np.isfinite(good.params).all()


EXACT = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.ExactGaussian(1.0)))
NOT_SWEPT = {
    "over[1]": (Gossip(), [{"rate": 0.1}, {}]),
    "'12'": (Gossip(), {"rate": "12"}),
    "'rate.x'": (Gossip(), {"rate.x": [0.1]}),
    "'a'": (Gossip(), {"rate": ["a"]}),
    "'mechanism.multiplier'": (Gossip(), {"mechanism.multiplier": [0.1]}),
    "'messages' = 1": (Gossip(), {"messages": [1.0]}),
    "1.0": (Gossip(rate=1), {"rate": [0.1]}),
    "'s' = 3": (jdfl.CEPS(s=3), {"s": [1.0]}),
    "exact noise": (EXACT, {"gradients.mechanism.multiplier": [1.0]}),
    "rate = -1.0": (Gossip(), {"rate": [0.1, -1.0]}),  # every point is checked
    "value": (Gossip(), {"rate": []}),
}


def test_settings_that_make_no_sense_are_refused():
    sweep = partial(jdfl.sweep, problem=problem(), network=network())
    for words, (algorithm, over) in NOT_SWEPT.items():
        with refused(words):
            sweep(algorithm, over=over, keys=[0], steps=4)
    for words, given in {"seed": {"keys": []}, "key = -1": {"keys": [0, -1]}, "messages": {"steps": 2**30}}.items():
        with refused(words):
            sweep(Gossip(), **({"over": {}, "keys": [0], "steps": 4} | given))
    each_refused(partial(sweep, Gossip()), {"batch": 0}, {"steps": 0}, over={}, keys=[0], steps=4)


WIDTHS = {
    3: (jdfl.DPSGD(lr=0.1), jdfl.DOADP(lr=0.1, codec=jdfl.Dense())),
    1: (
        jdfl.DPSGD(lr=0.1, codec=jdfl.Sparse(share=1.0)),  # whose rows are coded one by one
        jdfl.CEPS(s=3),
        jdfl.DOADP(lr=0.1, codec=jdfl.Dense(), block=2),  # two nodes at a time
    ),
}


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="on accelerators all runs go side by side")
def test_runs_whose_loops_would_wait_for_one_another_go_one_at_a_time(monkeypatch):
    def noted(*arguments):
        raise InterruptedError(arguments[-1])

    monkeypatch.setattr(trials.loop, "lanes", noted)
    for width, algorithms in WIDTHS.items():
        for algorithm in algorithms:
            with pytest.raises(InterruptedError) as seen:
                jdfl.repeat(algorithm, problem(), network(), keys=[0, 1, 2], steps=2)
            assert seen.value.args == (width,)
