"""L2C: learning to collaborate, mixing weights that every node learns for its neighbours' updates.

S. Li, T. Zhou, X. Tian, D. Tao: Learning to Collaborate in Decentralized Learning of Personalized Models, 2022.

    u_i = y - x_i for y = x_i after K steps  y <- y - lr g_i(y)
    w_i = softmax(b_i),    x_i <- x_i + sum_j w_ij u_j        (over node i and its in-neighbours)
    b_ij <- b_ij - lr_weights w_ij (s_ij - sum_l w_il s_il),    s_ij = g_i(x_i)' u_j

from b_ij = 0. The last line is a gradient step on the loss of the new x_i. From round `prune` on, a node asks only the
`keep` neighbours that have the largest w_ij by then.

The gradient in s_ij is the paper's of validation examples, which problems here do not have: it is that of the first
local step's sample of training examples. These implementations start from b_ij = 1 or 0, which have the same w, and one
takes Adam for the last line. The variant meta-L2C, which computes weights by a neural network, is left out.

Weights depend on records only through `gradients`, so noise on these covers them, and which neighbours are asked, too.

Missing neighbours: refused, because a node learns a weight for each of its neighbours on a fixed network.

Axes: m nodes, n parameters, d slots of the neighbour table.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import choosing
from jdfl.algorithms.algorithm import Algorithm, Personal
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Natural, Positive, Provenance, StepSize


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    b: Array  # [m, d + 1] logarithms of the weights up to a common shift, the node's own first
    kept: Array  # [m, d] neighbours that have a weight, bool


@struct.dataclass
class L2C(Algorithm):
    """L2C: every node learns with which weights it adds its neighbours' updates to its own model.

    Models are personal: nodes with different data need not agree. It takes any gradients. Raises ValueError (from
    `check`) for settings out of range and for networks that change.
    """

    kind: ClassVar[str] = "l2c"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    lr_weights: Positive = 0.1
    """Step size of the weights."""
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    prune: Count | None = struct.field(pytree_node=False, default=None)
    """Round from which only some neighbours send; None: never."""
    keep: Natural = struct.field(pytree_node=False, default=1)
    """Neighbours of a node that still send then."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "L2C"
    personal: ClassVar[Personal] = "models"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "lr_weights")
    needs: ClassVar[dict[str, bool]] = {"fixed": True}

    def init(self, round: Round) -> State:
        """Start from the initial parameters, with equal weights."""
        x, mask = round.problem.begin(), round.graph.mask
        return State(x, jnp.zeros((len(mask), mask.shape[1] + 1), x.dtype), mask)

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, b, kept = state
        if self.prune is not None:
            kept = jnp.where(round.k == self.prune, choosing.largest(b[:, 1:], kept, self.keep), kept)
        y = round.repeat(self.local_steps, lambda here, y: y - self.lr * self.gradients(y, here), x)
        u = choosing.sent_to(kept, y - x, round)
        w = jax.nn.softmax(jnp.where(jnp.pad(kept, ((0, 0), (1, 0)), constant_values=True), b, -jnp.inf), axis=1)
        x = x + choosing.combined(w[:, 1:], w[:, 0], u, round)
        g = self.gradients(x, round, look=1)

        def slope(other: Array) -> Array:
            return jnp.sum(g * other, axis=1)

        s = jnp.concatenate([slope(u)[:, None], choosing.by_neighbour(slope, u, round)], axis=1)
        return State(x, b - self.lr_weights * w * (s - jnp.sum(w * s, axis=1, keepdims=True)), kept)
