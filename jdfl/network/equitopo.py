"""EquiTopo: circulant networks with random offsets, whose consensus rate does not depend on the number of nodes.

Z. Song, W. Li, K. Jin, L. Shi, M. Yan, W. Yin, K. Yuan: Communication-Efficient Topologies for Decentralized Learning
with O(1) Consensus Rate, 2022. The basis matrix A(u) has 1 / m on its diagonal and weight (m - 1) / m for the node u
places on; all weights are doubly stochastic.

Axes: m nodes, r offsets.
"""

from typing import Annotated, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked
from jdfl.base.names import NodeNames
from jdfl.base.settings import Bound, Count, Seed
from jdfl.base.streams import Stream
from jdfl.network.conversions import from_matrix
from jdfl.network.graph import Graph, Share, Static
from jdfl.network.links import ids
from jdfl.network.shown import Shown
from jdfl.network.weights import FormatChoice

_MOST = 2**20
Offsets: TypeAlias = Annotated[int, Bound(f"[1, {_MOST}]")]
_OFFSET, _START = Stream("network.offset", "network"), Stream("network.offset.start", "network")


@struct.dataclass
class EquiRounds(Shown):
    """One random offset in each round, the same for all nodes: each has one neighbour, or none."""

    offsets: Array  # int32 [r] that are drawn from
    eta: Array  # float32 [] weight of A(u) in W
    m: int = struct.field(pytree_node=False)
    directed: bool = struct.field(pytree_node=False)  # each receives from the node u places before, or in pairs
    name: str = struct.field(pytree_node=False, default="network")
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())

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

    @property
    def largest_out_degree(self) -> int:
        """The largest number of receivers of one node in a round."""
        return 1


def _drawn(m: int, count: int, seed: int) -> np.ndarray:
    """The offsets [r] of A(u), from 1 to m - 1, drawn independently."""
    return np.random.default_rng(seed).integers(1, m, count) if m > 1 else np.ones(count, int)


@checked
def equi_static(
    m: Count, offsets: Offsets = 8, *, directed: bool = False, seed: Seed = 0, format: FormatChoice = "auto"
) -> Static:
    """EquiStatic: the mean of A(u) over random offsets u; U-EquiStatic, or D-EquiStatic if directed.

    Z. Song, W. Li, K. Jin, L. Shi, M. Yan, W. Yin, K. Yuan, "Communication-efficient topologies for decentralized
    learning with O(1) consensus rate", 2022. The consensus rate falls below any rho with about 8 ln(m) / (3 rho^2)
    offsets, whatever m is. Weights are doubly stochastic, and symmetric unless directed.

    Args:
        m: The number of nodes.
        offsets: Number r of offsets; repeated ones count twice. A node has at most as many in-neighbours, or twice as
            many if undirected.
        directed: Receive only from the nodes that are these offsets before.
        seed: Seed of the offsets.
        format: How sums over neighbours are computed; auto looks at density, degrees and backend.

    Raises:
        ValueError: For a draw whose offsets have a common divisor with m, so that the network is not connected.
    """
    drawn = _drawn(m, offsets, seed)
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
    m: Count, offsets: int | None = None, *, directed: bool = False, eta: Share = 0.5, seed: Seed = 0
) -> EquiRounds:
    """EquiDyn: one peer per node and round, by an offset u that is drawn in each round for all nodes.

    Z. Song, W. Li, K. Jin, L. Shi, M. Yan, W. Yin, K. Yuan, "Communication-efficient topologies for decentralized
    learning with O(1) consensus rate", 2022: OD-EquiDyn if directed, with W = (1 - eta) I + eta A(u); otherwise
    OU-EquiDyn, in which the nodes are paired with those u places on, beginning at a random node. For offsets above m /
    2 the pairs are those of m - u here. The mean of || W x - mean ||^2 is at most 0.7 || x - mean ||^2 for any m.

    Args:
        m: The number of nodes.
        offsets: How many offsets, from 1, are drawn before the run, from which rounds choose; None: all m - 1.
        directed: Receive from the node u places before, instead of exchanging in pairs.
        eta: Weight of A(u), in (0, 1]; with 1, a directed round hardly averages.
        seed: Seed of the offsets.

    Raises:
        ValueError: For arguments out of range.
    """
    if offsets is None:
        drawn = np.arange(1, max(2, m))
    else:
        checks.whole(1, _MOST, "They are drawn with repetition.", offsets=offsets)
        drawn = _drawn(m, offsets, seed)
    name = f"O{'D' if directed else 'U'}-EquiDyn(m={m}{'' if offsets is None else f', offsets={offsets}'})"
    return EquiRounds(jnp.asarray(drawn, jnp.int32), jnp.float32(eta), m, directed, name)
