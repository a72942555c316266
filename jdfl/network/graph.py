"""The communication graph of a round: the padded table of in-neighbours, and weighted sums over it.

The table takes 9 m d bytes, d being the largest in-degree: 36 MB for a star of 2000 nodes, 90 GB for one of 100,000.
Buckets (`format="buckets"`) save `mix` the time spent on padding, but no memory.

Axes: m nodes, d slots (the largest in-degree, padded), n parameters.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Annotated, Any, Literal, Protocol, Self, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from jdfl.arrays import ops
from jdfl.base import checks, hooks, struct
from jdfl.base.display import Described
from jdfl.base.names import Names, NodeNames, names_of
from jdfl.base.names import shown as displayed
from jdfl.base.settings import Bound
from jdfl.base.streams import each
from jdfl.devices import nodes
from jdfl.devices.memory import at_once
from jdfl.network.sums import Buckets, Halo, bucket_sum, gather_sum

Format = Literal["padded", "dense", "buckets"]
Share: TypeAlias = Annotated[float, Bound("(0, 1]")]  # a nonzero probability, or a nonempty share
_NAME = 80  # characters of a name that are displayed
_UNSAID = ("m", "name", "names", "format", "run")  # fields that are displayed elsewhere, or not at all
_PARTS = ("graph", "graphs", "base")  # fields of networks that may have names
_SAMPLE_BLOCK = 32  # nodes that draw at a time


@struct.dataclass
class Timing:
    """How long computing and sending take in a round, in seconds."""

    compute: Array  # [m] float32 time of one gradient at each node
    travel: Array  # [m, d] float32 travel time of the message into each slot
    response: Array  # [m, d] float32 time until the neighbour has computed and its message has arrived
    first: bool = struct.field(pytree_node=False)  # whether a node that samples neighbours takes the first to respond


@struct.dataclass
class Late:
    """Message delays, in rounds."""

    takes: Array  # [m, d] int32 delay of a message sent in this round
    age: Array  # [m, d] int32 age of the newest message that has arrived
    come: Array  # [m, d] bool whether any message has arrived yet
    bound: int = struct.field(pytree_node=False)  # upper bound on both


@struct.dataclass
class Graph:
    """The network of one round. Row i lists node i's in-neighbours; a padded slot holds i itself, with weight 0.

    Where the nodes are sharded over devices, these are the rows of one device; `senders` indexes rows of `gathered(x)`.
    """

    senders: Array  # [m, d] int32 in-neighbours, excluding the node itself
    mask: Array  # [m, d] bool, False = padding
    weight: Array  # [m, d] float32 mixing weight W[i, senders[i, j]], 0 = padding
    self_weight: Array  # [m] float32 W[i, i]
    out_degree: Array  # [m] int32 messages that node i sends: its receivers; in a lossy graph, lost messages too
    format: Format = struct.field(pytree_node=False, default="padded")  # how `mix` multiplies
    buckets: Buckets | None = None  # rows grouped by in-degree, for the format "buckets"
    lossy: bool = struct.field(pytree_node=False, default=False)  # whether `out_degree` also counts lost messages
    synchronised: Array | None = None  # bool [] whether W is 1/m everywhere instead of the table's; None: never
    away: Array | None = None  # [m] bool nodes that are inactive in this round; None: none
    timing: Timing | None = None  # None: time is not simulated
    late: Late | None = None  # None: messages arrive in the round in which they are sent
    halo: Halo | None = None  # which rows come from other devices; None: all of them, or there is only one device
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())  # of the nodes, in the order of the rows

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.senders.shape[0]

    def gathered(self, x: Array) -> Array:
        """The rows that `senders` indexes: x [m, ...] on one device; otherwise also the rows of other devices."""
        return nodes.gather(x) if self.halo is None or nodes.share() is None else self.halo.received(x)

    def taken(self, chosen: Array) -> Array:
        """The slots [m, d] whose messages are sent if all nodes take those in `chosen` [m, d].

        A node that takes the first responses has requested all messages, and the other neighbours answer too.
        """
        if self.timing is None or not self.timing.first:
            return chosen
        return self.mask & jnp.any(chosen, axis=1, keepdims=True)

    def asked(self, chosen: Array) -> Array:
        """How many of the slots `chosen` [m, d], over all nodes, hold each node: [m] int32."""
        return self.returned(chosen.astype(jnp.int32))

    def returned(self, x: Array) -> Array:
        """The sums [m, ...] of the numbers x [m, d, ...] in all slots that hold a node, over all nodes."""
        here, x = nodes.share(), nodes.counted(x)

        def sums(size: int) -> Array:
            return jnp.zeros((size, *x.shape[2:]), x.dtype).at[self.senders].add(x)

        if here is None:
            return sums(self.m)
        if self.halo is None:
            return lax.psum_scatter(sums(here.devices * self.m), here.axis, tiled=True)
        return self.halo.returned(sums(self.m + sum(rows.shape[0] for rows in self.halo.rows)), self.m)

    @property
    def in_degree(self) -> Array:
        """[m] int32 number of in-neighbours of each node, itself excluded."""
        heard = jnp.sum(self.mask, axis=1, dtype=jnp.int32)
        return heard if self.synchronised is None else jnp.where(self.synchronised, nodes.count(self.m) - 1, heard)


class Network(Protocol):
    """Supplies the graph of each round: fixed, periodic, or random.

    A network with state that lasts for many rounds, such as links that stay bad for a while, also has a method
    `in_run(key, bits)`: the same network with the run's key, from which it draws that state, and the message size
    in bits: a number or, where it depends on the node, the `jdfl.network.links.Sizes`.
    """

    @property
    def m(self) -> int:
        """The number of nodes."""
        ...

    def at(self, k: Array, key: Array) -> Graph:
        """The graph of a round.

        It need not be connected, and a node may have no in-neighbours (in-degree 0, self_weight 1).

        Args:
            k ([]): The round number, int32 from 0.
            key ([]): Random key of that round, shared by all nodes.
        """
        ...


class Shown(Described):
    """The base class of networks, which may have names of nodes, and whose repr has at most 12 lines."""

    @property
    def node_names(self) -> Names | None:
        """The names of the nodes in the order of their rows, as text, numbers or tuples; None where they have none."""
        inside: Any = next((getattr(self, one) for one in _PARTS if hasattr(self, one)), self)
        if inside is self or _has_rows(inside):
            return getattr(inside, "names", NodeNames()).names
        return getattr(inside, "node_names", None)

    def named(self, names: Any) -> Self:
        """The same network, whose node i is called names[i].

        `jdfl.run` pairs the nodes of a network and of a problem by name where both have names, by position otherwise.

        Args:
            names: Names [m], text or whole numbers, all different; None: none, so that nodes are paired by position.

        Raises ValueError for another number of names, and for missing or repeated ones.
        """
        own = NodeNames(None if names is None else names_of("names", names, getattr(self, "m", None)))
        for part in _PARTS:
            if (inside := getattr(self, part, None)) is not None:
                checks.able(("names" if _has_rows(inside) else "named",), "a network of jdfl.network", base=inside)
                new = replace(inside, names=own) if _has_rows(inside) else inside.named(own.names)
                return replace(cast(Any, self), **{part: new})
        return replace(cast(Any, self), names=own)

    def plot(
        self,
        positions: Any = None,
        *,
        labels: bool | None = None,
        ax: Any = None,
        width: Literal["column", "page"] | float = "page",
        height: float | None = None,
    ) -> Any:
        """Draw nodes and links: `fig, ax = network.plot()`. Links that run one way are arrows.

        Args:
            positions: Where nodes are [m, 2], in their order, or by name in a mapping or a DataFrame; None: as known,
                and else so that neighbours are close together.
            labels: Write the names of nodes; None: of at most 60.
            ax: Axes of matplotlib to draw into; None: a new figure.
            width: The width of a new figure: "column" (3.3 inches), "page" (7 inches), or a number of inches.
            height: Its height in inches; None: as suits the width.

        Returns:
            The figure and its Axes. A network that changes is drawn as in its first round.

        Raises ValueError for other positions than one for every node.
        """
        return hooks.find("plot_network")(self, positions, labels=labels, ax=ax, width=width, height=height)

    def _described(self) -> tuple[str, list[tuple[str, str]]]:
        """A heading, and lines for which nothing expensive is computed; inside of JAX the heading alone."""
        name = getattr(self, "name", "")[:_NAME]
        head = f"{type(self).__name__} network" + (f" {name!r}" if name else "")
        try:
            return head, list(_about(self))
        except Exception:
            return head, []


def _has_rows(part: Any) -> bool:
    return hasattr(part, "senders")


def _about(network: Any) -> Iterator[tuple[str, str]]:
    names = network.node_names
    yield "nodes", f"{network.m:,}" + (f": {displayed(names)}" if isinstance(names, tuple) else "")
    if isinstance(network, Static):
        degree = np.sum(np.asarray(network.graph.mask), axis=1)
        yield "in-degree", f"{degree.min()} to {degree.max()}, mean {degree.mean():.4g}"
        yield "links", f"{int(degree.sum()):,} from node to node"
        yield "weights", network.rule or "not named"
        return
    for one in fields(network):
        value = getattr(network, one.name)
        if one.name not in _UNSAID and np.ndim(value) == 0 and jax.tree.leaves(value) == [value]:
            yield one.name, f"{value:g}" if isinstance(value, float) or hasattr(value, "dtype") else str(value)
    if hasattr(network, "base"):
        yield "around", f"{type(network.base).__name__} network"
        yield from list(_about(network.base))[1:]


class OfTables(Shown):
    """The base class of networks whose links are among those of a `graph`, or of `graphs` with another leading axis."""

    @property
    def _tables(self) -> Graph:
        return next(getattr(self, one) for one in _PARTS if hasattr(self, one))

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self._tables.senders.shape[-2]

    @property
    def largest_out_degree(self) -> int:
        """The largest number of receivers that one node can have in a round (on the host)."""
        return int(np.max(np.asarray(self._tables.out_degree)))


@struct.dataclass
class Static(OfTables):
    """The same graph in every round."""

    graph: Graph
    name: str = struct.field(pytree_node=False, default="network")
    rule: str | None = struct.field(pytree_node=False, default=None)  # name of the weights, "given", or None: unknown

    def at(self, k: Array, key: Array) -> Graph:
        return self.graph


def round_of(network: Network, t: int) -> Graph:
    """The graph of one round, drawn with a fixed key by one compiled program, to learn about a network before a run."""
    if isinstance(network, Static):
        return network.graph
    own = NodeNames(getattr(network, "node_names", None))  # a compiled program may have those of another network
    return replace(_sample(network, jnp.int32(t), jax.random.key(t)), names=own)


@jax.jit
def _sample(network: Network, k: Array, key: Array) -> Graph:
    return network.at(k, key)


def as_dense(graph: Graph) -> Array:
    """The mixing matrix W [m, m] float32; where the nodes are sharded over devices, this device's rows [m, M]."""
    return (_dense if isinstance(graph.weight, Tracer) else _dense_compiled)(graph)


def _dense(graph: Graph) -> Array:
    row, every = jnp.arange(graph.m), nodes.count(graph.m)
    off_diagonal = jnp.zeros((graph.m, every), graph.weight.dtype).at[row[:, None], graph.senders].add(graph.weight)
    W = off_diagonal.at[row, nodes.ids(graph.m)].add(graph.self_weight)
    return W if graph.synchronised is None else jnp.where(graph.synchronised, jnp.full_like(W, 1 / every), W)


_dense_compiled = jax.jit(_dense)  # outside a run, each operation would be a program


def mix(graph: Graph, x: Array, *, cheap: bool = False) -> Array:
    """W x: each node's weighted sum of its own row and its in-neighbours' rows; in a synchronised round, the mean.

    Args:
        graph: The network of the round, whose format selects how the product is computed.
        x: Rows x [m, n] of floating-point numbers, one for every node.
        cheap: Whether computing a number of x again costs less than reading it: a GPU then forms x nowhere.

    Returns:
        Rows [m, n] of the dtype of `x`.

    Raises:
        ValueError: For integers, in which weights below one would all be zero, and for the format "buckets" in a graph
            without buckets.
    """
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        raise ValueError(
            f"Expected floating-point rows x, got dtype {x.dtype}. Convert them with x.astype(jnp.float32)."
        )
    if graph.synchronised is None:
        return _mix(graph, x, cheap)

    def mean(_: Graph, x: Array) -> Array:
        return jnp.broadcast_to(nodes.mean(x), x.shape)

    return lax.cond(graph.synchronised, mean, _mix, replace(graph, synchronised=None), x)


def _mix(graph: Graph, x: Array, cheap: bool = False) -> Array:
    if graph.format == "dense":
        return jnp.dot(as_dense(graph).astype(x.dtype), nodes.gather(x), precision=ops.HIGHEST)
    own = graph.self_weight.astype(x.dtype)[:, None] * x
    if graph.format == "padded":
        # The rows of every device lie in an array of their own. A GPU reads them there: they are not concatenated.
        x = x if cheap or graph.halo is None else lax.optimization_barrier(x)
        cheap = cheap or graph.halo is not None
        return own + gather_sum(graph.senders, graph.weight, graph.gathered(x), cheap=cheap)
    if graph.buckets is None:
        raise ValueError(
            "Expected buckets in a graph with format = 'buckets', got buckets = None. Pass the graph through "
            "jdfl.network.bucketed."
        )
    return own + bucket_sum(graph.buckets, graph.senders, graph.weight, x)


def sample_neighbours(key: Array, graph: Graph, node: Array, count: Array, wanted: Array | None = None) -> Array:
    """Choose exactly `count` in-neighbours of each node, uniformly at random without replacement.

    Slots are ranked by random bits from the node's own key, so the choice depends neither on padding nor on the node's
    position. In a graph with `timing.first` the choice is not random: the first neighbours to respond are taken.

    Args:
        key: Key [] of a stream from which nothing else is drawn.
        graph: The network of the round.
        node: node [m] int32, node ids across all devices.
        count: count [m] int32, neighbours to choose per node; a node with fewer in-neighbours gets all of them.
        wanted: wanted [m] bool, the only nodes that draw; the others get no neighbours and cost nothing. None: all
            draw.

    Returns:
        The chosen slots: bool [m, d].
    """
    m, d = graph.senders.shape
    keys = each(key, node)
    response = graph.timing.response if graph.timing is not None and graph.timing.first else None

    def draw(rows: Array, chosen: Array) -> Array:
        if response is None:
            turn = jax.vmap(lambda one: jax.random.bits(one, (d,), jnp.uint32))(keys[rows])
        else:
            turn = response[rows]
        order = jnp.lexsort((turn, ~graph.mask[rows]), axis=1)  # padding last, then by random bits or response time
        rank = jnp.argsort(order, axis=1).astype(jnp.int32)
        return chosen.at[rows].set(graph.mask[rows] & (rank < count[rows][:, None]), mode="drop")

    nobody = jnp.zeros((m, d), jnp.bool_)
    if wanted is None:
        return draw(jnp.arange(m), nobody)
    return ops.for_rows(wanted, at_once(m, 8 * d, _SAMPLE_BLOCK), draw, nobody)
