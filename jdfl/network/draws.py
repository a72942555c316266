"""What drawing a random network takes: a generator, draws until one is connected, links as arcs. NumPy on the host."""

from collections.abc import Callable

import networkx as nx
import numpy as np

from jdfl import checks
from jdfl.network.arcs import Arcs, arcs, components
from jdfl.network.families import MOST_NODES


def generator(m: int, seed: int, tries: int) -> np.random.Generator:
    """The generator of a seed, when these three are in range."""
    checks.whole(most=MOST_NODES, m=m)
    checks.whole(least=0, seed=seed)
    checks.whole(1, 2**31 - 1, tries=tries)
    return np.random.default_rng(seed)


def redrawn(draw: Callable[[], Arcs], tries: int | None, given: str, remedy: str, alone: float = 0.0) -> Arcs:
    """The first connected one of at most `tries` draws; None: the first one. `alone` nodes are expected cut off."""
    if tries is None:
        return draw()
    # The number of nodes cut off is near Poisson, so no draw has none with probability below tries exp(-alone).
    if alone > np.log(tries) + 20:
        raise ValueError(
            f"Expected a network that can be connected, got {given}: about {alone:.0f} nodes are cut off in every "
            f"draw. {remedy}"
        )
    count, largest, m = 0, 0, 0
    for _ in range(tries):
        links = draw()
        m = links.m
        count, largest = components(links)
        if count == 1:
            return links
    raise ValueError(
        f"Expected a connected draw, got none in tries = {tries} with {given}; the last had {count} components, the "
        f"largest with {largest} of {m} nodes. {remedy}"
    )


def both_ways(u: np.ndarray, v: np.ndarray, m: int) -> Arcs:
    """Links u[e] - v[e] as arcs."""
    return arcs(np.concatenate([u, v]), np.concatenate([v, u]), m)


def arcs_from_networkx(drawn: "nx.Graph[int]") -> Arcs:
    """The links of a networkx graph on nodes 0 .. m-1."""
    edges = np.array(drawn.edges(), np.int64).reshape(-1, 2)
    return both_ways(edges[:, 0], edges[:, 1], drawn.number_of_nodes())


def new_seed(rng: np.random.Generator) -> int:
    """A seed for networkx."""
    return int(rng.integers(2**31))


def others(m: int, degree: int, least: int = 1) -> None:
    """Refuse a degree that no node can have."""
    checks.whole(least=least, most=m - 1, remedy=f"A node has m - 1 = {m - 1} others to hear.", degree=degree)
