"""Checks of what a method needs from its network, on the host before a run: errors name method, property and remedy.

Mixing must not expand. The disagreement of rows x is x - J x, where all entries of J are 1 / m. Where rows of W sum to
one, a round multiplies its expected square by at most || E[W^T (I - J) W] ||, as in "MATCHA" (see `activation`). Rounds
known in advance repeat after p of them; over one period x - J x is multiplied by prod_k (I - J) W_k.

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

_ROUNDS = 3  # rounds of a changing network that are checked
_DRAWN = 200  # rounds from which a mean is estimated, half of them to find the direction of fastest growth
_PRODUCTS = 30  # of the power method
_SURE = 3.0  # standard errors


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

    Raises:
        ValueError: It names the method, the property, why it is needed, the network, and one that has it.
    """
    if fixed and not isinstance(network, Static):
        raise ValueError(
            f"Expected a fixed network for {method}, which builds on everything that the same neighbours sent in "
            f"earlier rounds, so that no message may be lost, got {called(network)}, which may change from round to "
            "round. Use a fixed one, such as jdfl.network.erdos_renyi(m), or D-PSGD, which takes any network."
        )
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


def inmost(network: Any, *last: type) -> Any:
    """The innermost network of nested wrappers.

    Args:
        network: The network, wrapped or not.
        *last: Wrapper classes at which to stop: the outermost instance of one of them is the result.
    """
    while hasattr(network, "base") and not isinstance(network, last):
        network = network.base
    return network


def graphs_of(network: Network, rounds: int) -> Iterator[tuple[str, Graph]]:
    """The graphs of a network, each with a label.

    All graphs of a fixed or periodic network, wrapped or not, and of a random choice (except those of probability
    zero).

    Args:
        network: Any network.
        rounds: For other networks, and wrappers around a random choice, the number of initial rounds to draw.
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
    """Check the graphs of a network before a run: `check_graph`, and that mixing does not expand.

    Checked are all graphs of fixed and periodic networks and of random choices, one round of a network that is redrawn
    in each round, and three of one defined outside jdfl. Where a method mixes, negative weights are accepted only if
    differences between nodes do not grow; with nonnegative weights whose rows sum to one they never do. Single rounds
    may expand. For fixed and periodic networks, no eigenvalue of the product of W - J over a period may exceed one in
    modulus (within 1e-5; J: all entries 1 / m). For networks with random weights, the mean over rounds must satisfy
    || E[W^T W] - J || < 1: computed exactly for random choices and MATCHA's matchings; others in which negative weights
    were seen are refused if the mean of 100 rounds, or of 100 periods, exceeds one by three standard errors.

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
            f"Expected weights >= 0 for {method}, whose push-sum weights could otherwise vanish, got {lowest:.6g} "
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
            f"Expected mixing for {method} that does not expand, with every eigenvalue of {what} at most 1 in modulus, "
            f"got {radius:.6g} in {called(network)}, whose lowest weight is {lowest:.6g}: differences between nodes "
            f"would grow by that factor in each {often}. Use weights >= 0, or weights='metropolis' on undirected links."
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
    """The factor by which a round changes the squared disagreement, in expectation."""

    most: float  # over all disagreements, exactly; or an estimate for the one that grows fastest
    error: float | None  # its standard error; None: it is exact

    @property
    def too_large(self) -> bool:
        """Whether the factor is one or more: exactly, or beyond the uncertainty of the estimate."""
        return not (self.most - _SURE * self.error <= 1 if self.error is not None else self.most < 1)


def mean_growth(network: Network) -> Growth:
    """The expected growth of the squared disagreement in a round, or in a period of a periodic network inside wrappers.

    || E[W^T (I - J) W] ||, exact for matchings and random choices and estimated for other networks: the disagreement
    with the largest mean growth is found on one half of the rounds, and its growth measured on the other half.
    """
    while isinstance(network, Timed):  # which has the weights of its base
        network = network.base
    if isinstance(network, Matchings):  # a periodic one as in the round in which its matchings are active
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
    """(I - J) sum_c p_c W_c^T (I - J) W_c x for probabilities p_c and matrices W_c."""
    return centred(sum(chance * (W.T @ centred(W @ x)) for chance, W in matrices))
