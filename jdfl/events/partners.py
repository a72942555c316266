"""The partners of nodes: random in-neighbours, or out-neighbours.

Axes: E events, C columns of rows, m nodes, d slots of a table of neighbours.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from jax import Array

from jdfl.base.streams import Stream
from jdfl.events.draws import shares
from jdfl.events.faults import Absences, absences, lost
from jdfl.events.timeline import Events, wakes
from jdfl.network import Graph, Static, Timed

_PARTNER = Stream("events.partner", "network")


def partners(
    network: Timed, neighbours: tuple[np.ndarray, np.ndarray], events: Events, key: Array, away: Absences | None
) -> np.ndarray:
    """One of the neighbours of every event's actor [E] int32, uniformly at random.

    It is -1 for actors without any and where the neighbour is away, and -2 - j where neighbour j is there but the
    messages between both are lost.
    """
    table, mask = neighbours
    neighbour, degree = table, mask.sum(axis=1, dtype=np.int32)
    if not mask.all():  # slots with a neighbour first
        neighbour = np.take_along_axis(table, np.argsort(~mask, axis=1, kind="stable"), axis=1)
    share, own = shares(_PARTNER.of(key), events.actor, events.count), degree[events.actor]
    slot = np.minimum((share * own).astype(np.int32), np.maximum(own - 1, 0))
    found, there = neighbour[events.actor, slot], own > 0
    if away is not None:
        there &= ~away.at(found, events.time)
    found = np.where(lost(network, key, events.actor, events.count), -2 - found, found)
    return np.where(there, found, -1).astype(np.int32)


def links(network: Timed) -> Graph:
    """The graph of a fixed network with times, and perhaps faults."""
    inner: Any = network.base
    while not isinstance(inner, Static):
        inner = inner.base
    return inner.graph


def hears(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The table of in-neighbours [m, d] int32 on the host, and its mask [m, d]."""
    return np.asarray(graph.senders), np.asarray(graph.mask)


def heard_by(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The table of out-neighbours [m, d'] int32 on the host, and its mask [m, d']."""
    senders, mask = hears(graph)
    receiver, slot = np.nonzero(mask)
    sender = senders[receiver, slot]
    order = np.argsort(sender, kind="stable")
    sender, receiver = sender[order], receiver[order]
    number = np.bincount(sender, minlength=graph.m)
    place = np.arange(len(sender)) - np.repeat(np.cumsum(number) - number, number)
    table = np.zeros((graph.m, max(1, int(number.max(initial=0)))), np.int32)
    table[sender, place] = receiver
    return table, np.arange(table.shape[1]) < number[:, None]


def meetings(network: Timed, key: Array, seconds: float, *, columns: int, gradients: int = 1) -> Events:
    """Events of nodes that wake with their clocks and meet a random in-neighbour.

    The last column has the row of the neighbour, as `partners` has it, and the others that of the node.

    Args:
        network: The network in a run.
        key: The key [] of the run's network.
        seconds: The last time, included.
        columns: The number of columns, at least 2.
        gradients: How many gradients a node computes before each meeting.
    """
    found = wakes(network, key, seconds, gradients=gradients)
    rows = np.repeat(found.actor[:, None], columns, axis=1)
    rows[:, -1] = partners(network, hears(links(network)), found, key, absences(network, seconds))
    return replace(found, rows=rows)
