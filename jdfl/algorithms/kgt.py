"""K-GT: gradient tracking with local steps, which tracks the sum of a round's gradients.

Y. Liu, T. Lin, A. Koloskova, S. U. Stich: Decentralized Gradient Tracking with Local Steps, 2023 (Algorithm 1).

    K times:  y_i <- y_i - lr (g_i(y_i) + c_i),   from y_i = x_i
    z_i = (x_i - y_i) / (K lr)
    x_i <- sum_j W_ij (x_j - outer K lr z_j),     c_i <- c_i + sum_j W_ij z_j - z_i

The run starts from c_i = 0, as in all code that was read. With `start="mean"` it starts from the mean of all gradients
minus g_i, as in Algorithm 1; for this a coordinator receives every node's gradient and returns their mean before the
first round. z_i is the mean of the gradients of the round plus c_i. The c_i sum to zero, so the average of the z_i is
that of the gradients. `lr` is the paper's eta_c and `outer` its eta_s. With one local step g_i + c_i is the tracker y_i
of `jdfl.DSGT`, and this is that method with the step size outer lr.

The package decent-bench, whose code was read, has outer = 0.01 by default.

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.
"""

from typing import ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance, StepSize


class State(NamedTuple):
    x: Array  # [m, n] parameters
    c: Array  # [m, n] corrections of the gradients, which sum to zero


@struct.dataclass
class KGT(Algorithm):
    """K-GT: gradient tracking with local steps; exact with a constant step size.

    It takes any gradients; noisy ones are released in every local step. Raises ValueError (from `check`) for networks
    whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "k-gt"
    provenance: ClassVar[Provenance] = ("other code read",)
    lr: StepSize = 0.02
    outer: Positive = 1.0
    """Factor of a round's progress before it is mixed."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    start: Literal["zero", "mean"] = struct.field(pytree_node=False, default="zero")
    """Begin with corrections of zero (the practical choice), or the mean gradient less the own one (Algorithm 1)."""
    title: ClassVar[str] = "K-GT"
    divides_by_lr: ClassVar[bool] = True
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        if self.start == "zero":
            return State(x, jnp.zeros_like(x))
        g = self.gradients(x, round)
        return State(x, round.averaged(g, TRACKER) - g)

    def step(self, state: State, round: Round) -> State:
        x, c = state
        y = round.repeat(self.local_steps, lambda here, y: y - self.lr * (self.gradients(y, here) + c), x)
        z = (x - y) / (self.local_steps * self.lr)
        moved = x + self.outer * (y - x)
        return State(moved + round.pull(moved), c + round.pull(z, TRACKER))
