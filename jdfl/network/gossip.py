"""Networks whose links are all drawn anew in every round: random neighbours, and random pairs.

Axes: m nodes, d slots of the table.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl import checks, struct
from jdfl.arguments import checked
from jdfl.network.draws import others
from jdfl.network.families import MOST_NODES
from jdfl.network.graph import Graph
from jdfl.network.links import equal_shares
from jdfl.streams import Stream

NeighbourWeights = Literal["uniform", "out-degree"]

_NEIGHBOURS = Stream("network.random neighbours", "network")
_MATCHING = Stream("network.random matching", "network")


@struct.dataclass
class RandomNeighbours:
    """Every node hears `degree` others, drawn anew in every round."""

    m: int = struct.field(pytree_node=False)
    degree: int = struct.field(pytree_node=False)
    weights: NeighbourWeights = struct.field(pytree_node=False, default="uniform")  # of who is heard
    name: str = struct.field(pytree_node=False, default="network")

    def at(self, k: Array, key: Array) -> Graph:
        """What the nodes draw, each with its own key.

        R. W. Floyd's sampling without replacement (J. Bentley, R. Floyd, "Programming pearls: a sample of brilliance",
        1987): the j-th draw is one of the first m - degree + j others and, if it was drawn before, the last of these.
        """
        m, degree = self.m, self.degree
        node = jnp.arange(m, dtype=jnp.int32)
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
        return Graph(
            senders=senders, mask=jnp.ones((m, degree), jnp.bool_), weight=weight, self_weight=own, out_degree=sent
        )

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
        """Neighbours in the order of 64 random bits of each node's own key are a pair."""
        node = jnp.arange(self.m, dtype=jnp.int32)
        bits = jax.vmap(lambda one: jax.random.bits(one, (2,), jnp.uint32))(_MATCHING.keys(key, node))
        order = jnp.lexsort((bits[:, 0], bits[:, 1])).astype(jnp.int32)
        pairs = order[: self.m // 2 * 2].reshape(-1, 2)
        partner = node.at[pairs].set(pairs[:, ::-1])
        paired = partner != node
        weight = jnp.where(paired, 0.5, 0.0).astype(jnp.float32)
        return Graph(
            senders=partner[:, None],
            mask=paired[:, None],
            weight=weight[:, None],
            self_weight=1 - weight,
            out_degree=paired.astype(jnp.int32),
        )

    @property
    def largest_out_degree(self) -> int:
        """The most nodes that hear one node in a round."""
        return 1


@checked
def random_neighbours(m: int, degree: int, *, weights: NeighbourWeights = "uniform") -> RandomNeighbours:
    """Every node hears `degree` distinct others in every round, drawn anew, each set being equally likely.

    Weights are uniform, 1 / (1 + degree): rows sum to one, columns only on average. How many nodes hear a node differs;
    with weights "out-degree" a node's column is in equal parts for itself and those that hear it, and sums to one.
    A round takes m degree random numbers and memory for as many slots, so that a million nodes are well possible, and
    m degree^2 comparisons of integers, fewer than the products of one mix while degree < n. Raises `ValueError` unless
    1 <= degree <= m - 1.
    """
    checks.whole(least=2, most=MOST_NODES, m=m)
    others(m, degree)
    checks.one_of(get_args(NeighbourWeights), weights=weights)
    return RandomNeighbours(m, degree, weights, f"random neighbours(m={m}, degree={degree})")


@checked
def random_matching(m: int) -> RandomMatching:
    """Random pairs in every round, drawn anew, each matching being equally likely: pairwise gossip.

    The two nodes of a pair take the mean of their rows (weights 1/2), after S. Boyd, A. Ghosh, B. Prabhakar, D. Shah,
    "Randomized gossip algorithms", 2006, whose pairs wake up one at a time. With m odd one node a round is left alone
    and hears nobody. Raises ValueError for an m that is no number of nodes.
    """
    checks.whole(most=MOST_NODES, m=m)
    return RandomMatching(m, f"random matching(m={m})")
