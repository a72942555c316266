"""What a method needs of its network, asked on the host before a run: a refusal names method, property and remedy."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.arguments import checked
from jdfl.network.arcs import Arcs, arcs, arcs_of, called, components, synchronises
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.period import period_of
from jdfl.network.sequences import Periodic, RandomChoice
from jdfl.network.tables import to_scipy

TOLERANCE = 1e-5  # of weights and of their sums, in float32
_ROUNDS = 3  # in which a network that changes is looked at


class _Property(NamedTuple):
    holds: Callable[[Graph], bool]
    need: str
    why: str
    lack: str
    remedy: str


def _undirected(graph: Graph) -> bool:
    return arcs_of(graph).symmetric


def _sum_to_one(graph: Graph, axis: int) -> bool:
    return bool(np.all(np.abs(np.asarray(to_scipy(graph).sum(axis=axis)) - 1) <= TOLERANCE))


def _doubly_stochastic(graph: Graph) -> bool:
    return _sum_to_one(graph, 0) and _sum_to_one(graph, 1)


def _column_stochastic(graph: Graph) -> bool:
    return _sum_to_one(graph, 0)


def _symmetric_weights(graph: Graph) -> bool:
    W = to_scipy(graph)
    return bool(abs(W - W.T).max() <= TOLERANCE)


_PROPERTIES = {
    "undirected": _Property(
        _undirected,
        "an undirected network",
        "which answers those that it hears",
        "has links of one way only",
        "Use an undirected one, such as jdfl.network.erdos_renyi(m).",
    ),
    "doubly_stochastic": _Property(
        _doubly_stochastic,
        "doubly stochastic weights",
        "which relies on mixing to keep the mean of all nodes",
        "has rows or columns of weights that do not sum to one",
        "Use weights='metropolis' on an undirected network, such as jdfl.network.erdos_renyi(m).",
    ),
    "column_stochastic": _Property(
        _column_stochastic,
        "column-stochastic weights",
        "which relies on mixing to keep the sum over all nodes",
        "has columns of weights that do not sum to one",
        "Use weights='out-degree', or jdfl.network.d_out(m, d).",
    ),
    "symmetric_weights": _Property(
        _symmetric_weights,
        "symmetric weights",
        "whose two ends of a link weigh one another alike",
        "has weights W with W_ij != W_ji",
        "Use weights='metropolis' on an undirected network, such as jdfl.network.erdos_renyi(m).",
    ),
}


@checked
def require(
    network: Network,
    method: str,
    *,
    fixed: bool = False,
    undirected: bool = False,
    doubly_stochastic: bool = False,
    column_stochastic: bool = False,
    symmetric_weights: bool = False,
    connected: bool = False,
) -> None:
    """Refuse a network that lacks what a method needs; `method` is its name for the message.

    `fixed`: the same neighbours in every round and no lost message, which only a `Static` network promises.
    `undirected`: every link runs both ways. `doubly_stochastic`: rows and columns of W sum to one, `column_stochastic`:
    columns do. `symmetric_weights`: W = W^T. These four are tested on the graph, those with weights within 1e-5; of a
    periodic network or a random choice, on every graph, of others that change, on those of their first three rounds, so
    that a rare exception may pass.
    `connected`: the links of all rounds of a fixed or periodic network together lead from every node to every other
    one. Of wrappers the network in them is asked, of networks that are drawn anew in every round nothing; where all
    nodes meet in synchronised rounds they are connected.

    Raises `ValueError` that names the method, the property, why it is needed, the network, and one that has it.
    """
    if fixed and not isinstance(network, Static):
        raise ValueError(
            f"Expected a fixed network for {method}, which builds on all that the same neighbours have sent in earlier "
            f"rounds, so that no message may be lost, got {called(network)}, which may change from round to round. Use "
            "a fixed one, such as jdfl.network.erdos_renyi(m), or D-PSGD, which takes any network."
        )
    if connected:
        _require_connected(network, method)
    asked = {
        "undirected": undirected,
        "doubly_stochastic": doubly_stochastic,
        "column_stochastic": column_stochastic,
        "symmetric_weights": symmetric_weights,
    }
    wanted = [_PROPERTIES[name] for name, needed in asked.items() if needed]
    if not wanted:
        return
    for which, graph in graphs_of(network, _ROUNDS):
        for need in wanted:
            if not need.holds(graph):
                when = which and f" ({which})"
                raise ValueError(
                    f"Expected {need.need} for {method}, {need.why}, got {called(network)}, which {need.lack}{when}. "
                    f"{need.remedy}"
                )


def graphs_of(network: Network, rounds: int) -> Iterator[tuple[str, Graph]]:
    """The graphs of a network, each with the words for which it is.

    All of a fixed or periodic network, wrapped or not, and of a random choice (those of probability zero left out); of
    others, and of wrappers around a random choice, those of the first `rounds` rounds.
    """
    inner: Any = network
    while hasattr(inner, "base"):
        inner = inner.base
    if isinstance(network, Static):
        yield "", network.graph
        return
    if isinstance(inner, RandomChoice):
        for j in np.flatnonzero(np.asarray(inner.probability) > 0).tolist():
            yield f"its choice {j}", _graph_at(inner.graphs, j)
        if network is inner:
            return
    if isinstance(network, Periodic):
        for j in range(int(network.graphs.senders.shape[0])):
            yield f"round {j}", _graph_at(network.graphs, j)
        return
    if isinstance(inner, Periodic):
        rounds = max(rounds, period_of(network) or int(inner.graphs.senders.shape[0]))
    for k in range(rounds):
        yield f"round {k}", network.at(jnp.int32(k), jax.random.key(k))


def _graph_at(graphs: Graph, place: int) -> Graph:
    return jax.tree.map(lambda leaf: leaf[place], graphs)


def _require_connected(network: Network, method: str) -> None:
    links = None if synchronises(network) else _links_of_all_rounds(network)
    if links is None:
        return
    count, largest = components(links)
    if count > 1:
        raise ValueError(
            f"Expected a strongly connected network for {method}, in which what one node knows comes to all others, "
            f"got {called(network)}, whose links make {count} components, the largest with {largest} of {links.m} "
            "nodes. Use a connected one, such as jdfl.network.d_out(m, 2) or jdfl.network.one_peer_exponential(m)."
        )


def _links_of_all_rounds(network: Any) -> Arcs | None:
    """The links of a fixed or periodic network, wrapped or not; None for others, whose links are drawn at random."""
    while hasattr(network, "base"):
        network = network.base
    if isinstance(network, Static):
        return arcs_of(network.graph)
    if not isinstance(network, Periodic):
        return None
    senders, mask = np.asarray(network.graphs.senders), np.asarray(network.graphs.mask)
    turn, receiver, slot = np.nonzero(mask)
    return arcs(receiver, senders[turn, receiver, slot], network.m)
