"""MoTEF: BEER that tracks the momentum of stochastic gradients.

R. Islamov, Y. Gao, S. U. Stich: Near Optimal Decentralized Optimization with Compression and Momentum Tracking, 2024
(MoTEF; its variance-reduced form is not here).

    x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i) - lr v_i,               xhat_i <- xhat_i + C(x_i - xhat_i)
    m_i <- (1 - momentum) m_i + momentum g_i(x_i)
    v_i <- v_i + gamma sum_j W_ij (vhat_j - vhat_i) + m_i - (m_i before),   vhat_i <- vhat_i + C(v_i - vhat_i)

`momentum` is the weight of the new gradient, lambda in the paper. With momentum = 1 it is BEER. A small one averages
the noise of minibatches over rounds, so that the error that they leave shrinks with the number of nodes although
messages are compressed.

The run starts from m_i = v_i = g_i(x_i) and vhat_i = 0, as the authors' synthetic experiments do. Their code for
logistic regression and neural networks starts from v_i = g_i(x_i) and m_i = 0, from which v never has the average of m;
it is left out. `start="zero"` is m_i = v_i = 0 in the order of `jdfl.BEER`.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters.
"""

from typing import ClassVar

from jax import Array

from jdfl.algorithms.beer import BEER
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, Provenance


@struct.dataclass
class MoTEF(BEER):
    """MoTEF: compressed momentum tracking, for stochastic gradients.

    It takes any gradients, and any codec with a contraction factor. Raises ValueError (from `check`) as `BEER` does.
    """

    kind: ClassVar[str] = "motef"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    momentum: Fraction = 0.2
    """Weight of the new gradient in the momentum, in (0, 1]; 1: no momentum."""
    title: ClassVar[str] = "MoTEF"
    exact: ClassVar[bool] = True

    def estimate(self, x: Array, last: Array | None, round: Round) -> Array:
        """Return the momentum m [m, n]; the first is the gradient."""
        g = self.gradients(x, round)
        return g if last is None else last + self.momentum * (g - last)
