"""Push-DIGing and ADD-OPT: gradient tracking over push-sum, for directed networks.

A. Nedic, A. Olshevsky, W. Shi: Achieving Geometric Convergence for Distributed Optimization over Time-Varying Graphs,
2017 (Push-DIGing); C. Xi, R. Xin, U. A. Khan: ADD-OPT: Accelerated Distributed Directed Optimization, 2017.

    u_i <- sum_j P_ij (u_j - lr y_j)                                             (Push-DIGing)
    u_i <- sum_j P_ij u_j - lr y_i                                               (ADD-OPT)
    a_i <- sum_j P_ij a_j,     x_i = u_i / a_i
    y_i <- sum_j P_ij y_j + g_i(x_i) - g_i,     g_i <- g_i(x_i)

from u_i = x_i, a_i = 1 and y_i = g_i = g_i(x_i). The columns of P sum to one. The sum of the y_i is that of the g_i in
every round, and the push-sum weights a_i correct what nodes with few in-neighbours lack. With a doubly stochastic P
they remain 1: Push-DIGing is then `jdfl.DSGT`, and ADD-OPT is `jdfl.DIGing`.

Missing neighbours: the columns of P must still sum to one, so the sender keeps what does not arrive
(`weights="sender"`), and the sums of u, a and y lose nothing.

Axes: m nodes, n parameters.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, TRACKER, Channel
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.problems import Problem


class State(NamedTuple):
    """What a round passes to the next."""

    u: Array  # [m, n] sums of push-sum
    a: Array  # [m] push-sum weights
    y: Array  # [m, n] trackers: their sum is that of the gradients
    g: Array  # [m, n] last gradients

    @property
    def x(self) -> Array:
        """The parameters [m, n]; uses the inverse, because XLA divides only in some programs."""
        return self.u * (1 / self.a)[:, None]


@struct.dataclass
class PushDIGing(Algorithm):
    """Push-DIGing: gradient tracking over push-sum; exact on strongly connected directed networks.

    It takes any gradients. Raises ValueError (from `check`) for settings out of range, and for networks that are not
    strongly connected and column-stochastic.
    """

    kind: ClassVar[str] = "push-diging"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.05
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "Push-DIGing"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"column_stochastic": True, "connected": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)
    columns: ClassVar[bool] = True

    def init(self, round: Round) -> State:
        """Start from the initial parameters with weights of 1, and y = g(x)."""
        u = round.problem.begin()
        g = self.gradients(u, round)
        return State(u, jnp.ones_like(u[:, 0]), g, g)

    def step(self, state: State, round: Round) -> State:
        """One round."""
        u, a = self.moved(state, round)
        g = self.gradients(state._replace(u=u, a=a).x, round)
        return State(u, a, round.mix(state.y, TRACKER) + g - state.g, g)

    def moved(self, state: State, round: Round) -> tuple[Array, Array]:
        """The sums u [m, n] and the weights a [m] after the exchange."""
        return round.push(state.u - self.lr * state.y, state.a, MODEL)

    def mass(self, state: State) -> Array:
        """The push-sum weights a [m]."""
        return state.a

    def params(self, state: State) -> Array:
        """The corrected parameters u / a [m, n]."""
        return state.x

    def visible(self, state: State) -> Array:
        """Both u and y [m, 2 n], as both are sent."""
        return jnp.concatenate([state.u, state.y], axis=1)

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

    def moved(self, state: State, round: Round) -> tuple[Array, Array]:
        """The sums u [m, n] and the weights a [m] after the exchange and the step."""
        u, a = round.push(state.u, state.a, MODEL)
        return u - self.lr * state.y, a
