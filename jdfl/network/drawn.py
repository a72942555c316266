"""Networks whose links are drawn anew in every round: those of a base, random neighbours, and random pairs.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.arguments import checked
from jdfl.base.settings import Bound, Count
from jdfl.base.streams import Stream
from jdfl.network.families import complete
from jdfl.network.graph import Graph, Network, Share, Static
from jdfl.network.links import equal_shares, ids, link_keys, shuffled, uniform
from jdfl.network.random_families import others
from jdfl.network.sequences import table_of
from jdfl.network.tables import arcs_of, called
from jdfl.network.weights import Weights

NeighbourWeights = Literal["uniform", "out-degree"]

_LINK = Stream("network.links", "network")
_NEIGHBOURS = Stream("network.random neighbours", "network")
_MATCHING = Stream("network.random matching", "network")


@struct.dataclass
class RandomLinks:
    """Every link of a graph up with one probability in every round, weights by the links that are up."""

    graph: Graph
    p: Array  # float32 [] probability that a link is up
    weights: Weights = struct.field(pytree_node=False)
    directed: bool = struct.field(pytree_node=False)  # whether the two ways of a link are drawn apart
    name: str = struct.field(pytree_node=False, default="network")

    @property
    def m(self) -> int:
        """The number of nodes."""
        return self.graph.m

    def at(self, k: Array, key: Array) -> Graph:
        """The links that are up in round k []; both ends of one draw with the same key and send nothing for it."""
        graph, m = self.graph, self.m
        up = graph.mask & (uniform(link_keys(key, _LINK, graph, directed=self.directed)) < self.p)
        senders = jnp.where(up, graph.senders, ids(m)[:, None])
        degree = jnp.sum(up, axis=1, dtype=jnp.int32)
        sent = jnp.zeros((m,), jnp.int32).at[senders].add(up.astype(jnp.int32)) if self.directed else degree
        if self.weights == "out-degree":
            share, own = equal_shares(sent)
            weight = jnp.where(up, share[senders], 0)
        else:
            heard = degree.astype(jnp.float32)
            larger = heard[:, None]
            if self.weights == "metropolis":
                larger = jnp.maximum(larger, heard[senders])
            elif self.weights == "laplacian":
                larger = jnp.max(heard)
            weight = jnp.where(up, 1 / (1 + larger), 0).astype(jnp.float32)
            own = 1 - jnp.sum(weight, axis=1)
        return replace(graph, senders=senders, mask=up, weight=weight, self_weight=own, out_degree=sent)

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that can hear one node in a round (on the host)."""
        return int(np.max(np.asarray(self.graph.out_degree)))


@struct.dataclass
class RandomNeighbours:
    """Every node hears `degree` others, drawn anew in every round."""

    m: int = struct.field(pytree_node=False)
    degree: int = struct.field(pytree_node=False)
    weights: NeighbourWeights = struct.field(pytree_node=False, default="uniform")  # of who is heard
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """What the nodes draw in round k [], each with its own key.

        R. W. Floyd's sampling without replacement (J. Bentley, R. Floyd, "Programming pearls: a sample of brilliance",
        1987): the j-th draw is one of the first m - degree + j others and, if it was drawn before, the last of these.
        """
        m, degree = self.m, self.degree
        node = ids(m)
        bound = jnp.arange(m - degree, m, dtype=jnp.int32)  # [degree] numbers below it, the others being 0 .. m-2
        keys = _NEIGHBOURS.keys(key, node)
        drawn = jax.vmap(lambda one: jax.random.randint(one, (degree,), 0, bound, jnp.int32))(keys).T

        def settle(j: Array, chosen: Array) -> Array:
            taken = jnp.any(chosen == drawn[j][None], axis=0)
            return chosen.at[j].set(jnp.where(taken, bound[j] - 1, drawn[j]))

        chosen = lax.fori_loop(0, degree, settle, jnp.full((degree, m), -1, jnp.int32)).T
        senders = jnp.where(chosen >= node[:, None], chosen + 1, chosen)
        sent = jnp.zeros((m,), jnp.int32).at[senders].add(1)
        if self.weights == "out-degree":
            share, own = equal_shares(sent)
            weight = share[senders]
        else:
            weight = jnp.full((m, degree), 1 / (1 + degree), jnp.float32)
            own = 1 - jnp.sum(weight, axis=1)
        return Graph(senders, jnp.ones((m, degree), jnp.bool_), weight, own, sent)

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that can hear one node in a round: all others, if seldom more than a few times `degree`."""
        return self.m - 1


@struct.dataclass
class RandomMatching:
    """Every node exchanges with one other, drawn anew in every round; an odd one is left alone."""

    m: int = struct.field(pytree_node=False)
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """The pairs of round k []: neighbours in the order of 64 random bits of each node's own key."""
        node = ids(self.m)
        pairs = shuffled(_MATCHING.keys(key, node))[: self.m // 2 * 2].reshape(-1, 2)
        partner = node.at[pairs].set(pairs[:, ::-1])
        paired = partner != node
        weight = jnp.where(paired, 0.5, 0.0).astype(jnp.float32)
        return Graph(partner[:, None], paired[:, None], weight[:, None], 1 - weight, paired.astype(jnp.int32))

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that hear one node in a round."""
        return 1


@checked
def random_links(base: Annotated[Graph | Network, Static], p: Share, *, weights: Weights | None = None) -> RandomLinks:
    """Every link of a fixed network is up with probability p, drawn anew in every round and for every link.

    Both directions of a link go together, unless the base is directed. With `base=complete(m)` this is an Erdos-Renyi
    network drawn anew in every round. A round costs what all links of the base cost. A round's network need not be
    connected, and a node may hear nobody: it then keeps its own row.

    Args:
        base: The network whose links they are; its own weights are not used.
        p: Probability that a link is up, in (0, 1].
        weights: Rule for the weights of the links that are up; None: metropolis, or uniform if links run one way.

    Raises:
        ValueError: For p out of range, weights that a directed network cannot have, and a base that changes.
    """
    graph = table_of(base)
    directed = not arcs_of(graph).symmetric
    if directed and weights not in ("uniform", "out-degree", None):
        raise ValueError(
            f"Expected weights = 'out-degree' or 'uniform' with a directed base, got weights = {weights!r}, which "
            "needs every link to run both ways. Pass one of these two, or an undirected base."
        )
    rule: Weights = weights or ("uniform" if directed else "metropolis")
    return RandomLinks(graph, jnp.float32(p), rule, directed, f"random links(p={p:g}) of {called(base)}")


@checked
def erdos_renyi_rounds(m: Count, p: Share = 0.45, *, weights: Weights | None = None) -> RandomLinks:
    """G(m, p) drawn anew in every round, connected or not: `random_links` of the complete network.

    A round costs what all m (m - 1) / 2 links cost. The CEPS paper's D-PSGD-DN runs on it (section V).

    Args:
        m: The number of nodes.
        p: Probability of a link, in (0, 1].
        weights: Rule for the mixing weights; None: metropolis.
    """
    return replace(random_links(complete(m), p, weights=weights), name=f"Erdos-Renyi rounds(m={m}, p={p:g})")


@checked
def random_neighbours(
    m: Annotated[int, Bound("[2, 2147483647]")], degree: int, *, weights: NeighbourWeights = "uniform"
) -> RandomNeighbours:
    """Every node hears `degree` distinct others in every round, drawn anew, each set being equally likely.

    A round takes m degree random numbers and memory for as many slots, so that a million nodes are well possible, and
    m degree^2 comparisons of integers, fewer than the products of one mix while degree < n.

    Args:
        m: The number of nodes, from 2.
        degree: Nodes that a node hears, from 1 to m - 1; how many nodes hear a node differs.
        weights: uniform, 1 / (1 + degree): rows sum to one, columns only on average; out-degree, for push-sum: a
            node's column is in equal parts for itself and those that hear it, and sums to one.

    Raises:
        ValueError: For arguments out of range.
    """
    others(m, degree=degree)
    return RandomNeighbours(m, degree, weights, f"random neighbours(m={m}, degree={degree})")


@checked
def random_matching(m: Count) -> RandomMatching:
    """Random pairs of nodes in every round, drawn anew, each matching being equally likely: pairwise gossip.

    The two nodes of a pair take the mean of their rows (weights 1/2), after S. Boyd, A. Ghosh, B. Prabhakar, D. Shah,
    "Randomized gossip algorithms", 2006, whose pairs wake up one at a time. With m odd one node a round is left alone
    and hears nobody.

    Args:
        m: The number of nodes, from 1; otherwise `ValueError`.
    """
    return RandomMatching(m, f"random matching(m={m})")
