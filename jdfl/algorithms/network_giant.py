"""Network-GIANT and Network-DANE: gradient tracking along Newton directions of the nodes' own losses.

A. Maritan, G. Sharma, L. Schenato, S. Dey: Network-GIANT: Fully distributed Newton-type optimization via harmonic
Hessian consensus, 2023; B. Li, S. Cen, Y. Chen, Y. Chi: Communication-Efficient Distributed Optimization in Networks
with Gradient Tracking and Variance Reduction, 2020 (Network-DANE); Y. Sun, G. Scutari, A. Daneshmand: Distributed
Optimization Based on Gradient Tracking Revisited: Enhancing Convergence Rate via Surrogation, 2022 (SONATA).

    x_i <- sum_j W_ij (x_j - lr d_j),       y_i <- sum_j W_ij y_j + g_i(x_i) - g_i,       g_i <- g_i(x_i)
    Network-GIANT:    (H_i(x_i) + mu I) d_i = y_i
    Network-DANE:    x_i - d_i = argmin_z f_i(z) - <g_i(x_i) - y_i, z> + mu ||z - x_i||^2 / 2

from y_i = g_i = g_i(x_i). H_i is the Hessian of f_i. In consensus, d is y times the harmonic mean of the Hessians.
Network-DANE has lr = 1; with another it is SONATA with the loss itself in its surrogate. Its minimum is computed by
`newton_steps` Newton steps from x_i. The first gives the d_i of Network-GIANT, and for quadratic losses it is the last
that changes anything. All are exact: where they stay, y is 0.

Linear systems are solved by `products` steps of conjugate gradients, without a matrix. A product with a Hessian counts
as a gradient, so a round counts 1 + products, times `newton_steps` for Network-DANE. The paper on Network-GIANT has mu
= 0 and strongly convex losses. Network-DANE is as in its authors' code, without its extra rounds of mixing.

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, NamedTuple

from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, TRACKER, Channel
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.hessians import Product, Smooth, check_smooth, derivatives, solve
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, NotNegative, Provenance, StepSize
from jdfl.network import Network
from jdfl.problems import Problem


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average gradient
    g: Array  # [m, n] last gradients
    d: Array  # [m, n] directions


@struct.dataclass
class NetworkGIANT(Algorithm):
    """Network-GIANT: every node multiplies its tracker by the inverse of its own Hessian.

    Batches are allowed; the Hessian is that of the same examples. Raises ValueError (from `check`) for settings out of
    range, clipped or noisy gradients, and networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "network-giant"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.5
    mu: NotNegative = 0.1
    """Multiple of the identity that is added to Hessians."""
    products: Count = struct.field(pytree_node=False, default=10)
    """Products with a Hessian for every linear system; the error falls as (1 - 2 / (sqrt(condition) + 1))^products."""
    gradients: Smooth = Gradients()
    title: ClassVar[str] = "Network-GIANT"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings, gradients and networks that do not fit."""
        super().check(problem, network)
        check_smooth(self.title, self.gradients)

    def init(self, round: Round) -> State:
        """Start from the initial parameters x and y = g(x)."""
        x = round.problem.begin()
        g, times = derivatives(self.gradients, x, round)
        return State(x, g, g, self._direction(x, g, g, times, round))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        moved = state.x - self.lr * state.d
        x = moved + round.pull(moved)
        g, times = derivatives(self.gradients, x, round)
        y = state.y + round.pull(state.y, TRACKER) + g - state.g
        return State(x, y, g, self._direction(x, y, g, times, round))

    def _direction(self, x: Array, y: Array, g: Array, times: Product, round: Round) -> Array:
        """The directions d [m, n] at x, from trackers y, gradients g and products with the Hessians there."""
        return self._inverse(times, y, round)

    def _inverse(self, times: Product, b: Array, round: Round) -> Array:
        """(H + mu I)^-1 b [m, n] for b [m, n]."""
        return solve(lambda v: times(v) + self.mu * v, b, self.products, round)


@struct.dataclass
class NetworkDANE(NetworkGIANT):
    """Network-DANE: every node minimises its own loss, corrected by its tracker and kept near its parameters.

    Batches are allowed. Raises ValueError (from `check`) for settings out of range, clipped or noisy gradients, and
    networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "network-dane"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 1.0
    mu: NotNegative = 1.0
    """Weight of the squared distance from the current parameters."""
    newton_steps: Count = struct.field(pytree_node=False, default=2)
    """Newton steps for a minimum; the error is squared in each, and zero after one where losses are quadratic."""
    title: ClassVar[str] = "Network-DANE"
    exact: ClassVar[bool] = True

    def _direction(self, x: Array, y: Array, g: Array, times: Product, round: Round) -> Array:
        """The difference d [m, n] of x and the minimum."""
        d = self._inverse(times, y, round)
        for _ in range(1, self.newton_steps):
            there, times = derivatives(self.gradients, x - d, round)
            d = d + self._inverse(times, there - g + y - self.mu * d, round)
        return d
