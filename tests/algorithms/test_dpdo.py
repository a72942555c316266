"""DPDO and CPGT: their loops, what they are without noise, and epsilons of so many rounds, or of any number."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import cpgt, dpdo
from jdfl.algorithms.cpgt import CPGT, calibrated
from jdfl.algorithms.dpdo import DPDO, Plan
from jdfl.algorithms.program import Program, planned
from jdfl.algorithms.round import RoundContext
from tests.algorithms.play import ROUNDS, M, N, course, example, gradient_of, matrices, network, round_of
from tests.algorithms.pushing import KEY, follow
from tests.algorithms.test_compressed import SPARSE, WIRE, top_in_float32
from tests.reference import laplace_rivals as reference
from tests.refused import refused

CLIP = 1.5
CLIPPED = jdfl.Gradients(clip=CLIP, per="batch")
FADES = {"c": 0.1, "q": 0.9, "p": 0.95}
NOISY = DPDO(epsilon=30.0, gradients=CLIPPED, **FADES)


def laplace(stream, rounds=ROUNDS):
    """What Laplace's mechanism adds in every round of a run, in units of its scale [rounds, m, n]."""

    def one(k):
        keys = round_of(jax.random.key(KEY), k, network().graph, jnp.arange(M)).keys(stream)
        zero = jnp.zeros((M, N), jnp.float64)
        return jax.vmap(jdfl.Laplace(1.0).add, (0, 0, None))(keys, zero, 1.0)

    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(rounds)))


def changing():
    """Links fail in every round, and what is left stays symmetric."""
    return jdfl.network.random_links(network(), 0.5)


@pytest.mark.parametrize(
    ("net", "fields"), [(network, {"radius": 0.8}), (changing, {})], ids=["in a ball", "links that fail"]
)
def test_dpdo_agrees_with_its_loop(net, fields):
    with jax.enable_x64(True):
        problem, net = example(), net()
        algorithm = NOISY.replace(codec=WIRE, **fields)
        _, (params, _, states, _) = follow(algorithm, problem, net)
        W = matrices(net, jax.random.key(KEY))
        noise, told = laplace(dpdo._NOISE), {"radius": algorithm.radius, "epsilon": 30.0}
        expected = reference.dpdo(gradient_of(problem), W, N, noise, clip=CLIP, **told, **FADES)
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=1e-9)
        lengths = np.linalg.norm(expected, axis=2)
        assert np.any(np.isclose(lengths, 0.8, atol=1e-12)) == (algorithm.radius is not None)
        first = 2 * CLIP * math.sqrt(N) * FADES["c"] / (30.0 * (FADES["p"] - FADES["q"]))
        sent = expected[:-1] + first * (FADES["p"] ** np.arange(1, ROUNDS))[:, None, None] * noise[1:]
        np.testing.assert_allclose(np.asarray(states.sent)[1:], sent, rtol=0, atol=1e-9)  # what is shown


def test_without_noise_and_fading_it_is_d_psgd_at_the_mixed_point():
    with jax.enable_x64(True):
        problem, net = example(), network()
        _, (params, *_) = follow(DPDO(c=0.07, q=1.0, codec=WIRE), problem, net)
        there, *_ = course(jdfl.DPSGD(lr=0.07, order="adapt-then-combine", codec=WIRE), problem, net)
        W = matrices(net, jax.random.key(KEY), 1)[0]
        np.testing.assert_allclose(np.einsum("ij,kjn->kin", W, params), there, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "fields"),
    [
        (np.float64, {"q": 0.5, "p": 0.99999, "epsilon": 3.0, "radius": 2.0}),
        (np.float32, {"q": 0.9999, "p": 0.99999, "epsilon": 1e-3, "gradients": CLIPPED.replace(norm="l1")}),
    ],
    ids=["noise hardly fades", "both hardly fade"],
)
def test_any_number_of_rounds_adds_up_to_epsilon_and_never_to_more(dtype, fields):
    with jax.enable_x64(dtype == np.float64):
        problem, rounds = example(dtype), 100_000
        algorithm = DPDO(**{"c": 0.3, "gradients": CLIPPED} | fields)
        told = planned(algorithm, problem, network(), rounds).privacy(problem)
        assert told.claimed
        spent = math.fsum(1 / z for z in told.event.multipliers)
        left = (algorithm.q / algorithm.p) ** (rounds - 1)  # of epsilon, for the rounds to come
        assert spent <= algorithm.epsilon
        assert spent == pytest.approx((1 - left) * algorithm.epsilon, rel=1e-6)
        few = planned(algorithm, problem, network(), 100).privacy(problem)
        assert few.event.multipliers == told.event.multipliers[:100]


@partial(jax.jit, static_argnames=("radius",))
def first_steps(problem, radius):
    """Two rounds of everything but noise: what is sent in the second [m, n]."""
    net = network()
    algorithm = DPDO(c=0.4, q=0.5, radius=radius, gradients=CLIPPED)
    context = RoundContext(jnp.int32(0), jax.random.key(0), net.graph, jnp.arange(M, dtype=jnp.int32))
    program = Program(algorithm, Plan(jnp.asarray([0.4, 0.2]), None)).prepare(problem, context)
    state, _ = program.init(problem, context)
    state, _ = program.step(state, problem, context)
    return program.step(state, problem, context.replace(k=jnp.int32(1)))[0].sent


@pytest.mark.parametrize("radius", [None, 0.3], ids=["anywhere", "ball"])
def test_other_data_change_a_message_by_the_reported_sensitivity_at_most_and_attain_it(radius):
    problem = example(np.float32)
    A, b = problem.data
    even = jnp.ones_like(A[1]) / math.sqrt(N)  # longest in l1 for its l2 length
    one, two = (
        problem.replace(data=(A.at[1].set(even), b.at[1].set(far)), start=jnp.zeros(N, A.dtype)) for far in (1e3, -1e3)
    )
    algorithm = NOISY.replace(c=0.4, q=0.5, radius=radius)
    told = planned(algorithm, problem, network(), 3).privacy(problem)
    change = np.abs(np.asarray(first_steps(one, radius) - first_steps(two, radius), float)).sum(axis=1)
    assert not np.delete(change, 1).any()
    assert change[1] <= told.sensitivity * (1 + 1e-5)
    if radius is None:
        assert change[1] == pytest.approx(told.sensitivity, rel=1e-5)
    else:  # the ball is narrower than the step
        assert change[1] == pytest.approx(2 * radius * math.sqrt(N), rel=1e-5)


def test_nothing_is_claimed_without_noise_or_a_schedule():
    problem = example(np.float32)
    assert planned(DPDO(), problem, network(), 5).privacy(problem).reason == "no noise is added"
    told = NOISY.privacy(problem)
    assert not told.claimed
    assert "schedule" in told.reason
    with refused("float32", "epsilon"):
        NOISY.replace(epsilon=1e-39).plan(problem, network(), 3)


RATES = {"lr": 0.03, "gamma": 0.3, "decay": 0.97}
NOISY_CPGT = CPGT(noise_x=0.02, noise_y=0.1, gradients=CLIPPED, **RATES)


def weights(net):
    """W [m, m] with rows that sum to one in float64: what the method makes of the float32 diagonal's rounding."""
    W = matrices(net, jax.random.key(KEY), 1)[0]
    return W + np.diag(1 - W.sum(axis=1))


def test_cpgt_agrees_with_its_loop():
    with jax.enable_x64(True):
        problem, net, g = example(), network(), gradient_of(example())
        program, (params, start, states, _) = follow(NOISY_CPGT.replace(codec=SPARSE), problem, net)
        drawn, noise = (laplace(cpgt._NOISE_X), laplace(cpgt._NOISE_Y)), (0.02, 0.1)
        told = reference.cpgt(g, weights(net), N, drawn, top_in_float32, noise=noise, clip=CLIP, **RATES)
        assert np.abs(told[0]).max() > 0.1
        for found, expected in zip((params, states.y, states.g), told):
            np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(start.y, start.g)
        seen = np.asarray(program.visible(jax.tree.map(lambda leaf: leaf[-1], states)))
        np.testing.assert_array_equal(seen, np.hstack([states.x_hat[-1], states.y_hat[-1]]))


@pytest.mark.parametrize("decay", [1.0, 0.999], ids=["constant", "fading"])
def test_calibrated_noise_spends_epsilon_in_its_rounds_half_on_either_message(decay):
    problem, steps, total = example(np.float32), 2000, 0.7
    algorithm = calibrated(NOISY_CPGT.replace(decay=decay), problem, steps, total)
    told = planned(algorithm, problem, network(), steps).privacy(problem)
    spent = math.fsum(1 / z for z in told.event.multipliers)
    assert spent <= total
    assert spent == pytest.approx(total, rel=1e-6)
    k, fades = np.arange(steps), decay ** np.arange(steps)
    longest = 2 * CLIP * math.sqrt(N)
    by_hand = longest * (algorithm.lr * k / (algorithm.noise_x * fades) + 1 / (algorithm.noise_y * fades))
    np.testing.assert_allclose(1 / np.asarray(told.event.multipliers), by_hand, rtol=1e-6)
    assert (longest / (algorithm.noise_y * fades)).sum() == pytest.approx(total / 2, rel=1e-6)
    assert told.sensitivity == pytest.approx(max(longest, longest * algorithm.lr * (steps - 1)), rel=1e-6)
    more = planned(algorithm, problem, network(), steps + 50).privacy(problem)
    assert more.event.multipliers[:steps] == told.event.multipliers


def test_worlds_that_show_the_same_are_apart_by_the_reported_changes_at_most_and_attain_them():
    steps = 6
    net = jdfl.network.from_edges([], M, connected=False)  # nobody hears anybody, so all that others show is the same
    with jax.enable_x64(True):
        problem = example()
        A, b = problem.data
        even = jnp.ones_like(A[1]) / math.sqrt(N)
        worlds = [problem.replace(data=(A.at[1].set(even), b.at[1].set(far))) for far in (1e3, -1e3)]
        algorithm = NOISY_CPGT.replace(noise_x=None, noise_y=None, codec=WIRE)
        one, two = (course(algorithm, world, net, rounds=steps) for world in worlds)
        x, y = (np.abs(np.asarray(a) - np.asarray(b)).sum(axis=2) for a, b in ((one[0], two[0]), (one[2].y, two[2].y)))
        longest = 2 * CLIP * math.sqrt(N)
        np.testing.assert_allclose(x[:, 1], longest * algorithm.lr * np.arange(1, steps + 1), rtol=1e-9)
        np.testing.assert_allclose(y[:, 1], longest, rtol=1e-9)
        assert not np.delete(x, 1, axis=1).any()


def test_cpgt_claims_nothing_without_noise_clip_or_schedule():
    problem, net = example(np.float32), network()
    assert planned(CPGT(), problem, net, 5).privacy(problem).reason == "no noise is added"
    assert "schedule" in NOISY_CPGT.privacy(problem).reason
    bare = NOISY_CPGT.replace(gradients=jdfl.Gradients())
    told = planned(bare, problem, net, 5).privacy(problem)
    assert not told.claimed
    assert "not clipped" in told.reason
    with refused(clip=None):
        calibrated(bare, problem, 5, 1.0)


def test_noise_that_fades_to_nothing_is_refused():
    problem, net = example(np.float32), network()
    with refused("float32", "round 792", decay=0.9):
        NOISY_CPGT.replace(decay=0.9).plan(problem, net, 900)
    told = planned(NOISY_CPGT.replace(decay=0.9), problem, net, 792).privacy(problem)
    assert "noise is below the rounding of float32" in told.warnings[0]
    with refused("float32", decay=0.9):
        calibrated(NOISY_CPGT.replace(decay=0.9), problem, 900, 3.0)
