"""DPDO: against its loop, what it is without noise, and an epsilon that no number of rounds exceeds."""

import math
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import dpdo
from jdfl.algorithms.dpdo import DPDO, Plan
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.program import Program, planned
from jdfl.engine.start import check_settings
from tests.algorithms.play import ROUNDS, M, N, course, example, gradient_of, matrices, network, round_of
from tests.algorithms.pushing import KEY, follow
from tests.reference import laplace_rivals as reference

WIRE = jdfl.Dense("float64")
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


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("net", "fields"),
    [
        (network, {"epsilon": 30.0, "radius": 0.8, "gradients": CLIPPED}),
        (changing, {"epsilon": 30.0, "gradients": CLIPPED}),
        (network, {}),
    ],
    ids=["noisy, in a ball", "noisy, links that fail", "exact"],
)
def test_it_agrees_with_its_loop(net, fields):
    with jax.enable_x64(True):
        problem, net = example(), net()
        algorithm = DPDO(codec=WIRE, **FADES, **fields)
        _, (params, _, states, _) = follow(algorithm, problem, net)
        W = matrices(net, jax.random.key(KEY))
        noise = None if algorithm.epsilon is None else laplace(dpdo._NOISE)
        clip, told = algorithm.gradients.clip, {"radius": algorithm.radius, "epsilon": algorithm.epsilon}
        expected = reference.dpdo(gradient_of(problem), W, N, noise, clip=clip, **told, **FADES)
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=1e-9)
        lengths = np.linalg.norm(expected, axis=2)
        assert np.any(np.isclose(lengths, 0.8, atol=1e-12)) == (algorithm.radius is not None)
        if noise is not None:  # what was sent is what is shown
            first = 2 * CLIP * math.sqrt(N) * FADES["c"] / (30.0 * (FADES["p"] - FADES["q"]))
            sent = expected[:-1] + first * (FADES["p"] ** np.arange(1, ROUNDS))[:, None, None] * noise[1:]
            np.testing.assert_allclose(np.asarray(states.sent)[1:], sent, rtol=0, atol=1e-9)


def test_without_noise_and_fading_it_is_d_psgd_at_the_mixed_point():
    with jax.enable_x64(True):
        problem, net = example(), network()
        _, (params, *_) = follow(DPDO(c=0.07, q=1.0, codec=WIRE), problem, net)
        there, *_ = course(jdfl.DPSGD(lr=0.07, order="adapt-then-combine", codec=WIRE), problem, net)
        W = matrices(net, jax.random.key(KEY), 1)[0]
        np.testing.assert_allclose(np.einsum("ij,kjn->kin", W, params), there, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize(
    "fields",
    [
        {"q": 0.999, "p": 0.9995, "epsilon": 0.01},
        {"q": 0.5, "p": 0.99999, "epsilon": 3.0, "radius": 2.0},
        {"q": 0.9999, "p": 0.99999, "epsilon": 1e-3, "gradients": CLIPPED.replace(norm="l1")},
    ],
    ids=["both fade", "noise hardly fades", "both hardly fade"],
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


@pytest.mark.slow
def test_the_report_of_a_long_run_takes_seconds():
    problem, net, steps = example(np.float32), network(), 120_000
    algorithm = NOISY.replace(epsilon=1.0, q=0.9999, p=0.99995)
    began = time.perf_counter()
    report = jdfl.account_plan(algorithm, problem, net, steps=steps, delta=1e-5)
    assert time.perf_counter() - began < 20  # about 3 on two cores
    assert report.epsilon_pure == pytest.approx(1.0, rel=1e-2)
    assert report.epsilon <= report.epsilon_pure <= 1.0
    assert (report.unit, report.adjacency, report.observer) == ("node", "replace-one", "all messages")
    assert set(report.releases.values()) >= {steps}


@partial(jax.jit, static_argnames=("radius",))
def first_steps(problem, radius):
    """Two rounds of everything but noise: what is sent in the second [m, n]."""
    net = network()
    algorithm = DPDO(c=0.4, q=0.5, radius=radius, gradients=CLIPPED)
    moment = Moment(jnp.int32(0), jax.random.key(0), net.graph, jnp.arange(M, dtype=jnp.int32))
    program = Program(algorithm, Plan(jnp.asarray([0.4, 0.2]), None)).prepare(problem, moment)
    state, _ = program.init(problem, moment)
    state, _ = program.step(state, problem, moment)
    return program.step(state, problem, moment.replace(k=jnp.int32(1)))[0].sent


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


def test_steps_whose_length_or_noise_the_type_cannot_hold_are_left_out():
    problem, tiny = example(np.float32), np.finfo(np.float32).tiny
    for q, p, epsilon in ((0.5, 0.6, 1e3), (0.05, 0.06, 1e6)):
        made = planned(NOISY.replace(q=q, p=p, epsilon=epsilon), problem, network(), 400)
        lengths, noise = np.asarray(made.plan.lengths), np.asarray(made.plan.noise)
        assert np.all((lengths == 0) | (lengths >= tiny))
        assert not np.any((lengths[:-1] > 0) & (noise[1:] < tiny))
        assert max(made.privacy(problem).event.multipliers) <= 1e30
        left_out = np.flatnonzero(lengths == 0)
        assert 0 < left_out[0] < 400
        assert (NOISY.c * q ** left_out[0] > 2 * tiny) == (epsilon == 1e6)  # where noise is what cannot be held


def test_noise_below_what_numbers_are_rounded_to_is_warned_of():
    problem = example(np.float32)
    told = planned(NOISY.replace(q=0.5, p=0.6), problem, network(), 40).privacy(problem)
    assert len(told.warnings) == 1
    assert "noise is below the rounding of float32" in told.warnings[0]
    assert planned(NOISY, problem, network(), 20).privacy(problem).warnings == ()


def test_nothing_is_claimed_without_noise_or_a_schedule():
    problem = example(np.float32)
    assert planned(DPDO(), problem, network(), 5).privacy(problem).reason == "no noise is added"
    told = NOISY.privacy(problem)
    assert not told.claimed
    assert "schedule" in told.reason
    with pytest.raises(ValueError, match=r"clip for noise .*Gradients\(clip"):
        jdfl.account_plan(NOISY.replace(gradients=jdfl.Gradients()), problem, network(), steps=3)
    with pytest.raises(ValueError, match="Expected an algorithm with noise for a privacy report, got none"):
        jdfl.account_plan(DPDO(), problem, network(), steps=3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"c": 0.0}, r"c > 0 and finite, got c = 0\.0"),
        ({"q": 1.5}, r"q in \(0, 1\], got q = 1\.5"),
        ({"p": 0.0}, r"p in \(0, 1\], got p = 0\.0"),
        ({"p": 1.0}, r"q < p < 1 for noise, got q = 0\.9 and p = 1\.0.*noise must decay"),
        ({"q": 0.95}, r"q < p < 1 for noise, got q = 0\.95 and p = 0\.95"),
        ({"radius": -1.0}, r"radius > 0 and finite, got radius = -1\.0.*None: no projection"),
        ({"epsilon": 0.0}, r"epsilon > 0 and finite, got epsilon = 0\.0.*None: no noise"),
        ({"epsilon": np.ones(2)}, r"epsilon of shape \(\), got \(2,\)"),
        ({"gradients": jdfl.Gradients()}, r"clip for noise with epsilon = 30\.0, got clip = None.*Gradients\(clip"),
        (
            {"gradients": CLIPPED.replace(mechanism=jdfl.Laplace(1.0))},
            r"without noise for DPDO.*mechanism = Laplace.*Give epsilon",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_settings_out_of_range_are_refused_in_words(fields, words):
    with pytest.raises(ValueError, match=words):
        check_settings(NOISY.replace(**fields), example(np.float32), network())


def test_weights_that_are_not_doubly_stochastic_and_noise_out_of_range_are_refused():
    problem = example(np.float32)
    uneven = jdfl.network.from_edges([(i, 0) for i in range(1, M)], M, weights="uniform")
    with pytest.raises(ValueError, match=r"Expected doubly stochastic weights for DPDO"):
        check_settings(DPDO(), problem, uneven)
    with pytest.raises(ValueError, match=r"within the range of float32, got a first scale of .*larger epsilon"):
        NOISY.replace(epsilon=1e-39).plan(problem, network(), 3)
