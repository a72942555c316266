"""Wrapper networks, and what networks with random links share: random numbers, subsets of nodes, graphs with links
removed.

A network and its wrapper draw with different keys, and so do nested wrappers.

Axes: m nodes, d slots of the table.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any, Literal, NamedTuple, Self, cast

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.names import Names, aligned, unlabelled
from jdfl.base.streams import Stream
from jdfl.network.graph import Graph, Network
from jdfl.network.shown import Shown
from jdfl.network.tables import called, kind_of, refuse_synchronised

Missing = Literal["own", "rescale", "sender"]

INNER = Stream("network.inside", "network")  # everything that the wrapped network draws
_UNBOUND = 0  # seed for what lasts for many rounds, outside a run


class Sizes(NamedTuple):
    """The size of one message in bits, where it is not the same for all nodes."""

    bits: tuple[int, ...]  # [m]
    of: Literal["sender", "receiver"]  # the end of a link whose number counts

    def table(self, senders: Array) -> Array:
        """The sizes of the messages in the slots of a neighbour table senders [m, d], as floats."""
        bits = jnp.asarray(self.bits, jnp.float32)
        return bits[senders] if self.of == "sender" else bits[:, None]


@struct.dataclass
class Around(Shown):
    """A network that wraps another."""

    base: Network  # the wrapped network
    name: str = struct.field(pytree_node=False, default="network", kw_only=True)

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    @property
    def largest_out_degree(self) -> int:
        """The most messages that a node sends in a round: the base's number or, if it has none, m - 1."""
        return getattr(self.base, "largest_out_degree", self.m - 1)


@struct.dataclass
class Lasting(Around):
    """A wrapper network that draws from the run's key what lasts for many rounds."""

    run: Array | None = struct.field(default=None, kw_only=True)  # key [] of the run; None: outside a run

    def in_run(self, key: Array, bits: int | Sizes) -> Self:
        """The network in a run, whose key determines all its rounds; the base gets a key of its own.

        Args:
            key ([]): Key of the run.
            bits: Size of one message of the run, in bits, from 0, or the `Sizes` of the nodes.
        """
        return replace(self, base=in_run(self.base, INNER.of(key), bits), run=key)

    @property
    def lasting(self) -> Array:
        """The key [] for what lasts for many rounds: derived from the run's key, or a fixed one outside a run."""
        return jax.random.key(_UNBOUND) if self.run is None else self.run


def in_run(network: Any, key: Array, bits: int | Sizes) -> Any:
    """The network as used in a run: what lasts for many rounds is drawn from the run's key.

    A network implements this in a method of the same name; wrappers pass it on to their base.

    Args:
        network: The network.
        key: Key [] of the run.
        bits: Size of one message of the run, in bits, from 0, or the `Sizes` of the nodes; needed by networks whose
            messages take time.

    Returns:
        The network of the same class with that key and size; unchanged if nothing in it lasts.
    """
    own = getattr(network, "in_run", None)
    if own is not None:
        return own(key, bits)
    return replace(network, base=in_run(network.base, key, bits)) if hasattr(network, "base") else network


def around(base: Network, name: str, *, on_time: str = "", lossless: str = "") -> tuple[Network, str]:
    """Prepare a base network for wrapping, and name the wrapper.

    The wrapped network's name, a static field, is removed, so networks that differ only in it share one compilation.
    `on_time` and `lossless` name wrappers that cannot be around late or lost messages.
    """
    refuse_synchronised(base, "a wrapper network")
    if on_time and kind_of(base).late is not None:
        raise ValueError(
            f"Expected a network for {on_time} whose messages are not late, got base = {called(base)}: in some rounds "
            "a node sends nothing, or receives nothing of what arrives. Use link_loss around delays."
        )
    if lossless and kind_of(base).lossy:
        raise ValueError(
            f"Expected a base without lost messages inside {lossless}, got base = {called(base)}: what is lost "
            "on the way to absent nodes or to nodes that asked is miscounted. Put link_loss or bursty_loss around it."
        )
    inside = replace(base, name="") if is_dataclass(base) and hasattr(base, "name") else base
    return inside, f"{name} of {called(base)}"


def node_names(network: Any) -> Names | None:
    """The names of a network's nodes; None where it has none, or is a class of a user without any."""
    return getattr(network, "node_names", None)


def per_node(name: str, value: Any, network: Network, default: Any = None) -> Any:
    """A value per node in the order of a network's nodes; a mapping may lack nodes, which get a `default`."""
    names = node_names(network) or range(network.m)
    if isinstance(value, Mapping) and default is not None:
        value = dict.fromkeys(names, default) | dict(cast(Any, value))
    return unlabelled(aligned(name, value, names, "the nodes of the network"))


def ids(m: int) -> Array:
    """The ids [m] int32 of all nodes."""
    return jnp.arange(m, dtype=jnp.int32)


def link_keys(key: Array, stream: Stream, graph: Graph, *, directed: bool) -> Array:
    """A key for every slot [m, d] of a graph.

    It is a function of the given key, the stream and the two nodes, so both ends derive the same key, and other links
    do not affect it.
    """
    node = ids(graph.m)
    one, other = jnp.broadcast_to(node[:, None], graph.senders.shape), graph.senders
    if not directed:
        one, other = jnp.minimum(one, other), jnp.maximum(one, other)
    return jax.vmap(jax.vmap(jax.random.fold_in))(stream.keys(key, node)[one], other)


def uniform(keys: Array) -> Array:
    """A uniform random number in [0, 1) from each key of an array."""
    draw = jax.vmap(lambda one: jax.random.uniform(one, (), jnp.float32))
    return draw(keys.reshape(-1)).reshape(keys.shape)


def shuffled(keys: Array) -> Array:
    """The nodes [m] int32 in a random order, sorted by 64 random bits of each node's own key [m]."""
    bits = jax.vmap(lambda one: jax.random.bits(one, (2,), jnp.uint32))(keys)
    return jnp.lexsort((bits[:, 0], bits[:, 1])).astype(jnp.int32)


def equal_shares(count: Array) -> tuple[Array, Array]:
    """Weights that split a node's row equally among itself and its `count` [m] int32 receivers: link and own, both [m].

    The own weight is exactly 1 - count * weight while count < 4096: the weight is split into two parts whose products
    with the count are exact in float32.
    """
    number = count.astype(jnp.float32)
    weight = 1 / (1 + number)
    short = lax.reduce_precision(weight, exponent_bits=8, mantissa_bits=11)
    return weight, (1 - number * short) - number * (weight - short)


def without(graph: Graph, up: Array, weights: Missing = "own") -> Graph:
    """The graph with some of its links removed; `out_degree` is unchanged.

    Own weights are adjusted by the missing weights rather than summed again, so W is unchanged if nothing is missing.
    """
    up = graph.mask & up
    node = jnp.arange(graph.m, dtype=graph.senders.dtype)[:, None]
    weight = jnp.where(up, graph.weight, 0)
    left = replace(graph, senders=jnp.where(up, graph.senders, node), mask=up, weight=weight)
    missing = graph.weight - weight
    if weights == "own":
        return replace(left, self_weight=graph.self_weight + jnp.sum(missing, axis=1))
    if weights == "sender":
        # Multiples of 2^-30, whose integer sum does not depend on the order of summation.
        parts = jnp.zeros((graph.m,), jnp.int32).at[graph.senders].add(jnp.round(missing * 2.0**30).astype(jnp.int32))
        return replace(left, self_weight=graph.self_weight + parts.astype(jnp.float32) * 2.0**-30)
    rest = jnp.sum(weight, axis=1) + graph.self_weight
    heard = rest > 0  # otherwise every row with a positive weight is missing
    weight = weight / jnp.where(heard, rest, 1)[:, None]
    return replace(left, weight=weight, self_weight=1 - jnp.sum(weight, axis=1))


def between(graph: Graph, active: Array, weights: Missing = "own") -> Graph:
    """The graph with only the links between active nodes; the others neither send nor receive."""
    left = without(graph, active[:, None] & active[graph.senders], weights)
    gone = (graph.mask & ~left.mask).astype(jnp.int32)
    sent = graph.out_degree.at[graph.senders].add(-gone)
    return replace(left, out_degree=jnp.where(active, sent, 0))
