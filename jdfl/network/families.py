"""Deterministic topologies: ring, circulant, exponential, d-out, torus, star, complete.

With `directed`, each link runs one way only, and the weights are uniform or out-degree; the two agree where every
node's in-degree equals its out-degree. Arguments out of range raise `ValueError`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.settings import As, Nodes
from jdfl.network.graph import Static
from jdfl.network.tables import all_arcs, linked
from jdfl.network.weights import FormatChoice, WeightRule, build


@checked
def ring(m: Nodes, *, directed: bool = False, weights: WeightRule = None, format: FormatChoice = "auto") -> Static:
    """Ring (cycle): each node exchanges messages with its two neighbours.

    Args:
        directed: Receive from the preceding node only.
    """
    node = np.arange(m)
    return build(linked(node, (node + 1) % m, m, directed), weights, format, f"{kind(directed)}ring(m={m})")


@checked
def circulant(
    m: Nodes,
    offsets: Sequence[int],
    *,
    directed: bool = False,
    weights: WeightRule = None,
    format: FormatChoice = "auto",
    connected: bool = True,
) -> Static:
    """Circulant graph: node i is linked to i - o and i + o (mod m) for each offset o.

    Args:
        offsets: The offsets, each from 1 to m // 2; to m - 1 if directed.
        directed: Receive from i - o only.
        connected: Refuse a disconnected network, which results where the offsets and m have a common divisor.
    """
    most, far = (m - 1, "to the node before") if directed else (m // 2, "half way round")
    for place, offset in enumerate(offsets):
        checks.integer(most=most, remedy=f"An offset reaches at most {far} (m = {m}).", **{f"offsets[{place}]": offset})
    node = np.tile(np.arange(m), len(offsets))
    links = linked(node, (node + np.repeat(np.array(offsets, np.int64), m)) % m, m, directed)
    name = f"{kind(directed)}circulant(m={m}, offsets=[{', '.join(str(int(o)) for o in offsets)}])"
    remedy = "Add offset 1, or connected=False to accept the network as it is."
    return build(links, weights, format, name, connected=connected, remedy=remedy)


@checked
def exponential(m: Nodes, *, format: FormatChoice = "auto") -> Static:
    """Static exponential graph: node i receives from i - 1, i - 2, i - 4, ... (mod m), with uniform weights.

    M. Assran, N. Loizou, N. Ballas, M. Rabbat, "Stochastic gradient push for distributed deep learning", 2019; B. Ying,
    K. Yuan, Y. Chen, H. Hu, P. Pan, W. Yin, "Exponential graph is provably efficient for decentralized deep training",
    2021: the spectral gap is 2 / (1 + ceil(log2 m)) for even m. Each node has ceil(log2 m) in-neighbours. The graph is
    directed, yet doubly stochastic.
    """
    return replace(circulant(m, exponential_offsets(m), directed=True, format=format), name=f"exponential(m={m})")


@checked
def d_out(m: Nodes, d: Annotated[int, As(default=4)], *, format: FormatChoice = "auto") -> Static:
    """d-Out graph: node i sends to i, i + 1, ..., i + d - 1 (mod m), itself included, with weight 1 / d each.

    The network of the DPPS paper by Y. Zhou, K. Xue, E. Chen. Directed and doubly stochastic: node i receives from
    i - 1, ..., i - d + 1. With d = m it is complete averaging; with d = 1 there is no communication.

    Args:
        d: Receivers of each node, itself included, from 1 to m.
    """
    checks.integer(most=m, remedy=f"A node sends to itself and at most m - 1 = {m - 1} others.", d=d)
    drawn = circulant(m, range(1, d), directed=True, weights="uniform", format=format, connected=False)
    return replace(drawn, name=f"{d}-out(m={m})")


def exponential_offsets(m: int) -> list[int]:
    """The powers of two below m."""
    return [2**t for t in range(int(m - 1).bit_length())]


@checked
def torus(
    m: Nodes,
    rows: int | None = None,
    *,
    directed: bool = False,
    weights: WeightRule = None,
    format: FormatChoice = "auto",
) -> Static:
    """Torus (grid with wrap-around): each node exchanges messages with those above, below, left and right.

    Node r * columns + c is in row r and column c.

    Args:
        m: The number of nodes; not a prime unless `rows` is given.
        rows: Rows of the grid, a divisor of m; None: as square as m allows.
        directed: Receive from the nodes above and to the left only.
    """
    if rows is None:
        rows, near = _short_side(m), max(4, m + 1)
        if rows == 1 and m > 1:
            grid = f"m = {near} ({_short_side(near)} x {near // _short_side(near)})"
            raise ValueError(f"Expected a composite m, got m = {m}, a prime, which makes no grid. Use {grid}, or ring.")
    checks.integer(most=m, rows=rows)
    if m % rows:
        raise ValueError(f"Expected rows that divide m, got rows = {rows} with m = {m}. Change one of them.")
    node = np.arange(m).reshape(rows, -1)
    ends = [np.roll(node, -1, axis=1), np.roll(node, -1, axis=0)]  # to the right, and below
    links = linked(np.tile(node.ravel(), 2), np.concatenate(ends, axis=None), m, directed)
    return build(links, weights, format, f"{kind(directed)}torus({rows} x {m // rows})")


def _short_side(m: int) -> int:
    """The largest divisor of m not above its square root."""
    return next(side for side in range(math.isqrt(m), 0, -1) if m % side == 0)


@checked
def star(m: Nodes, *, weights: WeightRule = None, format: FormatChoice = "auto") -> Static:
    """Star: node 0 is the hub, linked to every other node, like a server and its clients.

    The table of neighbours is as wide as the hub's degree m - 1 and takes 9 m (m - 1) bytes.
    """
    rest = np.arange(1, m)
    return build(linked(np.zeros_like(rest), rest, m), weights, format, f"star(m={m})")


@checked
def complete(m: Nodes, *, weights: WeightRule = None, format: FormatChoice = "auto") -> Static:
    """Complete graph: every node exchanges messages with every other node."""
    return build(all_arcs(m), weights, format, f"complete(m={m})")


def kind(directed: bool) -> str:
    """The prefix of a family's name."""
    return "directed " if directed else ""
