"""Random topologies, drawn once: Erdos-Renyi, regular, k-in, small-world, scale-free, geometric.

All are redrawn from `seed` until connected (strongly, if directed). They raise `ValueError` for arguments out of range
and if none of `tries` draws is connected. NumPy and networkx on the host.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import networkx as nx
import numpy as np
import scipy

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.settings import Bound, Nodes, Seed, Tries
from jdfl.network.families import kind
from jdfl.network.graph import Share, Static
from jdfl.network.tables import Arcs, arcs, components, linked
from jdfl.network.weights import FormatChoice, WeightRule, Weights, build

_ANY = "raise tries, or connected=False to accept any draw."


@checked
def erdos_renyi(
    m: Nodes,
    p: Share = 0.45,
    *,
    directed: bool = False,
    seed: Seed = 0,
    tries: Tries = 1000,
    weights: WeightRule = None,
    format: FormatChoice = "auto",
    connected: bool = True,
) -> Static:
    """Erdos-Renyi graph G(m, p): each link is present with probability p, redrawn until connected.

    The cost is proportional to the links drawn, not to the pairs of nodes (V. Batagelj, U. Brandes, "Efficient
    generation of large random networks", 2005).

    Args:
        p: Probability of a link, in (0, 1].
        directed: Draw the two directions of a link independently.
        connected: Require a connected network; otherwise the first draw is taken.
    """
    remedy = f"Raise p (connected draws become likely above ln(m)/m = {np.log(m) / m:.2g}), {_ANY}"
    family, given, alone = f"{kind(directed)}Erdos-Renyi", f"m = {m}, p = {p:g}", m * (1 - p) ** (m - 1)
    draw = partial(_random_arcs, m, p, directed)
    return _sample(draw, family, given, seed, tries if connected else None, weights, format, remedy, alone)


def _random_arcs(m: int, p: float, directed: bool, rng: np.random.Generator) -> Arcs:
    """One draw of G(m, p): the pairs (i > j, or all) are put in a line; gaps between links are geometric."""
    pairs = m * (m - 1) // (1 if directed else 2)
    batch = int(pairs * p + 6 * np.sqrt(pairs * p) + 16)
    places: list[np.ndarray] = []
    last = -1
    while last < pairs:
        steps = np.minimum(rng.geometric(p, batch), pairs + 1)
        places.append(last + np.cumsum(steps))
        last = int(places[-1][-1])
    place = np.concatenate(places)
    place = place[place < pairs]
    if directed:
        i, j = np.divmod(place, max(1, m - 1))
        return arcs(i, j + (j >= i), m)
    i = ((1 + np.sqrt(1 + 8 * place.astype(np.float64))) / 2).astype(np.int64)  # may be off by one from rounding
    i -= i * (i - 1) // 2 > place
    i += i * (i + 1) // 2 <= place
    return linked(i, place - i * (i - 1) // 2, m)


@checked
def k_regular(
    m: Nodes,
    degree: int,
    *,
    seed: Seed = 0,
    tries: Tries = 1000,
    weights: WeightRule = None,
    format: FormatChoice = "auto",
) -> Static:
    """Random regular graph: each node has exactly `degree` neighbours, redrawn until connected.

    networkx draws it, by A. Steger, N. C. Wormald, "Generating random regular graphs quickly", 1999. A draw is
    almost surely connected for degree >= 3, and rarely for degree 2 and large m (use `ring`).

    Args:
        m: The number of nodes; m * degree is even.
        degree: Neighbours of a node, from 2 to m - 1.
    """
    why = f"With fewer than 2 it cannot be connected, and a node has m - 1 = {m - 1} others."
    checks.integer(min(2, m - 1), m - 1, why, degree=degree)
    if m * degree % 2:
        raise ValueError(f"Expected m * degree even, got m = {m}, degree = {degree}. Change one of them by one.")
    draw = _by_networkx(nx.random_regular_graph, degree, m)
    return _sample(draw, "random regular", f"m = {m}, degree = {degree}", seed, tries, weights, format)


@checked
def k_in(
    m: Nodes,
    degree: int,
    *,
    seed: Seed = 0,
    tries: Tries = 1000,
    weights: WeightRule = None,
    format: FormatChoice = "auto",
    connected: bool = True,
) -> Static:
    """Random k-in graph: each node receives from `degree` others, chosen at random; out-degrees vary.

    A node has no receivers with probability about exp(-degree), so strongly connected draws need a degree near ln(m).

    Args:
        degree: In-neighbours of each node, from 1 to m - 1.
        weights: Rule for the mixing weights, uniform or out-degree; None: uniform. out-degree is for push-sum.
        connected: Require a strongly connected network; otherwise the first draw is taken.
    """
    others(m, min(1, m - 1), degree=degree)

    def draw(rng: np.random.Generator) -> Arcs:
        chosen = np.full((m, degree), -1)
        for slot, last in enumerate(range(m - 1 - degree, m - 1)):  # R. W. Floyd's sampling without replacement
            pick = rng.integers(0, last + 1, size=m)
            taken = (chosen == pick[:, None]).any(axis=1)
            chosen[:, slot] = np.where(taken, last, pick)
        receiver = np.repeat(np.arange(m), degree)
        return arcs(receiver, (chosen + (chosen >= np.arange(m)[:, None])).ravel(), m)

    given, alone = f"m = {m}, degree = {degree}", m * (1 - degree / max(1, m - 1)) ** (m - 1)
    tried, remedy = tries if connected else None, f"Raise degree, {_ANY}"
    return _sample(draw, "random k-in", given, seed, tried, weights, format, remedy, alone)


@checked
def watts_strogatz(
    m: Nodes,
    degree: int,
    p: Share = 0.1,
    *,
    seed: Seed = 0,
    tries: Tries = 1000,
    weights: WeightRule = None,
    format: FormatChoice = "auto",
) -> Static:
    """Watts-Strogatz small world: a ring of `degree` nearest neighbours, each link rewired with probability p.

    D. J. Watts, S. H. Strogatz, "Collective dynamics of 'small-world' networks", 1998 (networkx draws it).

    Args:
        degree: Neighbours of each node before rewiring, an even number from 2 to m - 1.
        p: Probability that a link is rewired at one end, in (0, 1]. For p = 0 use circulant.
    """
    others(m, 2, degree=degree)
    if degree % 2:
        raise ValueError(f"Expected an even degree, got degree = {degree}. Half of the neighbours are on either side.")
    draw = _by_networkx(nx.watts_strogatz_graph, m, degree, p)
    return _sample(draw, "Watts-Strogatz", f"m = {m}, degree = {degree}, p = {p:g}", seed, tries, weights, format)


@checked
def barabasi_albert(
    m: Nodes, links: int, *, seed: Seed = 0, weights: WeightRule = None, format: FormatChoice = "auto"
) -> Static:
    """Barabasi-Albert scale-free graph: nodes are added one by one and link preferentially to well-connected ones.

    A.-L. Barabasi, R. Albert, "Emergence of scaling in random networks", 1999 (networkx draws it). Always connected,
    with a few hubs of high degree: the largest degree, and so the table's width, grows as sqrt(m).

    Args:
        links: Links that each new node makes, from 1 to m - 1.
    """
    others(m, links=links)
    draw = _by_networkx(nx.barabasi_albert_graph, m, links)
    return _sample(draw, "Barabasi-Albert", f"m = {m}, links = {links}", seed, None, weights, format)


@checked
def random_geometric(
    m: Nodes,
    radius: Annotated[float, Bound("(0, inf)")],
    *,
    spread: Annotated[float, Bound("[0, 1]")] = 0.0,
    seed: Seed = 0,
    tries: Tries = 1000,
    weights: WeightRule = None,
    format: FormatChoice = "auto",
    connected: bool = True,
) -> Static:
    """Random geometric graph: nodes at random points of the unit square, linked within transmission range.

    With equal ranges it is the model of E. N. Gilbert, "Random plane networks", 1961. The cost is proportional to the
    links (and to the pairs within the longest range), not to all pairs.

    Args:
        radius: Transmission range of a node, above 0, in sides of the square.
        spread: Relative spread of the ranges, in [0, 1]: they are uniform in radius (1 - spread) .. radius (1 +
            spread). Above 0 the network is directed.
        connected: Require a connected network; otherwise the first draw is taken.
    """
    radius = min(radius, 1e9)  # beyond the square all radii act alike, and the square of this one is finite

    def draw(rng: np.random.Generator) -> Arcs:
        place = rng.random((m, 2))
        reach = radius * (1 + spread * rng.uniform(-1, 1, m))
        near = scipy.spatial.KDTree(place).query_pairs(reach.max(), output_type="ndarray")
        near = np.concatenate([near, near[:, ::-1]])
        receiver, sender = near[np.linalg.norm(place[near[:, 0]] - place[near[:, 1]], axis=1) <= reach[near[:, 1]]].T
        return arcs(receiver, sender, m)

    likely = np.sqrt(np.log(max(2, m)) / (np.pi * m))
    remedy = f"Raise radius (connected draws become likely above sqrt(ln(m)/(pi m)) = {likely:.2g}), {_ANY}"
    widest = min(1.0, np.pi * (radius * (1 + spread)) ** 2)
    given = f"m = {m}, radius = {radius:g}" + (f", spread = {spread:g}" if spread else "")
    tried, alone = tries if connected else None, m * (1 - widest) ** (m - 1)
    return _sample(draw, "random geometric", given, seed, tried, weights, format, remedy, alone)


def others(m: int, least: int = 1, **named: int) -> None:
    """Refuse numbers of neighbours that no node of m can have, or fewer than `least`: ValueError."""
    checks.integer(least, m - 1, f"A node has m - 1 = {m - 1} other nodes.", **named)


def _by_networkx(generator: Any, *given: float) -> Callable[[np.random.Generator], Arcs]:
    """A function that draws a graph on nodes 0 .. m-1 with a networkx generator, seeded from a NumPy generator."""

    def draw(rng: np.random.Generator) -> Arcs:
        drawn: nx.Graph[int] = generator(*given, seed=int(rng.integers(2**31)))
        u, v = np.array(drawn.edges(), np.int64).reshape(-1, 2).T
        return linked(u, v, drawn.number_of_nodes())

    return draw


def _sample(
    draw: Callable[[np.random.Generator], Arcs],
    family: str,
    given: str,
    seed: int,
    tries: int | None,
    weights: Weights | None,
    format: FormatChoice,
    remedy: str = "Raise degree or tries.",
    alone: float = 0.0,
) -> Static:
    """The network of the first connected one of at most `tries` draws; None: of the first draw."""
    rng = np.random.default_rng(seed)
    # The number of isolated nodes is near Poisson, so no draw has none with probability below tries exp(-alone).
    if tries is not None and alone > math.log(tries) + 20:
        raise ValueError(
            f"Expected a network that can be connected, got {given}: about {alone:.0f} nodes are isolated in each "
            f"draw. {remedy}"
        )
    links = draw(rng)
    for _ in range(1, tries or 1):
        if components(links)[0] == 1:
            break
        links = draw(rng)
    name = f"{family}({given.replace(' = ', '=')}, seed={seed})"
    remedy = f"It is the last of tries = {tries} with {given}. {remedy}"
    return build(links, weights, format, name, connected=tries is not None, remedy=remedy)
