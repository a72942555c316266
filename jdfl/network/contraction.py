"""Whether mixing expands, which is refused before a run; where weights are drawn, whether it does so on average.

The disagreement of rows x is x - J x, J having all entries 1 / m. Where rows of W sum to one, a round turns its square
into at most || E[W^T (I - J) W] || times that in expectation, as in "MATCHA" (see `activation`). Rounds that are known
come back after p of them, in which x - J x is multiplied by prod_k (I - J) W_k.

Axes: m nodes.
"""

from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.base.arguments import checked
from jdfl.network.activation import mean_square, moments
from jdfl.network.arcs import called
from jdfl.network.combining import PartialCommunication
from jdfl.network.graph import Graph, Network, Static
from jdfl.network.matching import Matchings
from jdfl.network.requirements import TOLERANCE, graphs_of, inmost
from jdfl.network.sequences import Periodic, RandomChoice, period_of
from jdfl.network.spectral import centred, largest_modulus, spectral_radius
from jdfl.network.tables import check_graph, to_scipy
from jdfl.network.timing import Timed

Given = Static | Periodic | RandomChoice  # whose graphs are all known

_ROUNDS = 3  # in which a network of one's own is looked at
_DRAWN = 200  # rounds of which a mean is estimated, half of them to find the direction that grows most
_PRODUCTS = 30  # of the power method
_SURE = 3.0  # standard errors


class Growth(NamedTuple):
    """The mean factor of the squared disagreement in a round."""

    most: float  # of any disagreement, exactly; or of one that was looked for, estimated
    error: float | None  # standard error of it; None: it is exact

    @property
    def too_large(self) -> bool:
        """Whether it is one or more: exactly, or beyond what the estimate leaves open."""
        return not (self.most - _SURE * self.error <= 1 if self.error is not None else self.most < 1)


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
    lowest, where = 0.0 if isinstance(network, Given) else _lowest_possible(inner), called(network)
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
    if mixes and isinstance(network, Static | Periodic):
        _refuse_expanding(network, method, lowest)
    elif mixes:
        _refuse_growing(network, method, lowest)


def _refuse_expanding(network: Static | Periodic, method: str, lowest: float) -> None:
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


def _lowest_possible(network: Network) -> float:
    """The lowest weight that a network may have, as far as its kind tells it; else 0."""
    if isinstance(network, Matchings):  # a node may meet all its neighbours in one round
        alpha = float(network.alpha)
        return min(alpha, 1 - alpha * network.largest_out_degree)
    return min(_lowest(graph) for _, graph in graphs_of(network, 1)) if isinstance(network, Given) else 0.0


def _lowest(graph: Graph) -> float:
    return min(float(jnp.min(graph.weight)), float(jnp.min(graph.self_weight)))


def mean_growth(network: Network) -> Growth:
    """The mean growth of the squared disagreement in a round, or in a period of what is periodic inside wrappers.

    || E[W^T (I - J) W] ||, exact for matchings and random choices, estimated for other networks.
    """
    while isinstance(network, Timed):  # which has the weights of the network in it
        network = network.base
    if isinstance(network, Matchings):  # of periodic ones that of the round in which they are active
        p = np.asarray(network.p, np.float64)
        p = p if network.period is None else np.ones_like(p)
        return Growth(mean_square(float(network.alpha), *moments(p, np.asarray(network.partner))), None)
    if isinstance(network, RandomChoice):
        p = np.asarray(network.probability, np.float64)
        matrices: list[Any] = [to_scipy(graph) for _, graph in graphs_of(network, 1)]
        chances = (p[p > 0] / p.sum()).tolist()

        def product(x: np.ndarray) -> np.ndarray:
            return np.asarray(sum(chance * (W.T @ centred(W @ x)) for chance, W in zip(chances, matrices)))

        return Growth(largest_modulus(product, network.m), None)
    return _of_draws(network)


def _of_draws(network: Network) -> Growth:
    """The growth of the disagreement that grows most in the mean of some rounds, in the mean of as many others."""
    period = period_of(inmost(network, PartialCommunication)) or 1
    drawn: list[Any] = []
    for k in range(0, _DRAWN * period, period):
        rounds: list[Any] = [to_scipy(_round(network, jnp.int32(t), jax.random.key(t))) for t in range(k, k + period)]
        drawn.append(reduce(lambda earlier, W: W @ earlier, rounds))
    v = centred(np.random.default_rng(0).standard_normal(network.m))
    for _ in range(_PRODUCTS):
        v = v / (np.linalg.norm(v) or 1.0)
        v = centred(sum(W.T @ centred(W @ v) for W in drawn[::2]))
    v = v / (np.linalg.norm(v) or 1.0)
    found = np.array([np.sum(centred(W @ v) ** 2) for W in drawn[1::2]])
    return Growth(float(found.mean()), float(found.std(ddof=1) / np.sqrt(found.size)))


@jax.jit
def _round(network: Network, k: jax.Array, key: jax.Array) -> Graph:
    return network.at(k, key)
