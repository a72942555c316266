"""Checks of what a method needs from its network, on the host before a run: errors name method, property and remedy.

Axes: m nodes.
"""

import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base.arguments import checked
from jdfl.network.combining import PartialCommunication, Synchronised
from jdfl.network.faults import BurstyLoss, LinkLoss, NodeParticipation, Outages
from jdfl.network.graph import Graph, Network, Static, round_of
from jdfl.network.growth import refuse_expanding, refuse_growing
from jdfl.network.late import Delays
from jdfl.network.links import in_run
from jdfl.network.matching import Matchings
from jdfl.network.sequences import Periodic, RandomChoice, graphs_of, inmost
from jdfl.network.tables import (
    TOLERANCE,
    Arcs,
    arcs,
    arcs_of,
    called,
    check_graph,
    components,
    kind_of,
    refuse_synchronised,
    stochastic,
    to_scipy,
)
from jdfl.network.timing import Timed

_ROUNDS = 3  # rounds of a changing network that are checked
_OWN_ROUNDS = 1000  # rounds of one defined outside jdfl, whose sums of weights are checked
_OWN_SLOTS = 2**25  # of the tables of these rounds
_drawn: dict[int, tuple[Any, np.ndarray | None]] = {}  # what was found of networks that were drawn from
_STEPS = 100_000  # of the iteration for the weights of nodes

_PROPERTIES: tuple[tuple[Callable[[Arcs, Any], bool], str], ...] = (  # tests of arcs and W, and their error messages
    (
        lambda links, W: links.symmetric,
        "an undirected network for {method}, whose nodes reply to their in-neighbours, got {network}, which has "
        "one-way links{when}. Use an undirected one, such as jdfl.network.erdos_renyi(m).",
    ),
    (
        lambda links, W: stochastic(W, 0) and stochastic(W, 1),
        "doubly stochastic weights for {method}, which relies on mixing to preserve the mean of nodes, got {network}, "
        "which has rows or columns of weights that do not sum to one{when}. Use weights='metropolis' on an undirected "
        "network, such as jdfl.network.erdos_renyi(m).",
    ),
    (
        lambda links, W: stochastic(W, 0),
        "column-stochastic weights for {method}, which relies on mixing to preserve the sum over nodes, got {network}, "
        "which has columns of weights that do not sum to one{when}. Use weights='out-degree', or "
        "jdfl.network.d_out(m, d).",
    ),
    (
        lambda links, W: bool(abs(W - W.T).max() <= TOLERANCE),
        "symmetric weights for {method}, which needs W_ij = W_ji on each link, got {network}, which has weights W with "
        "W_ij != W_ji{when}. Use weights='metropolis' on an undirected network, such as jdfl.network.erdos_renyi(m).",
    ),
)


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
    table: bool = False,
) -> None:
    """Refuse a network that lacks a property that a method needs.

    Links and weights are tested on the graph, weights to within 1e-5. For a periodic network or a random choice every
    graph is tested; for other changing networks, those of the first three rounds, so a rare exception may pass.

    Args:
        network: Any network.
        method: The method that needs the properties, as named in the message.
        fixed: The same neighbours in every round and no lost message, which only a `Static` network guarantees.
        undirected: Every link runs both ways.
        doubly_stochastic: Rows and columns of W sum to one.
        column_stochastic: Columns of W sum to one.
        symmetric_weights: W = W^T.
        connected: The links of all rounds of a fixed or periodic network together form a strongly connected graph. For
            wrappers the innermost network is tested; networks that are redrawn in each round are not tested; one with
            synchronised rounds counts as connected.
        table: No synchronised rounds, in which W is not what the table of neighbours says.

    Raises:
        ValueError: It names the method, the property, why it is needed, the network, and one that has it.
    """
    if fixed and not isinstance(network, Static):
        raise ValueError(
            f"Expected a fixed network for {method}, which builds on everything that the same neighbours sent in "
            f"earlier rounds, so that no message may be lost, got {called(network)}, which may change from round to "
            "round. Use a fixed one, such as jdfl.network.erdos_renyi(m), or D-PSGD, which takes any network."
        )
    if table:
        refuse_synchronised(network, method)
    inner = inmost(network)
    if connected and isinstance(inner, Static | Periodic) and kind_of(network).synchronised is None:
        rounds = [arcs_of(graph) for _, graph in graphs_of(inner, 1)]
        receiver, sender = (np.concatenate([getattr(links, end) for links in rounds]) for end in ("receiver", "sender"))
        count, largest = components(arcs(receiver, sender, network.m))
        if count > 1:
            raise ValueError(
                f"Expected a strongly connected network for {method}, in which information from each node reaches all "
                f"others, got {called(network)}, whose links form {count} components, the largest with {largest} of "
                f"{network.m} nodes. Use a connected one, such as jdfl.network.d_out(m, 2) or "
                "jdfl.network.one_peer_exponential(m)."
            )
    asked = (undirected, doubly_stochastic, column_stochastic, symmetric_weights)
    for which, graph in graphs_of(network, _ROUNDS) if any(asked) else ():
        links, W, when = arcs_of(graph), to_scipy(graph), f" ({which})" if which else ""
        for holds, refusal in itertools.compress(_PROPERTIES, asked):
            if not holds(links, W):
                raise ValueError(f"Expected {refusal.format(method=method, network=called(network), when=when)}")


@checked
def check_weights(network: Network, method: str, *, columns: bool = False, mixes: bool = True) -> None:
    """Check the graphs of a network before a run: `check_graph`, and that mixing does not expand.

    Checked are all graphs of fixed and periodic networks and of random choices, and one round of a network that is
    redrawn in each round. Of one defined outside jdfl, whose period is unknown, three rounds are checked, and the sums
    of the weights in the first 1000 (fewer where m times the slots exceeds 33,000).

    Where a method mixes, negative weights are accepted only if differences between nodes do not grow; with nonnegative
    weights whose rows sum to one they never do. Single rounds may expand. For fixed and periodic networks, no
    eigenvalue of the product of W - J over a period may exceed one in modulus (within 1e-5; J: all entries 1 / m). This
    is exact up to 300 nodes; beyond, some 200 products with W decide, so a factor that exceeds one by less than 0.001
    may pass (by less than 0.02 where W is not symmetric). For networks with random weights, the mean over rounds must
    satisfy || E[W^T W] - J || < 1: computed for random choices and MATCHA's matchings; others in which negative weights
    were seen are refused if the mean of 100 rounds, or of 100 periods, exceeds one by three standard errors (of 4 at
    least, where 200 matrices have more than 2^26 entries).

    Args:
        network: Any network.
        method: The method that runs on it, as named in the message.
        columns: Require columns of W that sum to one, for push-sum; negative weights are then refused, since the
            push-sum weights of nodes could vanish.
        mixes: Whether the method multiplies by W.

    Raises:
        ValueError: It says which graph fails, and how.
    """
    inner = inmost(network, PartialCommunication)  # which has its own weights
    lowest, where = 0.0, called(network)
    if isinstance(inner, Matchings):  # a node may be linked to all its neighbours in one round
        alpha = float(inner.alpha)
        lowest = min(alpha, 1 - alpha * inner.largest_out_degree)
    elif isinstance(inner, Static | Periodic | RandomChoice) and inner is not network:
        lowest = min(_lowest(graph) for _, graph in graphs_of(inner, 1))
    graphs = graphs_of(network, 1)
    if _foreign(network):
        graphs = itertools.chain(graphs_of(network, _ROUNDS), _suspected(network, columns))
    for which, graph in graphs:
        here = f"{called(network)}, {which}" if which else called(network)
        try:
            check_graph(graph, columns=columns)
        except ValueError as error:
            if which in ("", "round 0"):
                raise
            raise ValueError(f"{error} This is {here}.") from error
        least = _lowest(graph)
        if least < lowest:
            lowest, where = least, here
    if lowest >= -TOLERANCE:
        return
    if columns:
        raise ValueError(
            f"Expected weights >= 0 for {method}, whose push-sum weights could otherwise vanish, got {lowest:.6g} "
            f"in {where}. Use weights='out-degree', or jdfl.network.d_out(m, d)."
        )
    if mixes:
        refuse = refuse_expanding if isinstance(network, Static | Periodic) else refuse_growing
        refuse(network, method, lowest)


@checked
def node_weights(network: Network) -> np.ndarray | None:
    """The weights pi [m] of the nodes in what averaging by W and small gradient steps minimise: sum_i pi_i f_i.

    None: all are equal, or no difference was found. With columns of W that sum to one, the mean over nodes moves by the
    mean gradient, and pi_i = 1 / m. Otherwise pi' is the limit of (1/m) 1' W_k ... W_t, averaged over t: of a fixed W
    the left eigenvector of eigenvalue one. Of random networks it suffices that columns sum to one on average over
    rounds: where three rounds do not settle it, and no wrapper is known to keep it, up to 256 rounds are drawn. A
    difference counts from 0.001 on, and from five standard errors.

    Args:
        network: Any network whose rows of W sum to one.
    """
    if all(stochastic(to_scipy(graph), 0) for _, graph in graphs_of(network, _ROUNDS)):
        return None
    if isinstance(network, Static | Periodic):
        rounds = [to_scipy(graph) for _, graph in graphs_of(network, 1)]
        pi = np.full(network.m, 1 / network.m)
        turns = [pi]
        for _ in range(_STEPS):  # half of every step is left out, so that nothing oscillates; rows sum to one nearly
            turns = list(itertools.accumulate(reversed(rounds), lambda pi, W: pi @ W, initial=pi))
            pi, before = (pi + turns[-1]) / np.sum(pi + turns[-1]), pi
            if np.max(np.abs(pi - before)) < 1e-13:
                break
        pi = np.mean(turns[1:], axis=0)
        return pi if np.max(np.abs(network.m * pi - 1)) > 1e-3 else None
    if _keeps_means(network) and node_weights(network.base) is None:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    if (known := _drawn.get(id(network))) and known[0]() is network:
        return known[1]
    count = int(np.clip(_OWN_SLOTS // kind_of(network).senders.size, _ROUNDS, 256))
    mean, error, pi = (np.asarray(one, np.float64) for one in _column_sums(network, count))
    found = pi / pi.sum() if np.any(np.abs(mean - 1) > 5 * error + 1e-3) else None
    _drawn[id(network)] = weakref.ref(network), found
    return found


def weighed(pi: Any) -> str:
    """A sum of objectives with weights pi [m] in words, with the smallest and the largest weight."""
    pi = np.asarray(pi, np.float64)
    low, high = int(np.argmin(pi)), int(np.argmax(pi))
    return (
        f"sum_i pi_i f_i with pi from {pi[low]:.3g} (node {low}) to {pi[high]:.3g} (node {high}), not the mean of the "
        f"f_i, in which each has {1 / len(pi):.3g}"
    )


def _keeps_means(network: Network) -> bool:
    """Whether a wrapper leaves the mean of its base's W doubly stochastic: what is missing goes to the receiver."""
    own = isinstance(network, LinkLoss | BurstyLoss | NodeParticipation | Outages) and network.weights == "own"
    return own or isinstance(network, Delays | Synchronised) or (isinstance(network, Timed) and not network.first)


@partial(jax.jit, static_argnames="rounds")
def _column_sums(network: Network, rounds: int) -> tuple[Array, Array, Array]:
    """The mean sums of the columns of W over rounds of as many runs, their standard errors, and pi, all [m]."""
    m = network.m

    def one(carry: tuple[Array, Array, Array, Array], k: Array) -> tuple[tuple[Array, Array, Array, Array], None]:
        graph = in_run(network, jax.random.key(k), 0).at(k, jax.random.key(k + rounds))

        def columns(x: Array) -> Array:
            found = (graph.self_weight * x).at[graph.senders].add(graph.weight * x[:, None])
            together = graph.synchronised
            return found if together is None else jnp.where(together, jnp.full_like(x, jnp.mean(x)), found)

        first, second, pi, total = carry
        off = columns(jnp.ones(m)) - 1
        pi = columns(pi)
        return (first + off, second + off**2, pi, total + jnp.where(2 * k >= rounds, pi, 0)), None

    zero = jnp.zeros(m)
    (first, second, _, total), _ = lax.scan(
        one, (zero, zero, jnp.full(m, 1 / m), zero), jnp.arange(rounds, dtype=jnp.int32)
    )
    mean = first / rounds
    return mean + 1, jnp.sqrt(jnp.maximum(second / rounds - mean**2, 0) / rounds), total


def nonnegative(network: Network) -> bool:
    """Whether a network defined outside jdfl had no negative weight in the rounds that `check_weights` looked at.

    False for networks of jdfl: it has looked at all their graphs, or at those that they are made from.
    """
    return _foreign(network) and bool(np.min(_looked_at(network, False)[1]) >= -TOLERANCE)


def _foreign(network: Network) -> bool:
    """Whether a network, or the one inside its wrappers, is defined outside jdfl."""
    return not type(inmost(network, PartialCommunication)).__module__.startswith("jdfl.")


def _lowest(graph: Graph) -> float:
    return min(float(np.min(np.asarray(weight))) for weight in (graph.weight, graph.self_weight))


def _suspected(network: Network, columns: bool) -> Iterator[tuple[str, Graph]]:
    """The rounds of a network defined outside jdfl whose weights do not sum to one, and that with the lowest weight."""
    off, least = _looked_at(network, columns)
    for k in [*np.flatnonzero(~(off <= TOLERANCE)).tolist(), int(np.argmin(least))]:
        yield f"round {k}", round_of(network, k)


def _looked_at(network: Network, columns: bool) -> tuple[np.ndarray, np.ndarray]:
    """`_sums` of the rounds of a network defined outside jdfl that are looked at before a run."""
    slots = kind_of(network).senders.size
    off, least = _sums(network, int(np.clip(_OWN_SLOTS // slots, _ROUNDS, _OWN_ROUNDS)), columns)
    return np.asarray(off), np.asarray(least)


@partial(jax.jit, static_argnames=("rounds", "columns"))
def _sums(network: Network, rounds: int, columns: bool) -> tuple[Array, Array]:
    """How far the rows or columns of W are from sums of one, and the lowest weight, in every round [rounds] from 0."""

    def one(k: Array) -> tuple[Array, Array]:
        graph = network.at(k, jax.random.key(k))
        weight, own = graph.weight, graph.self_weight
        total = own.at[graph.senders].add(weight) if columns else own + jnp.sum(weight, axis=1)
        off = jnp.max(jnp.abs(total - 1))
        off = off if graph.synchronised is None else jnp.where(graph.synchronised, 0, off)
        return off, jnp.minimum(jnp.min(weight), jnp.min(own))

    return lax.map(one, jnp.arange(rounds, dtype=jnp.int32))
