"""Directed CEPS against a loop whose nodes keep their own copies, and the laws that it keeps."""

from functools import partial

import jax
import numpy as np
import pytest

import jdfl
from jdfl.engine.start import check_settings
from jdfl.network import from_edges
from tests.algorithms.play import M, N, course, example, gradient_of, matrices
from tests.algorithms.pushing import uneven
from tests.reference import compressed as reference
from tests.reference.gpsp import keep_largest

WIRE, S, LR = jdfl.Dense("float64"), 4, 0.07
METHOD = jdfl.DirectedCEPS(s=S, lr=LR, codec=WIRE)


def binary():
    """A directed network with 1 or 3 receivers of a node: columns of P sum to one exactly, in float32 too."""
    edges = [(i, (i + 1) % M) for i in range(M)] + [(0, 3), (0, 5), (4, 1), (4, 2)]
    return from_edges(edges, M, directed=True, weights="out-degree")


def float32(z):
    """The codec's three largest entries, which travel as float32."""
    return reference.top(3)(z).astype(np.float32).astype(float)


CODECS = {"exact": (WIRE, reference.exactly), "top 3": (jdfl.Sparse(s=3), float32)}


def sums(states, begin):
    """The sums x [rounds + 1, m, n] from the start."""
    return np.concatenate([np.asarray(begin.x)[None], np.asarray(states.x)])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("gamma", "local_steps"), [(1.0, 1), (0.3, 1), (0.7, 3)])
def test_it_agrees_with_its_loop(codec, gamma, local_steps):
    wire, compress = CODECS[codec]
    given = {"s": S, "lr": LR, "gamma": gamma, "local_steps": local_steps}
    with jax.enable_x64(True):
        problem, net = example(), uneven()
        algorithm = jdfl.DirectedCEPS(codec=wire, **given)
        check_settings(algorithm, problem, net)
        params, *_ = course(algorithm, problem, net)
        P = matrices(net, jax.random.key(11))[0]
        expected = reference.directed_ceps(gradient_of(problem), P, N, len(params), compress, **given)
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("codec", [jdfl.OneBit(d=30), jdfl.Sparse(s=1, value="int4"), jdfl.Sign()], ids=str)
def test_mixing_keeps_the_sums_whatever_the_codec_loses(codec):
    """The sum of x is that of what the nodes have computed, and the sum of a is m."""
    with jax.enable_x64(True):
        problem, net = example(), binary()
        algorithm = METHOD.replace(codec=codec, gamma=0.25)
        _, begin, states, _ = course(algorithm, problem, net, rounds=20)
        x, a, g = sums(states, begin), np.asarray(states.a), gradient_of(problem)
        assert a[-1].max() > 1.5 * a[-1].min()
        np.testing.assert_allclose(a.sum(axis=1), M, rtol=0, atol=1e-13)
        weights = np.concatenate([np.ones((1, M)), a])
        for k in range(20):
            w = [keep_largest(x[k, i] / weights[k, i], S) for i in range(M)]
            computed = [keep_largest(x[k, i] - LR * g(i, w[i]), S) for i in range(M)]
            np.testing.assert_allclose(x[k + 1].sum(axis=0), np.sum(computed, axis=0), rtol=0, atol=1e-11)
        assert np.abs(np.asarray(states.hat[5]) - x[6]).max() > 0.01


def test_without_projections_the_sum_moves_by_the_sum_of_the_gradients():
    with jax.enable_x64(True):
        algorithm = METHOD.replace(s=N, codec=jdfl.Sparse(s=2, value="int4"), gamma=0.25)
        params, begin, states, _ = course(algorithm, example(), binary(), rounds=20)
        x, g = sums(states, begin), gradient_of(example())
        for k in range(1, 20):
            total = np.sum([g(i, np.asarray(params)[k - 1, i]) for i in range(M)], axis=0)
            np.testing.assert_allclose(x[k + 1].sum(axis=0) - x[k].sum(axis=0), -LR * total, rtol=0, atol=1e-12)


def test_without_projections_and_loss_it_is_sgp():
    with jax.enable_x64(True):
        problem, net = example(), uneven()
        here, *_ = course(METHOD.replace(s=N), problem, net)
        there, *_ = course(jdfl.SGP(lr=LR), problem, net)
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-12)


@pytest.mark.parametrize("codec", [jdfl.OneBit(d=80), jdfl.Sparse(), jdfl.Dense()], ids=lambda one: type(one).__name__)
def test_it_reaches_the_objective_of_centralised_hard_thresholding(codec):
    problem = jdfl.problems.example1(m=M, n=60, s=S, rows=(60, 90), seed=4)
    given = {"key": 0, "steps": 100, "every": 100, "metrics": ["objective", "consensus_error"]}
    algorithm = METHOD.replace(codec=codec, lr=0.1, local_steps=2)
    found = jdfl.run(algorithm, problem, uneven(), **given).final
    best = jdfl.run(jdfl.IHT(s=S, lr=0.2), problem, jdfl.network.complete(M), **given).final
    assert found["objective"] < 1.01 * best["objective"]
    assert found["consensus_error"] < 0.05


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_message_has_the_codecs_bits_and_the_weight(dtype):
    with jax.enable_x64(True):
        problem, codec = example(dtype), jdfl.OneBit(d=30)
        algorithm = METHOD.replace(codec=codec)
        result = jdfl.run(algorithm, problem, uneven(), key=0, steps=3, metrics=[])
    bits = 30 + 64 + 8 * np.dtype(dtype).itemsize
    assert result.totals.message_bits == {"model": bits}
    assert result.totals.bits == 3 * np.asarray(uneven().graph.out_degree).sum() * bits


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (METHOD.replace(s=N + 1), rf"got s = {N + 1}"),
        (METHOD.replace(s=0), r"got s = 0"),
        (METHOD.replace(gamma=0.0), r"gamma in \(0, 1\], got gamma = 0\.0"),
        (METHOD.replace(lr=-1.0), r"lr > 0 and finite, got lr = -1\.0"),
        (METHOD.replace(local_steps=0), r"local_steps >= 1, got local_steps = 0"),
        (METHOD.replace(codec=jdfl.OneBit(side=True)), r"directed CEPS .*all receivers decode alike"),
    ],
    ids=lambda value: "" if isinstance(value, str) else None,
)
def test_settings_out_of_range_are_refused_in_words(algorithm, words):
    with pytest.raises(ValueError, match=words):
        check_settings(algorithm, example(np.float32), uneven())


_ROWS = [(i, (i + 1) % M) for i in range(M)] + [(0, 3)]
REFUSED = {
    "changing": (partial(jdfl.network.link_loss, p=0.1), "a fixed"),
    "delayed": (partial(jdfl.network.delays, bound=2), "a fixed"),
    "row-stochastic": (
        lambda net: jdfl.network.from_edges(_ROWS, M, directed=True, weights="uniform"),
        "column-stochastic",
    ),
    "disconnected": (lambda net: from_edges([(0, 1)], M, connected=False), "a strongly connected"),
}


@pytest.mark.parametrize("net", REFUSED)
def test_it_needs_a_fixed_connected_network_whose_columns_sum_to_one(net):
    made, why = REFUSED[net]
    with pytest.raises(ValueError, match=f"Expected {why} .*directed CEPS, .*Use .*jdfl.network"):
        check_settings(METHOD, example(np.float32), made(uneven()))
