"""MoTEF: BEER that tracks the momentum of stochastic gradients.

R. Islamov, Y. Gao, S. U. Stich: Near Optimal Decentralized Optimization with Compression and Momentum Tracking, 2024
(MoTEF; its variance-reduced form is not here).

    m_i <- (1 - momentum) m_i + momentum g_i(x_i)
    v_i <- v_i + gamma sum_j W_ij (vhat_j - vhat_i) + m_i - (m_i before),   vhat_i <- vhat_i + C(v_i - vhat_i)
    x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i) - lr v_i,               xhat_i <- xhat_i + C(x_i - xhat_i)

`momentum` is the weight of the new gradient, lambda in the paper. With momentum = 1 it is BEER. A small one averages
the noise of minibatches over rounds, so that the error that they leave shrinks with the number of nodes although
messages are compressed. m, v and vhat begin at zero; the paper's start was not checked. The authors' code begins with
v = g(x) and m = 0, from which v never has the average of m.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters.
"""

from typing import ClassVar

from jdfl.algorithms.beer import BEER, State, tracked
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Fraction


@struct.dataclass
class MoTEF(BEER):
    """MoTEF: compressed momentum tracking, for stochastic gradients.

    It takes any gradients, and any codec with a contraction factor. Raises ValueError (from `check`) as `BEER` does.
    """

    kind: ClassVar[str] = "motef"
    momentum: Fraction = 0.2
    """Weight of the new gradient in the momentum, in (0, 1]; 1: no momentum."""
    title: ClassVar[str] = "MoTEF"
    exact: ClassVar[bool] = True

    def step(self, state: State, round: Round) -> State:
        """One round; `state.g` is the momentum m."""
        m = state.g + self.momentum * (self.gradients(state.x, round) - state.g)
        return tracked(self, state, m, round)
