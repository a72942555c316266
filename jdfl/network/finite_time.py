"""Networks with finite-time consensus: after a fixed number of rounds every node has the exact mean.

All weights are doubly stochastic, and they are nonnegative. NumPy on the host.

Axes: m nodes, q nodes of a group, p rounds of a period.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np
import scipy.sparse as sp

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.settings import Count
from jdfl.network.conversions import from_matrix
from jdfl.network.graph import Static
from jdfl.network.sequences import Periodic, periodic
from jdfl.network.weights import FormatChoice

Link = tuple[int, int, float]  # both ends and the weight of an undirected link
Links = list[Link]  # of one round


@cache
def _factors(q: int, most: int) -> tuple[int, ...] | None:
    """As few factors of q as possible, none above `most`; None where a prime factor of q is above it."""
    if q == 1:
        return ()
    found = [(one, _factors(q // one, most)) for one in range(min(q, most), 1, -1) if q % one == 0]
    made = [(one, *rest) for one, rest in found if rest is not None]
    return min(made, key=len, default=None)


def _averaged(group: list[int]) -> Links:
    """The links of a group whose nodes take their mean."""
    return [(i, j, 1 / len(group)) for place, i in enumerate(group) for j in group[:place]]


def _cube(nodes: list[int], k: int) -> list[Links]:
    """The rounds in which nodes [q] average over one digit of their places after another (Algorithm 1)."""
    factors, stride, rounds = _factors(len(nodes), k + 1), 1, list[Links]()
    assert factors is not None
    for factor in factors:
        starts = [i for i in range(len(nodes)) if i // stride % factor == 0]
        groups = [[nodes[i + digit * stride] for digit in range(factor)] for i in starts]
        rounds.append([link for group in groups for link in _averaged(group)])
        stride *= factor
    return rounds


def _parts(nodes: list[int], k: int) -> list[list[list[int]]]:
    """The digits of q in base k + 1, the highest first: for each, as many groups of (k + 1)^place nodes."""
    parts, power = list[list[list[int]]](), (k + 1) ** (len(nodes).bit_length() + 1)
    while power >= 1:
        groups = len(nodes) // power
        if groups:
            parts.append([nodes[a * power : (a + 1) * power] for a in range(groups)])
        nodes, power = nodes[groups * power :], power // (k + 1)
    return parts


def _simple(nodes: list[int], k: int) -> list[Links]:
    """The rounds of the Simple Base-(k + 1) graph (Algorithm 2)."""
    if _factors(len(nodes), k + 1) is not None:
        return _cube(nodes, k)
    parts = _parts(nodes, k)
    cubes = [_cube([i for group in groups for i in group], k) for groups in parts]
    inner = [[_cube(group, k) for group in groups] for groups in parts]
    first = len(cubes[0])
    rounds = [[link for cube in cubes if cube for link in cube[t % len(cube)]] for t in range(first)]
    for t in range(1 + len(inner[0][0])):  # by then the later, smaller groups are done, too
        links = _spread(parts, t, k) if t < len(parts) - 1 else []
        for part, done in enumerate(inner[:t]):  # those that have given to later parts
            turn = t - part - 1
            links += [link for cube in done if cube for link in cube[turn % len(cube)]]
        rounds.append(links)
    return rounds


def _spread(parts: list[list[list[int]]], t: int, k: int) -> Links:
    """Part t is linked to all later parts: each of their nodes to one node in every group of it; the others average."""
    groups, later = parts[t], [i for part in parts[t + 1 :] for group in part for i in group]
    size = len(groups) * len(groups[0])
    share = size / (size + len(later)) / len(groups)
    links = [(i, group[place], share) for group in groups for place, i in enumerate(later)]
    idle = [i for group in groups for i in group[len(later) :]]
    return links + [link for start in range(0, len(idle), k + 1) for link in _averaged(idle[start : start + k + 1])]


def _together(parts: list[list[Links]]) -> list[Links]:
    """The rounds of networks of equal length that run at the same time."""
    return [[link for links in turns for link in links] for turns in zip(*parts, strict=True)]


def _base(m: int, k: int) -> list[Links]:
    """The rounds of the Base-(k + 1) graph (Algorithm 3): the shorter one of two ways."""
    smooth = m
    for factor in range(2, min(k + 1, m) + 1):
        while math.gcd(smooth, factor) > 1:
            smooth //= math.gcd(smooth, factor)
    rest, count, nodes = smooth, m // smooth, list(range(m))
    whole = _simple(nodes, k)
    if rest == 1 or count == 1:
        return whole
    rows = [nodes[a * rest : (a + 1) * rest] for a in range(count)]
    columns = [nodes[a::rest] for a in range(rest)]
    split = [*_together([_simple(row, k) for row in rows]), *_together([_cube(column, k) for column in columns])]
    return split if len(split) <= len(whole) else whole


def _rounds(m: int, turns: Iterable[Links], name: str) -> Periodic:
    """The network whose rounds have these links."""
    graphs = list[Static]()
    for links in turns or [[]]:
        i, j, w = (np.array(column) for column in zip(*links, strict=True)) if links else (np.zeros(0, int),) * 3
        W = sp.coo_array((np.tile(w.astype(float), 2), (np.r_[i, j], np.r_[j, i])), shape=(m, m)).tocsr()
        graphs.append(from_matrix(W + sp.diags_array(1 - W.sum(axis=1)), connected=False))
    return replace(periodic(graphs), name=name)


@checked
def hyper_hypercube(m: Count, k: Count = 1) -> Periodic:
    """k-peer hyper-hypercube: the nodes that differ in one digit of their ids average, another digit in every round.

    Y. Takezawa, R. Sato, H. Bao, K. Niwa, M. Yamada, "Beyond exponential graph: communication-efficient topologies for
    decentralized learning via finite-time convergence", 2023 (Algorithm 1); with m a power of two and k = 1 it is the
    one-peer hypercube, and in general a p-peer hyper-cuboid: E. D. H. Nguyen, X. Jiang, B. Ying, C. A. Uribe, "On
    graphs with finite-time consensus and their use in gradient tracking", 2023. Undirected, with symmetric weights.
    Every node has the exact mean after a period, which is as short as factors of m up to k + 1 allow.

    Args:
        m: The number of nodes, without a prime factor above k + 1.
        k: The most neighbours of a node in a round.

    Raises:
        ValueError: For an m with a prime factor above k + 1.
    """
    if _factors(m, k + 1) is None:
        raise ValueError(
            f"Expected an m without a prime factor above k + 1 = {k + 1}, got m = {m}. Use a larger k, another m, or "
            "jdfl.network.base_graph, which takes any."
        )
    return _rounds(m, _cube(list(range(m)), k), f"hyper-hypercube(m={m}, k={k})")


@checked
def base_graph(m: Count, k: Count = 1) -> Periodic:
    """Base-(k + 1) graph: exact averaging in a few rounds with at most k neighbours, for any number of nodes.

    Y. Takezawa, R. Sato, H. Bao, K. Niwa, M. Yamada, "Beyond exponential graph: communication-efficient topologies for
    decentralized learning via finite-time convergence", 2023 (Algorithms 2 and 3). Undirected, with symmetric weights.
    Every node has the exact mean after a period, of at most 2 log(m) / log(k + 1) + 2 rounds. Nodes that the paper
    leaves alone while others exchange average among themselves, as in its code.

    Args:
        m: The number of nodes.
        k: The most neighbours of a node in a round.
    """
    return _rounds(m, _base(m, k), f"base-{k + 1} graph(m={m})")


@checked
def de_bruijn(m: Count, degree: Count = 2, *, format: FormatChoice = "auto") -> Static:
    """De Bruijn graph: node i sends to degree * i, ..., degree * i + degree - 1 (mod m), each with weight 1 / degree.

    J.-C. Delvenne, R. Carli, S. Zampieri, "Optimal strategies in the average consensus problem", 2009; for gradient
    tracking: E. D. H. Nguyen, X. Jiang, B. Ying, C. A. Uribe, "On graphs with finite-time consensus and their use in
    gradient tracking", 2023. Directed and doubly stochastic. It is the same in every round, and yet every node has the
    exact mean after t rounds if m divides degree^t. For other m it is a generalised de Bruijn graph, without that.

    Args:
        m: The number of nodes.
        degree: Receivers of a node, itself included where it is among them, from 1 to m; from 2 if m > 1.
        format: How sums over neighbours are computed; auto looks at density, degrees and backend.

    Raises:
        ValueError: For arguments out of range.
    """
    checks.whole(min(2, m), m, "A node has at most m receivers, and one does not connect them.", degree=degree)
    sender = np.repeat(np.arange(m), degree)
    receiver = (sender * degree + np.tile(np.arange(degree), m)) % m
    W = sp.coo_array((np.full(m * degree, 1 / degree), (receiver, sender)), shape=(m, m)).tocsr()
    return from_matrix(W, format=format, name=f"de Bruijn(m={m}, degree={degree})")
