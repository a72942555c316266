"""Families of networks by name, without randomness: ring, circulant, exponential, d-out, torus, star, complete.

All take `weights` (but for those that say which they have) and `format` as `from_edges` does and raise `ValueError` for
arguments out of range. With `directed=True` every link runs one way only, and the weights are uniform or out-degree,
which are the same where every node is heard by as many as it hears.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jdfl import checks
from jdfl.arguments import checked
from jdfl.network.arcs import arcs
from jdfl.network.graph import Static
from jdfl.network.weights import FormatChoice, Weights, build, from_edges

MOST_NODES = np.iinfo(np.int32).max


@checked
def ring(m: int, *, directed: bool = False, weights: Weights | None = None, format: FormatChoice = "auto") -> Static:
    """A cycle: each node hears the one before and the one after it; if `directed`, only the one before."""
    checks.whole(most=MOST_NODES, m=m)
    node = np.arange(m)
    edges = np.stack([node, (node + 1) % m], axis=1)
    name = f"{kind(directed)}ring(m={m})"
    return from_edges(edges, m, weights=weights, directed=directed, format=format, name=name)


@checked
def circulant(
    m: int,
    offsets: Sequence[int],
    *,
    directed: bool = False,
    weights: Weights | None = None,
    format: FormatChoice = "auto",
    connected: bool = True,
) -> Static:
    """Node i hears i - o and i + o (mod m) for every o in `offsets`, each from 1 to m // 2.

    If `directed`, it hears i - o only, and offsets reach to m - 1. Raises `ValueError` if the offsets leave the network
    in parts, which is if they and m share a divisor.
    """
    checks.whole(most=MOST_NODES, m=m)
    steps = list(offsets)
    most, far = (m - 1, "to the node before") if directed else (m // 2, "half way round")
    for place, offset in enumerate(steps):
        checks.whole(most=most, remedy=f"An offset reaches at most {far} (m = {m}).", **{f"offsets[{place}]": offset})
    steps_heard = [-o for o in steps] if directed else [s for o in steps for s in (o, -o)]
    node = np.tile(np.arange(m), len(steps_heard))
    links = arcs(node, (node + np.repeat(np.array(steps_heard, np.int64), m)) % m, m)
    shown = ", ".join(str(int(o)) for o in steps)
    remedy = "Add offset 1, or connected=False to accept the network as it is."
    name = f"{kind(directed)}circulant(m={m}, offsets=[{shown}])"
    return build(links, weights, format, name, connected=connected, remedy=remedy)


@checked
def exponential(m: int, *, format: FormatChoice = "auto") -> Static:
    """Node i hears i - 1, i - 2, i - 4, ... (mod m), ceil(log2 m) others, with uniform weights.

    M. Assran, N. Loizou, N. Ballas, M. Rabbat, "Stochastic gradient push for distributed deep learning", 2019; B. Ying,
    K. Yuan, Y. Chen, H. Hu, P. Pan, W. Yin, "Exponential graph is provably efficient for decentralized deep training",
    2021: its spectral gap is 2 / (1 + ceil(log2 m)) for even m. Directed, and yet doubly stochastic.
    """
    return replace(circulant(m, exponential_offsets(m), directed=True, format=format), name=f"exponential(m={m})")


@checked
def d_out(m: int, d: int, *, format: FormatChoice = "auto") -> Static:
    """Node i sends to i, i + 1, ..., i + d - 1 (mod m), itself among them, with weight 1 / d each.

    The d-Out network of Y. Zhou, K. Xue, E. Chen's DPPS paper. Directed and doubly stochastic: node i hears i - 1, ...,
    i - d + 1. With d = m it is complete averaging, with d = 1
    nobody hears anybody. Raises `ValueError` unless 1 <= d <= m.
    """
    checks.whole(most=MOST_NODES, m=m)
    checks.whole(most=m, remedy=f"A node sends to itself and at most m - 1 = {m - 1} others.", d=d)
    drawn = circulant(m, range(1, d), directed=True, weights="uniform", format=format, connected=False)
    return replace(drawn, name=f"{d}-out(m={m})")


def exponential_offsets(m: int) -> list[int]:
    """The powers of two below m."""
    checks.whole(most=MOST_NODES, m=m)
    return [2**t for t in range(int(m - 1).bit_length())]


@checked
def torus(
    m: int,
    rows: int | None = None,
    *,
    directed: bool = False,
    weights: Weights | None = None,
    format: FormatChoice = "auto",
) -> Static:
    """A grid of rows x columns whose opposite sides touch: each node hears the one above, below, left and right.

    Node r * columns + c is in row r and column c. Without `rows` the grid is as square as m allows. If `directed`, a
    node hears the ones above and left only. Raises `ValueError` if `rows` does not divide m, or for a prime m without
    `rows`.
    """
    checks.whole(most=MOST_NODES, m=m)
    if rows is None:
        rows = _short_side(m)
        if rows == 1 and m > 1:
            near = next(size for size in range(m + 1, 2 * m + 3) if _short_side(size) > 1)
            side = _short_side(near)
            raise ValueError(
                f"Expected m that is not a prime, got m = {m}, which makes no grid. Take m = {near} ({side} x "
                f"{near // side}), or ring."
            )
    checks.whole(most=m, rows=rows)
    if m % rows:
        raise ValueError(f"Expected rows that divide m, got rows = {rows} with m = {m}. Change one of them.")
    columns = m // rows
    r, c = np.divmod(np.arange(m), columns)
    right, below = r * columns + (c + 1) % columns, (r + 1) % rows * columns + c
    edges = np.stack([np.tile(np.arange(m), 2), np.concatenate([right, below])], axis=1)
    name = f"{kind(directed)}torus({rows} x {columns})"
    return from_edges(edges, m, weights=weights, directed=directed, format=format, name=name)


def _short_side(m: int) -> int:
    """The largest divisor of m that is at most its square root."""
    return next(side for side in range(math.isqrt(m), 0, -1) if m % side == 0)


@checked
def star(m: int, *, weights: Weights | None = None, format: FormatChoice = "auto") -> Static:
    """Node 0 and each other node hear one another: a server and its clients.

    The table of neighbours is as wide as the hub's m - 1, 9 m (m - 1) bytes.
    """
    checks.whole(most=MOST_NODES, m=m)
    rest = np.arange(1, m)
    edges = np.stack([np.zeros_like(rest), rest], axis=1)
    return from_edges(edges, m, weights=weights, format=format, name=f"star(m={m})")


@checked
def complete(m: int, *, weights: Weights | None = None, format: FormatChoice = "auto") -> Static:
    """Every node hears every other one."""
    checks.whole(most=MOST_NODES, m=m)
    receiver, sender = np.divmod(np.arange(m * m), m)
    return build(arcs(receiver, sender, m), weights, format, f"complete(m={m})")


def kind(directed: bool) -> str:
    """What comes before the name of a family."""
    return "directed " if directed else ""
