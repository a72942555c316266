"""Who hears whom: the padded table of in-neighbours, and sums over it.

The table takes 9 m d bytes, d being the largest in-degree: 36 MB for a star of 2000 nodes, 90 GB for one of 100,000.
Buckets (`format="buckets"`) spare `mix` the time of the padding, not the memory.

Axes: m nodes, d slots (the largest in-degree, padded), n parameters.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal, Protocol, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import sparse

from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Bound
from jdfl.base.streams import each
from jdfl.devices import nodes
from jdfl.network.halo import Halo
from jdfl.network.sums import Buckets, bucket_sum, gather_sum

Format = Literal["padded", "dense", "bcoo", "buckets"]
Share: TypeAlias = Annotated[float, Bound("(0, 1]")]  # a probability that is not zero, a share that is not empty
_SAMPLE_BLOCK = 32  # nodes that draw at a time


@struct.dataclass
class Timing:
    """How long the work and the messages of a round take, in seconds."""

    compute: Array  # [m] float32 one gradient of every node
    travel: Array  # [m, d] float32 a message into every slot
    response: Array  # [m, d] float32 until a neighbour has computed and its message is here
    first: bool = struct.field(pytree_node=False)  # whether who asks only some takes the first that respond


@struct.dataclass
class Late:
    """How many rounds messages are on their way."""

    takes: Array  # [m, d] int32 of a message that is sent in this round
    age: Array  # [m, d] int32 since the newest message that has come was sent
    come: Array  # [m, d] bool whether any has come yet
    bound: int = struct.field(pytree_node=False)  # the most of both


@struct.dataclass
class Graph:
    """The network of one round. Row i lists the nodes that node i hears; a padded slot holds i itself, weight 0.

    Where the nodes are spread over devices, these are the rows of one device; `senders` count rows of `gathered(x)`.
    """

    senders: Array  # [m, d] int32 in-neighbours, without the node itself
    mask: Array  # [m, d] bool, False = padding
    weight: Array  # [m, d] float32 mixing weight W[i, senders[i, j]], 0 = padding
    self_weight: Array  # [m] float32 W[i, i]
    out_degree: Array  # [m] int32 messages that node i sends: the nodes that hear it, and in a lossy graph others
    format: Format = struct.field(pytree_node=False, default="padded")  # how `mix` multiplies
    buckets: Buckets | None = None  # rows by in-degree, for the format "buckets"
    lossy: bool = struct.field(pytree_node=False, default=False)  # whether `out_degree` counts lost messages too
    synchronised: Array | None = None  # bool [] whether W is 1/m everywhere, not the table's; None: it never is
    away: Array | None = None  # [m] bool nodes that do nothing at all in this round; None: there are none
    timing: Timing | None = None  # None: nobody looks at the time
    late: Late | None = None  # None: messages arrive in the round in which they are sent
    halo: Halo | None = None  # how rows come from other devices; None: all of them do, or there is one device

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.senders.shape[0]

    def gathered(self, x: Array) -> Array:
        """The rows that `senders` count, x [m, ...] itself on one device; others' rows come from their devices."""
        return nodes.everyone(x) if self.halo is None or nodes.share() is None else self.halo.received(x)

    def taken(self, chosen: Array) -> Array:
        """The slots [m, d] whose messages are sent where all nodes take those `chosen` [m, d].

        Who takes the first that respond has asked all, and the others answer too.
        """
        if self.timing is None or not self.timing.first:
            return chosen
        return self.mask & jnp.any(chosen, axis=1, keepdims=True)

    def asked(self, chosen: Array) -> Array:
        """How many of the slots `chosen` [m, d], of all nodes together, hold each node [m] int32."""
        here = nodes.share()
        if here is None:
            return jnp.zeros((self.m,), jnp.int32).at[self.senders].add(chosen.astype(jnp.int32))
        count = (chosen & nodes.real(self.m)[:, None]).astype(jnp.int32)
        if self.halo is None:
            named = jnp.zeros((here.devices * self.m,), jnp.int32).at[self.senders].add(count)
            return lax.psum_scatter(named, here.axis, tiled=True)
        size = self.m + sum(rows.shape[0] for rows in self.halo.rows)
        return self.halo.returned(jnp.zeros((size,), jnp.int32).at[self.senders].add(count), self.m)

    @property
    def in_degree(self) -> Array:
        """[m] int32 number of nodes that node i hears, itself not counted."""
        heard = jnp.sum(self.mask, axis=1, dtype=jnp.int32)
        return heard if self.synchronised is None else jnp.where(self.synchronised, nodes.count(self.m) - 1, heard)


class Network(Protocol):
    """Gives the graph of every round: fixed, periodic, or drawn anew.

    One with something that lasts for many rounds, such as links that stay bad for a while, has a method `in_run(key,
    bits)` too: the same network with the key of a run, from which it draws that, and the size of the run's messages.
    """

    @property
    def m(self) -> int:
        """The number of nodes."""
        ...

    def at(self, k: Array, key: Array) -> Graph:
        """The graph of a round.

        It need not be connected, and a node may hear nobody in it (in-degree 0, self_weight 1).

        Args:
            k ([]): Number of the round, int32 from 0.
            key ([]): Randomness of that round, the same for all nodes.
        """
        ...


@struct.dataclass
class Static:
    """The same graph in every round."""

    graph: Graph
    name: str = struct.field(pytree_node=False, default="network")
    rule: str | None = struct.field(pytree_node=False, default=None)  # the weights' name, "given" or None: unknown

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.graph.m

    def at(self, k: Array, key: Array) -> Graph:
        """The one graph, whatever the round."""
        return self.graph

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that hear one node in any round (on the host)."""
        return int(np.max(np.asarray(self.graph.out_degree)))


def round_of(network: Network, t: int) -> Graph:
    """The graph of one round, drawn with a key of its own, for what is known of a network before a run.

    It is one compiled program for all rounds of a network, of which `at` alone compiles operation by operation.
    """
    return network.graph if isinstance(network, Static) else _drawn(network, jnp.int32(t), jax.random.key(t))


@jax.jit
def _drawn(network: Network, k: Array, key: Array) -> Graph:
    return network.at(k, key)


def as_dense(graph: Graph) -> Array:
    """The mixing matrix W [m, m] float32; where the nodes lie on several devices, a device's rows of it [m, M]."""
    row, every = jnp.arange(graph.m), nodes.count(graph.m)
    off_diagonal = jnp.zeros((graph.m, every), graph.weight.dtype).at[row[:, None], graph.senders].add(graph.weight)
    W = off_diagonal.at[row, nodes.ids(graph.m)].add(graph.self_weight)
    return W if graph.synchronised is None else jnp.where(graph.synchronised, jnp.full_like(W, 1 / every), W)


def as_bcoo(graph: Graph) -> sparse.BCOO:
    """`as_dense` in JAX's BCOO format; padded slots stay as explicit zeros.

    A graph that may be synchronised gives all entries, zeros among them.
    """
    m, d = graph.senders.shape
    if graph.synchronised is not None:
        W = as_dense(graph)
        return sparse.BCOO.fromdense(W, nse=W.size)
    row = jnp.broadcast_to(jnp.arange(m, dtype=graph.senders.dtype)[:, None], (m, d + 1))
    column = jnp.concatenate([graph.senders, nodes.ids(m)[:, None].astype(row.dtype)], axis=1)
    value = jnp.concatenate([graph.weight, graph.self_weight[:, None]], axis=1)
    places = jnp.stack([row, column], axis=-1).reshape(-1, 2)
    return sparse.BCOO((value.reshape(-1), places), shape=(m, nodes.count(m)))


def mix(graph: Graph, x: Array) -> Array:
    """W x: each node's weighted sum of its own row and of its in-neighbours' rows; in a synchronised round their mean.

    Args:
        graph: The network of the round, whose format says how the product is computed.
        x: Rows x [m, n] of floating-point numbers, one for every node.

    Returns:
        Rows [m, n] of the dtype of `x`.

    Raises:
        ValueError: For whole numbers, in which weights below one are all zero, and for the format "buckets" without
            them.
    """
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        raise ValueError(
            f"Expected floating-point rows x, got dtype {x.dtype}. Convert them with x.astype(jnp.float32)."
        )
    if graph.synchronised is None:
        return _mix(graph, x)
    return lax.cond(graph.synchronised, lambda _, x: _mean(x), _mix, replace(graph, synchronised=None), x)


def _mean(x: Array) -> Array:
    """The mean of all rows, in every row."""
    return jnp.broadcast_to(nodes.mean(x), x.shape)


def _mix(graph: Graph, x: Array) -> Array:
    """`mix` by the table."""
    if graph.format == "dense":
        return jnp.dot(as_dense(graph).astype(x.dtype), nodes.everyone(x), precision=ops.HIGHEST)
    if graph.format == "bcoo":
        matrix = as_bcoo(graph)
        matrix = sparse.BCOO((matrix.data.astype(x.dtype), matrix.indices), shape=matrix.shape)
        product = cast(Any, sparse.bcoo_dot_general)  # annotated too narrowly: it takes a precision
        return product(matrix, nodes.everyone(x), dimension_numbers=(((1,), (0,)), ((), ())), precision=ops.HIGHEST)
    own = graph.self_weight.astype(x.dtype)[:, None] * x
    if graph.format == "padded":
        return own + gather_sum(graph.senders, graph.weight, graph.gathered(x))
    if graph.buckets is None:
        raise ValueError(
            "Expected buckets in a graph with format = 'buckets', got buckets = None. Pass the graph through "
            "jdfl.network.bucketed."
        )
    return own + bucket_sum(graph.buckets, graph.senders, graph.weight, x)


def sample_neighbours(key: Array, graph: Graph, node: Array, count: Array, wanted: Array | None = None) -> Array:
    """Choose some in-neighbours of every node uniformly without replacement, in exact numbers.

    Slots are ranked by random bits of the node's own key, so that the choice does not depend on padding or on the place
    of the node. In a graph whose timing says so it is not random: those are chosen that respond first.

    Args:
        key: Key [] of a stream, from which nothing else is drawn.
        graph: The network of the round.
        node: node [m] int32, the nodes' ids over all devices.
        count: count [m] int32, how many a node chooses; one with fewer in-neighbours gets all of them.
        wanted: wanted [m] bool, the only nodes that draw, and cost anything; the others get nobody. None: all draw.

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
        order = jnp.lexsort((turn, ~graph.mask[rows]), axis=1)  # padding last, then by bits or time
        rank = jnp.argsort(order, axis=1).astype(jnp.int32)
        return chosen.at[rows].set(graph.mask[rows] & (rank < count[rows][:, None]), mode="drop")

    nobody = jnp.zeros((m, d), jnp.bool_)
    if wanted is None:
        return draw(jnp.arange(m), nobody)
    return ops.for_rows(wanted, min(m, _SAMPLE_BLOCK), draw, nobody)
