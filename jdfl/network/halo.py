"""The rows that devices exchange for the neighbour sums of their nodes, where the nodes are sharded over devices.

Axes: M nodes in all, m rows on a device, D devices, d slots of the table, k rows that go from one device to another.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import struct
from jdfl.devices import nodes

WORTH = 0.75  # of the rows that `nodes.everyone` gathers; above it, one gather beats many exchanges


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
    wanted = [_remote(senders, mask, m, device) for device in range(devices)]
    lists: dict[int, dict[int, np.ndarray]] = {}  # hop -> sending device -> its rows
    for device, ids in enumerate(wanted):
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


def _remote(senders: np.ndarray, mask: np.ndarray, m: int, device: int) -> np.ndarray:
    """The ids, ascending, of a device's in-neighbours that live on other devices."""
    here = slice(device * m, (device + 1) * m)
    heard: Any = np.unique(senders[here][mask[here]])
    return heard[heard // m != device]


def _axis() -> str:
    here = nodes.share()
    assert here is not None  # only a graph sharded over devices has a halo
    return here.axis
