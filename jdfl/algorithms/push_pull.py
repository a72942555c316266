"""Push-DIGing, ADD-OPT, Push-Pull (AB) and ABm: gradient tracking over directed networks.

A. Nedic, A. Olshevsky, W. Shi: Achieving Geometric Convergence for Distributed Optimization over Time-Varying Graphs,
2017 (Push-DIGing); C. Xi, R. Xin, U. A. Khan: ADD-OPT: Accelerated Distributed Directed Optimization, 2017; S. Pu, W.
Shi, J. Xu, A. Nedic: Push-Pull Gradient Methods for Distributed Optimization in Networks, 2018; R. Xin, U. A. Khan: A
Linear Algorithm for Optimization Over Directed Graphs With Geometric Convergence, 2018 (AB); R. Xin, U. A. Khan:
Distributed Heavy-Ball: A Generalization and Acceleration of First-Order Methods With Gradient Tracking, 2020 (ABm).

    u_i <- sum_j C_ij (u_j - lr y_j),     a_i <- sum_j C_ij a_j,     x_i = u_i / a_i                 (Push-DIGing)
    u_i <- sum_j C_ij u_j - lr y_i,     a_i <- sum_j C_ij a_j,     x_i = u_i / a_i                       (ADD-OPT)
    x_i <- sum_j R_ij (x_j - lr y_j)                                                                   (Push-Pull)
    x_i <- sum_j R_ij x_j - lr y_i                                                                            (AB)
    x_i <- sum_j R_ij x_j - lr y_i + momentum (x_i - x_i')                                                   (ABm)
    y_i <- sum_j C_ij y_j + g_i(x_i) - g_i,     g_i <- g_i(x_i)                                              (all)

All start from u_i = x_i, a_i = 1 and y_i = g_i = g_i(x_i). x' is the x of the round before. The columns of C, the
network's W, sum to one, so the sum of the y_i is that of the g_i in every round. In the first two methods the push-sum
weights a_i correct what nodes with few in-neighbours lack. With a doubly stochastic C they remain 1; then Push-DIGing
is `jdfl.DSGT`, and ADD-OPT is `jdfl.DIGing`. In the others nodes pull parameters by R. Its rows sum to one, with equal
weights on the same links (`network.averaging`). The nodes agree on the optimum although R and C have different
stationary vectors.

Missing neighbours: the columns of C must still sum to one, so the sender keeps what does not arrive
(`weights="sender"`), and the sums of u, a and y lose nothing. R averages what has arrived.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.dsgt import State
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Momentum, Provenance, StepSize
from jdfl.network import averaging
from jdfl.problems import Problem


class Pushed(NamedTuple):
    u: Array  # [m, n] sums of push-sum
    a: Array  # [m] push-sum weights
    y: Array  # [m, n] trackers: their sum is that of the gradients
    g: Array  # [m, n] last gradients

    @property
    def x(self) -> Array:
        """The parameters [m, n]; uses the inverse, because XLA divides only in some programs."""
        return self.u * (1 / self.a)[:, None]


class Moving(NamedTuple):
    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers: their sum is that of the gradients
    g: Array  # [m, n] last gradients
    step: Array  # [m, n] what the last round changed in x


class _Pushing(Algorithm):
    """The common part: all need networks whose columns of weights sum to one."""

    needs: ClassVar[dict[str, bool]] = {"column_stochastic": True, "connected": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)
    columns: ClassVar[bool] = True

    def visible(self, state: Any) -> Array:
        """Both x (u with push-sum) and y [m, 2 n], as both are sent."""
        return jnp.concatenate([state[0], state.y], axis=1)


@struct.dataclass
class PushDIGing(_Pushing):
    """Push-DIGing: gradient tracking over push-sum; exact on strongly connected directed networks.

    It takes any gradients. Raises ValueError (from `check`) for networks that are not strongly connected and
    column-stochastic.
    """

    kind: ClassVar[str] = "push-diging"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.05
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "Push-DIGing"
    exact: ClassVar[bool] = True

    def init(self, round: Round) -> Pushed:
        u = round.problem.initial_params()
        g = self.gradients(u, round)
        return Pushed(u, jnp.ones_like(u[:, 0]), g, g)

    def step(self, state: Pushed, round: Round) -> Pushed:
        u, a = self.moved(state, round)
        g = self.gradients(state._replace(u=u, a=a).x, round)
        return Pushed(u, a, round.mix(state.y, TRACKER) + g - state.g, g)

    def moved(self, state: Pushed, round: Round) -> tuple[Array, Array]:
        """The sums u [m, n] and the weights a [m] after the exchange."""
        return round.push(state.u - self.lr * state.y, state.a, MODEL)

    def mass(self, state: Pushed) -> Array:
        return state.a

    def params(self, state: Pushed) -> Array:
        return state.x

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """The model has one number more: the push-sum weight."""
        bits = 8 * problem.dtype.itemsize
        return {MODEL.name: (problem.n + 1) * bits, TRACKER.name: problem.n * bits}


@struct.dataclass
class ADDOPT(PushDIGing):
    """ADD-OPT: Push-DIGing that combines before it adapts.

    It takes any gradients. Raises ValueError (from `check`) as `PushDIGing` does.
    """

    kind: ClassVar[str] = "add-opt"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "ADD-OPT"
    exact: ClassVar[bool] = True

    def moved(self, state: Pushed, round: Round) -> tuple[Array, Array]:
        """The sums u [m, n] and the weights a [m] after the exchange and the step."""
        u, a = round.push(state.u, state.a, MODEL)
        return u - self.lr * state.y, a


@struct.dataclass
class PushPull(_Pushing):
    """Push-Pull: exact with a constant step size on strongly connected directed networks.

    It takes any gradients. Raises ValueError (from `check`) for networks that are not strongly connected and
    column-stochastic.
    """

    kind: ClassVar[str] = "push-pull"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.05
    gradients: Gradients = Gradients()
    order: Literal["adapt-then-combine", "combine-then-adapt"] = struct.field(
        pytree_node=False, default="adapt-then-combine"
    )
    """Push-Pull, or AB."""
    title: ClassVar[str] = "Push-Pull"
    exact: ClassVar[bool] = True

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        g = self.gradients(x, round)
        return State(x, g, g)

    def step(self, state: State, round: Round) -> State:
        x, y, last = state
        pulling, adapted = round.on(averaging(round.graph)), x - self.lr * y
        x = adapted + pulling.pull(adapted if self.order == "adapt-then-combine" else x)
        g = self.gradients(x, round)
        return State(x, round.mix(y, TRACKER) + g - last, g)


@struct.dataclass
class ABm(_Pushing):
    """ABm: AB with heavy-ball momentum; exact on strongly connected directed networks.

    It takes any gradients. Raises ValueError (from `check`) as `PushPull` does.
    """

    kind: ClassVar[str] = "abm"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.05
    momentum: Momentum = 0.3
    """Factor on the last change of the parameters, in [0, 1); 0 is AB."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "ABm"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "momentum")

    def init(self, round: Round) -> Moving:
        x = round.problem.initial_params()
        g = self.gradients(x, round)
        return Moving(x, g, g, jnp.zeros_like(x))

    def step(self, state: Moving, round: Round) -> Moving:
        x, y, last, step = state
        step = round.on(averaging(round.graph)).pull(x) - self.lr * y + self.momentum * step
        x = x + step
        g = self.gradients(x, round)
        return Moving(x, round.mix(y, TRACKER) + g - last, g, step)
