"""Sums of the messages that every node asks some of its neighbours for, each coded and decoded once.

Axes: m nodes, n parameters, d slots of the neighbour table, b nodes of a block.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.round import MODEL, Round
from jdfl.codecs import each_row, receive, transmit
from jdfl.network import Past, gather_sum, known
from jdfl.nonzeros import Nonzeros, gathered_sum
from jdfl.privacy.flow import sent


def requested(
    w: Array | Nonzeros,
    mine: Array,
    slots: Array,
    round: Round,
    *,
    own_coded: bool,
    phi: Literal["sender", "receiver"],
    lanes: int | None,
) -> Callable[[Round], Array]:
    """A function that gives for the nodes of a block the sums [b, n] of what they asked for.

    Args:
        w: the parameters [m, n] that nodes send, dense or as their nonzeros.
        mine: [m] bool, whether a node's own row is a part of its sum.
        slots: [m, d] bool, which in-neighbours every node asks.
        round: the round, whose network says who hears whom.
        own_coded: whether a node's own row goes through the codec, too.
        phi: whose codec a message uses, the sender's or the receiver's.
        lanes: messages that are decoded side by side; None: as suits the codec.

    Where messages are late, all nodes' are coded in every round, since one may be the answer to a later request.
    """
    graph, codec = known(round.graph), round.codec
    w = jax.tree.map(lambda x: sent(x, MODEL.name), w)
    round.book.send(MODEL, graph.asked(graph.taken(slots)), jnp.any(slots, axis=1).astype(jnp.int32))
    keys, coded_self = round.shared_keys(MODEL), mine & own_coded

    def sums(own: Any, senders: Array, messages: Any, added: Any) -> Callable[[Round], Array]:
        return lambda here: (
            jnp.where(here.of(mine)[:, None], own[here.rows], 0.0) + added(here.of(senders), here.of(slots), messages)
        )

    if graph.late is not None:
        assert not isinstance(w, Nonzeros)  # check
        z = transmit(codec, keys, w, jnp.ones_like(mine), lanes)
        past = round.waiting(MODEL, Past, w).after(z, round.k)
        round.mail[MODEL.name] = past
        senders, messages = past.heard(graph, round.k)
        return sums(z if own_coded else w, senders, messages, gather_sum)

    if phi == "sender" and not codec.pairwise:  # all neighbours decode the same thing: once per sender
        z = transmit(codec, keys, w, (graph.asked(slots) > 0) | coded_self, lanes)
        heard = jax.tree.map(graph.gathered, z)
        added: Any = gathered_sum if isinstance(heard, Nonzeros) else gather_sum
        return sums(z if own_coded else w, graph.senders, heard, added)

    assert not isinstance(w, Nonzeros)  # check
    z_own = transmit(codec, keys, w, coded_self, lanes) if own_coded else w
    by_receiver, senders_codec = phi == "receiver", codec
    if not by_receiver:  # what the senders share with all who hear them
        senders_codec = each_row(graph.gathered, codec)
        keys = replace(round, moment=replace(round.moment, node=graph.gathered(round.node))).shared_keys(MODEL)
    others = receive(senders_codec, keys, w, graph.gathered(w), graph.senders, slots, lanes, by_receiver=by_receiver)
    total = jnp.where(mine[:, None], z_own, 0.0) + others
    return lambda here: here.of(total)
