"""Messages that are lost and nodes that are away, in runs without rounds.

`link_loss` loses every message with its probability. The rounds of `outages` and `membership` are seconds: a node that
is away in round k is away after second k, until second k + 1 included. It then loses the gradient that it computes, and
begins a new one when it returns.

Axes: E events, K seconds, m nodes, k nodes of them, t times of each.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base.streams import Stream
from jdfl.events.times import shares, units
from jdfl.network import Graph, Static, Timed
from jdfl.network.faults import LinkLoss, Membership, Outages
from jdfl.network.sequences import inmost
from jdfl.network.tables import called

_LOST = Stream("events.lost", "network")
_MOST = 2**26  # entries of a table of seconds and nodes


def with_times(network: Any, title: str) -> Timed:
    """The network with its times outermost: `base` is a fixed network with its faults."""
    times, faults, inner = list[Timed](), list[Any](), network
    while not isinstance(inner, Static):
        if not isinstance(inner, Timed | LinkLoss | Outages | Membership) or (isinstance(inner, Timed) and times):
            raise ValueError(
                f"Expected a fixed network with times for {title}, got {called(network)}: there are no common rounds "
                "without a common clock. Use timed(...) around a fixed network, with link_loss, outages or membership "
                "where wanted, or a synchronous method."
            )
        if isinstance(inner, Timed):
            times.append(inner)
        else:
            faults.append(inner)
        inner = inner.base
    if not times:
        raise ValueError(
            f"Expected a network whose nodes take time for {title}, got {called(network)}. For example "
            "jdfl.network.timed(ring, jdfl.network.ExponentialTime(1.0))."
        )
    for fault in reversed(faults):
        inner = replace(fault, base=inner)
    return replace(times[0], base=inner)


def faults(network: Timed) -> list[Any]:
    """The wrappers between the times of a network and its graph, from the outermost."""
    inner: Any = network.base
    found = list[Any]()
    while not isinstance(inner, Static):
        found.append(inner)
        inner = inner.base
    return found


def links(network: Timed) -> Graph:
    """The graph of a fixed network with times, and perhaps faults."""
    return inmost(network).graph


def check(network: Any, title: str, bears: tuple[str, ...], *, exchanges: bool) -> None:
    """Refuse faults that a method does not bear."""
    for fault in faults(with_times(network, title)):
        what = "absent nodes" if isinstance(fault, Outages | Membership) else "lost messages"
        if what not in bears:
            raise ValueError(
                f"Expected a network without {what} for {title}, got {called(network)}. Leave them out, or use "
                "jdfl.events.ADPSGD, which bears both."
            )
        if fault.weights == "rescale":
            raise ValueError(
                f"Expected weights = 'own' or 'sender' in the faults for {title}, got 'rescale' in {called(network)}: "
                "where nodes act one by one, what does not arrive changes no other weight. Leave it out."
            )
        if exchanges and isinstance(fault, LinkLoss) and fault.directed:
            raise ValueError(
                f"Expected directed = False in link_loss for {title}, got True: two nodes average at once, or not at "
                "all. Leave it out."
            )


def lost(network: Timed, key: Array, node: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Whether the messages of nodes [E] in their events with numbers count [E] are lost: bool [E]."""
    arrive = np.prod([1 - float(one.p) for one in faults(network) if isinstance(one, LinkLoss)])
    return np.zeros(len(node), bool) if arrive == 1 else shares(_LOST.of(key), node, count) >= arrive


@dataclass(frozen=True)
class Absences:
    """When nodes are away: `away` [K, m] says in which seconds."""

    away: np.ndarray

    def at(self, node: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether nodes [E] are away at times [E]: bool [E]."""
        return self.away[np.maximum(np.ceil(time).astype(np.int64) - 1, 0), node]

    @property
    def first(self) -> np.ndarray:
        """When nodes begin [m]; inf: never."""
        return self._next[1][0].copy()

    @property
    def returns(self) -> tuple[np.ndarray, np.ndarray]:
        """When nodes return, in seconds [k], and which [k], in order; the first arrival is none."""
        there = np.cumsum(~self.away, axis=0)
        second, node = np.nonzero(self.away[:-1] & ~self.away[1:] & (there[:-1] > 0))
        return second + 1.0, node

    def ends(
        self, node: np.ndarray, begins: np.ndarray, waits: np.ndarray, unit: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """When nodes finish one thing after another."""
        ends, time = np.empty_like(waits), begins
        for t in range(waits.shape[1]):
            ends[:, t] = time + waits[:, t]
            leaves = units(self._next[0][self._second(time, unit), node], unit, waits.dtype)
            gone = leaves < ends[:, t]
            ends[gone, t] = np.inf
            returns = units(self._next[1][self._second(leaves, unit), node], unit, waits.dtype)
            time = np.where(gone, returns, ends[:, t])
        return ends, time

    def _second(self, time: np.ndarray, unit: int) -> np.ndarray:
        return (np.minimum(time, (len(self.away) - 1) * unit) // unit).astype(np.int64)

    @cached_property
    def _next(self) -> tuple[np.ndarray, np.ndarray]:
        """The first second from second k on [K, m] after which nodes are away, and are there; inf: none."""
        second = np.arange(len(self.away), dtype=np.float64)[:, None]
        found = [np.where(where, second, np.inf)[::-1] for where in (self.away, ~self.away)]
        return np.minimum.accumulate(found[0])[::-1], np.minimum.accumulate(found[1])[::-1]


def absences(network: Timed, seconds: float) -> Absences | None:
    """When nodes are away until a time in seconds, and one second more; None: never."""
    size, away = int(seconds) + 2, None
    for fault in faults(network):
        if not isinstance(fault, Outages | Membership):
            continue
        if size * network.m > _MOST:
            raise ValueError(
                f"Expected at most {_MOST:,} seconds times nodes where nodes may be away, got {size:,} times "
                f"{network.m:,}. Use fewer seconds."
            )
        steady = 1 << max(6, (size - 1).bit_length())
        here = np.asarray(_away(fault, size=steady))[:size]
        away = here if away is None else away | here
    return None if away is None else Absences(away)


@partial(jax.jit, static_argnames=("size",))
def _away(fault: Outages | Membership, *, size: int) -> Array:
    return jax.vmap(fault.away)(jnp.arange(size, dtype=jnp.int32))
