"""Random numbers on the host: one for every node and the number of its event, whatever the schedule.

Axes: k nodes with numbers of their events.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.network import FixedTime, Times


def drawn(times: Times, key: Array, node: np.ndarray, count: np.ndarray, size: int = 1) -> np.ndarray:
    """Times [k, size] float64 of nodes [k]: those with the numbers count [k], count + 1, ..."""
    found = np.empty((len(node), size))
    if isinstance(times, FixedTime):
        found[:] = float(str(np.asarray(times.seconds)))
    else:
        _fill(found, partial(_drawn, times, key, size=size), node, count)
    return found


def shares(key: Array, node: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Numbers [k] in [0, 1), one for every node [k] and count [k]."""
    found = np.empty(len(node), np.float32)
    _fill(found, partial(_share, key), node, count)
    return found


def _fill(
    found: np.ndarray, draw: Callable[[Array, Array], Array], node: np.ndarray, count: np.ndarray, block: int = 2**16
) -> None:
    """Put draws for nodes [k] and counts [k] into `found` [k, ...], in blocks of powers of two, for few programs."""
    for start in range(0, len(node), block):
        some = node[start : start + block], count[start : start + block]
        size = 1 << max(6, (len(some[0]) - 1).bit_length())
        drawn = draw(*(jax.device_put(np.resize(one, size).astype(np.int32)) for one in some))
        found[start : start + block] = np.asarray(drawn)[: len(some[0])]


@partial(jax.jit, static_argnames=("size",))
def _drawn(times: Times, key: Array, node: Array, count: Array, *, size: int) -> Array:
    def of(node: Array, count: Array) -> Array:
        return times.of_node(jax.random.fold_in(jax.random.fold_in(key, node), count), node, count)

    counts = count[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
    return jax.vmap(jax.vmap(of, (None, 0)))(node, counts)


@jax.jit
def _share(key: Array, node: Array, count: Array) -> Array:
    def of(node: Array, count: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, node), count), (), jnp.float32)

    return jax.vmap(of)(node, count)
