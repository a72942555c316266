"""PORTER: BEER with clipped gradients, optionally private.

B. Li, Y. Chi: Convergence and Privacy of Decentralized Nonconvex Optimization with Gradient Clipping and Communication
Compression, 2023 (PORTER-GC and PORTER-DP).

    g_i  = tau / (tau + ||g_i(x_i)||) g_i(x_i)
    v_i <- v_i + gamma sum_j W_ij (vhat_j - vhat_i) + g_i - (g_i before),   vhat_i <- vhat_i + C(v_i - vhat_i)
    x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i) - lr v_i,               xhat_i <- xhat_i + C(x_i - xhat_i)

This is PORTER-GC, which clips the gradient of a node's batch. Its clipping is smooth: it shortens every gradient, to
less than tau. With tau = None it is BEER. PORTER-DP clips the gradient of every example and adds Gaussian noise to
their mean: `PORTER(tau=None, gradients=Gradients(clip=..., mechanism=Gaussian(...)))`. This clips to min(1, clip /
norm), whereas the paper's is smooth there, too; the sensitivity is the same. With both, noisy gradients are clipped
again, which reveals nothing more. Clipped gradients of different nodes need not cancel at the solution, so the method
is not exact. By default v_i = g_i = 0, and the first v is sent.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, Literal

from jax import Array

from jdfl.algorithms.beer import BEER
from jdfl.algorithms.round import Round
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Positive, Provenance
from jdfl.network import Network
from jdfl.problems import Problem


@struct.dataclass
class PORTER(BEER):
    """PORTER: compressed gradient tracking of clipped gradients, optionally private.

    It takes any gradients, and any codec with a contraction factor. Raises ValueError (from `check`) as `BEER` does.
    """

    kind: ClassVar[str] = "porter"
    provenance: ClassVar[Provenance] = ("from memory",)
    tau: Positive | None = 1.0
    """Threshold of the smooth clipping of every node's gradient; None: no smooth clipping."""
    start: Literal["gradient", "zero"] = struct.field(pytree_node=False, default="zero")
    title: ClassVar[str] = "PORTER"
    exact: ClassVar[bool] = False  # clipped gradients need not vanish together

    def minimises(self, problem: Problem, network: Network) -> str:
        """No mean of objectives where gradients are clipped."""
        return "" if self.tau is None else "no mean of the f_i: it ends where clipped gradients add up to zero"

    def estimate(self, x: Array, last: Array | None, round: Round) -> Array:
        """Return the clipped gradients [m, n]."""
        g = self.gradients(x, round)
        return g if self.tau is None else self.tau / (self.tau + ops.length(g, "l2")[:, None]) * g
