"""DFedSAM: decentralized federated averaging with sharpness-aware local steps, and DFedSAM-MGS.

Y. Shi, L. Shen, K. Wei, Y. Sun, B. Yuan, X. Wang, D. Tao: Improving the Model Consistency of Decentralized Federated
Learning, 2023.

    K times:  e_i = rho g_i(y_i) / ||g_i(y_i)||,   y_i <- y_i - lr g_i(y_i + e_i),   from y_i = x_i
    Q times:  y_i <- sum_j W_ij y_j
    x_i <- y_i

Both gradients of a step see the same examples. Q = `gossip_steps` is 1 in DFedSAM and more in DFedSAM-MGS (multiple
gossip steps), each of them a message on every link.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody keeps its y.

Axes: m nodes, n parameters.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl import checks, ops, struct
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.updates import Updates, released
from jdfl.codecs import Codec, Dense
from jdfl.network.graph import Network
from jdfl.problems import Problem


@struct.dataclass
class DFedSAM(Algorithm):
    """DFedSAM. Its state is x [m, n]. Raises ValueError (from `check`) for settings out of range."""

    lr: Any = 0.1  # length of the steps
    rho: Any = 0.01  # how far away the gradient is taken
    local_steps: int = struct.field(pytree_node=False, default=5)  # K
    gossip_steps: int = struct.field(pytree_node=False, default=1)  # Q
    gradients: Gradients = Gradients()
    updates: Updates | None = None  # noise on what a node has learnt in a round, instead of on gradients
    codec: Codec = Dense()
    title: ClassVar[str] = "DFedSAM"

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        checks.shape((), "It is one number for all nodes.", rho=self.rho)
        checks.not_negative(rho=self.rho)
        checks.whole(1, local_steps=self.local_steps, gossip_steps=self.gossip_steps)
        super().check(problem, network)

    def init(self, round: Round) -> Array:
        """Start where the problem says."""
        return round.problem.begin()

    def step(self, x: Array, round: Round) -> Array:
        """One round."""

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
