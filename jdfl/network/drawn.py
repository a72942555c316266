"""Networks redrawn in each round: random subsets of a base network's links, random neighbours, random pairs.

Arguments out of range raise `ValueError`.

Axes: m nodes, d slots of the table.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.base import struct
from jdfl.base.arguments import checked
from jdfl.base.names import NodeNames
from jdfl.base.settings import Bound, Nodes
from jdfl.base.streams import Stream
from jdfl.network.families import complete
from jdfl.network.graph import Graph, Network, OfTables, Share, Shown, Static
from jdfl.network.links import equal_shares, ids, link_keys, shuffled, uniform
from jdfl.network.random_families import others
from jdfl.network.sequences import table_of
from jdfl.network.tables import arcs_of, called
from jdfl.network.weights import WeightRule, Weights

NeighbourWeights = Literal["uniform", "out-degree"]

_LINK = Stream("network.links", "network")
_NEIGHBOURS = Stream("network.random neighbours", "network")
_MATCHING = Stream("network.random matching", "network")


@struct.dataclass
class RandomLinks(OfTables):
    """A fixed network with each link up with probability p in each round; weights follow the links that are up."""

    graph: Graph
    p: Array  # float32 [] probability that a link is up
    weights: Weights = struct.field(pytree_node=False)
    directed: bool = struct.field(pytree_node=False)  # whether the two directions of a link are drawn independently
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """The links that are up in round k []; both ends draw with the same key, so agreeing costs no messages."""
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


@struct.dataclass
class RandomNeighbours(Shown):
    """Each node receives from `degree` random others, redrawn in each round."""

    m: int = struct.field(pytree_node=False)
    degree: int = struct.field(pytree_node=False)
    weights: NeighbourWeights = struct.field(pytree_node=False, default="uniform")  # rule for the in-neighbours
    name: str = struct.field(pytree_node=False, default="network")
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())

    def at(self, k: Array, key: Array) -> Graph:
        """The in-neighbours drawn in round k [], by each node with its own key.

        R. W. Floyd's sampling without replacement (J. Bentley, R. Floyd, "Programming pearls: a sample of brilliance",
        1987): the j-th draw is among the first m - degree + j others; if it was drawn before, the last of them is
        taken.
        """
        m, degree = self.m, self.degree
        node = ids(m)
        bound = jnp.arange(m - degree, m, dtype=jnp.int32)  # [degree] exclusive upper bounds; the others are 0 .. m-2
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
        """The largest possible number of receivers of a node: all others, though rarely more than a few `degree`."""
        return self.m - 1


@struct.dataclass
class RandomMatching(Shown):
    """Random pairs of nodes, redrawn in each round; with an odd number of nodes, one is unmatched."""

    m: int = struct.field(pytree_node=False)
    name: str = struct.field(pytree_node=False, default="network")
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())
    largest_out_degree: ClassVar[int] = 1  # receivers of one node in a round

    def at(self, k: Array, key: Array) -> Graph:
        """The pairs of round k []: consecutive nodes in the order of 64 random bits from each node's own key."""
        node = ids(self.m)
        pairs = shuffled(_MATCHING.keys(key, node))[: self.m // 2 * 2].reshape(-1, 2)
        partner = node.at[pairs].set(pairs[:, ::-1])
        paired = partner != node
        weight = jnp.where(paired, 0.5, 0.0).astype(jnp.float32)
        return Graph(partner[:, None], paired[:, None], weight[:, None], 1 - weight, paired.astype(jnp.int32))


@checked
def random_links(base: Annotated[Graph | Network, Static], p: Share, *, weights: WeightRule = None) -> RandomLinks:
    """Each link of a fixed network is up with probability p, drawn independently in each round.

    Both directions of a link are up or down together, unless the base is directed. With `base=complete(m)` this is an
    Erdos-Renyi graph redrawn in each round. A round costs as much as all links of the base. A round's network need not
    be connected; a node without in-neighbours keeps its own row.

    Args:
        base: The network whose links are drawn; its own weights are not used.
        p: Probability that a link is up, in (0, 1].
        weights: Rule for the weights of the links that are up; None: metropolis, or uniform if the base is directed.

    Raises:
        ValueError: For p out of range, weights that a directed network cannot have, and a base that changes.
    """
    graph = table_of(base)
    directed = not arcs_of(graph).symmetric
    if directed and weights not in ("uniform", "out-degree", None):
        raise ValueError(
            f"Expected weights = 'out-degree' or 'uniform' with a directed base, got weights = {weights!r}, which "
            "needs bidirectional links. Pass one of these two, or an undirected base."
        )
    rule: Weights = weights or ("uniform" if directed else "metropolis")
    return RandomLinks(graph, jnp.float32(p), rule, directed, f"random links(p={p:g}) of {called(base)}")


@checked
def erdos_renyi_rounds(m: Nodes, p: Share = 0.45, *, weights: WeightRule = None) -> RandomLinks:
    """Erdos-Renyi graph G(m, p) redrawn in each round, connected or not: `random_links` of the complete network.

    A round costs as much as all m (m - 1) / 2 links. The CEPS paper runs D-PSGD-DN on it (section V).

    Args:
        p: Probability of a link, in (0, 1].
    """
    return replace(random_links(complete(m), p, weights=weights), name=f"Erdos-Renyi rounds(m={m}, p={p:g})")


@checked
def random_neighbours(
    m: Annotated[int, Bound("[2, 2147483647]")], degree: int, *, weights: NeighbourWeights = "uniform"
) -> RandomNeighbours:
    """Each node receives from `degree` distinct others, drawn uniformly at random in each round.

    A round draws m degree random numbers and stores as many slots, so a million nodes are feasible. It makes m degree^2
    integer comparisons, fewer than the multiplications of one mix while degree < n.

    Args:
        m: The number of nodes, from 2.
        degree: In-neighbours of each node, from 1 to m - 1; out-degrees vary.
        weights: uniform, 1 / (1 + degree): rows sum to one, columns only in expectation. out-degree, for push-sum: each
            node splits its row equally among itself and its receivers, so columns sum to one.
    """
    others(m, degree=degree)
    return RandomNeighbours(m, degree, weights, f"random neighbours(m={m}, degree={degree})")


@checked
def random_matching(m: Nodes) -> RandomMatching:
    """Pairwise gossip: a uniformly random matching of the nodes in each round.

    The two nodes of a pair average their rows (weights 1/2), after S. Boyd, A. Ghosh, B. Prabhakar, D. Shah,
    "Randomized gossip algorithms", 2006, in which one pair at a time is active. With m odd, one node per round is
    unmatched and has no in-neighbours.
    """
    return RandomMatching(m, f"random matching(m={m})")
