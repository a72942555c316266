"""Sensing matrices: every product agrees with the matrix it stands for, and entries have the variance they must."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import hadamard

from jdfl.base import struct
from jdfl.codecs.sensing import Shared, Stored, double_hadamard, hadamard_rows, hadamard_size, signs

B, T = 3, 4


@partial(jax.jit, static_argnums=(0, 1, 2))
def make(kind: str, n: int, d: int):
    key = jax.random.key(2)
    if kind == "stored":
        return Stored(jax.random.normal(key, (B, n, d), jnp.float64))
    if kind == "shared":
        return Shared(jax.random.normal(key, (n, d), jnp.float64))
    N = hadamard_size(n)
    return double_hadamard(signs(key, (B, 2, -(-d // N), N), jnp.float64), hadamard_rows(key, n, d), n)


@jax.jit
def matrix_of(sensing, unit):
    """Phi [b, d, n], a column at a time."""
    return jax.vmap(lambda one: sensing.measure(jnp.broadcast_to(one, (B, len(one)))), out_axes=2)(unit)


@jax.jit
def products(sensing, x, v, places, given):
    taken = struct.each_row(lambda x: x[jnp.array([2, 0])], sensing)
    together = sensing.combine(places, given)
    return (
        sensing.measure(x),
        sensing.adjoint(v),
        sensing.columns(places),
        together,
        taken.adjoint(v[jnp.array([2, 0])]),
    )


@pytest.mark.rotated(2)
@pytest.mark.parametrize(
    ("kind", "n", "d"), [("stored", 10, 7), ("shared", 16, 40), ("hadamard", 10, 7), ("hadamard", 1, 3)]
)
def test_products_are_those_of_one_matrix(kind, n, d):
    with jax.enable_x64(True):
        sensing, draw = make(kind, n, d), np.random.default_rng(0)
        phi = np.asarray(matrix_of(sensing, jnp.eye(n)))
        assert phi.shape == (B, d, n)
        assert np.mean(phi**2) == pytest.approx(1, abs=5 * np.sqrt(2 / phi.size))
        x, v = draw.standard_normal((B, n)), draw.standard_normal((B, d))
        support = draw.integers(0, n, (B, T)) if n < T else np.stack([draw.permutation(n)[:T] for _ in range(B)])
        columns = np.take_along_axis(phi.transpose(0, 2, 1), support[:, :, None], axis=1)
        given = x[:, :1] * np.ones((B, T))
        measured, back, some, together, taken = products(sensing, x, v, jnp.asarray(support, jnp.int32), given)
        np.testing.assert_allclose(measured, np.einsum("bdn,bn->bd", phi, x), atol=1e-12)
        np.testing.assert_allclose(back, np.einsum("bdn,bd->bn", phi, v), atol=1e-12)
        np.testing.assert_allclose(some, columns, atol=1e-12)
        if n >= T:
            np.testing.assert_allclose(together, np.einsum("btd,bt->bd", columns, given), atol=1e-12)
        np.testing.assert_allclose(taken, np.einsum("bdn,bd->bn", phi[[2, 0]], v[[2, 0]]), atol=1e-12)


@pytest.mark.parametrize("n", [5, 128])
def test_two_hadamard_transforms_with_signs_between(n):
    with jax.enable_x64(True):
        N, d = hadamard_size(n), n + 3
        sensing = make("hadamard", n, d)
        assert n <= N
        assert len(set(sensing.row.tolist())) == d
        H = hadamard(N)
        first, second = np.asarray(sensing.first[0]), np.asarray(sensing.second[0])
        blocks = len(first)
        phi = np.concatenate([H @ np.diag(second[k]) @ H @ np.diag(first[k]) for k in range(blocks)]) / np.sqrt(N)
        measured = np.asarray(matrix_of(sensing, jnp.eye(n)))
        np.testing.assert_allclose(measured[0], phi[np.asarray(sensing.row), :n], atol=1e-12)


def test_signs_are_fair_and_independent():
    found = np.asarray(signs(jax.random.key(0), (50, 41), jnp.float32))
    assert set(np.unique(found)) == {-1.0, 1.0}
    assert abs(found.mean()) < 5 / np.sqrt(found.size)
    assert np.abs(np.corrcoef(found) - np.eye(50)).max() < 5.5 / np.sqrt(41)
