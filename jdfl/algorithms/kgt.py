"""K-GT: gradient tracking with local steps, which tracks the sum of a round's gradients.

Y. Liu, T. Lin, A. Koloskova, S. U. Stich: Decentralized Gradient Tracking with Local Steps, 2023 (Algorithm 1).

    K times:  y_i <- y_i - lr (g_i(y_i) + c_i),   from y_i = x_i
    z_i = (x_i - y_i) / (K lr)
    x_i <- sum_j W_ij (x_j - outer K lr z_j),     c_i <- c_i + sum_j W_ij z_j - z_i

from c_i = 0, the paper's practical choice; its analysis starts from the mean of all gradients minus g_i. z_i is the
mean of the gradients of the round plus c_i. The c_i sum to zero, so the average of the z_i is that of the gradients.
`lr` is the paper's eta_c and `outer` its eta_s. With one local step g_i + c_i is the tracker y_i of `jdfl.DSGT`, and
this is that method with the step size outer lr.

The paper was not at hand; this is read from the package decent-bench, which numbers the lines of Algorithm 1 and has
outer = 0.01 by default.

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, TRACKER, Channel
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, StepSize


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    c: Array  # [m, n] corrections of the gradients, which sum to zero


@struct.dataclass
class KGT(Algorithm):
    """K-GT: gradient tracking with local steps; exact with a constant step size.

    It takes any gradients; noisy ones are released in every local step. Raises ValueError (from `check`) for settings
    out of range and for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "k-gt"
    lr: StepSize = 0.02
    outer: Positive = 1.0
    """Factor of a round's progress before it is mixed."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "K-GT"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        """Start from the initial parameters x and c = 0."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, c = state
        y = round.repeat(self.local_steps, lambda here, y: y - self.lr * (self.gradients(y, here) + c), x)
        z = (x - y) / (self.local_steps * self.lr)
        moved = x + self.outer * (y - x)
        return State(moved + round.pull(moved), c + round.pull(z, TRACKER))
