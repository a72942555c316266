"""DSGT, EXTRA, NIDS and exact diffusion: the loops of their papers, where they end, what they refuse."""

import warnings
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import step_sizes
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.program import Program
from jdfl.base import streams
from jdfl.engine import loop, stepping
from jdfl.engine.start import check_settings
from jdfl.network import as_dense, from_edges, from_matrix, random_links, ring
from tests.algorithms.play import direct
from tests.reference import exact as reference

M, N, Q, ROUNDS = 7, 5, 20, 500
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (0, 2), (0, 3), (0, 5)]  # degrees 4, 2, 3, 3, 2, 3, 1


def _draw() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(7)
    A = draw.standard_normal((M, Q, N))
    w = 1 + draw.standard_normal((M, N))
    return A, np.einsum("iqn,in->iq", A, w) + draw.standard_normal((M, Q))


DATA = _draw()
LARGEST = np.linalg.eigvalsh(np.einsum("iqn,iqp->inp", DATA[0], DATA[0]) / Q)[:, -1]  # L_i [m]
CORRECTED = [jdfl.EXTRA, jdfl.NIDS, jdfl.ExactDiffusion]
names = {jdfl.EXTRA: "EXTRA", jdfl.NIDS: "NIDS", jdfl.ExactDiffusion: "exact diffusion", jdfl.DSGT: "DSGT"}
every = pytest.mark.parametrize("method", [jdfl.DSGT, *CORRECTED], ids=names.get)
corrected = pytest.mark.parametrize("method", CORRECTED, ids=names.get)


def network(**options: Any) -> jdfl.network.Static:
    return from_edges(EDGES, M, name="seven", **options)


def example(dtype: Any = np.float64) -> Any:
    """Least squares that is strongly convex at every node, with a solution of its own at every node."""
    return jdfl.problems.linear_regression(*DATA, dtype=dtype)


def best() -> np.ndarray:
    """Where the average of the gradients is zero [n]."""
    A, b = DATA
    return np.linalg.solve(np.einsum("iqn,iqp->np", A, A), np.einsum("iqn,iq->n", A, b))


def gradient(i, w):
    A, b = DATA
    return A[i].T @ (A[i] @ w - b[i]) / Q


def matrix(graph) -> np.ndarray:
    """W [m, m] in float64, without the rounding of its diagonal."""
    W = np.array(as_dense(graph), np.float64)
    np.fill_diagonal(W, 0)
    return W + np.diag(1 - W.sum(axis=1))


@partial(jax.jit, static_argnames=("rounds", "kind"))
def course(algorithm, problem, network, key, rounds: int, kind: type):
    """The states at the start and after every round, the graphs of the rounds.

    `kind` is the class of the algorithm: jit may take two dataclasses with fields of like values for the same.
    """
    setting, carry, _ = loop._start(
        stepping.setting(Program(algorithm), problem, network, None, streams.Keys.of(key)), ()
    )

    def one(state, k):
        round = stepping.drawn(setting, k)
        state, _ = setting.algorithm.step(state, problem, round)
        return state, (state, round.graph)

    _, (states, graphs) = jax.lax.scan(one, carry.state, jnp.arange(rounds, dtype=jnp.int32))
    return carry.state, states, graphs


def play(algorithm, problem, net, rounds=ROUNDS, key=0):
    return course(
        algorithm, stepping.nameless(problem), stepping.nameless(net), jax.random.key(key), rounds, type(algorithm)
    )


def step_length(share: float = 0.5) -> float:
    """`share` of EXTRA's bound, which is the smallest of the three."""
    return float(share * (1 + np.linalg.eigvalsh(matrix(network().graph))[0]) / LARGEST.max())


@cache
def full(method, share: float = 0.5):
    """The states of one exact run of ROUNDS rounds in float64."""
    with jax.enable_x64(True):
        algorithm = method(lr=step_length(share), codec=jdfl.Dense("float64"))
        _, states, _ = play(algorithm, example(), network())
        return jax.tree.map(np.asarray, states)


@every
def test_the_first_rounds_agree_with_the_loop_of_the_paper(method):
    W = matrix(network().graph)
    found, lr, start, rounds = full(method), step_length(), np.zeros((M, N)), 100
    if method is jdfl.DSGT:
        x, y = reference.dsgt(gradient, lambda k: W, start, lr, rounds)
        np.testing.assert_allclose(found.y[:rounds], y, rtol=0, atol=1e-9)
    else:
        paper = {jdfl.EXTRA: reference.extra, jdfl.NIDS: reference.nids}.get(method, reference.exact_diffusion)
        x = paper(gradient, W, start, lr, rounds)
    np.testing.assert_allclose(found.x[:rounds], x, rtol=0, atol=1e-9)


def test_gradient_tracking_agrees_with_its_loop_on_links_that_come_and_go():
    with jax.enable_x64(True):
        algorithm = jdfl.DSGT(lr=0.02, codec=jdfl.Dense("float64"))
        _, states, graphs = play(algorithm, example(), random_links(network(), 0.6), rounds=100)
        W = [matrix(jax.tree.map(lambda leaf: leaf[k], graphs)) for k in range(100)]  # noqa: B023
    assert len({round(np.abs(w).sum() + w[0, 1], 9) for w in W}) > 1
    x, y = reference.dsgt(gradient, W.__getitem__, np.zeros((M, N)), 0.02, 100)
    np.testing.assert_allclose(states.x, x, rtol=0, atol=1e-9)
    np.testing.assert_allclose(states.y, y, rtol=0, atol=1e-9)


def distances(states) -> np.ndarray:
    return np.abs(np.asarray(states.x, np.float64) - best()).max(axis=(1, 2)) / np.linalg.norm(best())


@every
def test_the_solution_is_reached_at_a_linear_rate(method):
    away = distances(full(method))
    assert away[-1] < 1e-8
    way = np.flatnonzero((away < 1e-2) & (away > 1e-9))
    assert way.size > 15
    slope, _ = np.polyfit(way, np.log(away[way]), 1)
    assert -1 < slope < 0
    assert np.corrcoef(way, np.log(away[way]))[0, 1] < -0.99


def test_d_psgd_stops_short_of_it_at_the_same_step():
    away = distances(full(jdfl.DPSGD))
    assert away[-1] > 1e-2
    assert abs(away[-1] - away[-50]) < 1e-6


@every
def test_float32_does_not_wander_off_over_many_rounds(method):
    _, states, _ = play(method(lr=step_length(0.1)), example(np.float32), network(), rounds=20_000)
    away = distances(states._replace(x=states.x[::1000]))
    assert away[5:].max() < 3e-6


def lossy():
    return jdfl.Sparse(value="int8")


@pytest.mark.rotated(3)
@pytest.mark.parametrize("codec", [jdfl.Dense("float64"), lossy()], ids=["exact", "int8"])
@pytest.mark.parametrize("changing", [False, True], ids=["fixed", "changing"])
def test_the_average_tracker_is_the_average_gradient_in_every_round(codec, changing):
    with jax.enable_x64(True):
        net = random_links(network(), 0.6) if changing else network()
        gradients = jdfl.Gradients(batch=4, clip=2.0, mechanism=jdfl.Gaussian(0.5))
        first, states, _ = play(jdfl.DSGT(lr=0.01, gradients=gradients, codec=codec), example(), net, rounds=60)
        np.testing.assert_array_equal(first.y, first.g)
        np.testing.assert_allclose(states.y.mean(axis=1), states.g.mean(axis=1), rtol=0, atol=1e-13)
        assert np.abs(states.y - states.g).max() > 0.1


@corrected
def test_corrections_sum_to_zero_and_a_lossy_codec_costs_its_own_error_only(method):
    with jax.enable_x64(True):
        _, states, _ = play(method(lr=step_length(), codec=lossy()), example(), network())
        correction = states.s if method is jdfl.EXTRA else states.c
        np.testing.assert_allclose(correction.sum(axis=1), 0, atol=1e-12)
        assert np.abs(correction[-1]).max() > 1e-3
        assert distances(states)[-50:].max() < 0.1


@pytest.mark.rotated(2)
@pytest.mark.parametrize("format", ["padded", "dense", "bcoo", "buckets"])
def test_a_pull_is_w_x_minus_x_and_nothing_where_nodes_agree(format):
    net = network(format=format)
    key = jax.random.key(3)
    moment = Moment(jnp.int32(0), key, net.graph, jnp.arange(M, dtype=jnp.int32))

    wire = jdfl.Dense().prepare(key, moment.node, 9, 9, jnp.float32)

    def pull(x):
        return direct(moment, None, wire=wire).pull(x)

    x = jax.random.normal(key, (M, 9), jnp.float32)
    found = pull(x)
    W = matrix(net.graph)
    np.testing.assert_allclose(found, W @ np.asarray(x, float) - x, atol=1e-6)
    near = 1000 + 1e-3 * x
    exact = np.asarray(near, float)
    np.testing.assert_allclose(pull(near), W @ exact - exact, atol=1e-9)
    np.testing.assert_array_equal(pull(jnp.full((M, 9), 0.1)), 0)


def checked(algorithm, problem, net):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_settings(algorithm, problem, net)
    return [str(warning.message) for warning in caught]


def fatal(method) -> float:
    W = matrix(network().graph)
    if method is jdfl.EXTRA:
        return float(np.min((5 + 3 * np.diag(W)) / (4 * LARGEST)))
    return float((3 + 2 / (1 + np.linalg.eigvalsh(W)[0])) / (2 * LARGEST.max()))


def safe(method) -> float:
    return step_length(1.0) if method is jdfl.EXTRA else 2 / float(LARGEST.max())


@corrected
def test_long_steps_are_warned_of_and_steps_that_diverge_refused(method):
    problem, net = example(np.float32), network()
    low, high = safe(method), fatal(method)
    assert low < high
    assert checked(method(lr=0.99 * low), problem, net) == []
    (text,) = checked(method(lr=1.01 * low), problem, net)
    assert f"{names[method]} is only known to converge for lr <" in text
    assert f"{low:.3g}" in text
    assert "smaller step size" in text
    with pytest.raises(ValueError, match=rf"Expected lr <= .* = {high:.3g}.*got lr = .*Give lr < .* = {low:.3g}"):
        check_settings(method(lr=1.01 * high), problem, net)


@corrected
def test_only_full_gradients_of_least_squares_are_refused(method):
    problem, net, lr = example(np.float32), network(), 2 * fatal(method)
    assert len(checked(method(lr=lr, gradients=jdfl.Gradients(batch=3)), problem, net)) == 1
    assert checked(method(lr=lr, gradients=jdfl.Gradients(clip=1.0)), problem, net) == []
    logistic = jdfl.problems.LogisticRegression(
        data=(problem.data[0], (problem.data[1] > 0).astype(jnp.float32)),
        weight=problem.weight,
        curvature=problem.curvature,
        penalty=3.0,
    )
    assert len(checked(method(lr=2 * lr), logistic, net)) == 1
    edge = safe(method) * LARGEST.max() / (LARGEST.max() + 3)  # the regulariser's curvature counts
    assert checked(method(lr=0.99 * edge), logistic, net) == []
    assert len(checked(method(lr=1.01 * edge), logistic, net)) == 1


@corrected
def test_the_bounds_are_true(method):
    with jax.enable_x64(True):
        problem = example()

        def end(lr):
            _, states, _ = play(method(lr=lr, codec=jdfl.Dense("float64")), problem, network())
            return distances(states)

        near, beyond = end(0.99 * safe(method)), end(1.05 * fatal(method))
    assert near[-1] < 1e-3 * near[0]
    assert not beyond[-1] < 100 * beyond[0]


@pytest.mark.parametrize("m", [8, 1200], ids=str)
def test_the_lowest_eigenvalue_of_a_ring(m):
    assert step_sizes.lowest_eigenvalue(ring(m)) == pytest.approx(-1 / 3, abs=1e-3)


def uneven() -> jdfl.network.Static:
    return network(weights="uniform")


def rotated() -> jdfl.network.Static:
    """Doubly stochastic, symmetric in its links, but not in its weights."""
    W = 0.4 * np.eye(M) + 0.4 * np.roll(np.eye(M), 1, axis=1) + 0.2 * np.roll(np.eye(M), -1, axis=1)
    return from_matrix(W, name="rotated")


@corrected
@pytest.mark.parametrize(
    ("net", "property"),
    [
        (lambda: random_links(network(), 0.5), "fixed network"),
        (lambda: from_edges([(i, (i + 1) % M) for i in range(M)], M, directed=True), "undirected"),
        (uneven, "doubly stochastic"),
        (rotated, "symmetric weights"),
    ],
    ids=["changing", "directed", "uneven", "asymmetric"],
)
def test_networks_on_which_a_correction_is_wrong_are_refused(method, net, property):
    with pytest.raises(ValueError, match=f"{property}.* for {names[method]},.*Use "):
        check_settings(method(lr=0.01), example(np.float32), net())


def test_gradient_tracking_refuses_weights_that_are_not_doubly_stochastic():
    problem = example(np.float32)
    with pytest.raises(ValueError, match=r"doubly stochastic weights for DSGT,.*Use "):
        check_settings(jdfl.DSGT(lr=0.01), problem, uneven())
    for net in (network(), rotated(), random_links(network(), 0.5)):
        check_settings(jdfl.DSGT(lr=0.01), problem, net)


@every
@pytest.mark.parametrize(
    ("options", "words"),
    [({"lr": 0.0}, "lr = 0.0"), ({"lr": np.ones(3)}, "lr"), ({"codec": jdfl.OneBit(d=9, side=True)}, "codec")],
    ids=["zero", "vector", "pairwise"],
)
def test_settings_out_of_range_are_refused(method, options, words):
    with pytest.raises(ValueError, match=words):
        check_settings(method(**({"lr": 0.01} | options)), example(np.float32), network())


CLIP, MULTIPLIER = 0.5, 0.8
SENSITIVITY = 2 * CLIP / Q  # all examples weigh the same
PRIVATE = jdfl.DSGT(lr=0.05, gradients=jdfl.Gradients(clip=CLIP, mechanism=jdfl.Gaussian(MULTIPLIER)))
CLEAN = jdfl.DSGT(lr=0.05, gradients=jdfl.Gradients(clip=CLIP))


@jax.jit
def twice(algorithm, problem, key):
    """The state at the start, and after a round from the one that the clean data give."""
    node = jnp.arange(M, dtype=jnp.int32)
    graph = network().graph
    first, second = jax.random.split(key)
    start = Moment(jnp.int32(0), first, graph, node)
    program, clean = Program(algorithm).prepare(problem, start), Program(CLEAN).prepare(example(np.float32), start)
    begin, _ = program.init(problem, start)
    given, _ = clean.init(example(np.float32), start)
    after, _ = program.step(given, problem, Moment(jnp.int32(0), second, graph, node))
    return begin, after


@pytest.mark.rotated(2)
@pytest.mark.parametrize("algorithm", [PRIVATE, CLEAN], ids=["noisy", "clean"])
def test_one_example_moves_the_tracker_by_the_sensitivity_at_most(algorithm):
    problem, key = example(np.float32), jax.random.key(1)
    A, b = problem.data
    wild = problem.replace(data=(A.at[2, 3].multiply(1e6), b.at[2, 3].multiply(-1e6)))
    for here, there in zip(twice(algorithm, problem, key), twice(algorithm, wild, key)):
        moved = np.linalg.norm(np.asarray(there.y - here.y), axis=1)
        assert moved[2] > 0.1 * SENSITIVITY
        assert moved.max() <= SENSITIVITY * (1 + 1e-4)
        assert not moved[np.arange(M) != 2].any()
    bare = jdfl.DSGT(lr=0.05)
    assert np.abs(np.asarray(twice(bare, wild, key)[0].y - twice(bare, problem, key)[0].y)).max() > 1e3


def test_every_release_has_fresh_noise_of_the_declared_size():
    problem = example(np.float32)
    keys = jax.random.split(jax.random.key(2), 300)
    noisy, clean = (jax.vmap(twice, (None, None, 0))(algorithm, problem, keys) for algorithm in (PRIVATE, CLEAN))
    noise = [np.asarray(a.y - b.y).reshape(300, -1) for a, b in zip(noisy, clean)]
    for part in noise:
        assert part.std() == pytest.approx(MULTIPLIER * SENSITIVITY, rel=0.03)
        assert abs(part.mean()) < 4 * MULTIPLIER * SENSITIVITY / np.sqrt(part.size)
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.05
    np.testing.assert_allclose(noisy[1].y - clean[1].y, noisy[1].g - clean[1].g, atol=1e-5)


def test_releases_are_one_a_round_and_one_at_the_start():
    problem = example(np.float32)
    result = jdfl.run(PRIVATE, problem, network(), key=0, steps=6)
    assert result.totals.releases == M * 7
    assert result.totals.gradients == M * 7
    guarantee = PRIVATE.privacy(problem)
    assert guarantee.enforced_by == f"l2 clipping of every example's gradient to {CLIP:g}"
    assert jdfl.run(CLEAN, problem, network(), key=0, steps=6).totals.releases == 0
    assert jdfl.run(jdfl.NIDS(lr=0.05), problem, network(), key=0, steps=6).totals.gradients == M * 7


@pytest.mark.rotated(4)
@pytest.mark.parametrize("noisy", ["always", "communicating"])
@pytest.mark.parametrize(
    ("method", "rounds"), [(jdfl.EXTRA, 5), (jdfl.NIDS, 6), (jdfl.ExactDiffusion, 5), (jdfl.DSGT, 6)]
)
def test_every_gradient_comes_with_an_exchange_and_is_one_release(method, rounds, noisy):
    private = PRIVATE.gradients.replace(noisy=noisy)
    result = jdfl.run(method(lr=0.01, gradients=private), example(np.float32), network(), key=0, steps=5)
    assert result.totals.releases == M * rounds
