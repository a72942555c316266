"""GossipFL: local steps, then an exchange of a random part of the parameters with a single peer.

Z. Tang, S. Shi, B. Li, X. Chu: GossipFL: A Decentralized Federated Learning Framework with Sparsified and Adaptive
Communication, 2022.

    T times:  x_i <- x_i - lr g_i(x_i)
    x_i <- M sum_j W_ij x_j + (I - M) x_i,     M diagonal with entries 0 or 1

M is one mask for all nodes, which they draw from a common seed in every round, so that both ends of a link know the
positions of what they exchange and a message holds values alone. T = `local_steps`. It has ceil(share n) entries here;
in the paper every entry is drawn independently. With share = 1 and one local step it is D-PSGD with
`order="adapt-then-combine"`. W is doubly stochastic, so the average of the nodes is preserved.

A node has one peer in every round, with weights 1/2, on `network.random_matching`. The paper's server chooses pairs
with a fast connection, and now and then others so that all nodes remain connected; this choice is not here, but
`network.matrices` and `network.periodic` take any sequence of pairs. On other networks a node exchanges the same
entries with all of its neighbours. The pairs are as in the authors' code.

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.codecs import packing
from jdfl.network.graph import Share
from jdfl.problems import Problem

_MASK = Stream("gossipfl.mask", "shared")


@struct.dataclass
class GossipFL(Algorithm):
    """GossipFL: local SGD with sparse gossip, of the same random entries at all nodes.

    It takes any gradients; its state is x [m, n]. Raises ValueError (from `check`) for networks whose W is not doubly
    stochastic.
    """

    kind: ClassVar[str] = "gossipfl"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    share: Share = struct.field(pytree_node=False, default=0.3)
    """Fraction of the entries in a message."""
    title: ClassVar[str] = "GossipFL"
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """The bits of the values in a message; their positions are known."""
        return {"model": codec.bits(packing.share_of(problem.n, self.share))}

    def step(self, x: Array, round: Round) -> Array:
        x = round.repeat(self.local_steps, lambda here, x: x - self.lr * self.gradients(x, here), x)
        drawn = jax.random.permutation(round.context.stream(_MASK), x.shape[1])
        mask = drawn < packing.share_of(x.shape[1], self.share)
        return jnp.where(mask, round.mix(jnp.where(mask, x, 0)), x)
