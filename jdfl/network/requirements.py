"""What a method needs of its network, asked on the host before a run: a refusal names method, property and remedy.

Mixing must not expand. The disagreement of rows x is x - J x, J having all entries 1 / m. Where rows of W sum to one, a
round turns its square into at most || E[W^T (I - J) W] || times that in expectation, as in "MATCHA" (see `activation`).
Rounds that are known come back after p of them, in which x - J x is multiplied by prod_k (I - J) W_k.

Axes: m nodes.
"""

import itertools
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from jdfl.base.arguments import checked
from jdfl.network.activation import mean_square, moments
from jdfl.network.combining import PartialCommunication
from jdfl.network.graph import Graph, Network, Static, round_of
from jdfl.network.matching import Matchings
from jdfl.network.sequences import Periodic, RandomChoice, period_of
from jdfl.network.spectral import centred, largest_modulus, spectral_radius
from jdfl.network.tables import (
    TOLERANCE,
    Arcs,
    arcs,
    arcs_of,
    called,
    check_graph,
    components,
    kind_of,
    stochastic,
    to_scipy,
)
from jdfl.network.timing import Timed

_ROUNDS = 3  # in which a network that changes is looked at
_DRAWN = 200  # rounds of which a mean is estimated, half of them to find the direction that grows most
_PRODUCTS = 30  # of the power method
_SURE = 3.0  # standard errors


_PROPERTIES: tuple[tuple[Callable[[Arcs, Any], bool], str], ...] = (  # of arcs and W, and what is said without them
    (
        lambda links, W: links.symmetric,
        "an undirected network for {method}, which answers those that it hears, got {network}, which has links of one "
        "way only{when}. Use an undirected one, such as jdfl.network.erdos_renyi(m).",
    ),
    (
        lambda links, W: stochastic(W, 0) and stochastic(W, 1),
        "doubly stochastic weights for {method}, which relies on mixing to keep the mean of all nodes, got {network}, "
        "which has rows or columns of weights that do not sum to one{when}. Use weights='metropolis' on an undirected "
        "network, such as jdfl.network.erdos_renyi(m).",
    ),
    (
        lambda links, W: stochastic(W, 0),
        "column-stochastic weights for {method}, which relies on mixing to keep the sum over all nodes, got {network}, "
        "which has columns of weights that do not sum to one{when}. Use weights='out-degree', or "
        "jdfl.network.d_out(m, d).",
    ),
    (
        lambda links, W: bool(abs(W - W.T).max() <= TOLERANCE),
        "symmetric weights for {method}, whose two ends of a link weigh one another alike, got {network}, which has "
        "weights W with W_ij != W_ji{when}. Use weights='metropolis' on an undirected network, such as "
        "jdfl.network.erdos_renyi(m).",
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
    inner = inmost(network)
    if connected and isinstance(inner, Static | Periodic) and kind_of(network).synchronised is None:
        rounds = [arcs_of(graph) for _, graph in graphs_of(inner, 1)]
        receiver, sender = (np.concatenate([getattr(links, end) for links in rounds]) for end in ("receiver", "sender"))
        count, largest = components(arcs(receiver, sender, network.m))
        if count > 1:
            raise ValueError(
                f"Expected a strongly connected network for {method}, in which what one node knows comes to all "
                f"others, got {called(network)}, whose links make {count} components, the largest with {largest} of "
                f"{network.m} nodes. Use a connected one, such as jdfl.network.d_out(m, 2) or "
                "jdfl.network.one_peer_exponential(m)."
            )
    asked = (undirected, doubly_stochastic, column_stochastic, symmetric_weights)
    for which, graph in graphs_of(network, _ROUNDS) if any(asked) else ():
        links, W, when = arcs_of(graph), to_scipy(graph), f" ({which})" if which else ""
        for holds, refusal in itertools.compress(_PROPERTIES, asked):
            if not holds(links, W):
                raise ValueError(f"Expected {refusal.format(method=method, network=called(network), when=when)}")


def inmost(network: Any, *last: type) -> Any:
    """The network in all wrappers.

    Args:
        network: The network, wrapped or not.
        *last: Classes of wrappers that are not looked into: the first of one of them is the result.
    """
    while hasattr(network, "base") and not isinstance(network, last):
        network = network.base
    return network


def graphs_of(network: Network, rounds: int) -> Iterator[tuple[str, Graph]]:
    """The graphs of a network, each with the words for which it is.

    All of a fixed or periodic network, wrapped or not, and of a random choice (those of probability zero left out).

    Args:
        network: Any network.
        rounds: Of how many first rounds graphs are drawn, of other networks and of wrappers around a random choice.
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
        yield f"round {k}", round_of(network, k)


@checked
def check_weights(network: Network, method: str, *, columns: bool = False, mixes: bool = True) -> None:
    """Check the graphs of a network before a run: as `check_graph`, and that mixing does not expand.

    The graphs are all of fixed and periodic networks and of random choices, one round of a network that is drawn anew,
    and three of one that is none of jdfl's. Where a method mixes, negative weights are accepted only where differences
    between nodes do not grow, as they never do with weights of zero and more whose rows sum to one; single rounds may
    expand. Of fixed and periodic networks no eigenvalue of the product of W - J over a period may exceed one in modulus
    (within 1e-5; J: all entries 1 / m). Of networks that draw their weights the mean over rounds is asked for,
    || E[W^T W] - J || < 1: exactly of random choices and of MATCHA's matchings; others in which negative weights were
    seen are refused where the mean of 100 rounds, or of 100 periods, is above one by three standard errors.

    Args:
        network: Any network.
        method: Who runs on it, as the message names it.
        columns: Columns of W sum to one, for push-sum, whose weights of nodes could vanish with negative ones: these
            are refused.
        mixes: Whether the method multiplies by W.

    Raises:
        ValueError: It says which graph fails, and how.
    """
    inner = inmost(network, PartialCommunication)  # which has weights of its own
    lowest, where = 0.0, called(network)
    if isinstance(inner, Matchings):  # a node may meet all its neighbours in one round
        alpha = float(inner.alpha)
        lowest = min(alpha, 1 - alpha * inner.largest_out_degree)
    elif isinstance(inner, Static | Periodic | RandomChoice) and inner is not network:
        lowest = min(_lowest(graph) for _, graph in graphs_of(inner, 1))
    for which, graph in graphs_of(network, 1 if type(inner).__module__.startswith("jdfl.") else _ROUNDS):
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
            f"Expected weights >= 0 for {method}, whose push-sum weights could vanish otherwise, got {lowest:.6g} "
            f"in {where}. Use weights='out-degree', or jdfl.network.d_out(m, d)."
        )
    if mixes:
        refuse = _refuse_expanding if isinstance(network, Static | Periodic) else _refuse_growing
        refuse(network, method, lowest)


def _lowest(graph: Graph) -> float:
    return min(float(np.min(np.asarray(weight))) for weight in (graph.weight, graph.self_weight))


def _refuse_expanding(network: Network, method: str, lowest: float) -> None:
    graphs = [graph for _, graph in graphs_of(network, 1)]
    radius = spectral_radius(graphs)
    if not radius <= 1 + TOLERANCE:
        p = len(graphs)
        what, often = ("W", "round") if p == 1 else (f"the product of W over its {p} rounds", "period")
        raise ValueError(
            f"Expected mixing for {method} that does not expand, every eigenvalue of {what} at most 1 in modulus, "
            f"got {radius:.6g} in {called(network)}, whose lowest weight is {lowest:.6g}: differences between nodes "
            f"would grow by that factor each {often}. Use weights >= 0, or weights='metropolis' on undirected links."
        )


def _refuse_growing(network: Network, method: str, lowest: float) -> None:
    growth = mean_growth(network)
    if growth.too_large:
        about = "" if growth.error is None else f" (estimated, +- {growth.error:.2g})"
        raise ValueError(
            f"Expected a network for {method} whose rounds contract on average, || E[W^T W] - J || < 1, got "
            f"{growth.most:.6g}{about} in {called(network)}, with weights down to {lowest:.6g}: squared differences "
            "between nodes would change by that factor in a round. Use weights >= 0, or jdfl.network.matcha(base, "
            "budget), which chooses its alpha so that they shrink."
        )


class Growth(NamedTuple):
    """The mean factor of the squared disagreement in a round."""

    most: float  # of any disagreement, exactly; or of one that was looked for, estimated
    error: float | None  # standard error of it; None: it is exact

    @property
    def too_large(self) -> bool:
        """Whether it is one or more: exactly, or beyond what the estimate leaves open."""
        return not (self.most - _SURE * self.error <= 1 if self.error is not None else self.most < 1)


def mean_growth(network: Network) -> Growth:
    """The mean growth of the squared disagreement in a round, or in a period of what is periodic inside wrappers.

    || E[W^T (I - J) W] ||, exact for matchings and random choices, estimated for other networks: the growth of the
    disagreement that grows most in the mean of some rounds, in the mean of as many others.
    """
    while isinstance(network, Timed):  # which has the weights of the network in it
        network = network.base
    if isinstance(network, Matchings):  # of periodic ones that of the round in which they are active
        p = np.asarray(network.p if network.period is None else np.ones(network.p.shape), np.float64)
        return Growth(mean_square(float(network.alpha), *moments(p, np.asarray(network.partner))), None)
    if isinstance(network, RandomChoice):
        chance = np.asarray(network.probability, np.float64)
        chosen = [(p / chance.sum(), to_scipy(network.turn(j))) for j, p in enumerate(chance.tolist()) if p > 0]
        return Growth(largest_modulus(partial(_squared, chosen), network.m), None)
    period = period_of(inmost(network, PartialCommunication)) or 1
    drawn: list[Any] = []
    for k in range(0, _DRAWN * period, period):
        rounds: list[Any] = [to_scipy(round_of(network, t)) for t in range(k, k + period)]
        drawn.append(reduce(lambda earlier, W: W @ earlier, rounds))
    v = centred(np.random.default_rng(0).standard_normal(network.m))
    for _ in range(_PRODUCTS):
        v = _squared([(1.0, W) for W in drawn[::2]], v / (np.linalg.norm(v) or 1.0))
    v = v / (np.linalg.norm(v) or 1.0)
    found = np.array([np.sum(centred(W @ v) ** 2) for W in drawn[1::2]])
    return Growth(float(found.mean()), float(found.std(ddof=1) / np.sqrt(found.size)))


def _squared(matrices: list[tuple[float, Any]], x: np.ndarray) -> np.ndarray:
    """(I - J) sum_c p_c W_c^T (I - J) W_c x for chances p_c and matrices W_c."""
    return centred(sum(chance * (W.T @ centred(W @ x)) for chance, W in matrices))
