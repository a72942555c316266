"""CEPS with clipped gradients: the same loop, bounded by its clip, and what it may say."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.program import Program
from jdfl.base import streams
from jdfl.engine import loop, stepping
from tests.algorithms.play import M, N, example, network

CLIP = 2.0
NOISE = jdfl.Gaussian(0.8)
PRIVATE = jdfl.CEPS(s=N, rate=1.0, periods=(2, 3), clip=CLIP, sigma=5.0, mechanism=NOISE)


def clipped_gradients(problem, w, clip):
    """By hand, in float64: means of shortened gradients of single examples [m, n]."""
    A, b = (np.asarray(leaf, np.float64) for leaf in problem.data)
    weight = np.asarray(problem.weight, np.float64)
    each = (np.einsum("iqn,in->iq", A, w) - b)[..., None] * A
    factor = np.minimum(1, clip / np.maximum(np.linalg.norm(each, axis=2), 1e-30))
    return np.einsum("iq,iqn->in", weight * factor, each) / weight.sum(axis=1, keepdims=True)


@partial(jax.jit, static_argnames=("steps",))
def states(algorithm, problem, key, steps: int):
    net = network()
    setting, carry, _ = loop._start(stepping.setting(Program(algorithm), problem, net, None, streams.Keys.of(key)), ())

    def one(state, k):
        round = stepping.drawn(setting, k)
        state, _ = setting.algorithm.step(state, problem, round)
        return state, state

    _, later = jax.lax.scan(one, carry.state, jnp.arange(steps, dtype=jnp.int32))
    return carry.state, later, setting.algorithm.ready.period


def test_clipped_ceps_follows_the_papers_equations_with_clipped_gradients():
    """(3) and (4) with every example's gradient shortened, in float64, without noise."""
    with jax.enable_x64(True):
        problem = example()
        algorithm = PRIVATE.replace(mechanism=None, s=3, codec=jdfl.Dense("float64"))
        first, later, period = states(algorithm, problem, jax.random.key(1), 20)
        graph = network().graph
        senders, mask = np.asarray(graph.senders), np.asarray(graph.mask)
        degree = mask.sum(axis=1)
        w, u = np.zeros((M, N)), -clipped_gradients(problem, np.zeros((M, N)), CLIP)
        np.testing.assert_allclose(first.u, u, rtol=0, atol=1e-9)
        for k in range(20):
            new = w.copy()
            for i in range(M):
                if k and k % int(period[i]) == 0:
                    bar = w[senders[i][mask[i]]].mean(axis=0)
                    at_bar = clipped_gradients(problem, np.tile(bar, (M, 1)), CLIP)[i]
                    u[i] = 5.0 * degree[i] * bar - at_bar
                    new[i] = u[i] / (5.0 * degree[i])
                else:
                    new[i] = (u[i] + 0.1 * w[i]) / (5.0 * degree[i] + 0.1)
                new[i][np.argsort(-np.abs(new[i]), kind="stable")[3:]] = 0
            w = new
            np.testing.assert_allclose(later.w[k], w, rtol=0, atol=1e-9)


def test_steps_are_stretched_also_where_sigma_is_given_and_once_only():
    problem = example(np.float32)
    key, scaled = jax.random.key(1), PRIVATE.replace(mechanism=None, step_scale=2.0)
    by_hand = scaled.replace(sigma=2.5, step_scale=1.0)
    one, other = (states(algorithm, problem, key, 6)[1].w for algorithm in (scaled, by_hand))
    np.testing.assert_array_equal(one, other)
    result = jdfl.run(scaled, problem, network(), key=0, steps=6)
    again = jdfl.run(result.algorithm, problem, network(), key=0, steps=6)
    np.testing.assert_array_equal(result.params, again.params)


def test_lengths_of_other_data_are_never_used():
    """An algorithm that was prepared on one problem is prepared anew on another."""
    moment = Moment(jnp.int32(0), jax.random.key(0), network().graph, jnp.arange(M, dtype=jnp.int32))
    small = Program(PRIVATE).prepare(example(np.float32), moment)
    A, b = example(np.float32).data
    large = small.prepare(example(np.float32).replace(data=(100 * A, b)), moment)
    found, before = large.prepared.gradients.lengths, small.prepared.gradients.lengths
    np.testing.assert_allclose(found, 100 * before, rtol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e25])
def test_one_record_changes_the_first_u_by_the_sensitivity_at_most(scale):
    problem = example(np.float32)
    A, b = problem.data
    other = problem.replace(data=(A.at[3, 1].multiply(-scale), b.at[3, 1].multiply(scale)))
    quiet = PRIVATE.replace(mechanism=None)
    one, two = (np.asarray(states(quiet, world, jax.random.key(0), 1)[0].u) for world in (problem, other))
    change = np.linalg.norm(one - two, axis=1)
    assert change[3] <= 2 * CLIP / int(problem.sizes[3]) * (1 + 1e-4)
    assert not np.delete(change, 3).any()


def test_noise_is_in_every_u_and_of_every_nodes_own_size():
    problem = example(np.float32)
    keys = jax.random.split(jax.random.key(0), 400)
    noisy, quiet = (
        np.asarray(jax.vmap(lambda key: states(one, problem, key, 1)[0].u)(keys))  # noqa: B023
        for one in (PRIVATE, PRIVATE.replace(mechanism=None))
    )
    expected = 0.8 * 2 * CLIP / np.asarray(problem.sizes)
    np.testing.assert_allclose((noisy - quiet).std(axis=(0, 2)), expected, rtol=5 / np.sqrt(2 * 400 * N))


def test_what_is_claimed_and_what_is_not():
    problem = example(np.float32)
    claimed = PRIVATE.privacy(problem)
    assert claimed.claimed
    assert claimed.sensitivity == pytest.approx(2 * CLIP / int(problem.sizes.min()))
    assert not claimed.warnings
    assert PRIVATE.replace(adjacency="add-remove").privacy(problem).sensitivity == pytest.approx(
        claimed.sensitivity / 2
    )
    own = PRIVATE.replace(sigma=None)
    assert not own.privacy(problem).claimed
    assert "sigma_i" in own.privacy(problem).reason
    assert own.privacy(problem.declared("curvature")).claimed

    literal = PRIVATE.replace(noise="literal").privacy(problem)
    assert not literal.claimed
    assert "first message" in literal.reason
    assert 'noise="kept"' in literal.remedy
    assumed = PRIVATE.replace(clip=None, sensitivity=0.1).privacy(problem)
    assert not assumed.claimed
    assert "not clipped" in assumed.reason
    assert assumed.enforced_by is None
    assert PRIVATE.replace(mechanism=None).privacy(problem) == jdfl.privacy.NO_NOISE


def test_the_papers_preset_claims_nothing_and_says_what_its_noise_would_buy():
    problem = example(np.float32, rows=(400, 500))
    preset = jdfl.CEPS.paper(s=3, epsilon=2.0)
    guarantee = preset.privacy(problem)
    assert (guarantee.claimed, guarantee.sensitivity) == (False, 0.1)
    with pytest.raises(ValueError, match="not clipped"):
        jdfl.privacy.report(guarantee, np.full(M, 3), np.asarray(problem.sizes))
    told = jdfl.privacy.report(guarantee, np.full(M, 3), np.asarray(problem.sizes), delta=1e-5, accounting="paper")
    assert not told.sound
    assert told.published["epsilon"] == pytest.approx(2.0, rel=1e-6)
    assert told.published["delta"] == 0.5
    assert told.epsilon == pytest.approx(13.6, abs=0.05)
    assert "NO GUARANTEE" in told.statement()
