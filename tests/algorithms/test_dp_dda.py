"""DP-DDA against its loop over nodes, and what activity at random means for counts, privacy and work."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import gradients as oracle
from jdfl.algorithms.activation import ACTIVE, active
from jdfl.algorithms.dp_dda import DPDDA, amplified_epsilon
from jdfl.algorithms.moment import Moment
from jdfl.base import streams
from jdfl.engine.start import check_settings
from jdfl.privacy import GaussianEvent, Sampled, epsilon
from tests.algorithms.play import ROUNDS, M, N, course, direct, example, gradient_of, matrices, network, round_of
from tests.reference import dual_averaging as reference

KEY, P, SENSITIVITY = jax.random.key(11), 0.4, 0.3
EXACT = jdfl.Dense("float64")
ASSUMED = jdfl.Gradients(mechanism=jdfl.Gaussian(0.5), sensitivity=SENSITIVITY)
PRIVATE = jdfl.Gradients(clip=2.0, mechanism=jdfl.Gaussian(0.5))
modes = pytest.mark.parametrize("mu", [None, 0.2], ids=["convex", "strongly convex"])
orders = pytest.mark.parametrize("order", ["combine-then-adapt", "adapt-then-combine"])


NODE = jnp.arange(M, dtype=jnp.int32)


def in_every_round(function) -> np.ndarray:
    """A function of what `course` tells an algorithm about its rounds [rounds, ...]."""
    graph = jdfl.network.ring(M).graph

    def one(k):
        return function(round_of(KEY, k, graph, NODE))

    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(ROUNDS, dtype=jnp.int32)))


@cache
def activity() -> np.ndarray:
    """Who is active [rounds, m]."""
    return in_every_round(lambda now: active(P, ACTIVE.of(streams.Keys.of(KEY).at_start().choice), direct(now, None)))


def noise() -> np.ndarray:
    """What every gradient would be given [rounds, m, n]."""

    def one(now):
        return jax.vmap(ASSUMED.mechanism.add, (0, None, None))(now.keys(oracle.NOISE), jnp.zeros((N,)), SENSITIVITY)

    return in_every_round(one)


@cache
def links():
    """A network whose links come and go, and its W of every round."""
    with jax.enable_x64(True):
        net = jdfl.network.random_links(network(), 0.6)
        return net, matrices(net, KEY)


@cache
def play(mu, order):
    """The problem, W of every round, parameters, states and counts of a run on links that come and go, in float64."""
    with jax.enable_x64(True):
        problem, (net, W) = example().replace(start=jnp.linspace(-1.0, 1.0, N)), links()
        algorithm = DPDDA(lr=0.05, p=P, mu=mu, gradients=ASSUMED, codec=EXACT, order=order)
        params, first, states, infos = course(algorithm, problem, net, KEY)
        return problem, W, *jax.tree.map(np.asarray, (params, first, states, infos))


@pytest.mark.rotated(2)
@modes
@orders
def test_the_rounds_agree_with_the_loop(mu, order):
    problem, W, params, first, states, _ = play(mu, order)
    with jax.enable_x64(True):
        draws, on = noise(), activity()
    z, x = reference.dp_dda(
        gradient_of(problem), W, first.x, on, draws, lr=0.05, p=P, mu=mu, adapt_first=order == "adapt-then-combine"
    )
    assert 0 < on.sum() < on.size
    np.testing.assert_allclose(states.z, z, rtol=0, atol=1e-9)
    np.testing.assert_allclose(params, x, rtol=0, atol=1e-9)
    assert np.abs(draws).max() > 0.1
    assert np.abs(x[-1] - first.x).max() > 0.1


@modes
def test_on_a_complete_network_it_is_centralised_dual_averaging(mu):
    with jax.enable_x64(True):
        problem, net = example(), jdfl.network.complete(M)
        algorithm = DPDDA(lr=0.05, p=1.0, mu=mu, gradients=jdfl.Gradients(), codec=EXACT, order="adapt-then-combine")
        params, _, _, infos = course(algorithm, problem, net, KEY)
        apart = course(replace(algorithm, order="combine-then-adapt"), problem, net, KEY)[0]
    one = gradient_of(problem)
    x = reference.centralised(lambda w: np.mean([one(i, w) for i in range(M)], axis=0), np.zeros(N), ROUNDS, 0.05, mu)
    everywhere = np.broadcast_to(x[:, None], (ROUNDS, M, N))
    np.testing.assert_allclose(params, everywhere, rtol=0, atol=1e-6)  # W is of float32 numbers 1 / m
    assert np.abs(apart - params).max() > 1e-3
    assert np.asarray(infos.grads).all()
    assert not np.asarray(infos.releases).any()


@orders
def test_the_average_dual_is_what_active_nodes_added_and_inactive_ones_give_themselves_away(order):
    _, W, _, first, states, infos = play(None, order)
    on, z = activity(), states.z
    np.testing.assert_array_equal(infos.grads, on)
    before = np.concatenate([first.z[None], z[:-1]])
    added = z - W @ before
    if order == "combine-then-adapt":
        assert np.abs(added[~on]).max() < 1e-12
        assert np.abs(added[on]).max(axis=-1).min() > 0.01
    change, idle = z.mean(axis=1) - before.mean(axis=1), ~on.any(axis=1)
    rounding = 2.0**-22 * np.abs(before).max()  # columns of W, of float32 numbers, sum to one within it
    np.testing.assert_allclose(change, added.mean(axis=1), rtol=0, atol=rounding)
    assert np.abs(change[idle]).max(initial=0) < rounding
    assert np.abs(change[~idle]).max(axis=1).min() > 1e-3


def test_nodes_are_active_as_often_as_p_says_and_each_on_its_own():
    nodes, count = 50, 400
    ids, keys = jnp.arange(nodes, dtype=jnp.int32), jax.random.split(jax.random.key(3), count)
    graph = jdfl.network.ring(M).graph

    def of(p, node=ids):
        def one(key):
            return active(p, key, direct(Moment(jnp.int32(0), key, graph, node), None))

        return np.asarray(jax.vmap(one)(keys))

    on = of(0.3)
    assert on.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / on.size))
    assert abs(np.var(on.sum(axis=1)) / (0.21 * nodes) - 1) < 4 * np.sqrt(2 / count)  # no node follows another
    assert abs(np.var(on.sum(axis=0)) / (0.21 * count) - 1) < 4 * np.sqrt(2 / nodes)  # no round follows another
    np.testing.assert_array_equal(of(0.3, ids[::-1]), on[:, ::-1])
    assert of(1.0).all()
    assert (of(0.6) >= on).all()


def test_active_nodes_alone_are_counted_and_all_send():
    problem, net = example(np.float32), network()
    algorithm = DPDDA(p=P, gradients=replace(PRIVATE, batch=3))
    _, _, _, infos = course(algorithm, problem, net, KEY)
    on = activity()
    np.testing.assert_array_equal(infos.grads, on)
    np.testing.assert_array_equal(infos.releases, on)
    degree = np.asarray(net.graph.out_degree)
    np.testing.assert_array_equal(infos.sent["model"], np.broadcast_to(degree, on.shape))
    assert np.asarray(infos.communications).all()


def logistic():
    A = np.asarray(example(np.float32).data[0])
    labels = (A[..., 0] + A[..., 1] > 0).astype(np.float32)
    return jdfl.problems.logistic_regression(list(zip(A, labels)), penalty=0.01)


@pytest.mark.parametrize(
    ("name", "gradients", "block"),
    [
        ("least squares", PRIVATE, 1),
        ("least squares", PRIVATE, 3),
        ("logistic", PRIVATE, 50),
        ("least squares", replace(PRIVATE, batch=3), 3),
    ],
    ids=["one at a time", "three at a time", "logistic, all together", "samples, three at a time"],
)
def test_blocks_of_active_nodes_change_nothing(name, gradients, block):
    problem = example(np.float32) if name == "least squares" else logistic()
    plain = DPDDA(lr=0.05, p=P, gradients=gradients)
    whole, parts = (course(method, problem, network(), KEY)[0] for method in (plain, replace(plain, block=block)))
    np.testing.assert_allclose(parts, whole, rtol=0, atol=3e-6)  # compiled apart, they round apart
    assert (plain.uneven, replace(plain, block=block).uneven) == (False, True)


@modes
def test_what_activity_adds_fades_as_steps_get_shorter(mu):
    """Where half of the losses are seen: squared distances fall as 1 / sqrt(t), or 1 / t by strong convexity."""
    draw = np.random.default_rng(0)
    A = draw.standard_normal((M, 30, 3))
    b = A @ np.ones(3) + draw.standard_normal((M, 30)) + np.arange(M)[:, None] * A[..., 0]
    best = np.linalg.solve(np.einsum("iqn,iqp->np", A, A), np.einsum("iqn,iq->n", A, b))
    problem = jdfl.problems.linear_regression(A, b).replace(start=jnp.asarray(best, jnp.float32))
    algorithm, times = DPDDA(lr=0.3, p=0.5, mu=mu, gradients=jdfl.Gradients()), [250, 2000]
    run = jax.vmap(lambda key: course(algorithm, problem, jdfl.network.complete(M), key, times[-1])[0])
    params = np.asarray(run(jax.random.split(KEY, 150)))
    away = [np.mean(np.sum((params[:, t - 1].mean(axis=1) - best) ** 2, axis=-1)) for t in times]
    slope = np.log(away[1] / away[0]) / np.log(times[1] / times[0])
    assert slope == pytest.approx(-0.5 if mu is None else -1.0, abs=0.2)


def test_one_example_moves_a_message_by_the_sensitivity_over_p_at_most():
    problem, net = example(np.float32), network()
    A, b = problem.data
    wild = problem.replace(data=(A.at[2, 3].multiply(1e4), b.at[2, 3].multiply(-1e4)))
    on = activity()
    t = int(np.flatnonzero(on[:, 2])[0])  # before, nobody can tell the two apart
    algorithm = DPDDA(lr=0.05, p=P, gradients=PRIVATE)
    here, there = (np.asarray(course(algorithm, world, net, KEY)[2].z) for world in (problem, wild))
    np.testing.assert_array_equal(here[:t], there[:t])
    moved = np.linalg.norm(here[t] - there[t], axis=1)
    bound = float(PRIVATE.sensitivities(problem)[2]) / P
    assert 0.1 * bound < moved[2] <= bound * (1 + 1e-4)
    assert not np.delete(moved, 2).any()


def test_the_report_counts_active_rounds_and_claims_no_amplification():
    problem, steps = example(np.float32), 40
    algorithm = DPDDA(p=P, gradients=replace(PRIVATE, batch=1, mechanism=jdfl.Gaussian(4.0)))
    told = algorithm.privacy(problem)
    assert told == algorithm.gradients.guarantee(problem)
    assert told.claimed
    result = jdfl.run(algorithm, problem, network(), key=0, steps=steps)
    assert 0 < result.totals.releases < M * steps
    assert result.totals.releases == result.totals.gradients
    records = int(np.min(np.asarray(problem.sizes)))
    public = epsilon(GaussianEvent(4.0), round(P * steps), 1e-5, sampled=Sampled("subset", 1, records))
    hidden = amplified_epsilon(algorithm, problem, steps, 1e-5)
    assert 0 < hidden < public
    rate = Sampled("poisson", round(1e6 * P / records), 10**6)
    assert hidden == pytest.approx(epsilon(GaussianEvent(4.0), steps, 1e-5, sampled=rate), rel=1e-3)


def test_what_could_be_hidden_is_nothing_where_all_nodes_are_active_with_all_examples():
    problem = example(np.float32)
    algorithm = DPDDA(p=1.0, gradients=PRIVATE)
    assert amplified_epsilon(algorithm, problem, 10, 1e-3) == pytest.approx(epsilon(GaussianEvent(0.5), 10, 1e-3))
    for gradients in (jdfl.Gradients(), ASSUMED, replace(PRIVATE, per="batch")):
        with pytest.raises(ValueError, match="Expected clipped and noisy gradients of records"):
            amplified_epsilon(replace(algorithm, gradients=gradients), problem, 10, 1e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": 0.0}, "lr = 0.0"),
        ({"p": 0.0}, "p = 0.0.*Probability"),
        ({"p": 1.5}, "p = 1.5"),
        ({"p": np.full(M, 0.5)}, "Expected p of shape"),
        ({"mu": 0.0}, "mu = 0.0.*None: the convex case"),
        ({"block": 0}, "block = 0"),
        ({"order": "late"}, "order = 'late'"),
        ({"codec": jdfl.OneBit(d=9, side=True)}, "codec"),
    ],
    ids=["lr", "never", "p", "vector", "mu", "block", "order", "codec"],
)
def test_settings_out_of_range_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        check_settings(DPDDA(**options), example(np.float32), network())


def test_networks_and_probabilities_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match=r"doubly stochastic weights for DP-DDA,.*Use "):
        check_settings(DPDDA(), example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2, weights="uniform"))
    for p in (float("nan"), -0.1, "often"):
        with pytest.raises(ValueError, match=r"p = .*Probability"):
            check_settings(DPDDA(p=p), example(np.float32), network())
    check_settings(DPDDA(p=1.0), example(np.float32), network())
