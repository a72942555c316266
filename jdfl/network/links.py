"""Wrapper networks, and what networks with random links share: random numbers, subsets of nodes, graphs with other
links or weights.

A network and its wrapper draw with different keys, and so do nested wrappers.

Axes: m nodes, d slots of the table.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

import jax
import jax.numpy as jnp
from jax import Array, lax
from typing_extensions import Doc

from jdfl.base import struct
from jdfl.base.names import Names, aligned, unlabelled
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.network.graph import Graph, Network, Shown
from jdfl.network.tables import called, kind_of, refuse_synchronised

Missing = Annotated[
    Literal["own", "rescale", "sender"],
    Doc(
        'A missing weight goes to the receiver\'s own row ("own"), or the remaining weights are rescaled to sum to one '
        '("rescale"), or the sender keeps it ("sender", for push-sum).'
    ),
]

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
        """The network in a run, whose key [] determines all its rounds; the base gets a key of its own."""
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
    # The name is a static field: without it, networks that differ only in their names share one compilation.
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
    """A key for every slot [m, d] of a graph, from the two nodes alone: both ends of a link derive the same key."""
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
    """Weights by which nodes split a row among themselves and count [m] int32 receivers: link and own, both [m]."""
    number = count.astype(jnp.float32)
    weight = 1 / (1 + number)
    # Own is exactly 1 - count * weight while count < 4096: both parts of the weight have exact products with the count.
    short = lax.reduce_precision(weight, exponent_bits=8, mantissa_bits=11)
    return weight, (1 - number * short) - number * (weight - short)


def without(graph: Graph, up: Array, weights: Missing = "own") -> Graph:
    """The graph with some of its links removed; `out_degree` is unchanged, and so is W if nothing is missing."""
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


def averaging(graph: Graph) -> Graph:
    """The same links with equal weights in every row, which sum to one: a node averages what it receives with its own.

    This is the row-stochastic matrix of methods for directed networks. Receivers can compute it themselves.
    """
    weight, own = equal_shares(jnp.sum(graph.mask, axis=1, dtype=jnp.int32))
    return replace(graph, weight=jnp.where(graph.mask, weight[:, None], 0), self_weight=own)


def adding(graph: Graph) -> Graph:
    """The same links with weight 1, and 0 for a node itself: mixing adds up what the in-neighbours send.

    `Round.pull` then computes minus the product with the Laplacian of the graph, sum_j (x_j - x_i).
    """
    return replace(graph, weight=graph.mask.astype(graph.weight.dtype), self_weight=jnp.zeros_like(graph.self_weight))


def parents(graph: Graph, node: Array) -> Array:
    """The ids [m] of the nodes' parents in a breadth-first spanning tree from node 0, which has the parent -1.

    A parent is the neighbour with the smallest id of those nearest to node 0, so the tree depends on ids alone.
    """
    most = jnp.int32(nodes.count(node.shape[0]))

    def nearer(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        near = jnp.where(graph.mask, graph.gathered(carry[0])[graph.senders] + 1, most)
        new = jnp.minimum(carry[0], near.min(axis=1, initial=most))
        return new, nodes.total((new != carry[0]).astype(jnp.int32)) > 0

    start = jnp.where(node == 0, jnp.int32(0), most)
    far, _ = lax.while_loop(lambda carry: carry[1], nearer, (start, jnp.bool_(True)))
    before = graph.mask & (graph.gathered(far)[graph.senders] == far[:, None] - 1)
    ids = jnp.where(before, graph.gathered(node)[graph.senders], most)
    return jnp.where(node == 0, jnp.int32(-1), ids.min(axis=1, initial=most))


def branches(graph: Graph, node: Array, parent: Array) -> tuple[Graph, Graph]:
    """The graph with the links of a tree alone, and weights with which mixing gives every node the row of its parent.

    The second has weights that give the sum of its children's rows. The `parent` [m] is the result of `parents`.
    """
    above = graph.mask & (graph.gathered(node)[graph.senders] == parent[:, None])
    below = graph.mask & (graph.gathered(parent)[graph.senders] == node[:, None])
    mask, own = above | below, jnp.zeros_like(graph.self_weight)
    tree = replace(graph, mask=mask, self_weight=own, out_degree=jnp.sum(mask, axis=1, dtype=jnp.int32))
    first, second = (replace(tree, weight=slots.astype(graph.weight.dtype)) for slots in (above, below))
    return first, second
