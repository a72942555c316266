"""What drawing a random network takes: a generator, networkx, draws until one is connected. NumPy on the host."""

from collections.abc import Callable

import networkx as nx
import numpy as np

from jdfl.base import checks
from jdfl.network.arcs import MOST_NODES, Arcs, components, linked
from jdfl.network.graph import Static
from jdfl.network.weights import FormatChoice, Weights, build


def generator(m: int, seed: int, tries: int = 1) -> np.random.Generator:
    """The generator of a seed, when these three are in range."""
    checks.whole(most=MOST_NODES, m=m)
    checks.whole(least=0, seed=seed)
    checks.whole(most=2**31 - 1, tries=tries)
    return np.random.default_rng(seed)


def others(m: int, degree: int, least: int = 1) -> None:
    """Refuse a degree that no node can have."""
    checks.whole(least=least, most=m - 1, remedy=f"A node has m - 1 = {m - 1} others to hear.", degree=degree)


def by_networkx(generator: str, rng: np.random.Generator, *given: float) -> Arcs:
    """The links of a graph on nodes 0 .. m-1 that a generator of networkx draws, from a seed of `rng`."""
    drawn: nx.Graph[int] = getattr(nx, generator)(*given, seed=int(rng.integers(2**31)))
    edges = np.array(drawn.edges(), np.int64).reshape(-1, 2)
    return linked(edges[:, 0], edges[:, 1], drawn.number_of_nodes())


def drawn_once(
    draw: Callable[[], Arcs],
    family: str,
    given: str,
    seed: int,
    tries: int | None,
    weights: Weights | None,
    format: FormatChoice,
    remedy: str = "Raise degree or tries.",
    alone: float = 0.0,
) -> Static:
    """The network of the first connected one of at most `tries` draws; None: of the first one.

    It is called by its family and what was `given`; so many nodes `alone` are expected cut off.
    """
    # The number of nodes cut off is near Poisson, so no draw has none with probability below tries exp(-alone).
    if tries is not None and alone > np.log(tries) + 20:
        raise ValueError(
            f"Expected a network that can be connected, got {given}: about {alone:.0f} nodes are cut off in every "
            f"draw. {remedy}"
        )
    count, largest, m = 0, 0, 0
    for _ in range(tries or 1):
        links = draw()
        m = links.m
        count, largest = (1, m) if tries is None else components(links)
        if count == 1:
            return build(links, weights, format, f"{family}({given.replace(' = ', '=')}, seed={seed})", connected=False)
    raise ValueError(
        f"Expected a connected draw, got none in tries = {tries} with {given}; the last had {count} components, the "
        f"largest with {largest} of {m} nodes. {remedy}"
    )
