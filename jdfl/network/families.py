"""Families of networks by name: Erdos-Renyi, ring, circulant, complete, random regular.

All are undirected, take `weights` and `format` as `from_edges` does, and raise `ValueError` for arguments out of range.
"""

from collections.abc import Sequence

import networkx as nx
import numpy as np

from jdfl import checks
from jdfl.network.arcs import Arcs, arcs, components
from jdfl.network.graph import Static
from jdfl.network.weights import FormatChoice, Weights, build, from_edges

_MOST = np.iinfo(np.int32).max


def erdos_renyi(
    m: int,
    p: float = 0.45,
    *,
    seed: int = 0,
    tries: int = 1000,
    weights: Weights = "metropolis",
    format: FormatChoice = "auto",
    connected: bool = True,
) -> Static:
    """G(m, p): each of the m (m-1) / 2 links is there with probability `p`, redrawn until the network is connected.

    The cost is that of the links drawn, not of the pairs (V. Batagelj, U. Brandes, "Efficient generation of large
    random networks", 2005). With `connected=False` the first draw is taken. Raises `ValueError` if none of `tries`
    draws is connected, or at once if that is all but certain.
    """
    checks.whole(most=_MOST, m=m)
    checks.fraction(p=p)
    checks.whole(least=0, seed=seed)
    checks.whole(tries=tries)
    rng = np.random.default_rng(seed)
    name = f"Erdos-Renyi(m={m}, p={p:g}, seed={seed})"
    if not connected:
        return build(_random_arcs(rng, m, p), weights, format, name, connected=False)
    remedy = (
        f"Raise p (connected draws become likely above ln(m)/m = {np.log(m) / m:.2g}), raise tries, "
        "or connected=False to accept any draw."
    )
    # The number of isolated nodes is near Poisson, so no draw has none with probability below tries exp(-alone).
    alone = m * (1 - p) ** (m - 1)
    if alone > np.log(tries) + 20:
        raise ValueError(
            f"Expected p large enough for a connected network, got p = {p:g} with m = {m}: about {alone:.0f} nodes "
            f"without any neighbour in every draw. {remedy}"
        )
    count, largest = 0, 0
    for _ in range(tries):
        links = _random_arcs(rng, m, p)
        count, largest = components(links)
        if count == 1:
            return build(links, weights, format, name, connected=False)
    raise ValueError(
        f"Expected a connected draw, got none in tries = {tries} with m = {m}, p = {p:g}; the last had {count} "
        f"components, the largest with {largest} of {m} nodes. {remedy}"
    )


def _random_arcs(rng: np.random.Generator, m: int, p: float) -> Arcs:
    """One draw of G(m, p): the pairs i > j stand in one line, and the steps from link to link are geometric."""
    pairs = m * (m - 1) // 2
    batch = int(pairs * p + 6 * np.sqrt(pairs * p) + 16)
    places, last = [], -1
    while last < pairs:
        steps = np.minimum(rng.geometric(p, batch), pairs + 1)
        places.append(last + np.cumsum(steps))
        last = int(places[-1][-1])
    place = np.concatenate(places)
    place = place[place < pairs]
    i = ((1 + np.sqrt(1 + 8 * place.astype(np.float64))) / 2).astype(np.int64)  # may be off by one from rounding
    i -= i * (i - 1) // 2 > place
    i += i * (i + 1) // 2 <= place
    j = place - i * (i - 1) // 2
    return arcs(np.concatenate([i, j]), np.concatenate([j, i]), m)


def ring(m: int, *, weights: Weights = "metropolis", format: FormatChoice = "auto") -> Static:
    """A cycle: each node hears the one before and the one after it."""
    checks.whole(most=_MOST, m=m)
    node = np.arange(m)
    return from_edges(np.stack([node, (node + 1) % m], axis=1), m, weights=weights, format=format, name=f"ring(m={m})")


def circulant(
    m: int,
    offsets: Sequence[int],
    *,
    weights: Weights = "metropolis",
    format: FormatChoice = "auto",
    connected: bool = True,
) -> Static:
    """Node i hears i + o and i - o (mod m) for every o in `offsets`, each from 1 to m // 2.

    Raises `ValueError` if the offsets leave the network in parts, which is if they and m share a divisor.
    """
    checks.whole(most=_MOST, m=m)
    steps = list(offsets)
    for place, offset in enumerate(steps):
        checks.whole(
            most=m // 2, remedy=f"An offset reaches at most half way round (m = {m}).", **{f"offsets[{place}]": offset}
        )
    node = np.tile(np.arange(m), 2 * len(steps))
    step = np.repeat(np.array([s for o in steps for s in (o, -o)], np.int64), m)
    shown = ", ".join(str(int(o)) for o in steps)
    remedy = "Add offset 1, or connected=False to accept the network as it is."
    links = arcs(node, (node + step) % m, m)
    return build(links, weights, format, f"circulant(m={m}, offsets=[{shown}])", connected=connected, remedy=remedy)


def complete(m: int, *, weights: Weights = "metropolis", format: FormatChoice = "auto") -> Static:
    """Every node hears every other one."""
    checks.whole(most=_MOST, m=m)
    receiver, sender = np.divmod(np.arange(m * m), m)
    return build(arcs(receiver, sender, m), weights, format, f"complete(m={m})")


def k_regular(
    m: int,
    degree: int,
    *,
    seed: int = 0,
    tries: int = 1000,
    weights: Weights = "metropolis",
    format: FormatChoice = "auto",
) -> Static:
    """A connected random network in which every node hears `degree` others (networkx draws it).

    A draw is connected almost surely for degree >= 3, seldom for degree 2 and large m (use `ring`). Raises `ValueError`
    if no such network exists, or none of `tries` draws is connected.
    """
    checks.whole(most=_MOST, m=m)
    checks.whole(least=0, most=m - 1, remedy=f"A node has m - 1 = {m - 1} others to hear.", degree=degree)
    checks.whole(least=0, seed=seed)
    checks.whole(tries=tries)
    if m * degree % 2:
        raise ValueError(f"Expected m * degree even, got m = {m}, degree = {degree}. Change one of them by one.")
    if degree < min(2, m - 1):
        raise ValueError(
            f"Expected degree >= 2 for a connected network, got degree = {degree} with m = {m}. Raise degree."
        )
    rng = np.random.default_rng(seed)
    for _ in range(tries):
        drawn = nx.random_regular_graph(degree, m, seed=int(rng.integers(2**31)))
        if nx.is_connected(drawn):
            edges = np.array(drawn.edges(), np.int64)
            name = f"random regular(m={m}, degree={degree}, seed={seed})"
            return from_edges(edges, m, weights=weights, format=format, name=name)
    raise ValueError(
        f"Expected a connected draw, got none in tries = {tries} with m = {m}, degree = {degree}. "
        "Raise degree or tries."
    )
