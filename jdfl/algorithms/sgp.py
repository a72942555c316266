"""SGP: stochastic gradient push over directed networks, with all parameters shared.

M. Assran, N. Loizou, N. Ballas, M. Rabbat: Stochastic Gradient Push for Distributed Deep Learning, 2019 (Algorithm 1).

    h_i = x_i - lr g_i(x_i / a_i),   x_i <- sum_j P_ij h_j,   a_i <- sum_j P_ij a_j

The columns of P sum to one. With `dpps=DPPS(b=...)` messages are noisy: SGPDP of the DPPS paper.

Missing neighbours: the columns of P must still sum to one, so the sender keeps what does not arrive
(`weights="sender"`), and the sums of x and a lose nothing. Delayed messages (`network.delays`) are added when they
arrive.

Axes: m nodes, n parameters.
"""

from typing import ClassVar

from jax import Array

from jdfl.algorithms.dpps import DPPS, PushSum
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import OverPushSum, shared_gradient
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance, StepSize


@struct.dataclass
class SGP(OverPushSum):
    """SGP: stochastic gradient push, SGD over directed networks by push-sum.

    It is private where its protocol has noise. Raises ValueError (from `check` and `plan`) for settings out of range.
    """

    kind: ClassVar[str] = "sgp"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    gradients: Exact = Gradients(per="batch", norm="l1")
    dpps: DPPS = DPPS()
    """Noise on messages."""
    milestones: tuple[Count, ...] = struct.field(pytree_node=False, default=())
    """Rounds from which all rates are multiplied by `decay`."""
    decay: Positive = 0.1
    """Factor on all rates at every milestone."""
    title: ClassVar[str] = "SGP"

    def init(self, round: Round) -> PushSum:
        """Start from the problem's initial parameters."""
        return self.dpps.init(round.problem.begin(), round)

    def step(self, state: PushSum, round: Round) -> PushSum:
        """One round."""
        g = shared_gradient(self.gradients, state.y, round)
        return self.pushed(state, -self.lr * round.ready.scale(round.k).astype(g.dtype) * g, round)

    def mass(self, state: PushSum) -> Array:
        """The push-sum weights a [m]."""
        return state.a

    def params(self, state: PushSum) -> Array:
        """The corrected parameters x / a [m, n]."""
        return state.y

    def visible(self, state: PushSum) -> Array:
        """What others see of a state [m, n]: messages."""
        return state.shown
