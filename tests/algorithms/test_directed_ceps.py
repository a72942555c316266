"""Directed CEPS against a loop whose nodes keep their own copies, and the laws that it keeps."""

import jax
import numpy as np
import pytest

import jdfl
from tests.algorithms.play import N, course, example, gradient_of, matrices
from tests.algorithms.pushing import uneven
from tests.reference import compressed as reference

WIRE, S, LR = jdfl.Dense("float64"), 4, 0.07
METHOD = jdfl.DirectedCEPS(s=S, lr=LR, codec=WIRE)


def float32(z):
    """The codec's three largest entries, which travel as float32."""
    return reference.top(3)(z).astype(np.float32).astype(float)


@pytest.mark.parametrize(
    ("codec", "gamma", "local_steps"), [(WIRE, 1.0, 1), (jdfl.Sparse(s=3), 0.3, 1), (jdfl.Sparse(s=3), 0.7, 3)]
)
def test_it_agrees_with_its_loop(codec, gamma, local_steps):
    given = {"s": S, "lr": LR, "gamma": gamma, "local_steps": local_steps}
    compress = reference.exactly if codec == WIRE else float32
    with jax.enable_x64(True):
        problem, net = example(), uneven()
        params, *_ = course(jdfl.DirectedCEPS(codec=codec, **given), problem, net)
        P = matrices(net, jax.random.key(11))[0]
        expected = reference.directed_ceps(gradient_of(problem), P, N, len(params), compress, **given)
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=1e-9)


def test_without_projections_and_loss_it_is_sgp():
    with jax.enable_x64(True):
        problem, net = example(), uneven()
        here, *_ = course(METHOD.replace(s=N), problem, net)
        there, *_ = course(jdfl.SGP(lr=LR), problem, net)
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-12)


def test_a_message_has_the_codecs_bits_and_the_weight():
    for dtype in (np.float32, np.float64):
        with jax.enable_x64(True):
            bits = METHOD.message_bits(example(dtype), jdfl.OneBit(d=30))
        assert bits == {"model": 30 + 64 + 8 * np.dtype(dtype).itemsize}
