"""EXTRA: an exact first-order algorithm.

W. Shi, Q. Ling, G. Wu, W. Yin: EXTRA: An Exact First-Order Algorithm for Decentralized Consensus Optimization, 2015.

    x^1     = W x^0 - lr g(x^0)
    x^{k+2} = (I + W) x^{k+1} - Wt x^k - lr (g(x^{k+1}) - g(x^k)),     Wt = (I + W) / 2

Summed over the rounds, as the paper does too, this is D-PSGD with a correction,

    x^{k+1} = W x^k - lr g(x^k) + s^k,     s^0 = 0,     s^{k+1} = s^k + (W - Wt) x^k,     W - Wt = (W - I) / 2

which is what runs: the two forms are equal but for rounding, which the first one adds up (see `differences`). The s_i
sum to zero, so that nodes that agree and stand still do so where the average gradient is zero.

Steps: the paper proves convergence for lr < 2 lambda_min(Wt) / L = (1 + lambda_min(W)) / L, L the largest curvature of
an f_i; that is sufficient, and `check` warns beyond it. With quadratic f_i = w' H_i w / 2 a mode z^k of the recursion
has det(z^2 I - z (I + W - lr H) + Wt - lr H) = 0; at z = -1 this matrix is (5 I + 3 W) / 2 - 2 lr H, and if it is not
positive semidefinite there is a real z < -1. Its entries of node i alone give lr > (5 + 3 W_ii) / (4 L_i): EXTRA
diverges, and `check` refuses it.

Missing neighbours: refused, since corrections of W x add up only if W stays.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_lengths import AddingUp
from jdfl.base import struct
from jdfl.base.settings import StepLength
from jdfl.codecs import Codec, Dense


class State(NamedTuple):
    """What the next round needs."""

    x: Array  # [m, n] parameters
    s: Array  # [m, n] sum of (W - Wt) x over the rounds so far


@struct.dataclass
class EXTRA(AddingUp):
    """Exact first-order algorithm: the optimum itself with constant steps.

    EXTRA with any gradients and codec; exact with gradients of all examples and messages that arrive as they are.

    A codec that loses something keeps the sum of s at zero, and ends about its own error away from the solution.
    Raises ValueError (from `check`) for settings out of range, networks that change or are not symmetric, and steps
    that diverge.
    """

    kind: ClassVar[str] = "extra"
    lr: StepLength = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "EXTRA"

    def init(self, round: Round) -> State:
        """Start where the problem says."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, s = state
        pulled = round.pull(x)  # (W - I) x
        return State(x + pulled - self.lr * self.gradients(x, round) + s, s + pulled / 2)
