"""After how many rounds a network repeats."""

import math

from jdfl.network.graph import Graph, Network, Static
from jdfl.network.sequences import Periodic
from jdfl.network.synchronised import Synchronised


def period_of(network: Graph | Network) -> int | None:
    """The number of rounds after which a network is the same again; None for one that is drawn at random."""
    if isinstance(network, Graph | Static):
        return 1
    if isinstance(network, Periodic):
        return int(network.graphs.senders.shape[0])
    if isinstance(network, Synchronised):
        inner = period_of(network.base)
        return None if inner is None else math.lcm(inner, int(network.every))
    return None
