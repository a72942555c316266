"""Rows in blocks are the rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jdfl.arrays import ops
from jdfl.devices import blocks
from jdfl.devices.blocks import in_blocks

pytestmark = pytest.mark.optimized


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(blocks, "_NUMBERS", {"cpu": 64})
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("m", [0, 1, 12, 13, 31, 40])
def test_every_row_is_there_once(small, m):
    x, y = jnp.arange(m * 10, dtype=jnp.float32).reshape(m, 10), jnp.arange(m, dtype=jnp.float32)[:, None]
    rows, flags = jax.jit(lambda x, y: in_blocks(lambda x, y: (x * 2 + y, y[:, 0] > 3), x, y))(x, y)
    np.testing.assert_array_equal(rows, x * 2 + y)
    np.testing.assert_array_equal(flags, y[:, 0] > 3)


def test_a_block_is_all_that_is_worked_on(small):
    seen = []

    def rows(x):
        seen.append(x.shape[0])
        return x

    in_blocks(rows, jnp.zeros((40, 10)))
    assert max(seen[1:]) == 6  # the first are shapes alone


@pytest.mark.rotated(3)
@pytest.mark.parametrize("s", [1, 3, 9])
def test_the_projection_of_many_rows_is_that_of_each(small, s):
    x = jnp.asarray(np.random.default_rng(0).integers(-4, 5, (41, 10)), jnp.float32)
    expected = jnp.concatenate([ops.top_s(one, s) for one in x.reshape(41, 1, 10)])
    np.testing.assert_array_equal(jax.jit(ops.top_s, static_argnums=1)(x, s), expected)
    found = jax.grad(lambda x: jnp.sum(ops.top_s(x, s) * 2))(x)
    ahead = jnp.where(jnp.arange(10)[None] >= 0, jnp.abs(x), 0)
    kept = jnp.argsort(jnp.argsort(-ahead, axis=1, stable=True), axis=1) < s
    np.testing.assert_array_equal(found, jnp.where(kept, 2.0, 0.0))
