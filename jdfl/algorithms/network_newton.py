"""Network Newton (NN-K): Newton's method on a penalised objective, with K exchanges for an approximate direction.

A. Mokhtari, Q. Ling, A. Ribeiro: Network Newton Distributed Optimization Methods, 2017.

    u_i = sum_j W_ij (x_i - x_j) + alpha g_i(x_i),       (alpha H_i(x_i) + 2 (1 - W_ii) I) d_i = -u_i
    K times:    (alpha H_i(x_i) + 2 (1 - W_ii) I) d_i+ = (1 - W_ii) d_i + sum_{j != i} W_ij d_j - u_i
    x_i <- x_i + lr d_i

u is the gradient of x'(I - W) x / 2 + alpha sum_i f_i(x_i), whose Hessian is D - B with the matrix D on the left of the
systems and B on the right. d is the Newton direction with K + 1 terms of the series of its inverse. The minimum of this
objective, where nodes differ by about alpha, is that of D-PSGD with lr = alpha: the method is not exact. The paper's
adaptive form lowers alpha when all nodes have signalled that their u is small; it is not implemented, because nodes
would need a vote of the whole network.

Systems are solved by `products` steps of conjugate gradients, without a matrix. A product with a Hessian counts as a
gradient, so a round counts 1 + (K + 1) products. The formulas agree with a public implementation.

Missing neighbours: their weight goes where the network says, by default to the node itself, in a message of d as in one
of x.

Axes: m nodes, n parameters.
"""

from typing import ClassVar

from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, Channel
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.hessians import Smooth, check_smooth, derivatives, solve
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Natural, Positive, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.network import Network
from jdfl.problems import Problem

DIRECTION = Channel("direction", Stream("message.direction", "shared"))


@struct.dataclass
class NetworkNewton(Algorithm):
    """Network Newton: approximate Newton steps on the objective whose minimum D-PSGD approaches.

    Batches are allowed; the Hessian is that of the same examples. Raises ValueError (from `check`) for settings out of
    range, clipped or noisy gradients, and networks without a symmetric doubly stochastic W.
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
    gradients: Smooth = Gradients()
    title: ClassVar[str] = "Network Newton"
    needs: ClassVar[dict[str, bool]] = {"undirected": True, "doubly_stochastic": True, "symmetric_weights": True}

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Parameters, and directions if K is not 0."""
        return (MODEL, DIRECTION) if self.K else (MODEL,)

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings, gradients and networks that do not fit."""
        super().check(problem, network)
        check_smooth(self.title, self.gradients)

    def init(self, round: Round) -> Array:
        """Start from the problem's initial parameters."""
        return round.problem.begin()

    def step(self, x: Array, round: Round) -> Array:
        """One round from x [m, n] to the next."""
        own = 1 - round.graph.self_weight.astype(x.dtype)[:, None]
        g, times = derivatives(self.gradients, x, round)
        u = self.alpha * g - round.pull(x)

        def inverse(b: Array) -> Array:
            return solve(lambda v: self.alpha * times(v) + 2 * own * v, b, self.products, round)

        d = -inverse(u)
        for _ in range(self.K):
            d = inverse(2 * own * d + round.pull(d, DIRECTION) - u)
        return x + self.lr * d
