"""Rows in blocks are the rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jdfl.arrays import ops
from jdfl.devices import memory as blocks
from jdfl.devices.memory import in_blocks


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(blocks, "_NUMBERS", {"cpu": 64})
    jax.clear_caches()
    yield
    jax.clear_caches()


def test_every_row_is_there_once_and_a_block_is_all_that_is_worked_on():
    seen = []

    def rows(x, y):
        seen.append(x.shape[0])
        return x * 2 + y, y[:, 0] > 3

    for m in (0, 12, 13, 31):
        x, y = np.arange(m * 10, dtype=np.float32).reshape(m, 10), np.arange(m, dtype=np.float32)[:, None]
        seen.clear()
        doubled, flags = jax.jit(lambda x, y: in_blocks(rows, x, y))(x, y)
        np.testing.assert_array_equal(doubled, x * 2 + y)
        np.testing.assert_array_equal(flags, y[:, 0] > 3)
        assert m < 31 or max(seen[1:]) <= 6  # the first are shapes alone


def test_the_projection_of_many_rows_is_that_of_each():
    s, x = 3, np.random.default_rng(0).integers(-4, 5, (41, 10)).astype(np.float32)
    kept = np.argsort(np.argsort(-np.abs(x), axis=1, kind="stable"), axis=1) < s
    np.testing.assert_array_equal(jax.jit(ops.top_s, static_argnums=1)(x, s), np.where(kept, x, 0))
    found = jax.jit(jax.grad(lambda x: jnp.sum(ops.top_s(x, s) * 2)))(jnp.asarray(x))
    np.testing.assert_array_equal(found, np.where(kept, 2.0, 0.0))
