"""What all nodes have together is the same on one device and on many, sums of floats but for rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from jdfl.devices import layout, nodes

pytestmark = pytest.mark.optimized

ALIKE = PartitionSpec()


def on_devices(function, x, devices, *, results=ALIKE):
    """`function` of the rows x [M, ...], spread over devices, with NaN in the rows that are nobody's."""
    count = len(x)
    beyond = nodes.per_device(count, devices) * devices - count
    wide = jnp.concatenate([x, jnp.full((beyond, *x.shape[1:]), jnp.nan, x.dtype)])
    spec = PartitionSpec(nodes.axis_name(count))
    mesh = layout.mesh_of(devices, count)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=results, check_vma=False))(wide)


def together(x):
    flags = x[:, 0] > 0
    return {
        "total": nodes.total(x),
        "mean": nodes.mean(x),
        "first": nodes.first(x),
        "everyone": nodes.gather(x),
        "largest": nodes.largest(x),
        "some": nodes.some(flags),
        "every": nodes.every(flags),
        "lowest": nodes.least(jnp.where(flags, nodes.ids(x.shape[0]), 99), 99),
        "count": nodes.total(jnp.ones(x.shape[0], jnp.int32)),
    }


@pytest.mark.parametrize("count", [13, 3])
def test_devices_change_nothing_but_rounding(count):
    x = jax.random.normal(jax.random.key(count), (count, 5))
    alone, spread = jax.jit(together)(x), on_devices(together, x, 8)
    for name in ("total", "mean"):
        one, other = alone.pop(name), spread.pop(name)
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-6 * np.abs(x).sum() / (1 if name == "total" else count))
    jax.tree.map(np.testing.assert_array_equal, alone, spread)
    np.testing.assert_array_equal(spread["everyone"], x)
    assert int(spread["count"]) == count


def test_the_sum_is_the_sum_and_own_rows_are_those_of_the_ids():
    for count in (1, 1025, 70_000):
        x = np.random.default_rng(count).standard_normal((count, 3)).astype(np.float32)
        wide = x.astype(np.float64)
        assert (np.abs(nodes.total(jnp.asarray(x)) - wide.sum(axis=0)) <= 1e-6 * np.abs(wide).sum(axis=0)).all()
    count, x = 13, jax.random.normal(jax.random.key(0), (13, 2))
    axis = PartitionSpec(nodes.axis_name(count))
    own = lambda rows: (nodes.own(x, rows.shape[0]), nodes.ids(rows.shape[0]), nodes.real(rows.shape[0]))  # noqa: E731
    rows, ids, real = on_devices(own, x, 4, results=(axis, axis, axis))
    np.testing.assert_array_equal(rows[:count], x)
    np.testing.assert_array_equal(ids, np.arange(len(ids)))
    np.testing.assert_array_equal(real, np.arange(len(ids)) < count)


@given(count=st.integers(1, 10**7), devices=st.integers(1, 64))
def test_devices_have_room_for_all(count, devices):
    held = nodes.per_device(count, devices)
    assert count <= held * devices < count + devices
