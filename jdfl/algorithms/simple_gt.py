"""SimpleGT: EXTRA with the identity as its second matrix, a gradient-tracking method with one message per round.

The package decent-bench has it under this name, without a paper. It is a variation of W. Shi, Q. Ling, G. Wu, W. Yin:
EXTRA: An Exact First-Order Algorithm for Decentralized Consensus Optimization, 2015. That paper assumes Wt <= (I + W) /
2 which excludes it.

    v_i <- x_i - lr g_i(x_i)
    x_i <- v_i - v_i- + sum_j W_ij x_j

where the second line has the old x and v_i- is the last v_i, from v_i- = x_i. As a recursion in x it is that of EXTRA
(`jdfl.EXTRA`) with I in the place of Wt:

    x^{k+2} = (I + W) x^{k+1} - x^k - lr (g(x^{k+1}) - g(x^k))

Summed over the rounds it is D-PSGD with a correction, x <- W x - lr g(x) + s and s <- s + (W - I) x from s = 0, which
is what the implementation computes. The s_i sum to zero, and at rest the x_i are equal.

Stability: mixing alone does not bring the nodes together. Without gradients a mode of W with eigenvalue w is multiplied
by the roots of z^2 - (1 + w) z + 1, whose modulus is 1 for all w: a disagreement oscillates for ever. Only curvature
damps it, for small lr by a factor of about 1 - lr h / 2 per round, h being the average curvature of the f_i along the
mode. So the method is exact for strongly convex f_i; where no f_i is curved, disagreements remain and noise adds up.
EXTRA has |z| < 1 at the same cost. On least squares lr > (3 + W_ii) / (2 L_i) at some node i diverges.

Missing neighbours: refused, because corrections of W x add up only if W stays the same.

Axes: m nodes, n parameters.
"""

from typing import ClassVar

import jax.numpy as jnp

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.extra import State
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize


@struct.dataclass
class SimpleGT(Algorithm):
    """SimpleGT: exact first-order method that is only marginally stable where losses have no curvature.

    It takes any gradients. Raises ValueError (from `check`) for settings out of range and for networks that change or
    are not symmetric.
    """

    kind: ClassVar[str] = "simple-gt"
    provenance: ClassVar[Provenance] = ("other code read",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "SimpleGT"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC

    def init(self, round: Round) -> State:
        """Start from the problem's initial parameters and s = 0."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, s = state
        pulled = round.pull(x)  # (W - I) x
        return State(x + pulled - self.lr * self.gradients(x, round) + s, s + pulled)
