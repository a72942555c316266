"""DFedSAM: decentralized federated averaging with sharpness-aware local steps, and DFedSAM-MGS.

Y. Shi, L. Shen, K. Wei, Y. Sun, B. Yuan, X. Wang, D. Tao: Improving the Model Consistency of Decentralized Federated
Learning, 2023.

    K times:  e_i = rho g_i(y_i) / ||g_i(y_i)||,   y_i <- y_i - lr g_i(y_i + e_i),   from y_i = x_i
    Q times:  y_i <- sum_j W_ij y_j
    x_i <- y_i

Both gradients of a step use the same examples. Q = `gossip_steps` is 1 in DFedSAM and larger in DFedSAM-MGS (multiple
gossip steps); each gossip step sends a message on every link.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing keeps its y.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, Objective
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.updates import Updates, released
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Count, NotNegative, Provenance, StepSize
from jdfl.codecs import Codec, Dense


@struct.dataclass
class DFedSAM(Algorithm):
    """DFedSAM: sharpness-aware local steps, then mixing once or several times.

    Its state is x [m, n].
    """

    kind: ClassVar[str] = "dfedsam"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    rho: NotNegative = 0.01
    """Distance of the ascent step, at whose end the gradient is taken."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Local steps, of two gradients each, before the messages."""
    gossip_steps: Count = struct.field(pytree_node=False, default=1)
    """Exchanges of messages in a round."""
    gradients: Gradients = Gradients()
    updates: Updates | None = None
    codec: Codec = Dense()
    objective: Objective = struct.field(pytree_node=False, default="mean")
    """Accept networks that preserve the mean of the nodes only, or all ("pi"), with the weights that they give."""
    title: ClassVar[str] = "DFedSAM"

    def step(self, x: Array, round: Round) -> Array:

        def ascend_then_descend(here: Round, y: Array) -> Array:
            g = self.gradients(y, here)
            norm = ops.length(g, "l2")[:, None]
            e = self.rho * g / jnp.where(norm > 0, norm, 1.0)
            return y - self.lr * self.gradients(y + e, here, look=1)

        y = round.repeat(self.local_steps, ascend_then_descend, x)
        y = released(self.updates, x, y, round)
        for _ in range(self.gossip_steps):
            y = round.mix(y)
        return y
