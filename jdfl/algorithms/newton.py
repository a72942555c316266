"""Network-GIANT, Network-DANE and Network Newton: directions from the Hessians of the nodes' own losses.

A. Maritan, G. Sharma, L. Schenato, S. Dey: Network-GIANT: Fully distributed Newton-type optimization via harmonic
Hessian consensus, 2023; B. Li, S. Cen, Y. Chen, Y. Chi: Communication-Efficient Distributed Optimization in Networks
with Gradient Tracking and Variance Reduction, 2020 (Network-DANE); Y. Sun, G. Scutari, A. Daneshmand: Distributed
Optimization Based on Gradient Tracking Revisited: Enhancing Convergence Rate via Surrogation, 2022 (SONATA); A.
Mokhtari, Q. Ling, A. Ribeiro: Network Newton Distributed Optimization Methods, 2017 (NN-K).

    x_i <- sum_j W_ij (x_j - lr d_j),       y_i <- sum_j W_ij y_j + g_i(x_i) - g_i,       g_i <- g_i(x_i)
    Network-GIANT:    (H_i(x_i) + mu I) d_i = y_i
    Network-DANE:    x_i - d_i = argmin_z f_i(z) - <g_i(x_i) - y_i, z> + mu ||z - x_i||^2 / 2

    u_i = sum_j W_ij (x_i - x_j) + alpha g_i(x_i),       (alpha H_i(x_i) + 2 (1 - W_ii) I) d_i = -u_i     (NN-K)
    K times:    (alpha H_i(x_i) + 2 (1 - W_ii) I) d_i+ = (1 - W_ii) d_i + sum_{j != i} W_ij d_j - u_i
    x_i <- x_i + lr d_i

H_i is the Hessian of f_i. The first two start from y_i = g_i = g_i(x_i) and are exact: where they stay, y is 0. In
consensus d is y times the harmonic mean of the Hessians. Network-DANE has lr = 1; with another it is SONATA with the
loss itself in its surrogate. Its minimum is computed by `newton_steps` Newton steps from x_i. The first gives the d_i
of Network-GIANT, and for quadratic losses it is the last that changes anything. It is as in its authors' code, without
its extra rounds of mixing. The paper on Network-GIANT has mu = 0 and strongly convex losses.

In Network Newton u is the gradient of x'(I - W) x / 2 + alpha sum_i f_i(x_i), and d the Newton direction with K + 1
terms of the series of the inverse Hessian. The minimum of this objective, where nodes differ by about alpha, is that of
D-PSGD with lr = alpha: the method is not exact. The paper's adaptive form, which lowers alpha, is not implemented,
because nodes would need a vote of the whole network. The formulas agree with a public implementation.

Linear systems are solved by `products` steps of conjugate gradients, without a matrix. A product with a Hessian reads
the examples of a gradient and counts as one: a round counts 1 + products, times `newton_steps` for Network-DANE, and 1
+ (K + 1) products for Network Newton.

Missing neighbours: their weight goes where the network says, by default to the node itself, in a message of d as in one
of x. W must stay doubly stochastic, so both directions of a link fail together.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Count, Natural, NotNegative, Only, Positive, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.network import Network
from jdfl.problems import Problem

_Product = Callable[[Array], Array]
_Smooth = Annotated[Gradients, Only(("batch", "sampling"))]
_DIRECTION = Channel("direction", Stream("message.direction", "shared"))


class State(NamedTuple):
    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average gradient
    g: Array  # [m, n] last gradients
    d: Array  # [m, n] directions


@struct.dataclass
class NetworkGIANT(Algorithm):
    """Network-GIANT: every node multiplies its tracker by the inverse of its own Hessian.

    Batches are allowed; the Hessian is that of the same examples. Raises ValueError (from `check`) for clipped or noisy
    gradients, and networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "network-giant"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.5
    mu: NotNegative = 0.1
    """Multiple of the identity that is added to Hessians."""
    products: Count = struct.field(pytree_node=False, default=10)
    """Products with a Hessian for every linear system; the error falls as (1 - 2 / (sqrt(condition) + 1))^products."""
    gradients: _Smooth = Gradients()
    title: ClassVar[str] = "Network-GIANT"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        _check_smooth(self.title, self.gradients)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        g, times = _derivatives(self.gradients, x, round)
        return State(x, g, g, self._direction(x, g, g, times, round))

    def step(self, state: State, round: Round) -> State:
        moved = state.x - self.lr * state.d
        x = moved + round.pull(moved)
        g, times = _derivatives(self.gradients, x, round)
        y = state.y + round.pull(state.y, TRACKER) + g - state.g
        return State(x, y, g, self._direction(x, y, g, times, round))

    def _direction(self, x: Array, y: Array, g: Array, times: _Product, round: Round) -> Array:
        """The directions d [m, n] at x, from trackers y, gradients g and products with the Hessians there."""
        return self._inverse(times, y, round)

    def _inverse(self, times: _Product, b: Array, round: Round) -> Array:
        """(H + mu I)^-1 b [m, n] for b [m, n]."""
        return _solve(lambda v: times(v) + self.mu * v, b, self.products, round)


@struct.dataclass
class NetworkDANE(NetworkGIANT):
    """Network-DANE: every node minimises its own loss, corrected by its tracker and kept near its parameters.

    Batches are allowed. Raises ValueError (from `check`) for clipped or noisy gradients, and networks whose W is not
    doubly stochastic.
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

    def _direction(self, x: Array, y: Array, g: Array, times: _Product, round: Round) -> Array:
        """The difference d [m, n] of x and the minimum."""
        d = self._inverse(times, y, round)
        for _ in range(1, self.newton_steps):
            there, times = _derivatives(self.gradients, x - d, round)
            d = d + self._inverse(times, there - g + y - self.mu * d, round)
        return d


@struct.dataclass
class NetworkNewton(Algorithm):
    """Network Newton: approximate Newton steps on the objective whose minimum D-PSGD approaches.

    Batches are allowed; the Hessian is that of the same examples. Raises ValueError (from `check`) for clipped or noisy
    gradients, and networks without a symmetric doubly stochastic W.
    """

    kind: ClassVar[str] = "network-newton"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 1.0
    alpha: Positive = 0.1
    """Weight of the losses against the differences between neighbours, the step size of D-PSGD."""
    K: Natural = struct.field(pytree_node=False, default=1)
    """Exchanges of directions in a round."""
    products: Count = struct.field(pytree_node=False, default=10)
    """Products with a Hessian for every linear system; the error falls as (1 - 2 / (sqrt(condition) + 1))^products."""
    gradients: _Smooth = Gradients()
    title: ClassVar[str] = "Network Newton"
    needs: ClassVar[dict[str, bool]] = {"undirected": True, "doubly_stochastic": True, "symmetric_weights": True}

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Parameters, and directions if K is not 0."""
        return (MODEL, _DIRECTION) if self.K else (MODEL,)

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        _check_smooth(self.title, self.gradients)

    def step(self, x: Array, round: Round) -> Array:
        own = 1 - round.graph.self_weight.astype(x.dtype)[:, None]
        g, times = _derivatives(self.gradients, x, round)
        u = self.alpha * g - round.pull(x)

        def inverse(b: Array) -> Array:
            return _solve(lambda v: self.alpha * times(v) + 2 * own * v, b, self.products, round)

        d = -inverse(u)
        for _ in range(self.K):
            d = inverse(2 * own * d + round.pull(d, _DIRECTION) - u)
        return x + self.lr * d


def _check_smooth(method: str, gradients: Gradients) -> None:
    """Raise ValueError for gradients that are clipped or noisy, and so not those of a function with a Hessian."""
    if gradients.clip is not None or gradients.mechanism is not None:
        raise ValueError(
            f"Expected gradients without clip and noise for {method}, which takes their derivatives, got clip = "
            f"{gradients.clip!r} and mechanism = {gradients.mechanism!r}. Leave them out, or use DSGT."
        )


def _derivatives(gradients: Gradients, x: Array, round: Round) -> tuple[Array, _Product]:
    """The gradients [m, n] at x [m, n], and v [m, n] -> H_i v_i [m, n] on the same examples, which counts nothing."""
    round.trace.grads = round.trace.grads + 1
    sample = gradients.sample(round)
    return jax.linearize(lambda w: gradients.exact(round.problem, w, *sample), x)


def _solve(times: _Product, b: Array, steps: int, round: Round) -> Array:
    """The z [m, n] with A_i z_i = b_i, by conjugate gradients from 0; a node stops where A_i is not positive."""
    round.trace.grads = round.trace.grads + steps

    def step(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        z, r, p, rr = carry
        Ap = times(p)
        a = _ratio(rr, _dot(p, Ap))
        r = r - a * Ap
        new = _dot(r, r)
        return z + a * p, r, r + _ratio(new, rr) * p, new

    return lax.fori_loop(0, steps, step, (jnp.zeros_like(b), b, b, _dot(b, b)))[0]


def _dot(a: Array, b: Array) -> Array:
    """The inner products [m, 1] of rows."""
    return jnp.sum(a * b, axis=1, keepdims=True)


def _ratio(a: Array, b: Array) -> Array:
    """A / b [m, 1], and 0 where b is not above zero."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)
