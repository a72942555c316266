"""Networks around networks, and what those that draw links have in common: random numbers, shares, graphs without some.

A network and the one around it draw with different keys, and so do wrappers in one another.

Axes: m nodes, d slots of the table.
"""

from dataclasses import is_dataclass, replace
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.streams import Stream
from jdfl.network.graph import Graph, Network
from jdfl.network.tables import called, kind_of, refuse_synchronised

Missing = Literal["own", "rescale", "sender"]

INNER = Stream("network.inside", "network")  # all that the network inside draws
_UNBOUND = 0  # seed of what a network draws for many rounds, outside a run


@struct.dataclass
class Around:
    """A network around another."""

    base: Network  # the network inside
    name: str = struct.field(pytree_node=False, default="network", kw_only=True)

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.base.m

    @property
    def largest_out_degree(self) -> int:
        """The most messages that a node sends in a round: as in the network inside, or where it does not say, m - 1."""
        return getattr(self.base, "largest_out_degree", self.m - 1)


@struct.dataclass
class Lasting(Around):
    """A network around another that draws from the run's key what lasts for many rounds."""

    run: Array | None = struct.field(default=None, kw_only=True)  # that key []; None: outside a run

    def in_run(self, key: Array, bits: int) -> Self:
        """The network in a run, from whose key all its rounds follow; the network inside has a key of its own.

        Args:
            key ([]): Key of the run.
            bits: Size of one message of the run, in bits, from 0.
        """
        return replace(self, base=in_run(self.base, INNER.of(key), bits), run=key)

    @property
    def lasting(self) -> Array:
        """The key [] of what lasts for many rounds: the run's, and outside a run a fixed one."""
        return jax.random.key(_UNBOUND) if self.run is None else self.run


def in_run(network: Any, key: Array, bits: int) -> Any:
    """The network as a run has it: what belongs to many rounds is drawn from the run's key.

    A network says what it makes of them in a method of this name; of wrappers the network inside is asked as well.

    Args:
        network: The network.
        key: Key [] of the run.
        bits: Size of one message of the run, in bits, from 0; networks whose messages take time need it.

    Returns:
        The network with that key and size in it, of the same class; one with nothing that lasts as it was.
    """
    own = getattr(network, "in_run", None)
    if own is not None:
        return own(key, bits)
    return replace(network, base=in_run(network.base, key, bits)) if hasattr(network, "base") else network


def around(base: Network, name: str, *, on_time: str = "") -> tuple[Network, str]:
    """The network inside a wrapper, and what the wrapper is called.

    The network inside has no name, which is static: networks that differ in it only are compiled once.

    Args:
        base: The network that is to be wrapped.
        name: What the wrapper does, with its settings, in a few words.
        on_time: The wrapper's name, where it has rounds in which nodes send nothing, or take in nothing; "": it has
            none.

    Returns:
        The network without its name, and the name of wrapper and network together.

    Raises:
        ValueError: For a synchronised network, of which the tables of neighbours are not all, and with `on_time` for
            one whose messages are late.
    """
    refuse_synchronised(base, "a network around it")
    if on_time and kind_of(base).late is not None:
        raise ValueError(
            f"Expected a network for {on_time} whose messages are not late, got base = {called(base)}: there are "
            "rounds in which a node sends nothing, or takes in nothing of what arrives. Use link_loss around delays."
        )
    inside = replace(base, name="") if is_dataclass(base) and hasattr(base, "name") else base
    return inside, f"{name} of {called(base)}"


def ids(m: int) -> Array:
    """The ids [m] int32 of all nodes."""
    return jnp.arange(m, dtype=jnp.int32)


def link_keys(key: Array, stream: Stream, graph: Graph, *, directed: bool) -> Array:
    """A key for every slot [m, d] of a graph.

    They follow from the key, the stream and the two nodes, so that both know them and no other link changes them.

    Args:
        key ([]): Key of the round, or of a run for what lasts.
        stream: What is drawn with them.
        graph: The graph whose links they are for.
        directed: Whether the two ways of a link have keys of their own; otherwise they have the same.
    """
    node = ids(graph.m)
    one, other = jnp.broadcast_to(node[:, None], graph.senders.shape), graph.senders
    if not directed:
        one, other = jnp.minimum(one, other), jnp.maximum(one, other)
    return jax.vmap(jax.vmap(jax.random.fold_in))(stream.keys(key, node)[one], other)


def uniform(keys: Array) -> Array:
    """A uniform number in [0, 1) from each of an array of keys."""
    draw = jax.vmap(lambda one: jax.random.uniform(one, (), jnp.float32))
    return draw(keys.reshape(-1)).reshape(keys.shape)


def shuffled(keys: Array) -> Array:
    """The nodes [m] int32 in a random order, that of 64 random bits of each node's own key [m]."""
    bits = jax.vmap(lambda one: jax.random.bits(one, (2,), jnp.uint32))(keys)
    return jnp.lexsort((bits[:, 0], bits[:, 1])).astype(jnp.int32)


def equal_shares(count: Array) -> tuple[Array, Array]:
    """A node's row in equal parts for itself and the `count` [m] int32 that hear it: their weight, its own, both [m].

    The own one is 1 - count * weight without rounding while count < 4096: the weight is taken in two parts, whose
    products with the count are exact in float32.
    """
    number = count.astype(jnp.float32)
    weight = 1 / (1 + number)
    short = lax.reduce_precision(weight, exponent_bits=8, mantissa_bits=11)
    return weight, (1 - number * short) - number * (weight - short)


def without(graph: Graph, up: Array, weights: Missing = "own") -> Graph:
    """The graph without some of its links; `out_degree` is as it was.

    Own weights are changed by what is missing, not summed anew, so that with nothing missing W stays as it is.

    Args:
        graph: The graph.
        up ([m, d]): Which slots stay, bool; padding does not count.
        weights: Where the weight of the others goes: to the receiver's own row ("own"), or to the sender's ("sender"),
            or a receiver's weights are scaled up to sum to one ("rescale"; where none is left, a node keeps its row).
    """
    up = graph.mask & up
    node = jnp.arange(graph.m, dtype=graph.senders.dtype)[:, None]
    weight = jnp.where(up, graph.weight, 0)
    left = replace(graph, senders=jnp.where(up, graph.senders, node), mask=up, weight=weight)
    missing = graph.weight - weight
    if weights == "own":
        return replace(left, self_weight=graph.self_weight + jnp.sum(missing, axis=1))
    if weights == "sender":
        # Whole numbers of 2^-30, whose sum does not depend on its order.
        parts = jnp.zeros((graph.m,), jnp.int32).at[graph.senders].add(jnp.round(missing * 2.0**30).astype(jnp.int32))
        return replace(left, self_weight=graph.self_weight + parts.astype(jnp.float32) * 2.0**-30)
    rest = jnp.sum(weight, axis=1) + graph.self_weight
    heard = rest > 0  # else all that a node gives weight to is missing
    weight = weight / jnp.where(heard, rest, 1)[:, None]
    return replace(left, weight=weight, self_weight=1 - jnp.sum(weight, axis=1))


def between(graph: Graph, active: Array, weights: Missing = "own") -> Graph:
    """The graph with only the links between nodes that are active; the others send nothing, and hear nobody.

    Args:
        graph: The graph.
        active ([m]): Which nodes are active, bool.
        weights: Where the weight of links that are missing goes, as for `without`.
    """
    left = without(graph, active[:, None] & active[graph.senders], weights)
    gone = (graph.mask & ~left.mask).astype(jnp.int32)
    sent = graph.out_degree.at[graph.senders].add(-gone)
    return replace(left, out_degree=jnp.where(active, sent, 0))
