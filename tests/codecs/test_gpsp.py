"""The one-bit decoder: the reference loop, its quality, and laws."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import ops
from jdfl.codecs import gpsp, transmit
from jdfl.codecs.gpsp import working_sparsity
from tests.reference import gpsp as reference


def instance(seed: int, n: int, d: int, s: int):
    draw = np.random.default_rng(seed)
    x = np.zeros(n)
    x[draw.choice(n, s, replace=False)] = draw.uniform(0.5, 2, s) * draw.choice([-1, 1], s)
    phi = draw.standard_normal((d, n))
    return x / np.linalg.norm(x), phi, np.where(phi @ x > 0, 1.0, -1.0)


decode = jax.jit(gpsp, static_argnames=("s", "flips", "cap"))


@pytest.mark.parametrize(("n", "d", "s", "flips"), [(60, 50, 4, 0), (60, 50, 4, 3), (300, 120, 2, 0), (30, 80, 3, 0)])
def test_agrees_with_the_reference_loop(n, d, s, flips):
    with jax.enable_x64(True):
        for seed in range(8):
            _, phi, c = instance(seed, n, d, s)
            expected, iterations = reference.gpsp(phi, c, s, flips=flips, cap=12, return_iterations=True)
            found = decode(jnp.asarray(phi.T), jnp.asarray(c), s, flips=flips, margin=0.01, eta=1e-4, cap=12)
            x = np.zeros(n)
            x[np.asarray(found.support)] = np.asarray(found.value)
            np.testing.assert_allclose(x, expected, rtol=0, atol=1e-9)
            assert int(found.iterations) == iterations


def test_working_sparsity_is_the_authors_rule():
    cases = [(1000, 500, 10), (1000, 500, 5), (1000, 500, 50), (1000, 2100, 10), (1000, 500, 4), (1000, 500, 100)]
    assert [working_sparsity(*case) for case in cases] == [12, 6, 75, 10, 4, 100]
    assert [reference.working_sparsity(*case) for case in cases] == [12, 6, 75, 10, 4, 100]


def test_sign_flip_of_all_measurements_flips_the_answer():
    _, phi, c = instance(1, 60, 90, 3)
    one, other = (
        decode(
            jnp.asarray(phi.T, jnp.float32),
            jnp.asarray(sign * c, jnp.float32),
            3,
            flips=0,
            margin=0.01,
            eta=1e-4,
            cap=12,
        )
        for sign in (1, -1)
    )
    np.testing.assert_array_equal(one.support, other.support)
    np.testing.assert_allclose(one.value, -other.value, rtol=1e-5)
    np.testing.assert_allclose(jnp.linalg.norm(one.value), 1.0, rtol=1e-5)


@partial(jax.jit, static_argnames=("d",))
def quality(rows, key, d):
    m, n = rows.shape
    node = jnp.arange(m, dtype=jnp.int32)
    codec = jdfl.OneBit(d=d, inverse="paper").prepare(key, node, n, 10, rows.dtype)
    return transmit(codec, ops.node_keys(key, 1, node), rows, jnp.ones(m, bool), 4)


def test_quality_at_the_papers_size():
    """n = 1000, s = 10, d = 500: support recovery >= .99 and mean relative error <= .08 (Algorithm 2 word for word)."""
    recovered, errors = [], []
    for seed in range(3):
        draw = np.random.default_rng(seed)
        rows = np.zeros((64, 1000), np.float32)
        for i in range(64):
            rows[i, draw.choice(1000, 10, replace=False)] = draw.uniform(0.5, 2, 10) * draw.choice([-1, 1], 10)
        received = np.asarray(quality(jnp.asarray(rows), jax.random.key(seed), 500))
        recovered.append(((received != 0) & (rows != 0)).sum() / 640)
        errors.append(np.linalg.norm(received - rows, axis=1) / np.linalg.norm(rows, axis=1))
    assert np.mean(recovered) >= 0.99
    assert np.mean(errors) <= 0.08
