import jax
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl.engine import trials
from jdfl.engine.points import at, points_of
from tests.toy import Gossip, M, network, problem

pytestmark = pytest.mark.optimized

STOP = jdfl.consensus_below(0.5)
OPTIONS = {"steps": 24, "every": 5, "metrics": ["objective", "consensus_error"], "stop": STOP}
NOISY = Gossip(mechanism=jdfl.Gaussian(0.01))


@pytest.fixture(scope="module")
def grid():
    """Two points side by side, two seeds each."""
    over = [{"rate": 0.05, "mechanism.multiplier": 0.01}, {"rate": 0.01, "mechanism.multiplier": 0.5}]
    return jdfl.sweep(NOISY, problem, network, over=over, keys=[3, 8], batch=4, **OPTIONS)


def test_points_go_side_by_side_value_by_value_and_seed_by_seed(grid):
    one, two = {"rate": 0.05, "mechanism.multiplier": 0.01}, {"rate": 0.01, "mechanism.multiplier": 0.5}
    assert [result.labels for result in grid] == [{"seed": seed, **point} for point in (one, two) for seed in (3, 8)]
    assert [result.algorithm.rate for result in grid] == [0.05, 0.05, 0.01, 0.01]
    assert [result.algorithm.mechanism.multiplier for result in grid] == [0.01, 0.01, 0.5, 0.5]


def test_lists_of_two_fields_give_all_their_combinations():
    over = {"rate": [0.05, 0.01], "mechanism.multiplier": [0.01, 0.2, 0.5]}
    found = jdfl.sweep(NOISY, problem, network, over=over, keys=[3], steps=2, every=2, metrics=["objective"])
    made = [(one.labels["rate"], one.labels["mechanism.multiplier"]) for one in found]
    assert made == [(rate, level) for rate in (0.05, 0.01) for level in (0.01, 0.2, 0.5)]
    assert [(one.algorithm.rate, one.algorithm.mechanism.multiplier) for one in found] == made


def test_a_lane_is_the_run_of_its_values(grid):
    for result in grid:
        point = {path: value for path, value in result.labels.items() if path != "seed"}
        algorithm = at(NOISY, point)
        alone = jdfl.run(algorithm, problem, network, key=result.run_key, **OPTIONS)
        assert (result.rounds, result.ending, result.totals) == (alone.rounds, alone.ending, alone.totals)
        assert result.history.columns.tolist() == alone.history.columns.tolist()
        np.testing.assert_allclose(result.history.to_numpy(), alone.history.to_numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(result.params, alone.params, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(result.communication_rounds, alone.communication_rounds)


def test_lanes_end_on_their_own(grid):
    assert {result.ending for result in grid} == {"steps", "stop rule"}
    for result in grid:
        assert result.history["round"].iloc[-1] == result.rounds
        assert result.totals.messages == {"model": M * result.rounds}
        assert result.state is None


def test_one_at_a_time_equals_all_at_once(grid):
    over = [{"rate": 0.05, "mechanism.multiplier": 0.01}, {"rate": 0.01, "mechanism.multiplier": 0.5}]
    single = jdfl.sweep(NOISY, problem, network, over=over, keys=[3, 8], batch=1, **OPTIONS)
    assert [(r.labels, r.rounds, r.totals) for r in single] == [(r.labels, r.rounds, r.totals) for r in grid]
    for one, other in zip(single, grid):
        np.testing.assert_allclose(one.params, other.params, rtol=1e-4, atol=1e-5)


def test_keys_may_be_any_iterable_typed_keys_included(compilations):
    over = {"rate": [0.05, 0.01]}
    first = jdfl.sweep(Gossip(), problem, network, over=over, keys=[1, 2], **OPTIONS)
    before = compilations()
    for keys in ((seed for seed in (1, 2)), np.array([1, 2]), [jax.random.key(1), jax.random.key(2)]):
        again = jdfl.sweep(Gossip(), problem, network, over=over, keys=keys, **OPTIONS)
        assert len(again) == 4
        for one, other in zip(first, again):
            np.testing.assert_array_equal(one.params, other.params)
    assert compilations() <= before + 2  # reading keys, not running


def test_a_lane_that_diverges_says_where_and_leaves_the_others_alone():
    bad, good = jdfl.sweep(Gossip(), problem, network, over={"rate": [1e20, 0.05]}, batch=2, **OPTIONS)
    assert bad.ending == "diverged"
    assert bad.diverged is not None
    assert good.ending in ("steps", "stop rule")
    assert np.isfinite(good.params).all()


def test_repeat_is_a_sweep_over_nothing():
    results = jdfl.repeat(Gossip(), problem, network, keys=[1, 2], **OPTIONS)
    assert [result.labels for result in results] == [{"seed": 1}, {"seed": 2}]
    assert not np.array_equal(results[0].params, results[1].params)


FAULTY = nw.bursty_loss(nw.timed(network, slowness=nw.ParetoTime()), 0.1, 0.3)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("algorithm", [jdfl.DPSGD(lr=0.05), jdfl.CEPS(s=3)], ids=["d-psgd", "ceps"])
def test_repeated_runs_are_those_of_run_bit_for_bit_or_up_to_rounding(algorithm, width):
    """Side by side, the errors of 40 rounds stay below 100 roundings; faults, counts and clocks never differ."""
    options = {"steps": 40, "every": 20, "metrics": ["objective"]}
    for lane in jdfl.repeat(algorithm, problem, FAULTY, keys=[3, 4, 5], batch=width, **options):
        alone = jdfl.run(algorithm, problem, FAULTY, key=lane.run_key, **options)
        one, other = np.asarray(lane.params), np.asarray(alone.params)
        bound = 0 if width == 1 else 100 * np.finfo(one.dtype).eps * np.abs(other).max()
        assert np.abs(one - other).max() <= bound
        assert lane.totals == alone.totals
        for name in ("clock", "clock_rest", "communication_rounds"):
            np.testing.assert_array_equal(getattr(lane, name), getattr(alone, name))
        if width == 1:
            assert lane.history["objective"].equals(alone.history["objective"])


def test_dotted_paths_reach_the_codec():
    points = points_of(jdfl.CEPS(s=3, codec=jdfl.OneBit(d=8)), {"codec.gamma": [3.0, 4.0]})
    assert points == [{"codec.gamma": 3.0}, {"codec.gamma": 4.0}]
    changed = at(jdfl.CEPS(s=3, codec=jdfl.OneBit(d=8)), points[0])
    assert changed == jdfl.CEPS(s=3, codec=jdfl.OneBit(d=8, gamma=3.0))


EXACT = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.ExactGaussian(1.0)))


@pytest.mark.parametrize(
    ("algorithm", "options", "words"),
    [
        (Gossip(), {"over": [{"rate": 0.1}, {}]}, r"over\[1\]"),
        (Gossip(), {"over": [0.1]}, r"over = \[0.1\]"),
        (Gossip(), {"over": {"rate": "12"}}, "'rate'.*'12'"),
        (Gossip(), {"over": {"rate": ["a"]}}, "'rate'.*'a'"),
        (Gossip(), {"over": {"rates": [0.1]}}, "'rates'"),
        (Gossip(), {"over": {"rate.x": [0.1]}}, "'rate.x'"),
        (Gossip(), {"over": {"mechanism.multiplier": [0.1]}}, "'mechanism.multiplier'"),
        (Gossip(), {"over": {"messages": [1.0]}}, "'messages' = 1"),
        (Gossip(rate=1), {"over": {"rate": [0.1]}}, r"Write a number as a float \(1.0, not 1\)"),
        (jdfl.CEPS(s=3), {"over": {"own_coded": [1.0]}}, "'own_coded' = False"),
        (jdfl.CEPS(s=3), {"over": {"codec": [1.0]}}, "'codec'"),
        (jdfl.CEPS(s=3), {"over": {"s": [1.0]}}, "'s' = 3"),
        (EXACT, {"over": {"gradients.mechanism.multiplier": [1.0]}}, "exact noise change the compiled program"),
        (Gossip(), {"over": {"rate": [0.1, -1.0]}}, "rate = -1.0"),  # every point is checked
        (Gossip(), {"over": {"rate": []}}, "at least one seed and one value"),
        (Gossip(), {"keys": []}, "at least one seed and one value"),
        (Gossip(), {"keys": [0, -1]}, "key = -1"),
        (Gossip(), {"batch": 0}, "batch = 0"),
        (Gossip(), {"steps": 0}, "steps = 0"),
        (Gossip(), {"steps": 2**30}, r"2\^31 messages"),
    ],
)
def test_settings_that_make_no_sense_are_refused(algorithm, options, words):
    with pytest.raises(ValueError, match=words):
        jdfl.sweep(algorithm, problem, network, **{"over": {}, "keys": [0], "steps": 4, **options})


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="on accelerators all runs go side by side")
@pytest.mark.parametrize(
    ("algorithm", "width"),
    [
        (jdfl.DPSGD(lr=0.1), 3),
        (jdfl.DPSGD(lr=0.1, codec=jdfl.Sparse(share=1.0)), 1),
        (jdfl.CEPS(s=3), 1),
        (jdfl.DOADP(lr=0.1, codec=jdfl.Dense()), 3),
        (jdfl.DOADP(lr=0.1, codec=jdfl.Dense(), block=2), 1),
    ],
    ids=["d-psgd", "rows that are coded one by one", "ceps", "do-adp", "do-adp, two nodes at a time"],
)
def test_runs_whose_loops_would_wait_for_one_another_go_one_at_a_time(monkeypatch, algorithm, width):
    def noted(*arguments):
        raise InterruptedError(arguments[-1])

    monkeypatch.setattr(trials.loop, "lanes", noted)
    with pytest.raises(InterruptedError) as seen:
        jdfl.repeat(algorithm, problem, network, keys=[0, 1, 2], steps=2)
    assert seen.value.args == (width,)
