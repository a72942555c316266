"""Which version of a node's model is the newest that has arrived at its neighbours, when messages take time.

Axes: E events, m nodes, d slots of the table of in-neighbours.
"""

import numpy as np
from jax import Array

from jdfl.events import partners, timeline
from jdfl.events.slots import slots
from jdfl.events.timeline import Events
from jdfl.network import Timed


def newest(network: Timed, key: Array, events: Events) -> tuple[np.ndarray, np.ndarray, int]:
    """The rows of versions that events write [E] and read [E, d] int32, -1 where no neighbour is, and their number.

    Rows 0 to m - 1 are the initial versions, which all nodes have. The event of a node makes its next version, which
    arrives at all neighbours after one travel time. It keeps its row until a newer one has arrived. What arrives at the
    very time of an event comes too late for it.

    Args:
        network: The network in a run.
        key: The key [] of the run's network.
        events: The events in order, of one kind.
    """
    m, size = network.m, len(events)
    arrival = events.time + timeline.travels(network, key, events.actor, events.count)
    times, rank = np.unique(np.concatenate([arrival, events.time]), return_inverse=True)
    far = np.int64(len(times) + 1)
    came, now = events.actor * far + rank[:size], rank[size:]  # by node, then by time

    order = np.argsort(came, kind="stable")
    last = np.maximum.accumulate(events.actor[order] * np.int64(size + 1) + order)  # the newest of a node so far
    senders, mask = partners.hears(partners.links(network))
    sender = senders[events.actor]
    place = np.searchsorted(came[order], sender * far + now[:, None], side="left") - 1
    found = np.maximum(place, 0)
    arrived = (place >= 0) & (events.actor[order][found] == sender) if size else np.zeros(sender.shape, bool)
    version = np.where(arrived, m + last[found] % (size + 1), sender) if size else sender

    by_node = np.lexsort((events.count, events.actor))
    node = events.actor[by_node]
    least = np.minimum.accumulate(came[by_node][::-1])[::-1]  # the first arrival of this version or a newer one
    until = np.full(m + size, np.inf)  # version by version: when a newer one has arrived
    same = np.flatnonzero(node[:-1] == node[1:])
    until[m + by_node[same]] = times[least[same + 1] - node[same] * far]
    first = np.flatnonzero(np.diff(node, prepend=-1))
    until[node[first]] = times[least[first] - node[first] * far]

    freed = np.where(np.isfinite(until), np.searchsorted(events.time, until, side="right") - 0.5, np.inf)
    row, rows = slots(np.concatenate([np.full(m, -1), np.arange(size)]), freed, m)
    return row[m:], np.where(mask[events.actor], row[version], -1).astype(np.int32), rows
