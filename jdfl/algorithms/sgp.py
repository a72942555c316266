"""SGP and PEDFL: stochastic gradient push over directed networks, and D-PSGD with the same noisy messages.

M. Assran, N. Loizou, N. Ballas, M. Rabbat: Stochastic Gradient Push for Distributed Deep Learning, 2019 (Algorithm 1).

    h_i = x_i - lr g_i(x_i / a_i),   x_i <- sum_j P_ij h_j,   a_i <- sum_j P_ij a_j                           (SGP)
    x_i <- sum_j W_ij (x_j + gamma_n Lap(0, S / b)) - lr g_i(x_i),   g_i clipped                              (PEDFL)

The columns of P sum to one. With `dpps=DPPS(b=...)` messages of SGP are noisy, too: SGPDP of the DPPS paper.

S. Chen, Y. Wang, D. Yu, J. Ren, C. Xu, Y. Zheng: Privacy-Enhanced Decentralized Federated Learning at Dynamic Edge,
2023, was not available. PEDFL is a reading of its description by Y. Zhou, K. Xue, E. Chen: "a decentralized federated
learning algorithm with differential privacy by Laplace mechanism". The rows and columns of W sum to one. Messages are
those of DPPS with the steps of the previous round as perturbations, so S comes from the same sources.

Missing neighbours: the columns of P or W must still sum to one, so in SGP the sender keeps what does not arrive
(`weights="sender"`), and the sums of x and a lose nothing; in PEDFL both directions of a link fail together. Delayed
messages (`network.delays`) are added when they arrive.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import UNSENT_STEP
from jdfl.algorithms.dpps import DPPS, PushSum
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import OverPushSum, shared_gradient
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance, StepSize


class State(NamedTuple):
    mixed: PushSum  # mixture of the last messages
    step: Array  # [m, n] what the node adds to it


@struct.dataclass
class SGP(OverPushSum):
    """SGP: stochastic gradient push, SGD over directed networks by push-sum.

    It is private where its protocol has noise.
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
        return self.dpps.init(round.problem.initial_params(), round)

    def step(self, state: PushSum, round: Round) -> PushSum:
        g = shared_gradient(self.gradients, state.y, round)
        return self.pushed(state, -self.lr * round.ready.scale(round.k).astype(g.dtype) * g, round)

    def mass(self, state: PushSum) -> Array:
        return state.a

    def params(self, state: PushSum) -> Array:
        return state.y

    def visible(self, state: PushSum) -> Array:
        """What others see of a state [m, n]: messages."""
        return state.shown


@struct.dataclass
class PEDFL(OverPushSum):
    """PEDFL: decentralized SGD with Laplace noise on messages, a baseline for PartPSP."""

    kind: ClassVar[str] = "pedfl"
    provenance: ClassVar[Provenance] = ("described by others",)
    lr: StepSize = 0.1
    gradients: Exact = Gradients(per="batch", norm="l1")
    dpps: DPPS = DPPS()
    """Noise on messages."""
    milestones: tuple[Count, ...] = struct.field(pytree_node=False, default=())
    """Rounds from which all rates are multiplied by `decay`."""
    decay: Positive = 0.1
    """Factor on all rates at every milestone."""
    title: ClassVar[str] = "PEDFL"
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    columns: ClassVar[bool] = False
    carried_over: ClassVar[bool] = True
    unsent: ClassVar[str] = UNSENT_STEP

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(self.dpps.init(x, round), jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        g = shared_gradient(self.gradients, self.params(state), round)
        mixed = self.pushed(state.mixed, state.step, round)
        return State(mixed, -self.lr * round.ready.scale(round.k).astype(g.dtype) * g)

    def mass(self, state: State) -> Array:
        return state.mixed.a

    def params(self, state: State) -> Array:
        return state.mixed.s + state.step

    def visible(self, state: State) -> Array:
        """What others see of a state [m, n]: messages, without the step that is yet to be sent."""
        return state.mixed.shown
