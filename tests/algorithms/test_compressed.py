"""CHOCO-SGD, DCD-PSGD and DFedAvgM against loops whose nodes keep their own copies, and the laws that they keep."""

import dataclasses
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jdfl
from jdfl import events
from jdfl.algorithms import REGISTRY, choco
from jdfl.algorithms.codes import sends_dense
from jdfl.engine.start import check_settings
from tests.algorithms.play import ROUNDS, M, N, course, example, gradient_of, matrices, network
from tests.reference import compressed as reference

WIRE = jdfl.Dense("float64")
LR, K = 0.07, 3
CODECS = {"exact": (WIRE, reference.exactly), "top 3": (jdfl.Sparse(s=K), reference.top(K))}
codecs = pytest.mark.parametrize("codec", CODECS)


def quarters() -> jdfl.network.Static:
    """Unequal degrees, and weights of 1/4: columns of W sum to one exactly, in float32 too."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 0), (0, 3), (1, 5)]
    return jdfl.network.from_edges(edges, M, weights="laplacian")


def float32(compress):
    """The codec `compress` with entries that travel as float32."""
    return lambda z: compress(z).astype(np.float32).astype(float)


def agrees(algorithm, loop_of, codec):
    """Every round of a run agrees with `loop_of(gradient, W, n, rounds, compress)`."""
    wire, compress = CODECS[codec]
    with jax.enable_x64(True):
        problem, net = example(), network()
        algorithm = algorithm.replace(codec=wire)
        check_settings(algorithm, problem, net)
        params, *_ = course(algorithm, problem, net)
        compress = compress if codec == "exact" else float32(compress)
        W = matrices(net, jax.random.key(11))[0]
        expected = loop_of(gradient_of(problem), W, N, ROUNDS, compress)
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=1e-9)


@codecs
@pytest.mark.parametrize(
    ("order", "local_steps"), [("adapt-then-combine", 1), ("combine-then-adapt", 1), ("adapt-then-combine", 3)]
)
def test_choco_agrees_with_its_loop(codec, order, local_steps):
    given = {"lr": LR, "gamma": 0.3, "local_steps": local_steps}
    loop_of = partial(reference.choco, mix_first=order == "combine-then-adapt", **given)
    agrees(jdfl.CHOCO(order=order, **given), loop_of, codec)


@codecs
def test_dcd_agrees_with_its_loop(codec):
    agrees(jdfl.DCD(lr=LR, codec=jdfl.Dense()), partial(reference.dcd, lr=LR), codec)


@codecs
@pytest.mark.filterwarnings("ignore:DFedAvgM sends its models")
@pytest.mark.parametrize("quantised", [False, True], ids=["plain", "quantised"])
def test_dfedavgm_agrees_with_its_loop(codec, quantised):
    given = {"lr": 0.02, "theta": 0.8, "local_steps": 4, "quantised": quantised}
    agrees(jdfl.DFedAvgM(**given), partial(reference.dfedavgm, **given), codec)


@pytest.mark.parametrize(
    ("algorithm", "same"),
    [
        (jdfl.CHOCO(lr=LR, gamma=1.0, codec=jdfl.Dense()), jdfl.DPSGD(lr=LR, order="adapt-then-combine")),
        (jdfl.CHOCO(lr=LR, gamma=1.0, order="combine-then-adapt", codec=jdfl.Dense()), jdfl.DPSGD(lr=LR)),
        (jdfl.DCD(lr=LR, codec=jdfl.Dense()), jdfl.DPSGD(lr=LR)),
        (jdfl.DFedAvgM(lr=LR, theta=0.0, local_steps=1), jdfl.DPSGD(lr=LR, order="adapt-then-combine")),
        (jdfl.DFedAvgM(lr=0.02, quantised=True), jdfl.DFedAvgM(lr=0.02)),
        (
            jdfl.CHOCO(lr=LR, gamma=1.0, optimizer=optax.adam, gradients=jdfl.Gradients(batch=3), codec=jdfl.Dense()),
            jdfl.DPSGD(lr=LR, order="adapt-then-combine", optimizer=optax.adam, gradients=jdfl.Gradients(batch=3)),
        ),
    ],
    ids=["choco", "choco, combine-then-adapt", "dcd", "dfedavgm", "dfedavgm, quantised", "choco, adam, batches"],
)
def test_exact_messages_make_it_the_uncompressed_method(algorithm, same):
    with jax.enable_x64(True):
        problem, net = example(), network()
        here, *_ = course(algorithm.replace(codec=WIRE), problem, net)
        there, *_ = course(same.replace(codec=WIRE), problem, net)
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-13)


def drift(algorithm, params):
    """How far the average moved in each round besides -lr times the average gradient [rounds - 1, n]."""
    g = gradient_of(example())
    params = np.asarray(params)
    mean = np.stack([np.mean([g(i, x[i]) for i in range(M)], axis=0) for x in params[:-1]])
    return np.diff(params.mean(axis=1), axis=0) + algorithm.lr * mean


@pytest.mark.parametrize("order", ["adapt-then-combine", "combine-then-adapt"])
def test_choco_moves_the_average_by_the_average_gradient_whatever_is_lost(order):
    with jax.enable_x64(True):
        algorithm = jdfl.CHOCO(lr=LR, codec=jdfl.Sparse(s=2, value="int4"), order=order)
        params, *_ = course(algorithm, example(), quarters())
        assert np.abs(drift(algorithm, params)).max() < 1e-14


def test_dcd_moves_the_average_by_the_average_gradient_in_expectation_only():
    with jax.enable_x64(True):
        problem, net, rounds = example(), quarters(), 2
        unbiased = jdfl.DCD(lr=LR, codec=jdfl.RandomK(k=4, scaled=True))
        keys = jax.random.split(jax.random.key(0), 400)
        params = jax.vmap(lambda key: course(unbiased, problem, net, key, rounds)[0])(keys)
        off = np.stack([drift(unbiased, one)[0] for one in np.asarray(params)])
        error = off.std(axis=0, ddof=1) / np.sqrt(len(off))
        assert error.min() > 0
        assert np.all(np.abs(off.mean(axis=0)) < 4.5 * error)

        biased = unbiased.replace(codec=jdfl.Sparse(s=4))
        lost, *_ = course(biased, problem, net, rounds=rounds)
        assert np.abs(drift(biased, lost)).max() > 0.01


@pytest.mark.parametrize("order", ["adapt-then-combine", "combine-then-adapt"])
def test_choco_with_a_tenth_of_the_entries_ends_where_dpsgd_with_a_lazier_network_does(order):
    """What is lost is made up for: x = (I + gamma (W - I)) (x - lr g(x)) at rest, and copies are what they copy."""
    n, gamma, rounds = 20, 0.15, 1500
    with jax.enable_x64(True):
        problem, net = example(n=n, rows=(40, 60)), jdfl.network.ring(M)
        W = matrices(net, jax.random.key(0), 1)[0]
        lazy = jdfl.network.from_matrix((1 - gamma) * np.eye(M) + gamma * W)
        algorithm = jdfl.CHOCO(lr=LR, gamma=gamma, codec=jdfl.Sparse(share=0.1), order=order)
        check_settings(algorithm, problem, net)
        here, _, states, _ = course(algorithm, problem, net, rounds=rounds)
        there, *_ = course(jdfl.DPSGD(lr=LR, codec=WIRE, order=order), problem, lazy, rounds=rounds)
        np.testing.assert_allclose(here[-1], there[-1], atol=1e-6)
        x = np.asarray(states.x)
        g = np.stack([gradient_of(problem)(i, x[-1, i]) for i in range(M)])
        published = x[-1] - LR * g if order == "adapt-then-combine" else x[-1]
        np.testing.assert_allclose(states.hat[-1], published, atol=1e-6)
        assert np.abs(np.asarray(states.hat[5]) - x[5]).max() > 0.05


def test_a_large_gamma_diverges_where_the_warning_says_so():
    problem, net = example(np.float32, n=20), jdfl.network.ring(M)
    wild = jdfl.CHOCO(lr=LR, gamma=1.0, codec=jdfl.Sparse(s=2))
    with pytest.warns(UserWarning, match=r"gamma = 1 .* delta = 0\.1: .* Try gamma <= 0\.1"):
        check_settings(wild, problem, net)
    params, *_ = course(wild, problem, net, rounds=600)
    assert not np.abs(np.asarray(params[-1])).max() < 1e3
    check_settings(wild.replace(gamma=0.15), problem, net)
    check_settings(wild.replace(codec=jdfl.Sign()), problem, net)
    tame, *_ = course(wild.replace(gamma=0.15), problem, net, rounds=600)
    assert np.abs(np.asarray(tame[-1])).max() < 10


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("algorithm", "grads", "noisy"),
    [
        (jdfl.CHOCO(codec=jdfl.Sparse(s=3), gamma=0.2, local_steps=2), 2, {"always": 2, "communicating": 1}),
        (jdfl.DCD(codec=jdfl.Sparse(s=3)), 1, {"always": 1, "communicating": 1}),
        (jdfl.DFedAvgM(codec=jdfl.Sparse(s=3), quantised=True), 5, {"always": 5, "communicating": 1}),
    ],
    ids=["choco", "dcd", "dfedavgm"],
)
@pytest.mark.parametrize("noise", ["always", "communicating"])
def test_messages_gradients_and_releases_are_counted(algorithm, grads, noisy, noise):
    problem, net, rounds = example(np.float32), network(), 3
    gradients = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(0.5), noisy=noise)
    algorithm = algorithm.replace(gradients=gradients)
    result = jdfl.run(algorithm, problem, net, key=0, steps=rounds)
    degree = np.asarray(net.graph.out_degree)
    assert result.totals.messages == {"model": rounds * degree.sum()}
    assert result.totals.bits == rounds * degree.sum() * algorithm.codec.bits(N)
    assert result.totals.gradients == rounds * M * grads
    assert result.totals.releases == rounds * M * noisy[noise]
    assert algorithm.privacy(problem) == gradients.guarantee(problem)


def test_safe_gamma_is_the_formula_and_one_for_exact_messages():
    net = jdfl.network.ring(16)
    rho, beta = 2 / 3 * (1 - np.cos(np.pi / 8)), 4 / 3
    below = 16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 0.8 * rho
    assert choco.safe_gamma(net, 0.1) == pytest.approx(0.1 * rho**2 / below, rel=1e-4)
    assert choco.safe_gamma(net, 1.0) == 1.0
    assert choco.safe_gamma(jdfl.network.complete(1), 0.5) == pytest.approx(0.5 / (17 - 8 * 0.5))  # rho = 1, beta = 0
    with pytest.raises(ValueError, match=r"delta in \(0, 1\], got delta = 0"):
        choco.safe_gamma(net, 0)
    apart = jdfl.network.from_edges([(0, 1), (2, 3)], 4, connected=False)
    with pytest.raises(ValueError, match=r"got a spectral gap of"):
        choco.safe_gamma(apart, 0.1)


ONE_BIT = jdfl.OneBit(d=120)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (jdfl.CHOCO(gamma=0.0), r"gamma in \(0, 1\], got gamma = 0\.0"),
        (jdfl.CHOCO(gamma=1.5), r"gamma in \(0, 1\], got gamma = 1\.5"),
        (jdfl.CHOCO(gamma=np.array([0.1, 0.2])), r"gamma of shape \(\)"),
        (jdfl.CHOCO(local_steps=0), r"local_steps >= 1, got local_steps = 0"),
        (jdfl.CHOCO(order="last"), r"got order = 'last'"),
        (jdfl.CHOCO(lr=-1.0), r"lr > 0 and finite, got lr = -1\.0"),
        (jdfl.CHOCO(codec=ONE_BIT), r"CHOCO-SGD .*got codec = OneBit.*Sparse\(share=0\.1\)"),
        (jdfl.CHOCO(codec=jdfl.RandomK(k=2, scaled=True)), r"CHOCO-SGD .*got codec = RandomK"),
        (jdfl.DCD(lr=0.0), r"lr > 0 and finite, got lr = 0\.0"),
        (jdfl.DCD(codec=ONE_BIT), r"DCD-PSGD .*got codec = OneBit.*Dense\('float16'\)"),
        (jdfl.BEER(codec=jdfl.QSGD(levels=1)), r"BEER that contracts.*got codec = QSGD"),
        (jdfl.LEAD(codec=ONE_BIT), r"LEAD that is unbiased.*or contracts.*got codec = OneBit"),
        (jdfl.ECD(codec=jdfl.Sparse(s=K)), r"ECD-PSGD that is unbiased.*got codec = Sparse"),
        (jdfl.DFedAvgM(theta=1.0), r"theta in \[0, 1\), got theta = 1\.0"),
        (jdfl.DFedAvgM(theta=-0.1), r"theta in \[0, 1\), got theta = -0\.1"),
        (jdfl.DFedAvgM(local_steps=0), r"local_steps >= 1, got local_steps = 0"),
        (jdfl.DFedAvgM(quantised="yes"), r"got quantised = 'yes'"),
        (jdfl.DFedAvgM(codec=ONE_BIT, quantised=True), r"quantised DFedAvgM .*got codec = OneBit"),
    ],
    ids=lambda value: "" if isinstance(value, str) else None,
)
def test_settings_out_of_range_are_refused_in_words(algorithm, words):
    with pytest.raises(ValueError, match=words):
        check_settings(algorithm, example(np.float32), network())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [jdfl.LEAD, jdfl.CEDAS, jdfl.ECD])
@pytest.mark.parametrize("codec", [jdfl.RandomK(k=2, scaled=True), jdfl.QSGD(levels=1), jdfl.Dense("float16")])
def test_methods_whose_copies_move_slowly_take_unbiased_codecs_without_a_warning(kind, codec):
    check_settings(kind(codec=codec), example(np.float32), network())


def test_a_codec_that_may_do_worse_than_nothing_is_warned_of():
    with pytest.warns(UserWarning, match=r"RandomK.*DCD-PSGD loses is never made up for.*CHOCO-SGD"):
        check_settings(jdfl.DCD(codec=jdfl.RandomK(k=2, scaled=True)), example(np.float32), network())


REPLICAS = {
    "CHOCO-SGD": jdfl.CHOCO(),
    "DCD-PSGD": jdfl.DCD(),
    "quantised DFedAvgM": jdfl.DFedAvgM(quantised=True),
}


@pytest.mark.parametrize("method", REPLICAS)
def test_replicas_need_a_fixed_undirected_network_with_symmetric_weights(method):
    problem = example(np.float32)
    changing = jdfl.network.random_links(network(), 0.5)
    directed = jdfl.network.k_in(M, 2, seed=1)
    uneven = jdfl.network.from_edges([(i, 0) for i in range(1, M)], M, weights="uniform")
    for net, why in ((changing, "a fixed"), (directed, "an undirected"), (uneven, "doubly stochastic")):
        with pytest.raises(ValueError, match=f"Expected {why} .* for {method}, .*Use .*jdfl.network"):
            check_settings(REPLICAS[method], problem, net)


def test_plain_dfedavgm_takes_any_network():
    problem, algorithm = example(np.float32), jdfl.DFedAvgM()
    for net in (jdfl.network.random_links(network(), 0.5), jdfl.network.k_in(M, 2, seed=1)):
        check_settings(algorithm, problem, net)
        params, *_ = course(algorithm, problem, net, rounds=5)
        assert jnp.all(jnp.isfinite(params))


@pytest.mark.parametrize("kind", sorted({**REGISTRY, **events.REGISTRY}))
def test_a_method_that_exists_to_send_less_does_so_unless_it_is_told_otherwise(kind):
    made = {**REGISTRY, **events.REGISTRY}[kind]
    if "codec" not in {one.name for one in dataclasses.fields(made)}:
        return
    plain = made(**({"s": 2} if "s" in {one.name for one in dataclasses.fields(made)} else {}))
    purpose = any(word in sys.modules[made.__module__].__doc__.partition("\n")[0] for word in ("compress", "quantiz"))
    if purpose or plain.codes not in ("models", "requests"):
        assert plain.codec.bits(1000) <= 32 * 1000 * 0.7, f"{kind} sends {plain.codec!r}"
        assert not sends_dense(plain)
        assert sends_dense(plain.replace(codec=jdfl.Dense()))
