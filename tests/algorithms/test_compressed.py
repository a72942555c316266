"""CHOCO-SGD, DCD-PSGD, DFedAvgM and directed CEPS against loops whose nodes keep their own copies, and their laws."""

from functools import partial

import jax
import numpy as np
import optax
import pytest

import jdfl
from jdfl.engine.start import check_settings
from tests.algorithms.play import ROUNDS, M, N, course, example, gradient_of, matrices, network
from tests.algorithms.pushing import uneven
from tests.reference import compressed as reference

WIRE = jdfl.Dense("float64")
LR, K = 0.07, 3
SPARSE = jdfl.Sparse(s=K)


def top_in_float32(z):
    """The K largest entries, which travel as float32."""
    return reference.top(K)(z).astype(np.float32).astype(float)


def agrees(algorithm, loop_of, net=None):
    """Every round of a run with SPARSE agrees with `loop_of(gradient, W, n, rounds, compress)`."""
    with jax.enable_x64(True):
        problem, net = example(), net or network()
        algorithm = algorithm.replace(codec=SPARSE)
        check_settings(algorithm, problem, net)
        params, *_ = course(algorithm, problem, net)
        W = matrices(net, jax.random.key(11))[0]
        expected = loop_of(gradient_of(problem), W, N, ROUNDS, top_in_float32)
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("order", "local_steps"), [("combine-then-adapt", 1), ("adapt-then-combine", 3)])
def test_choco_agrees_with_its_loop(order, local_steps):
    given = {"lr": LR, "gamma": 0.3, "local_steps": local_steps}
    loop_of = partial(reference.choco, mix_first=order == "combine-then-adapt", **given)
    agrees(jdfl.CHOCO(order=order, **given), loop_of)


def test_dcd_agrees_with_its_loop():
    agrees(jdfl.DCD(lr=LR, codec=jdfl.Dense()), partial(reference.dcd, lr=LR))


@pytest.mark.filterwarnings("ignore:DFedAvgM sends its models")
@pytest.mark.parametrize("quantised", [False, True])
def test_dfedavgm_agrees_with_its_loop(quantised):
    given = {"lr": 0.02, "theta": 0.8, "local_steps": 4, "quantised": quantised}
    agrees(jdfl.DFedAvgM(**given), partial(reference.dfedavgm, **given))


def test_directed_ceps_agrees_with_its_loop():
    given = {"s": 4, "lr": LR, "gamma": 0.7, "local_steps": 3}
    agrees(jdfl.DirectedCEPS(**given), partial(reference.directed_ceps, **given), uneven())


@pytest.mark.parametrize(
    ("algorithm", "same"),
    [
        (jdfl.CHOCO(gamma=1.0, order="combine-then-adapt"), jdfl.DPSGD()),
        (
            jdfl.CHOCO(gamma=1.0, optimizer=optax.adam, gradients=jdfl.Gradients(batch=3)),
            jdfl.DPSGD(order="adapt-then-combine", optimizer=optax.adam, gradients=jdfl.Gradients(batch=3)),
        ),
        (jdfl.DCD(), jdfl.DPSGD()),
        (jdfl.DirectedCEPS(s=N), jdfl.SGP()),
    ],
    ids=["choco", "choco, adam, batches", "dcd", "directed ceps"],
)
def test_exact_messages_make_it_the_uncompressed_method(algorithm, same):
    with jax.enable_x64(True):
        net = uneven() if isinstance(algorithm, jdfl.DirectedCEPS) else network()
        fields = {"lr": LR} if isinstance(same, jdfl.SGP) else {"lr": LR, "codec": WIRE}
        one = course(algorithm.replace(lr=LR, codec=WIRE), example(), net)[0]
        other = course(same.replace(**fields), example(), net)[0]
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


def test_a_message_of_directed_ceps_has_the_codecs_bits_and_the_weight():
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(True):
            bits = jdfl.DirectedCEPS(s=4).message_bits(example(dtype), jdfl.OneBit(d=30))
        assert bits == {"model": 30 + 64 + 8 * np.dtype(dtype).itemsize}


def test_a_gamma_above_the_contraction_is_warned_of():
    problem, net = example(np.float32, n=20), jdfl.network.ring(M)
    wild = jdfl.CHOCO(lr=LR, gamma=1.0, codec=jdfl.Sparse(s=2))
    with pytest.warns(UserWarning, match=r"gamma = 1 .* delta = 0\.1: .* Try gamma <= 0\.1"):
        check_settings(wild, problem, net)
    check_settings(wild.replace(gamma=0.15), problem, net)
    check_settings(wild.replace(codec=jdfl.Sign()), problem, net)
