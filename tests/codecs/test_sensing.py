"""Sensing matrices: every product agrees with the matrix it stands for, and entries have the variance they must."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import hadamard

from jdfl.base import struct
from jdfl.codecs.sensing import (
    Shared,
    Stored,
    double_hadamard,
    hadamard_rows,
    hadamard_size,
    signs,
    transform,
)

B, T = 3, 4


def make(kind: str, n: int, d: int):
    key = jax.random.key(2)
    if kind == "stored":
        return Stored(jax.random.normal(key, (B, n, d), jnp.float64))
    if kind == "shared":
        return Shared(jax.random.normal(key, (n, d), jnp.float64))
    N = hadamard_size(n)
    return double_hadamard(signs(key, (B, 2, -(-d // N), N), jnp.float64), hadamard_rows(key, n, d), n)


def matrix_of(sensing, n: int) -> np.ndarray:
    """Phi [b, d, n], a column at a time."""
    return np.stack(
        [np.asarray(sensing.measure(jnp.broadcast_to(one, (B, n)))) for one in jnp.eye(n, dtype=jnp.float64)], axis=2
    )


@pytest.mark.rotated(2)
@pytest.mark.parametrize("kind", ["stored", "shared", "hadamard"])
@pytest.mark.parametrize(("n", "d"), [(10, 7), (16, 40), (1, 3)])
def test_products_are_those_of_one_matrix(kind, n, d):
    with jax.enable_x64(True):
        sensing, draw = make(kind, n, d), np.random.default_rng(0)
        phi = matrix_of(sensing, n)
        assert phi.shape == (B, d, n)
        x, v = draw.standard_normal((B, n)), draw.standard_normal((B, d))
        support = draw.integers(0, n, (B, T)) if n < T else np.stack([draw.permutation(n)[:T] for _ in range(B)])
        columns = np.take_along_axis(phi.transpose(0, 2, 1), support[:, :, None], axis=1)
        places, given = jnp.asarray(support, jnp.int32), jnp.asarray(x[:, :1] * np.ones((B, T)))
        np.testing.assert_allclose(sensing.measure(jnp.asarray(x)), np.einsum("bdn,bn->bd", phi, x), atol=1e-12)
        np.testing.assert_allclose(sensing.adjoint(jnp.asarray(v)), np.einsum("bdn,bd->bn", phi, v), atol=1e-12)
        np.testing.assert_allclose(sensing.columns(places), columns, atol=1e-12)
        if n >= T:
            together = np.einsum("btd,bt->bd", columns, np.asarray(given))
            np.testing.assert_allclose(sensing.combine(places, given), together, atol=1e-12)
        taken = struct.each_row(lambda x: x[jnp.array([2, 0])], sensing)
        np.testing.assert_allclose(
            taken.adjoint(jnp.asarray(v[[2, 0]])), np.einsum("bdn,bd->bn", phi[[2, 0]], v[[2, 0]]), atol=1e-12
        )


@pytest.mark.parametrize("n", [1, 2, 5, 64, 100, 300])
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
        measured = np.asarray(sensing.measure(jnp.broadcast_to(jnp.eye(n, dtype=jnp.float64)[0], (B, n))))
        np.testing.assert_allclose(measured[0], phi[np.asarray(sensing.row), 0], atol=1e-12)


@pytest.mark.parametrize("N", [2, 4, 64, 128, 8192])
def test_transform_is_hadamards_and_its_own_inverse(N):
    with jax.enable_x64(True):
        x = np.random.default_rng(1).standard_normal((2, N))
        found = transform(jnp.asarray(x))
        if N <= 128:
            np.testing.assert_allclose(found, x @ hadamard(N), atol=1e-10)
        np.testing.assert_allclose(transform(found) / N, x, atol=1e-10)


def test_signs_are_fair_and_independent():
    found = np.asarray(signs(jax.random.key(0), (50, 41), jnp.float32))
    assert set(np.unique(found)) == {-1.0, 1.0}
    assert abs(found.mean()) < 5 / np.sqrt(found.size)
    assert np.abs(np.corrcoef(found) - np.eye(50)).max() < 5.5 / np.sqrt(41)


def test_entries_have_variance_one():
    with jax.enable_x64(True):
        phi = matrix_of(make("hadamard", 100, 200), 100)
        np.testing.assert_allclose((phi**2).mean(), 1.0, atol=5 * np.sqrt(2 / phi.size))
        assert abs(phi.mean()) < 5 / np.sqrt(phi.size)
