"""DO-ADP against a loop over nodes, its laws, and what it says of privacy."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import Theorem1
from jdfl.algorithms.activation import active
from jdfl.algorithms.moment import Moment
from jdfl.codecs import round_trip, transmit
from jdfl.engine.start import check_settings
from tests.algorithms.play import ROUNDS, M, N, course, direct, example, matrices, network, round_of
from tests.reference import compressed
from tests.reference.doadp import doadp as reference

KEY = jax.random.key(11)
NOISY = jdfl.Gradients(batch=1, clip=0.5, mechanism=jdfl.Gaussian(0.7))
TOP = 4


def top_in_float32(z):
    """Entries travel as float32."""
    return compressed.top(TOP)(z).astype(np.float32).astype(float)


def drawn(gradients, problem, dtype=np.float64):
    """Every round's examples (features [R, m, n], targets [R, m]) and noise [R, m, n], by the keys of a run."""

    def one(k):
        moment = round_of(KEY, k, network().graph, jnp.arange(M, dtype=jnp.int32))
        round = direct(moment, problem, gradients)
        x = jnp.zeros((M, N), dtype)
        exact = replace(gradients, mechanism=None)
        (features, target), _, _ = gradients.sample(round)
        return features[:, 0], target[:, 0], gradients(x, round) - exact(x, round)

    return [np.asarray(part) for part in jax.vmap(one)(jnp.arange(ROUNDS, dtype=jnp.int32))]


def shortened(g, norm):
    return np.clip(g, -0.5, 0.5) if norm == "entries" else g * min(1, 0.5 / np.linalg.norm(g))


@pytest.mark.rotated(3)
@pytest.mark.parametrize(
    ("start", "p", "norm", "codec"),
    [("x", 0.7, "l2", "top"), ("zero", 0.7, "entries", "top"), ("zero", 1.0, "l2", "exact")],
)
def test_agrees_with_a_loop_over_nodes(start, p, norm, codec):
    wire, compress = {
        "top": (jdfl.Sparse(s=TOP), top_in_float32),
        "exact": (jdfl.Dense("float64"), compressed.exactly),
    }[codec]
    with jax.enable_x64(True):
        x0 = np.linspace(-1, 1, N)
        problem = replace(example(np.float64), start=jnp.asarray(x0))
        gradients = replace(NOISY, norm=norm)
        algorithm = jdfl.DOADP(lr=0.05, gamma=0.4, beta=0.3, p=p, gradients=gradients, codec=wire, start=start)
        params, _, _, infos = course(algorithm, problem, network(), KEY)
        features, target, noise = drawn(gradients, problem)
        W = matrices(network(), KEY)[0]
    awake = np.asarray(infos.grads).astype(bool)

    def gradient(k, i, x):
        a = features[k, i]
        return shortened(a * (a @ x - target[k, i]), norm) + noise[k, i]

    expected = reference(gradient, awake, W, x0, compress, lr=0.05, gamma=0.4, beta=0.3, zero=start == "zero")
    np.testing.assert_allclose(params, expected, rtol=1e-9, atol=1e-9)
    assert 0.5 * p < awake.mean() <= p + 0.15


def test_without_momentum_noise_and_sleep_it_is_choco_sgd():
    with jax.enable_x64(True):
        plain, problem = jdfl.Gradients(), example()
        for wire in (jdfl.Dense("float64"), jdfl.Sparse(s=TOP)):
            same = {"lr": 0.05, "gamma": 0.3, "gradients": plain, "codec": wire}
            ours, *_ = course(jdfl.DOADP(beta=0.0, p=1.0, **same), problem, network())
            theirs, *_ = course(jdfl.CHOCO(order="combine-then-adapt", **same), problem, network())
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def whole():
    """A run's course in float64: (algorithm, problem, params, first state, states, infos)."""
    with jax.enable_x64(True):
        problem = example()
        algorithm = jdfl.DOADP(lr=0.05, gamma=0.4, beta=0.5, p=0.6, gradients=NOISY, codec=jdfl.Sparse(s=2))
        return algorithm, problem, *(jax.device_get(part) for part in course(algorithm, problem, network()))


def test_the_mean_moves_by_the_momenta_of_active_nodes_alone(whole):
    algorithm, _, params, first, states, infos = whole
    before = np.concatenate([first.x[None], params[:-1]])
    moved = algorithm.lr * np.sum(infos.grads[..., None] * states.momentum, axis=1) / M
    np.testing.assert_allclose(params.mean(axis=1), before.mean(axis=1) - moved, rtol=0, atol=1e-7)  # W is float32


def test_sleeping_nodes_send_nothing_and_momentum_fades(whole):
    algorithm, _, _, first, states, infos = whole
    asleep = np.asarray(infos.grads) == 0
    assert asleep.any()
    hats = np.concatenate([first.hat[None], states.hat])
    momenta = np.concatenate([first.momentum[None], states.momentum])
    np.testing.assert_array_equal(hats[1:][asleep], hats[:-1][asleep])
    np.testing.assert_allclose(momenta[1:][asleep], algorithm.beta * momenta[:-1][asleep], rtol=1e-12)
    changed = np.count_nonzero(hats[1:] - hats[:-1], axis=2)
    assert (changed[~asleep] <= 2).all()
    degree = np.asarray(network().graph.out_degree)
    np.testing.assert_array_equal(infos.sent["model"], infos.grads * degree)
    np.testing.assert_array_equal(infos.releases, infos.grads)


def test_gradients_of_active_nodes_alone_give_the_same():
    problem, gradients = example(np.float32), jdfl.Gradients(clip=0.5)
    every, some = (
        course(
            jdfl.DOADP(lr=0.05, gamma=0.4, p=0.5, gradients=gradients, codec=jdfl.Sparse(s=N), block=block),
            problem,
            network(),
        )
        for block in (None, 2)
    )
    np.testing.assert_allclose(some[0], every[0], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(some[3].grads, every[3].grads)
    with pytest.raises(ValueError, match="block >= 1, got block = 0"):
        check_settings(jdfl.DOADP(block=0), problem, network())


def test_what_arrives_of_top_k_is_what_its_messages_say():
    draw = np.random.default_rng(0)
    x = np.round(draw.standard_normal((6, 200)), 1).astype(np.float32)  # ties
    x[0, 5], x[1, 7], x[2], x[3, :100] = np.nan, -np.inf, 0.0, -0.0
    keys = jax.random.split(jax.random.key(0), 6)
    sparse = jdfl.Sparse(share=0.3), jdfl.Sparse(share=0.3, value="float16"), jdfl.Sparse(share=0.01)
    random = jdfl.RandomK(share=0.3), jdfl.RandomK(k=7, scaled=True), jdfl.RandomK(k=7, value="bfloat16")
    codecs = sparse + random
    for codec in codecs:
        wire = codec.prepare(keys[0], jnp.arange(6), 200, 200, x.dtype)
        np.testing.assert_array_equal(jax.jit(codec.arrived)(keys, x, wire), jax.jit(round_trip)(wire, keys, x))
        assert codec.direct
    assert not jdfl.Sparse(s=3, value="int8").direct


def test_many_nodes_are_worked_on_in_blocks_and_get_the_same():
    codec, draw = jdfl.Sparse(s=2), np.random.default_rng(1)
    x, wanted = jnp.asarray(draw.standard_normal((300, 7)), jnp.float32), jnp.asarray(draw.random(300) < 0.6)
    keys = jax.random.split(jax.random.key(0), 300)
    wire = codec.prepare(keys[0], jnp.arange(300), 7, 7, x.dtype)
    found = transmit(wire, keys, x, wanted)
    np.testing.assert_array_equal(found, jnp.where(wanted[:, None], codec.arrived(keys, x, wire), 0.0))
    np.testing.assert_array_equal(transmit(wire, keys, x, jnp.zeros_like(wanted)), jnp.zeros_like(x))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"p": 0.0}, r"p in \(0, 1\], got p = 0\.0"),
        ({"p": 1.2}, r"p in \(0, 1\], got p = 1\.2"),
        ({"codec": jdfl.Sparse(share=0.0)}, r"codec\.share in \(0, 1\], got codec\.share = 0\.0"),
        ({"codec": jdfl.Sparse(share=1.5)}, r"codec\.share in \(0, 1\], got codec\.share = 1\.5"),
        ({"codec": jdfl.Sparse(s=N + 1)}, r"s"),
        ({"beta": 1.0}, r"beta in \[0, 1\), got beta = 1\.0"),
        ({"beta": -0.1}, r"beta in \[0, 1\), got beta = -0\.1"),
        ({"gamma": 0.0}, r"gamma in \(0, 1\], got gamma = 0\.0"),
        ({"lr": -1.0}, r"lr > 0"),
        ({"start": "w"}, r"start = 'w'"),
        ({"delta0": 0.0}, r"delta0 in \(0, 1\], got delta0 = 0\.0"),
        ({"codec": jdfl.RandomK(k=2, scaled=True)}, r"DO-ADP .*got codec = RandomK"),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, dict) else "",
)
def test_settings_out_of_range_are_refused_in_words(changes, words):
    with pytest.raises(ValueError, match=words):
        check_settings(jdfl.DOADP(**changes), example(np.float32), network())


def test_networks_without_public_copies_are_refused():
    problem = example(np.float32)
    uneven = jdfl.network.from_edges([(i, 0) for i in range(1, M)], M, weights="uniform")
    turned = 0.5 * np.eye(M) + 0.3 * np.roll(np.eye(M), 1, axis=1) + 0.2 * np.roll(np.eye(M), -1, axis=1)
    for net, why in (
        (jdfl.network.from_matrix(turned), "symmetric weights"),
        (jdfl.network.link_loss(network(), 0.1), "a fixed"),
        (jdfl.network.k_in(M, 2, seed=1), "an undirected"),
        (uneven, "doubly stochastic"),
    ):
        with pytest.raises(ValueError, match=f"Expected {why} .*for DO-ADP"):
            check_settings(jdfl.DOADP(), problem, net)


def test_rare_activity_is_warned_of():
    with pytest.warns(UserWarning, match=r"p = 0\.3 is below 1/2"):
        check_settings(jdfl.DOADP(p=0.3), example(np.float32), network())


def test_theorem_is_its_formula_and_its_inverse():
    theorem = Theorem1(p=0.8, share=0.3, steps=120_000, records=20_000, clip=2.0, delta0=1e-6)
    square = 160 * 0.3 * 0.8**2 * 120_000 * np.log(1.25e6) * 2.0**2 / (20_000**2 * 0.01**2)
    assert theorem.sigma(0.01) == pytest.approx(np.sqrt(square), rel=1e-12)
    assert theorem.epsilon(theorem.sigma(0.37)) == pytest.approx(0.37, rel=1e-12)
    assert theorem.multiplier(0.01) == pytest.approx(theorem.sigma(0.01) / 4)
    whole = replace(theorem, p=1.0, share=1.0)
    assert theorem.sigma(0.5) / whole.sigma(0.5) == pytest.approx(0.8 * np.sqrt(0.3))
    step = 2 * 0.8 / 20_000 * np.sqrt(8 * 0.3 * np.log(1.25e6)) * 2.0 / theorem.sigma(0.5)  # epsilon'_t of the proof
    assert np.sqrt(120_000) * step == pytest.approx(0.5 / np.sqrt(5))
    assert theorem.delta(0.5) == pytest.approx(1 - (1 - 0.5 / np.sqrt(5)) * (1 - 0.8e-6) ** 120_000)
    assert [line.endswith(": holds") for line in theorem.conditions(0.01)] == [True] * 3
    short = replace(theorem, steps=100)
    assert "T = 100 >= q^2 epsilon^2 / (4 p^2) = 1.5625e+08: DOES NOT HOLD" in short.conditions(1.0)[1]
    for epsilon in (1.5, 0.0, -1.0):
        with pytest.raises(ValueError, match="epsilon"):
            theorem.sigma(epsilon)


def test_published_noise_and_what_it_claims():
    problem = example(np.float32)
    q = int(np.min(np.asarray(problem.sizes)))
    algorithm = jdfl.DOADP(gradients=NOISY, codec=jdfl.Sparse(s=TOP))
    told = jdfl.calibrate(algorithm, problem, network(), steps=50, epsilon=0.5, accounting="paper")
    theorem = Theorem1(p=0.8, share=TOP / N, steps=50, records=q, clip=0.5)
    assert told.gradients.mechanism.multiplier == pytest.approx(theorem.multiplier(0.5))
    report = jdfl.account_plan(told, problem, network(), steps=50, accounting="paper")
    assert not report.sound
    assert report.published is not None
    assert report.published["epsilon"] == pytest.approx(0.5)
    assert report.published["delta"] == pytest.approx(theorem.delta(0.5))
    sound = jdfl.calibrate(algorithm, problem, network(), steps=50, epsilon=0.5, delta=report.delta)
    assert report.sound_multiplier == pytest.approx(sound.gradients.mechanism.multiplier, rel=1e-4)
    text = report.statement()
    assert "which requires T = 50 >= q^2 epsilon^2 / (4 p^2)" in text
    assert "as published" in text
    assert "sound at delta" in text
    with pytest.raises(ValueError, match=r"epsilon in \(0, 1\], the range of Theorem 1, got epsilon = 2"):
        jdfl.calibrate(algorithm, problem, network(), steps=50, epsilon=2.0, accounting="paper")
    with pytest.warns(UserWarning, match=r"Theorem 1 asks for T = 1 >= .*DOES NOT HOLD"):
        jdfl.calibrate(algorithm, problem, network(), steps=1, epsilon=1.0, accounting="paper")
    for other in (replace(NOISY, batch=2), replace(NOISY, batch=None), replace(NOISY, adjacency="add-remove")):
        with pytest.raises(ValueError, match="Theorem 1 covers"):
            jdfl.calibrate(
                replace(algorithm, gradients=other), problem, network(), steps=50, epsilon=0.5, accounting="paper"
            )
    with pytest.raises(ValueError, match="whose paper says how much noise"):
        jdfl.calibrate(jdfl.DPSGD(gradients=NOISY), problem, network(), steps=5, epsilon=0.5, accounting="paper")


def test_only_active_rounds_count_and_no_sparsity_amplifies():
    problem = example(np.float32)
    epsilons = {}
    for p, s in ((1.0, N), (0.6, N), (0.6, 1)):
        algorithm = jdfl.DOADP(p=p, gradients=NOISY, codec=jdfl.Sparse(s=s))
        releases = jdfl.planned_releases(algorithm, problem, network(), steps=40)
        result = jdfl.run(algorithm, problem, network(), key=0, steps=40, every=40)
        np.testing.assert_array_equal(result.releases, releases)
        epsilons[p, s] = jdfl.account(result).epsilon
    assert epsilons[0.6, 1] == epsilons[0.6, N] < epsilons[1.0, N]


def test_relabelled_nodes_wake_in_the_same_rounds():
    order = np.array([3, 0, 5, 1, 6, 4, 2])
    node = jnp.arange(M, dtype=jnp.int32)
    moments = [Moment(jnp.int32(0), KEY, network().graph, ids) for ids in (node, node[order])]
    here, there = (np.asarray(active(0.5, KEY, direct(one, None))) for one in moments)
    assert 0 < here.sum() < M
    np.testing.assert_array_equal(there, here[order])


def test_iota_is_larger_than_every_degree():
    base = jdfl.network.circulant(20, (1, 2, 3))
    W = np.asarray(jdfl.network.as_dense(jdfl.network.laplacian(base, 8.0).graph))
    L = 6 * np.eye(20) - (np.asarray(jdfl.network.as_dense(base.graph)) > 0) * (1 - np.eye(20))
    np.testing.assert_allclose(W, np.eye(20) - L / 8, atol=1e-6)
    usual = jdfl.network.as_dense(jdfl.network.circulant(20, (1, 2, 3), weights="laplacian").graph)
    np.testing.assert_allclose(jdfl.network.as_dense(jdfl.network.laplacian(base).graph), usual, atol=1e-7)
    for iota in (6.0, 5, -1.0):
        with pytest.raises(ValueError, match=r"iota"):
            jdfl.network.laplacian(base, iota)
    with pytest.raises(ValueError, match="an undirected network"):
        jdfl.network.laplacian(jdfl.network.k_in(M, 2, seed=1))
    with pytest.raises(ValueError, match="a fixed network"):
        jdfl.network.laplacian(jdfl.network.link_loss(network(), 0.1))  # pyright: ignore[reportArgumentType]
