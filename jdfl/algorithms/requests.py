"""Sums of the messages that every node requests from some of its neighbours, each encoded and decoded once.

Axes: m nodes, n parameters, d slots of the neighbour table, b nodes of a block.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.round import MODEL, Round
from jdfl.arrays.ops import Nonzeros, dense, gathered_sum
from jdfl.base.streams import Stream
from jdfl.codecs import each_row, receive, transmit
from jdfl.network import Graph, sample_neighbours
from jdfl.network.late import Past, known
from jdfl.network.sums import gather_sum

if TYPE_CHECKING:
    from jdfl.algorithms.ceps import CEPS

_NEIGHBOURS, _OWN = Stream("ceps.neighbours", "choice"), Stream("ceps.own", "choice")  # requested nodes


def sizes(asking: "CEPS", graph: Graph) -> tuple[Array, Array]:
    """How many nodes a node may ask and how many it does, by `asking`, both [m] int32; without neighbours itself."""
    degree = graph.in_degree
    everyone = jnp.maximum(degree, 1) if asking.own == "absent" else degree + 1
    wanted = jnp.asarray(asking.rate, jnp.float32) * everyone.astype(jnp.float32)
    return everyone, jnp.clip(jnp.ceil(wanted - 1e-4).astype(jnp.int32), 1, everyone)  # 0.2 * 15 is 3, not 4


def combined(asking: "CEPS", graph: Graph) -> Array:
    """How many nodes enter each average on the `graph` [m] int32: all that a node may ask, or those that it asks.

    It is the first if `asking` stores the messages of in-neighbours that are not asked.
    """
    everyone, asked = sizes(asking, graph)
    return everyone if asking.unselected == "stored" else asked


def slots(asking: "CEPS", due: Array, round: Round) -> Array:
    """The in-neighbours [m, d] bool that the nodes in `due` [m] request from, drawn as `asking` says."""
    return _sample(asking, due, round)[1]


def _sample(asking: "CEPS", due: Array, round: Round) -> tuple[Array, Array]:
    """Whether a node draws itself [m], and which in-neighbours it draws [m, d]."""
    graph = known(round.graph)
    everyone, size = sizes(asking, graph)
    if asking.own == "absent":
        mine = graph.in_degree == 0
    elif asking.own == "always":
        mine = jnp.ones_like(due)
    else:  # a uniform subset holds i with probability size / |N_i|
        draw = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32))
        mine = draw(round.keys(_OWN)) < size.astype(jnp.float32) / everyone.astype(jnp.float32)
    key, others = round.context.stream(_NEIGHBOURS), size - mine.astype(jnp.int32)
    return mine & due, sample_neighbours(key, graph, round.node, others, due)


def ask(asking: "CEPS", w: Array | Nonzeros, due: Array, round: Round) -> tuple[Callable[[Round], Array], Array]:
    """What the nodes that are due receive when they request rows of w from some of their in-neighbours.

    Args:
        asking: The settings of CEPS: which in-neighbours are drawn, and how messages are encoded.
        w: The parameters w [m, n] that nodes send, dense or as their nonzeros.
        due: The nodes that make requests, due [m] bool.
        round: The round, with its network.

    Returns a function that gives the sums [b, n] of the messages to the nodes of a block, and the number of nodes in
    each sum, [m] in the type of w. With delayed messages all nodes' rows are encoded in every round, because one may
    answer a later request.
    """
    mine, slots = _sample(asking, due, round)
    size = sizes(asking, known(round.graph))[1]
    return _requested(asking, w, mine, slots, round), size.astype(round.problem.dtype)


def none_yet(w: Nonzeros, graph: Graph) -> Nonzeros:
    """What nodes have of their in-neighbours before the first message: their initial w, side by side [m, d s]."""
    place, value = graph.gathered(w.place)[graph.senders], graph.gathered(w.value)[graph.senders]
    value = jnp.where(graph.mask[:, :, None], value, 0.0)
    return Nonzeros(place.reshape(len(place), -1), value.reshape(len(value), -1), w.n)


def ask_and_store(
    asking: "CEPS", w: Nonzeros, stored: Nonzeros, due: Array, round: Round
) -> tuple[Callable[[Round], tuple[Array, Nonzeros]], Array]:
    """As `ask`, with the last messages of the in-neighbours that are not asked (CEPS, section III-E).

    Args:
        asking: The settings of CEPS: which in-neighbours are drawn, and how messages are encoded.
        w: The parameters w [m, n] that nodes send, as their nonzeros.
        stored: The last message of every in-neighbour, side by side [m, d s], as `none_yet` begins them.
        due: The nodes that make requests, due [m] bool.
        round: The round, with its network, which is fixed.

    Returns a function that gives, for the nodes of a block, the sums [b, n] and the new rows of `stored`, and the
    number of nodes in each sum, [m] in the type of w. All receivers decode a message alike.
    """
    mine, slots = _sample(asking, due, round)
    graph, wire = known(round.graph), round.prepared.wire
    w = jax.tree.map(lambda x: round.leaving(MODEL, x, to="asked"), w)
    _count(asking, slots, graph, round)
    wanted = (graph.asked(slots) > 0) | (mine & asking.own_coded)
    z = transmit(wire, round.shared_keys(MODEL), w, wanted, asking.block)
    heard = jax.tree.map(graph.gathered, z)
    own: Any = z if asking.own_coded else w

    def received(here: Round) -> tuple[Array, Nonzeros]:
        senders, new = here.of(graph.senders), here.of(slots)[:, :, None]

        def replaced(heard: Array, stored: Array) -> Array:
            before = here.of(stored).reshape(*senders.shape, heard.shape[-1])
            return jnp.where(new, heard[senders], before).reshape(len(senders), -1)

        last = jax.tree.map(replaced, heard, stored)
        return jnp.where(here.of(mine)[:, None], own[here.rows], 0.0) + dense(last), last

    return received, combined(asking, graph).astype(round.problem.dtype)


def _count(asking: "CEPS", slots: Array, graph: Graph, round: Round) -> None:
    """Count the messages in the slots [m, d] that nodes request from; by size, where that of the receiver counts."""
    taken, groups = graph.taken(slots), round.codec.groups
    sent = graph.asked(taken)
    if asking.phi == "receiver" and groups is not None:
        own = jnp.asarray(groups, jnp.int32)[round.node][:, None]
        sent = jnp.stack([graph.asked(taken & (own == group)) for group in range(max(groups) + 1)], axis=1)
    round.trace.send(MODEL, sent, jnp.any(slots, axis=1).astype(jnp.int32))


def _requested(
    asking: "CEPS", w: Array | Nonzeros, mine: Array, slots: Array, round: Round
) -> Callable[[Round], Array]:
    """A function that gives, for the nodes of a block, the sums [b, n] of what they requested."""
    own_coded, phi, lanes = asking.own_coded, asking.phi, asking.block
    graph, wire = known(round.graph), round.prepared.wire
    w = jax.tree.map(lambda x: round.leaving(MODEL, x, to="asked"), w)
    _count(asking, slots, graph, round)
    keys, coded_self = round.shared_keys(MODEL), mine & own_coded

    def sums(own: Any, senders: Array, messages: Any, added: Any) -> Callable[[Round], Array]:
        return lambda here: (
            jnp.where(here.of(mine)[:, None], own[here.rows], 0.0) + added(here.of(senders), here.of(slots), messages)
        )

    if graph.late is not None:
        assert not isinstance(w, Nonzeros)  # check
        z = transmit(wire, keys, w, jnp.ones_like(mine), lanes)
        past = round.waiting(MODEL, Past, w).after(z, round.k)
        round.mail[MODEL.name] = past
        senders, messages = past.heard(graph, round.k)
        return sums(z if own_coded else w, senders, messages, gather_sum)

    if phi == "sender" and not wire.codec.pairwise:  # all neighbours decode the same vector: once per sender
        z = transmit(wire, keys, w, (graph.asked(slots) > 0) | coded_self, lanes)
        heard = jax.tree.map(graph.gathered, z)
        added: Any = gathered_sum if isinstance(heard, Nonzeros) else gather_sum
        return sums(z if own_coded else w, graph.senders, heard, added)

    assert not isinstance(w, Nonzeros)  # check
    z_own = transmit(wire, keys, w, coded_self, lanes) if own_coded else w
    by_receiver = phi == "receiver"
    if not by_receiver:  # what the senders share with all their receivers
        wire = each_row(graph.gathered, wire)
        keys = replace(round, context=replace(round.context, node=graph.gathered(round.node))).shared_keys(MODEL)
    others = receive(wire, keys, w, graph.gathered(w), graph.senders, slots, lanes, by_receiver=by_receiver)
    total = jnp.where(mine[:, None], z_own, 0.0) + others
    return lambda here: here.of(total)
