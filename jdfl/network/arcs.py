"""Who hears whom as host arrays: the form between what a person passes in and the padded table.

A network is a list of arcs (receiver, sender), sorted by receiver and then by sender, without repeats or loops.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from jdfl.base.arguments import checked
from jdfl.network.graph import Graph, Network, Static

MOST_NODES = int(np.iinfo(np.int32).max)


class Arcs(NamedTuple):
    """Node receiver[e] hears node sender[e]."""

    m: int
    receiver: np.ndarray  # [e] int64, ascending
    sender: np.ndarray  # [e] int64, ascending for each receiver

    @property
    def symmetric(self) -> bool:
        """Whether every arc also runs the other way."""
        return np.array_equal(np.sort(self.sender * self.m + self.receiver), self.receiver * self.m + self.sender)


def arcs(receiver: np.ndarray, sender: np.ndarray, m: int) -> Arcs:
    """Sort the arcs, drop repeats, and drop loops (a node always hears itself)."""
    keep = receiver != sender
    code = np.sort(receiver[keep].astype(np.int64) * m + sender[keep])
    code = code[np.diff(code, prepend=-1) > 0]
    return Arcs(m, code // m, code % m)


def linked(u: np.ndarray, v: np.ndarray, m: int, directed: bool = False) -> Arcs:
    """Edges u[e] - v[e] as arcs: v[e] hears u[e] and, unless `directed`, u[e] hears v[e]."""
    if directed:
        return arcs(v, u, m)
    return arcs(np.concatenate([u, v]), np.concatenate([v, u]), m)


def all_arcs(m: int) -> Arcs:
    """The arcs of a network in which everyone hears everyone else."""
    return arcs(*np.divmod(np.arange(m * m), m), m)


def components(links: Arcs) -> tuple[int, int]:
    """How many connected parts (strongly connected, if directed) there are, and the size of the largest."""
    matrix = sp.csr_array((np.ones(links.sender.size, np.int8), (links.receiver, links.sender)), shape=(links.m,) * 2)
    count, label = csgraph.connected_components(matrix, directed=not links.symmetric, connection="strong")
    return int(count), int(np.bincount(label).max())


def graph_of(network: Graph | Network) -> Graph:
    """The one graph of a fixed network; ValueError for a network that changes from round to round."""
    if isinstance(network, Graph):
        return network
    if isinstance(network, Static):
        return network.graph
    raise ValueError(
        f"Expected a Graph or a Static network, got {type(network).__name__}, whose graph may differ in every round. "
        "Pass the graph of one round, network.at(k, key)."
    )


def called(network: Graph | Network) -> str:
    """What messages call a network."""
    return getattr(network, "name", "graph")


def synchronised_now(graph: Graph) -> bool:
    """Whether this is the graph of a synchronised round (on the host)."""
    return graph.synchronised is not None and bool(graph.synchronised)


def arcs_of(graph: Graph) -> Arcs:
    """The arcs of a table; in a synchronised round, all."""
    if synchronised_now(graph):
        return all_arcs(graph.m)
    receiver, slot = np.nonzero(np.asarray(graph.mask))
    return arcs(receiver, np.asarray(graph.senders)[receiver, slot], graph.m)


def kind_of(network: Graph | Network) -> Graph:
    """What a network's graphs consist of, with shapes and dtypes in place of arrays."""
    if isinstance(network, Graph):
        return network
    return jax.eval_shape(network.at, jnp.int32(0), jax.random.key(0))


@checked
def refuse_synchronised(network: Graph | Network, method: str) -> None:
    """Refuse a network with rounds in which all nodes take the mean of all, which no table of neighbours shows.

    Args:
        network: The network or the graph of one round.
        method: Who reads its tables of neighbours, as the message names it.

    Raises:
        ValueError: It names the method, the network, and what to use.
    """
    if kind_of(network).synchronised is not None:
        raise ValueError(
            f"Expected a network without synchronised rounds for {method}, which goes by the table of neighbours, got "
            f"{called(network)}. Use the network in it; jdfl.network.synchronised goes around other networks, last."
        )
