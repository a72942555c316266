"""DIGing and Aug-DGM: gradient tracking that adapts after combining, or before it in both of its parts.

A. Nedic, A. Olshevsky, W. Shi: Achieving Geometric Convergence for Distributed Optimization over Time-Varying Graphs,
2017 (DIGing); J. Xu, S. Zhu, Y. C. Soh, L. Xie: Augmented Distributed Gradient Methods for Multi-Agent Optimization
under Uncoordinated Constant Stepsizes, 2015 (Aug-DGM, also called ATC-DIGing).

    x_i <- sum_j W_ij x_j - lr y_i,         y_i <- sum_j W_ij y_j + g_i(x_i) - g_i                      (DIGing)
    x_i <- sum_j W_ij (x_j - lr y_j),       y_i <- sum_j W_ij (y_j + g_j(x_j) - g_j)                   (Aug-DGM)

After each round g_i <- g_i(x_i). The run starts from y_i = g_i = g_i(x_i). The average of the y_i is that of the g_i in
every round. `jdfl.DSGT` adapts before combining in x and after it in y; others call this ATC tracking. The first
paper's directed form is `jdfl.PushDIGing`.

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.
"""

from typing import ClassVar, Literal

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.dsgt import State
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize


@struct.dataclass
class DIGing(Algorithm):
    """DIGing: gradient tracking with its two orders; exact with a constant step size.

    It takes any gradients. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "diging"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.05
    gradients: Gradients = Gradients()
    order: Literal["combine-then-adapt", "adapt-then-combine"] = struct.field(
        pytree_node=False, default="combine-then-adapt"
    )
    """DIGing, or Aug-DGM."""
    title: ClassVar[str] = "DIGing"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        g = self.gradients(x, round)
        return State(x, g, g)

    def step(self, state: State, round: Round) -> State:
        x, y, last = state
        if self.order == "combine-then-adapt":
            x = x + round.pull(x) - self.lr * y
            g = self.gradients(x, round)
            return State(x, y + round.pull(y, TRACKER) + g - last, g)
        moved = x - self.lr * y
        x = moved + round.pull(moved)
        g = self.gradients(x, round)
        y = y + g - last
        return State(x, y + round.pull(y, TRACKER), g)
