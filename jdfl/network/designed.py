"""Networks designed for fast averaging: exact after some rounds, or at a rate that is the same for any number of nodes.

Base graphs, hypercubes among them, and de Bruijn graphs give every node the exact mean after a period. EquiTopo
networks are circulant with random offsets: their basis matrix A(u) has 1 / m on its diagonal and weight (m - 1) / m for
the node u places on. All weights are doubly stochastic and nonnegative. Arguments out of range raise `ValueError`.

Axes: m nodes, q nodes of a group, p rounds of a period, r offsets.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Annotated, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.names import NodeNames
from jdfl.base.settings import Bound, Count, Nodes, Seed
from jdfl.base.streams import Stream
from jdfl.network.conversions import from_matrix
from jdfl.network.graph import Graph, Share, Shown, Static
from jdfl.network.links import ids
from jdfl.network.sequences import Periodic, periodic
from jdfl.network.weights import FormatChoice

_MOST = 2**20
_Offsets: TypeAlias = Annotated[int, Bound(f"[1, {_MOST}]")]
_OFFSET, _START = Stream("network.offset", "network"), Stream("network.offset.start", "network")
_Link = tuple[int, int, float]  # both ends and the weight of an undirected link
_Links = list[_Link]  # of one round


@cache
def _factors(q: int, most: int) -> tuple[int, ...] | None:
    """As few factors of q as possible, none above `most`; None where a prime factor of q is above it."""
    if q == 1:
        return ()
    found = [(one, _factors(q // one, most)) for one in range(min(q, most), 1, -1) if q % one == 0]
    made = [(one, *rest) for one, rest in found if rest is not None]
    return min(made, key=len, default=None)


def _averaged(group: list[int]) -> _Links:
    """The links of a group whose nodes take their mean."""
    return [(i, j, 1 / len(group)) for place, i in enumerate(group) for j in group[:place]]


def _cube(nodes: list[int], k: int) -> list[_Links]:
    """The rounds in which nodes [q] average over one digit of their places after another (Algorithm 1)."""
    factors, stride, rounds = _factors(len(nodes), k + 1), 1, list[_Links]()
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


def _simple(nodes: list[int], k: int) -> list[_Links]:
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


def _spread(parts: list[list[list[int]]], t: int, k: int) -> _Links:
    """Part t is linked to all later parts: each of their nodes to one node in every group of it; the others average."""
    groups, later = parts[t], [i for part in parts[t + 1 :] for group in part for i in group]
    size = len(groups) * len(groups[0])
    share = size / (size + len(later)) / len(groups)
    links = [(i, group[place], share) for group in groups for place, i in enumerate(later)]
    idle = [i for group in groups for i in group[len(later) :]]
    return links + [link for start in range(0, len(idle), k + 1) for link in _averaged(idle[start : start + k + 1])]


def _together(parts: list[list[_Links]]) -> list[_Links]:
    """The rounds of networks of equal length that run at the same time."""
    return [[link for links in turns for link in links] for turns in zip(*parts, strict=True)]


def _base(m: int, k: int) -> list[_Links]:
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


def _rounds(m: int, turns: Iterable[_Links], name: str) -> Periodic:
    """The network whose rounds have these links."""
    graphs = list[Static]()
    for links in turns or [[]]:
        i, j, w = (np.array(column) for column in zip(*links, strict=True)) if links else (np.zeros(0, int),) * 3
        W = sp.coo_array((np.tile(w.astype(float), 2), (np.r_[i, j], np.r_[j, i])), shape=(m, m)).tocsr()
        graphs.append(from_matrix(W + sp.diags_array(1 - W.sum(axis=1)), connected=False))
    return replace(periodic(graphs), name=name)


@checked
def base_graph(m: Nodes, k: Count = 1) -> Periodic:
    """Base-(k + 1) graph: exact averaging in a few rounds with at most k neighbours, for any number of nodes.

    Y. Takezawa, R. Sato, H. Bao, K. Niwa, M. Yamada, "Beyond exponential graph: communication-efficient topologies for
    decentralized learning via finite-time convergence", 2023 (Algorithms 1 to 3). Undirected, with symmetric weights.
    Every node has the exact mean after a period, of at most 2 log(m) / log(k + 1) + 2 rounds. Nodes that the paper
    leaves alone while others exchange average among themselves, as in its code. For an m without a prime factor above
    k + 1 it is the k-peer hyper-hypercube, in which the nodes that differ in one digit of their ids average, another
    digit in every round: with m a power of two and k = 1 the one-peer hypercube, and in general a p-peer hyper-cuboid
    (E. D. H. Nguyen, X. Jiang, B. Ying, C. A. Uribe, "On graphs with finite-time consensus and their use in gradient
    tracking", 2023).

    Args:
        k: The most neighbours of a node in a round.
    """
    return _rounds(m, _base(m, k), f"base-{k + 1} graph(m={m})")


@checked
def de_bruijn(m: Nodes, degree: Count = 2, *, format: FormatChoice = "auto") -> Static:
    """De Bruijn graph: node i sends to degree * i, ..., degree * i + degree - 1 (mod m), each with weight 1 / degree.

    J.-C. Delvenne, R. Carli, S. Zampieri, "Optimal strategies in the average consensus problem", 2009; for gradient
    tracking: E. D. H. Nguyen, X. Jiang, B. Ying, C. A. Uribe, "On graphs with finite-time consensus and their use in
    gradient tracking", 2023. Directed and doubly stochastic. It is the same in every round, and yet every node has the
    exact mean after t rounds if m divides degree^t. For other m it is a generalised de Bruijn graph, without that.

    Args:
        degree: Receivers of a node, itself included where it is among them, from 1 to m; from 2 if m > 1.
    """
    checks.integer(min(2, m), m, "A node has at most m receivers, and one does not connect them.", degree=degree)
    sender = np.repeat(np.arange(m), degree)
    receiver = (sender * degree + np.tile(np.arange(degree), m)) % m
    W = sp.coo_array((np.full(m * degree, 1 / degree), (receiver, sender)), shape=(m, m)).tocsr()
    return from_matrix(W, format=format, name=f"de Bruijn(m={m}, degree={degree})")


@struct.dataclass
class EquiRounds(Shown):
    """One random offset in each round, the same for all nodes: each has one neighbour, or none."""

    offsets: Array  # int32 [r] that are drawn from
    eta: Array  # float32 [] weight of A(u) in W
    m: int = struct.field(pytree_node=False)
    directed: bool = struct.field(pytree_node=False)  # each receives from the node u places before, or in pairs
    name: str = struct.field(pytree_node=False, default="network")
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())
    largest_out_degree: ClassVar[int] = 1  # receivers of one node in a round

    def at(self, k: Array, key: Array) -> Graph:
        """The links of round k []; all nodes draw with the same key, so agreeing costs no messages."""
        m, node = self.m, ids(self.m)
        u = jax.random.choice(_OFFSET.of(key), self.offsets)
        if self.directed:
            partner, paired = (node - u) % m, jnp.full((m,), m > 1)
        else:  # from a random node on, blocks of u nodes are paired with the next u; at the end some are left over
            u = jnp.maximum(1, jnp.minimum(u, m - u))
            start = jax.random.randint(_START.of(key), (), 0, m)
            place = (node - start) % m
            first = place // u % 2 == 0
            paired = ~first | (place + u < m)
            partner = jnp.where(paired, (node + jnp.where(first, u, -u)) % m, node)
        weight = jnp.where(paired, self.eta * ((m - 1) / m), 0).astype(jnp.float32)
        return Graph(partner[:, None], paired[:, None], weight[:, None], 1 - weight, paired.astype(jnp.int32))


def _sample(m: int, count: int, seed: int) -> np.ndarray:
    """The offsets [r] of A(u), from 1 to m - 1, drawn independently."""
    return np.random.default_rng(seed).integers(1, m, count) if m > 1 else np.ones(count, int)


@checked
def equi_static(
    m: Nodes, offsets: _Offsets = 8, *, directed: bool = False, seed: Seed = 0, format: FormatChoice = "auto"
) -> Static:
    """EquiStatic: the mean of A(u) over random offsets u; U-EquiStatic, or D-EquiStatic if directed.

    Z. Song, W. Li, K. Jin, L. Shi, M. Yan, W. Yin, K. Yuan, "Communication-efficient topologies for decentralized
    learning with O(1) consensus rate", 2022. The consensus rate falls below any rho with about 8 ln(m) / (3 rho^2)
    offsets, whatever m is. Weights are doubly stochastic, and symmetric unless directed.

    Args:
        offsets: Number r of offsets; repeated ones count twice. A node has at most as many in-neighbours, or twice as
            many if undirected.
        directed: Receive only from the nodes that are these offsets before.

    Raises:
        ValueError: For a draw whose offsets have a common divisor with m, so that the network is not connected.
    """
    drawn = _sample(m, offsets, seed)
    name = f"{'D' if directed else 'U'}-EquiStatic(m={m}, offsets={offsets})"
    if m > 1 and np.gcd.reduce([m, *np.unique(drawn)]) > 1:
        raise ValueError(
            f"Expected a connected network, got {name} with seed = {seed}. Use another seed, or more offsets."
        )
    node = np.arange(m)
    W = sp.diags_array(np.full(m, 1 / m)).tocsr()
    for u, times in zip(*np.unique(drawn, return_counts=True)) if m > 1 else ():
        A = sp.coo_array((np.full(m, times * (m - 1) / m / offsets), (node, (node - u) % m)), shape=(m, m)).tocsr()
        W = W + (A if directed else (A + A.T) / 2)
    return from_matrix(W, format=format, name=name)


@checked
def equi_rounds(
    m: Nodes, offsets: int | None = None, *, directed: bool = False, eta: Share = 0.5, seed: Seed = 0
) -> EquiRounds:
    """EquiDyn: one peer per node and round, by an offset u that is drawn in each round for all nodes.

    Z. Song, W. Li, K. Jin, L. Shi, M. Yan, W. Yin, K. Yuan, "Communication-efficient topologies for decentralized
    learning with O(1) consensus rate", 2022: OD-EquiDyn if directed, with W = (1 - eta) I + eta A(u); otherwise
    OU-EquiDyn, in which the nodes are paired with those u places on, beginning at a random node. For offsets above m /
    2 the pairs are those of m - u here. The mean of || W x - mean ||^2 is at most 0.7 || x - mean ||^2 for any m.

    Args:
        offsets: How many offsets, from 1, are drawn before the run, from which rounds choose; None: all m - 1.
        directed: Receive from the node u places before, instead of exchanging in pairs.
        eta: Weight of A(u), in (0, 1]; with 1, a directed round hardly averages.
    """
    if offsets is None:
        drawn = np.arange(1, max(2, m))
    else:
        checks.integer(1, _MOST, "They are drawn with repetition.", offsets=offsets)
        drawn = _sample(m, offsets, seed)
    name = f"O{'D' if directed else 'U'}-EquiDyn(m={m}{'' if offsets is None else f', offsets={offsets}'})"
    return EquiRounds(jnp.asarray(drawn, jnp.int32), jnp.float32(eta), m, directed, name)
