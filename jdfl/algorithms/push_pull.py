"""Push-Pull, also called AB, and ABm: gradient tracking over directed networks, without push-sum weights.

S. Pu, W. Shi, J. Xu, A. Nedic: Push-Pull Gradient Methods for Distributed Optimization in Networks, 2018; R. Xin, U. A.
Khan: A Linear Algorithm for Optimization Over Directed Graphs With Geometric Convergence, 2018 (AB); R. Xin, U. A.
Khan: Distributed Heavy-Ball: A Generalization and Acceleration of First-Order Methods With Gradient Tracking, 2020
(ABm).

    x_i <- sum_j R_ij (x_j - lr y_j)                                             (Push-Pull)
    x_i <- sum_j R_ij x_j - lr y_i                                               (AB)
    x_i <- sum_j R_ij x_j - lr y_i + momentum (x_i - x_i')                       (ABm)
    y_i <- sum_j C_ij y_j + g_i(x_i) - g_i,     g_i <- g_i(x_i)

from y_i = g_i = g_i(x_i), x' being the x of the round before. The rows of R sum to one and the columns of C do, so
that nodes pull parameters and push what they know of the gradients: the sum of the y_i is that of the g_i in every
round. C is the network's own W. R has equal weights on the same links, which receivers choose (`network.averaging`).
The nodes agree on the optimum although R and C have different stationary vectors.

Missing neighbours: the columns of C must still sum to one, so the sender keeps what does not arrive
(`weights="sender"`). R averages what has arrived.

Axes: m nodes, n parameters.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, TRACKER, Channel
from jdfl.algorithms.dsgt import State
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Momentum, Provenance, StepSize
from jdfl.network import averaging


class Moving(NamedTuple):
    """What a round of ABm passes to the next."""

    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers: their sum is that of the gradients
    g: Array  # [m, n] last gradients
    step: Array  # [m, n] what the last round changed in x


class _Pushing(Algorithm):
    """The common part: both need networks whose columns of weights sum to one."""

    needs: ClassVar[dict[str, bool]] = {"column_stochastic": True, "connected": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)
    columns: ClassVar[bool] = True

    def visible(self, state: Any) -> Array:
        """Both x and y [m, 2 n], as both are sent."""
        return jnp.concatenate([state.x, state.y], axis=1)


@struct.dataclass
class PushPull(_Pushing):
    """Push-Pull: exact with a constant step size on strongly connected directed networks.

    It takes any gradients. Raises ValueError (from `check`) for settings out of range, and for networks that are not
    strongly connected and column-stochastic.
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
        """Start from the initial parameters x and y = g(x)."""
        x = round.problem.begin()
        g = self.gradients(x, round)
        return State(x, g, g)

    def step(self, state: State, round: Round) -> State:
        """One round."""
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
        """Start from the initial parameters x and y = g(x), at rest."""
        x = round.problem.begin()
        g = self.gradients(x, round)
        return Moving(x, g, g, jnp.zeros_like(x))

    def step(self, state: Moving, round: Round) -> Moving:
        """One round."""
        x, y, last, step = state
        step = round.on(averaging(round.graph)).pull(x) - self.lr * y + self.momentum * step
        x = x + step
        g = self.gradients(x, round)
        return Moving(x, round.mix(y, TRACKER) + g - last, g, step)
