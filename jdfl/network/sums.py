"""Weighted sums over the neighbour table: slot by slot for all rows, or by buckets of rows with similar degree.

A table [m, d] is as wide as its largest in-degree, so a single hub makes every row long. Buckets group the rows by
degree, rounded up to 2^k or 1.5 * 2^k; a row then costs less than 1.5 times its own degree, whatever the degree of the
hub.

Where the nodes are sharded over devices, a `Halo` says which rows the devices exchange before they sum.

Axes: m nodes (on a device, where they are sharded), d slots, n parameters, b rows of a block, D devices, k rows that go
from one device to another.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.backend import backend
from jdfl.devices import nodes

_UNROLL = 16  # slots summed in one pass over the rows
WORTH = 0.75  # of the rows that `nodes.gather` gathers; above it, one gather beats many exchanges
_HELD = 4  # slots whose rows a TPU, which writes every gathered row first, holds at a time


@struct.dataclass
class Buckets:
    """The rows of a table grouped by width; slots beyond a group's width are padding in all its rows."""

    rows: tuple[Array, ...]  # [r] int32 per group, its row indices
    place: Array  # [m] int32 position of row i in the concatenated groups
    widths: tuple[int, ...] = struct.field(pytree_node=False)  # slots per row in each group

    @property
    def slots(self) -> int:
        """The number of slots that a sum reads, padding included."""
        return sum(rows.shape[-1] * width for rows, width in zip(self.rows, self.widths))


def bucket_widths(degree: np.ndarray, d: int) -> np.ndarray:
    """The bucket width [m] of each row: its degree rounded up to 1, 2, 3, 4, 6, 8, 12, ..., at most d."""
    degree = np.maximum(degree, 1)
    step = 2 ** np.maximum(np.floor(np.log2(degree)).astype(np.int64) - 1, 0)
    return np.minimum(-(-degree // step) * step, d)


def group(degree: np.ndarray, d: int) -> Buckets:
    """Buckets for the rows of a table; rows of equal width keep their order."""
    width = bucket_widths(degree, d)
    order = np.argsort(width, kind="stable")
    widths, first = np.unique(width[order], return_index=True)
    place = np.empty(degree.size, np.int32)
    place[order] = np.arange(degree.size)
    rows = jax.device_put(tuple(part.astype(np.int32) for part in np.split(order, first[1:])))
    return Buckets(rows, jax.device_put(place), tuple(int(w) for w in widths))


def _slots_sum(senders: Array, weight: Array, x: Array, unroll: int) -> Array:
    weight = weight.astype(x.dtype)

    def slot(j: Array, total: Array) -> Array:
        return total + weight[:, j, None] * x[senders[:, j]]

    start = jnp.zeros((senders.shape[0], x.shape[1]), x.dtype)
    return lax.fori_loop(0, senders.shape[1], slot, start, unroll=max(1, unroll))


def gather_sum(senders: Array, weight: Array, x: Array, *, cheap: bool = False) -> Array:
    """The sums [b, n] over j of weight[:, j] x[senders[:, j]], for tables [b, d] and rows x [m, n].

    No array [b, d, n] is ever formed. `cheap` says that computing a number of x again costs less than reading it.
    """
    d = senders.shape[1]
    if backend() == "tpu":
        senders, weight, x = lax.optimization_barrier((senders, weight, x))
        return lax.optimization_barrier(_slots_sum(senders, weight, x, min(_HELD, d)))
    if d > _UNROLL:
        return _slots_sum(senders, weight, x, _UNROLL)
    one_pass = partial(_slots_sum, unroll=d)
    # In a single pass XLA would recompute the producer of x (say, noise) for every slot, and the sum for every
    # consumer. On a CPU only a conditional prevents this; the one here is always true, which XLA cannot see.
    if backend() == "gpu":
        x = x if cheap else lax.optimization_barrier(x)
        return jnp.sum(weight.astype(x.dtype)[:, :, None] * x.at[senders].get(mode="promise_in_bounds"), axis=1)
    always = lax.optimization_barrier(jnp.bool_(True))
    otherwise = partial(jnp.zeros, (senders.shape[0], x.shape[1]), x.dtype)
    return lax.cond(always, one_pass, lambda *_: otherwise(), senders, weight, x)


def bucket_sum(buckets: Buckets, senders: Array, weight: Array, x: Array) -> Array:
    """`gather_sum` over a whole table, bucket by bucket."""
    parts: list[Array] = []
    for rows, width in zip(buckets.rows, buckets.widths):
        # At least two passes: a single pass would be fused into the reordering below, which was 5 times slower.
        part = _slots_sum(senders[rows, :width], weight[rows, :width], x, min(_UNROLL, width // 2))
        parts.append(part)
    return jnp.concatenate(parts)[buckets.place]


@struct.dataclass
class Halo:
    """Per hop, the local rows to send to the device that many places further round the ring of devices."""

    rows: tuple[Array, ...]  # per hop [k] int32
    hops: tuple[int, ...] = struct.field(pytree_node=False)
    pairs: tuple[tuple[tuple[int, int], ...], ...] = struct.field(pytree_node=False)  # per hop (from, to)

    def received(self, x: Array) -> Array:
        """The local rows [m, ...], then those of other devices, in the order that a placed graph's senders index."""
        axis = _axis()
        parts = [lax.ppermute(x[rows], axis, pairs) for rows, pairs in zip(self.rows, self.pairs)]
        return jnp.concatenate([x, *parts])

    def returned(self, y: Array, m: int) -> Array:
        """Numbers [m, ...] for the local rows: the sums over all devices of y, in the order of `received`."""
        axis, own, begin = _axis(), y[:m], m
        for rows, pairs in zip(self.rows, self.pairs):
            part = y[begin : begin + rows.shape[0]]
            own = own.at[rows].add(lax.ppermute(part, axis, [(to, source) for source, to in pairs]))
            begin += rows.shape[0]
        return own


def halo(senders: np.ndarray, mask: np.ndarray, devices: int) -> tuple[Halo, np.ndarray] | None:
    """The exchange of rows for a table of senders that is sharded over devices."""
    m = len(senders) // devices
    lists: dict[int, dict[int, np.ndarray]] = {}  # hop -> sending device -> its rows
    for device in range(devices):
        here = slice(device * m, (device + 1) * m)
        heard: Any = np.unique(senders[here][mask[here]])
        ids = heard[heard // m != device]  # of its in-neighbours that live on other devices
        for source in np.unique(ids // m):
            lists.setdefault(int(device - source) % devices, {})[int(source)] = ids[ids // m == source] - source * m
    size = {hop: max(map(len, lists[hop].values())) for hop in sorted(lists)}
    if sum(size.values()) > WORTH * (devices - 1) * m:
        return None
    rows: list[Array] = []
    pairs: list[tuple[tuple[int, int], ...]] = []
    begin: dict[int, int] = {}
    for hop, k in size.items():
        begin[hop] = m + sum(size[earlier] for earlier in size if earlier < hop)
        table = np.zeros((devices, k), np.int32)  # unfilled entries send row 0, which no receiver reads
        for source, own in lists[hop].items():
            table[source, : len(own)] = own
        rows.append(jnp.asarray(table.reshape(-1)))
        pairs.append(tuple((source, (source + hop) % devices) for source in sorted(lists[hop])))
    local = np.empty_like(senders)
    for device in range(devices):
        here = slice(device * m, (device + 1) * m)
        place = np.zeros(devices * m, np.int32)
        place[here] = np.arange(m)
        for hop in size:
            source = (device - hop) % devices
            own = lists[hop].get(source)
            if own is not None:
                place[source * m + own] = begin[hop] + np.arange(len(own))
        local[here] = place[senders[here]]
    return Halo(tuple(rows), tuple(size), tuple(pairs)), local


def _axis() -> str:
    here = nodes.share()
    assert here is not None  # only a graph sharded over devices has a halo
    return here.axis
