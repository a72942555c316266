"""Momentum tracking: gradient tracking with momentum, tracked (MT) or applied to the tracker (DSGT-HB).

Y. Takezawa, H. Bao, K. Niwa, R. Sato, M. Yamada: Momentum Tracking: Momentum Acceleration for Decentralized Deep
Learning on Heterogeneous Data, 2022; J. Gao, X.-W. Liu, Y.-H. Dai, Y. Huang, J. Gu: Distributed Stochastic Gradient
Tracking Methods with Momentum Acceleration for Non-Convex Optimization, 2023 (DSGT-HB).

    u_i <- beta u_i + g_i(x_i)
    x_i <- sum_j W_ij x_j - lr (u_i - c_i),     c_i <- u_i - sum_j W_ij (u_j - c_j)                    (MT)
    x_i <- sum_j W_ij (x_j - lr u_j),           y_i <- sum_j W_ij (y_j + g_j(x_j) - g_j)
    u_i <- beta u_i + (1 - beta) y_i                                                             (DSGT-HB)

MT starts from u_i = c_i = 0; the paper also starts from a mean over all nodes. The implementation keeps y_i = u_i -
c_i, which tracks the average of the u_i, beginning with the first gradients: y_i <- sum_j W_ij y_j + u_i - u_i-. With
beta = 0 it is `jdfl.DIGing`.
MT's steps sum up to lr / (1 - beta) times a gradient, those of DSGT-HB to lr times a gradient.

DSGT-HB starts from u_i = y_i = g_i = g_i(x_i), with g_i <- g_i(x_i) afterwards. With beta = 0 it is Aug-DGM. MT is
taken from its authors' code. DSGT-HB is taken from the code of K. Huang, S. Pu and A. Nedic (An Accelerated Distributed
Stochastic Gradient Method with Momentum, 2024), which uses (I + W) / 2 as W.

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.
"""

from typing import ClassVar, NamedTuple

from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Momentum, Provenance, StepSize


class Tracked(NamedTuple):
    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average momentum
    u: Array  # [m, n] momenta


class State(NamedTuple):
    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average gradient
    g: Array  # [m, n] last gradients
    u: Array  # [m, n] momenta


class _WithMomentum(Algorithm):
    """What both methods need."""

    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)


@struct.dataclass
class MomentumTracking(_WithMomentum):
    """Momentum tracking: nodes track the average of their momenta; exact with a constant step size.

    It takes any gradients. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "momentum-tracking"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.01
    beta: Momentum = 0.9
    """Factor of the last momentum."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "Momentum tracking"
    exact: ClassVar[bool] = True

    def init(self, round: Round) -> Tracked:
        x = round.problem.initial_params()
        g = self.gradients(x, round)
        return Tracked(x, g, g)

    def step(self, state: Tracked, round: Round) -> Tracked:
        x = state.x + round.pull(state.x) - self.lr * state.y
        u = self.beta * state.u + self.gradients(x, round)
        return Tracked(x, state.y + round.pull(state.y, TRACKER) + u - state.u, u)


@struct.dataclass
class DSGTHB(_WithMomentum):
    """DSGT-HB: gradient tracking with heavy-ball momentum at every node; exact with a constant step size.

    It takes any gradients. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "dsgt-hb"
    provenance: ClassVar[Provenance] = ("described by others",)
    lr: StepSize = 0.05
    beta: Momentum = 0.5
    """Factor of the last momentum."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "DSGT-HB"
    exact: ClassVar[bool] = True

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        g = self.gradients(x, round)
        return State(x, g, g, g)

    def step(self, state: State, round: Round) -> State:
        x, y, last, u = state
        x = x - self.lr * u
        x = x + round.pull(x)
        g = self.gradients(x, round)
        y = y + g - last
        y = y + round.pull(y, TRACKER)
        return State(x, y, g, self.beta * u + (1 - self.beta) * y)
