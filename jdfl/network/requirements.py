"""What a method needs of its network, asked on the host before a run: a refusal names method, property and remedy."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.base.arguments import checked
from jdfl.network.arcs import Arcs, arcs, arcs_of, called, components, kind_of
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.sequences import Periodic, RandomChoice, period_of
from jdfl.network.tables import to_scipy

TOLERANCE = 1e-5  # of weights and of their sums, in float32
_ROUNDS = 3  # in which a network that changes is looked at


def _undirected(graph: Graph) -> bool:
    return arcs_of(graph).symmetric


def _doubly_stochastic(graph: Graph) -> bool:
    return _column_stochastic(graph) and _sum_to_one(graph, axis=1)


def _column_stochastic(graph: Graph) -> bool:
    return _sum_to_one(graph, axis=0)


def _sum_to_one(graph: Graph, axis: int) -> bool:
    W: Any = to_scipy(graph)
    return bool(np.all(np.abs(np.asarray(W.sum(axis=axis)) - 1) <= TOLERANCE))


def _symmetric_weights(graph: Graph) -> bool:
    W: Any = to_scipy(graph)
    return bool(abs(W - W.T).max() <= TOLERANCE)


_REFUSALS = {  # what is said where a graph lacks what is asked of it
    _undirected: (
        "an undirected network for {method}, which answers those that it hears, got {network}, which has links of one "
        "way only{when}. Use an undirected one, such as jdfl.network.erdos_renyi(m)."
    ),
    _doubly_stochastic: (
        "doubly stochastic weights for {method}, which relies on mixing to keep the mean of all nodes, got {network}, "
        "which has rows or columns of weights that do not sum to one{when}. Use weights='metropolis' on an undirected "
        "network, such as jdfl.network.erdos_renyi(m)."
    ),
    _column_stochastic: (
        "column-stochastic weights for {method}, which relies on mixing to keep the sum over all nodes, got {network}, "
        "which has columns of weights that do not sum to one{when}. Use weights='out-degree', or "
        "jdfl.network.d_out(m, d)."
    ),
    _symmetric_weights: (
        "symmetric weights for {method}, whose two ends of a link weigh one another alike, got {network}, which has "
        "weights W with W_ij != W_ji{when}. Use weights='metropolis' on an undirected network, such as "
        "jdfl.network.erdos_renyi(m)."
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
    """Refuse a network that lacks what a method needs.

    What is asked of links and weights is tested on the graph, weights within 1e-5; of a periodic network or a random
    choice, on every graph, of others that change, on those of their first three rounds, so that a rare exception may
    pass.

    Args:
        network: Any network.
        method: Who needs it, as the message names it.
        fixed: The same neighbours in every round and no lost message, which only a `Static` network promises.
        undirected: Every link runs both ways.
        doubly_stochastic: Rows and columns of W sum to one.
        column_stochastic: Columns of W sum to one.
        symmetric_weights: W = W^T.
        connected: The links of all rounds of a fixed or periodic network together lead from every node to every other
            one. Of wrappers the network in them is asked, of networks that are drawn anew in every round nothing;
            where all nodes meet in synchronised rounds they are connected.

    Raises:
        ValueError: It names the method, the property, why it is needed, the network, and one that has it.
    """
    if fixed and not isinstance(network, Static):
        raise ValueError(
            f"Expected a fixed network for {method}, which builds on all that the same neighbours have sent in earlier "
            f"rounds, so that no message may be lost, got {called(network)}, which may change from round to round. Use "
            "a fixed one, such as jdfl.network.erdos_renyi(m), or D-PSGD, which takes any network."
        )
    if connected and kind_of(network).synchronised is None:
        links = _links_of_all_rounds(inmost(network))
        count, largest = (1, network.m) if links is None else components(links)
        if count > 1:
            raise ValueError(
                f"Expected a strongly connected network for {method}, in which what one node knows comes to all "
                f"others, got {called(network)}, whose links make {count} components, the largest with {largest} of "
                f"{network.m} nodes. Use a connected one, such as jdfl.network.d_out(m, 2) or "
                "jdfl.network.one_peer_exponential(m)."
            )
    asked = (undirected, doubly_stochastic, column_stochastic, symmetric_weights)
    wanted = [one for one, needed in zip(_REFUSALS.items(), asked) if needed]
    for which, graph in graphs_of(network, _ROUNDS) if wanted else ():
        for holds, refusal in wanted:
            if not holds(graph):
                when = f" ({which})" if which else ""
                raise ValueError(f"Expected {refusal.format(method=method, network=called(network), when=when)}")


def inmost(network: Any, *last: type) -> Any:
    """The network in all wrappers, or the first of a class that is one of the `last` to be looked at."""
    while hasattr(network, "base") and not isinstance(network, last):
        network = network.base
    return network


def graphs_of(network: Network, rounds: int) -> Iterator[tuple[str, Graph]]:
    """The graphs of a network, each with the words for which it is.

    All of a fixed or periodic network, wrapped or not, and of a random choice (those of probability zero left out); of
    others, and of wrappers around a random choice, those of the first `rounds` rounds.
    """
    inner: Any = inmost(network)
    if isinstance(network, Static):
        yield "", network.graph
        return
    if isinstance(inner, RandomChoice):
        for j in np.flatnonzero(np.asarray(inner.probability) > 0).tolist():
            yield f"its choice {j}", inner.turn(j)
        if network is inner:
            return
    if isinstance(inner, Periodic):
        rounds = max(rounds if network is not inner else 1, period_of(network) or inner.size)
    for k in range(rounds):
        yield f"round {k}", network.at(jnp.int32(k), jax.random.key(k))


def _links_of_all_rounds(network: Network) -> Arcs | None:
    """The links of a fixed or periodic network; None for others, whose links are drawn at random."""
    if not isinstance(network, Static | Periodic):
        return None
    rounds = [arcs_of(graph) for _, graph in graphs_of(network, 1)]
    receiver, sender = (np.concatenate([links[place] for links in rounds]) for place in (1, 2))
    return arcs(receiver, sender, network.m)
