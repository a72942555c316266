"""Sums of the messages that every node asks some of its neighbours for, each coded and decoded once.

Axes: m nodes, n parameters, d slots of the neighbour table, b nodes of a block.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.book import MODEL
from jdfl.algorithms.round import Round
from jdfl.arrays.nonzeros import Nonzeros, gathered_sum
from jdfl.base.streams import Stream
from jdfl.codecs import each_row, receive, transmit
from jdfl.network import Graph, Past, gather_sum, known, sample_neighbours

_NEIGHBOURS, _OWN = Stream("ceps.neighbours", "choice"), Stream("ceps.own", "choice")  # who is asked


class Asking(Protocol):
    """Settings of a method whose nodes ask some of their in-neighbours for parameters."""

    @property
    def rate(self) -> Any:
        """The share of the in-neighbours that a node asks, rounded up, in (0, 1]."""
        ...

    @property
    def own(self) -> Literal["absent", "sampled", "always"]:
        """Whether a node is among those that it asks: never, when it is drawn, or always."""
        ...

    @property
    def own_coded(self) -> bool:
        """Whether a node's own row goes through the codec, too."""
        ...

    @property
    def phi(self) -> Literal["sender", "receiver"]:
        """Whose codec a message uses."""
        ...

    @property
    def block(self) -> int | None:
        """Messages that are decoded side by side; None: as suits the codec."""
        ...


def sizes(asking: Asking, graph: Graph) -> tuple[Array, Array]:
    """How many nodes a node may ask and how many it asks, by `asking`, both [m] int32; without neighbours, itself."""
    degree = graph.in_degree
    everyone = jnp.maximum(degree, 1) if asking.own == "absent" else degree + 1
    wanted = jnp.asarray(asking.rate, jnp.float32) * everyone.astype(jnp.float32)
    return everyone, jnp.clip(jnp.ceil(wanted - 1e-4).astype(jnp.int32), 1, everyone)  # 0.2 * 15 is 3, not 4


def slots(asking: Asking, due: Array, round: Round) -> Array:
    """The in-neighbours [m, d] bool that the nodes `due` [m] ask, drawn without replacement as `asking` says."""
    return _drawn(asking, due, round)[1]


def _drawn(asking: Asking, due: Array, round: Round) -> tuple[Array, Array]:
    """Whether a node asks itself [m], and which others it asks [m, d]."""
    graph = known(round.graph)
    everyone, size = sizes(asking, graph)
    if asking.own == "absent":
        mine = graph.in_degree == 0
    elif asking.own == "always":
        mine = jnp.ones_like(due)
    else:  # a uniform subset holds i with probability size / |N_i|
        draw = jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32))
        mine = draw(round.keys(_OWN)) < size.astype(jnp.float32) / everyone.astype(jnp.float32)
    key, others = round.moment.stream(_NEIGHBOURS), size - mine.astype(jnp.int32)
    return mine & due, sample_neighbours(key, graph, round.node, others, due)


def ask(asking: Asking, w: Array | Nonzeros, due: Array, round: Round) -> tuple[Callable[[Round], Array], Array]:
    """What the nodes that are due hear when they ask some of their in-neighbours for their rows of w.

    Args:
        asking: whom nodes ask, and how messages are coded.
        w: w [m, n], the parameters that nodes send, dense or as their nonzeros.
        due: due [m], which nodes ask, bool.
        round: the round, whose network says who hears whom.

    Returns a function that gives the sums [b, n] of the messages to the nodes of a block, and how many nodes each sum
    is of, [m] in the type of w. Where messages are late, all nodes' are coded in every round, since one may be the
    answer to a later request.
    """
    mine, slots = _drawn(asking, due, round)
    size = sizes(asking, known(round.graph))[1]
    return _requested(asking, w, mine, slots, round), size.astype(round.problem.dtype)


def _requested(
    asking: Asking, w: Array | Nonzeros, mine: Array, slots: Array, round: Round
) -> Callable[[Round], Array]:
    """A function that gives for the nodes of a block the sums [b, n] of what they asked for."""
    own_coded, phi, lanes = asking.own_coded, asking.phi, asking.block
    graph, wire = known(round.graph), round.prepared.wire
    w = jax.tree.map(lambda x: round.leaving(MODEL, x, to="asked"), w)
    round.book.send(MODEL, graph.asked(graph.taken(slots)), jnp.any(slots, axis=1).astype(jnp.int32))
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

    if phi == "sender" and not wire.codec.pairwise:  # all neighbours decode the same thing: once per sender
        z = transmit(wire, keys, w, (graph.asked(slots) > 0) | coded_self, lanes)
        heard = jax.tree.map(graph.gathered, z)
        added: Any = gathered_sum if isinstance(heard, Nonzeros) else gather_sum
        return sums(z if own_coded else w, graph.senders, heard, added)

    assert not isinstance(w, Nonzeros)  # check
    z_own = transmit(wire, keys, w, coded_self, lanes) if own_coded else w
    by_receiver = phi == "receiver"
    if not by_receiver:  # what the senders share with all who hear them
        wire = each_row(graph.gathered, wire)
        keys = replace(round, moment=replace(round.moment, node=graph.gathered(round.node))).shared_keys(MODEL)
    others = receive(wire, keys, w, graph.gathered(w), graph.senders, slots, lanes, by_receiver=by_receiver)
    total = jnp.where(mine[:, None], z_own, 0.0) + others
    return lambda here: here.of(total)
