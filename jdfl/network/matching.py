"""MATCHA: a network decomposed into matchings, each activated in a round with its own probability.

J. Wang, A. K. Sahu, Z. Yang, G. Joshi, S. Kar, "MATCHA: Speeding up decentralized SGD via matching decomposition
sampling", 2019. In round k, with B_j = 1 with probability p_j:

    W = I - alpha sum_j B_j L_j           L_j the Laplacian of matching j

`activation` computes p and alpha. The matchings are a proper edge colouring of the network with at most one colour more
than the largest degree (J. Misra, D. Gries, "A constructive proof of Vizing's theorem", 1992; the bound is V. G.
Vizing's, 1964), in O(m e) steps on the host for m nodes and e edges.

Axes: m nodes, M matchings.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import struct
from jdfl.base.arguments import checked
from jdfl.base.names import NodeNames
from jdfl.base.settings import Bound
from jdfl.base.streams import Stream
from jdfl.network.activation import activation, mixing_step
from jdfl.network.graph import Format, Graph, Network, Static
from jdfl.network.links import ids
from jdfl.network.shown import Shown
from jdfl.network.tables import arcs_of, called, components, graph_of

_ACTIVE = Stream("network.active matchings", "network")
Schedule = Literal["random", "periodic"]


@struct.dataclass
class Matchings(Shown):
    """A network decomposed into matchings, some of them active in a round. W is always symmetric, doubly stochastic."""

    partner: Array  # [m, M] int32 partner of node i in matching j; itself if unmatched
    p: Array  # [M] float32 activation probability of each matching; its share of rounds if periodic
    alpha: Array  # float32 [] weight of an active link
    period: int | None = struct.field(pytree_node=False)  # rounds between activations of all matchings; None: random
    rho: float  # bound on the factor by which a round changes the expected squared disagreement
    connectivity: float  # lambda_2(sum_j p_j L_j)
    connectivity_bound: float  # upper bound on it for any probabilities within the budget
    format: Format = struct.field(pytree_node=False, default="padded")  # how `mix` multiplies
    name: str = struct.field(pytree_node=False, default="network")
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.partner.shape[0]

    def at(self, k: Array, key: Array) -> Graph:
        """The matchings active in round k [], one slot each; all nodes share the key, so agreeing costs no messages."""
        if self.period is None:
            active = jax.random.uniform(_ACTIVE.of(key), self.p.shape, jnp.float32) < self.p
        else:
            active = jnp.broadcast_to((k + 1) % self.period == 0, self.p.shape)
        node = ids(self.m)[:, None]
        up = active[None] & (self.partner != node)
        weight = jnp.where(up, self.alpha, 0).astype(jnp.float32)
        own, sent = 1 - jnp.sum(weight, axis=1), jnp.sum(up, axis=1, dtype=jnp.int32)
        return Graph(jnp.where(up, self.partner, node), up, weight, own, sent, self.format)

    @property
    def _met(self) -> np.ndarray:
        """Whether node i has a partner in matching j: bool [m, M] (on the host)."""
        return np.asarray(self.partner) != np.arange(self.m)[:, None]

    @property
    def expected_edges(self) -> float:
        """Expected number of active links per round (on the host)."""
        return float(np.asarray(self.p, np.float64) @ self._met.sum(axis=0) / 2)

    @property
    def largest_out_degree(self) -> int:
        """The largest possible number of receivers of a node in a round: its degree in the base (on the host)."""
        return int(self._met.sum(axis=1).max())


class _Colouring:
    """An edge colouring in progress: at[i][c] is the other end of node i's edge with colour c."""

    def __init__(self, m: int, colours: int) -> None:
        self.at: list[dict[int, int]] = [{} for _ in range(m)]
        self.colours = range(colours)

    def free(self, i: int) -> Iterator[int]:
        """The colours not used by any edge of node i."""
        return (c for c in self.colours if c not in self.at[i])

    def fan(self, u: int, v: int) -> tuple[list[int], int]:
        """A fan of u starting at v: each neighbour's edge to u has a colour free at its predecessor; and its last
        colour.

        The fan ends where a colour free at its last neighbour is free at u too, or where no neighbour can extend it.
        """
        fan = [v]
        while True:
            following, colour = None, -1
            for colour in self.free(fan[-1]):
                if colour not in self.at[u]:
                    return fan, colour
                if self.at[u][colour] not in fan:
                    following = self.at[u][colour]
            if following is None:
                return fan, colour
            fan.append(following)

    def invert(self, u: int, c: int, d: int) -> None:
        """Swap the colours c and d along the path of these colours that starts at u, where c is free."""
        path, colour = [u], d
        while colour in self.at[path[-1]]:
            path.append(self.at[path[-1]][colour])
            colour = c + d - colour
        for i in path:
            self.at[i] = {{c: d, d: c}.get(one, one): other for one, other in self.at[i].items()}

    def add(self, u: int, v: int) -> None:
        """Colour the edge u - v: each edge of the fan takes the colour of the next one."""
        fan, d = self.fan(u, v)
        if d in self.at[u]:
            self.invert(u, next(self.free(u)), d)
        last = next(i for i, x in enumerate(fan) if d not in self.at[x])  # the shortest prefix that is still a fan
        colour_of = {other: colour for colour, other in self.at[u].items()}
        moved = [colour_of[x] for x in fan[1 : last + 1]]
        for x, colour in zip(fan[1:], moved):
            del self.at[x][colour]
        for x, colour in zip(fan, [*moved, d]):
            self.at[u][colour], self.at[x][colour] = x, u


@checked
def matchings(base: Graph | Network) -> np.ndarray:
    """Decompose a fixed undirected network into matchings: each link is in exactly one of the M <= Delta + 1 matchings.

    Args:
        base: The network; Delta is its largest degree.

    Returns:
        partner [m, M] int32, the partner of node i in matching j, or i itself.

    Raises:
        ValueError: For a network that changes or is directed.
    """
    links = arcs_of(graph_of(base))
    if not links.symmetric:
        raise ValueError(
            f"Expected an undirected base, got {called(base)}, which is directed: its links do not form matchings. Use "
            "an undirected one, such as jdfl.network.erdos_renyi(m)."
        )
    degree = np.bincount(links.receiver, minlength=links.m)
    colouring = _Colouring(links.m, int(degree.max()) + 1)
    for i, j in zip(links.receiver.tolist(), links.sender.tolist()):
        if i < j:
            colouring.add(i, j)
    used = sorted({colour for own in colouring.at for colour in own})
    return np.array([[own.get(colour, i) for colour in used] for i, own in enumerate(colouring.at)], np.int32)


@checked
def matcha(
    base: Annotated[Graph | Network, Static],
    budget: Annotated[float, Bound("[1e-9, 1]")],
    *,
    schedule: Schedule = "random",
) -> Matchings:
    """MATCHA: a network decomposed into matchings, each activated with a probability that maximises connectivity.

    The probabilities are within a relative 1e-5 of the best connectivity (`connectivity_bound` certifies it), and alpha
    minimises rho = || E[W^T W] - J ||. The work grows as m^3 M: a tenth of a second for 64 nodes and 40 matchings, ten
    seconds for 300 nodes and 116. Matchings differ in size; `expected_edges` gives the mean cost of a round. Own
    weights 1 - alpha (active links of a node) may be negative.

    Args:
        base: The undirected, connected network to decompose; its own weights are not used.
        budget: Expected share of matchings active in a round, from 1e-9 to 1; 1 uses the whole base in every round,
            with the best alpha.
        schedule: random: each matching is active with its probability. periodic: the paper's baseline P-DecenSGD, all
            matchings in the last of every 1 / budget rounds and none in the others; rho is then the geometric mean over
            rounds.

    Raises:
        ValueError: For a budget out of range, a periodic one whose inverse is not an integer, and a base that changes,
            is directed, is not connected or has one node.
    """
    partner = matchings(base)
    graph, m = graph_of(base), partner.shape[0]
    parts = components(arcs_of(graph))[0]
    if m == 1 or parts > 1:
        found = "one node" if m == 1 else f"{parts} components"
        raise ValueError(f"Expected a connected base of two nodes or more, got {called(base)} with {found}.")
    period = round(1 / budget) if schedule == "periodic" else None
    if period is not None and abs(period * budget - 1) > 1e-6:
        raise ValueError(
            f"Expected 1 / budget to be an integer with schedule = 'periodic', got budget = {budget:g}. "
            f"Take {1 / period:.6g} or {1 / (period + 1):.6g}."
        )
    chosen = activation(partner, 1.0 if period else float(budget))
    alpha, rho = mixing_step(chosen.p, partner)
    share = 1 / period if period else 1.0
    what = f"MATCHA(budget={budget:g})" if period is None else f"P-DecenSGD(every {period} rounds)"
    return Matchings(
        partner=jnp.asarray(partner),
        p=jnp.asarray(chosen.p * share, jnp.float32),
        alpha=jnp.asarray(alpha, jnp.float32),
        period=period,
        rho=rho**share,
        connectivity=chosen.connectivity * share,
        connectivity_bound=chosen.bound * share,
        format="padded" if graph.format == "buckets" else graph.format,
        name=f"{what} of {called(base)}",
        names=graph.names,
    )
