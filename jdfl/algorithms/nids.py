"""NIDS: a network-independent step length.

Z. Li, W. Shi, M. Yan: A Decentralized Proximal-Gradient Method With Network Independent Step-Sizes and Separated
Convergence Rates, 2019, without its proximal part and with one step length for all nodes.

    x^1     = x^0 - lr g(x^0)
    x^{k+1} = Wt (2 x^k - x^{k-1} - lr g(x^k) + lr g(x^{k-1})),     Wt = (I + W) / 2

The paper has Wt = I - c Lambda (I - W) with the nodes' step lengths on the diagonal of Lambda; this is its c = 1 / (2
lr). With z^k for the bracket and c^k = x^k - (x^{k-1} - lr g(x^{k-1})), what runs is

    z^k = x^k - lr g(x^k) + c^k,     x^{k+1} = Wt z^k,     c^1 = 0,     c^{k+1} = c^k + (Wt - I) z^k

which is the same but for rounding, which the first form adds up (see `differences`). It is exact diffusion after one
step without communication; x^1 is the start, so that round k makes x^{k+2}.

Steps: the paper proves convergence for lr < 2 / L, L the largest curvature of an f_i; that is sufficient, and `check`
warns beyond it. With quadratic f_i = w' H_i w / 2 a mode z^k of the recursion has det(z^2 Wt^-1 - (2 z - 1) I + lr (z -
1) H) = 0; at z = -1 this matrix is Wt^-1 + 3 I - 2 lr H, and if it is not positive semidefinite there is a real z < -1.
It is not for lr > (3 + 1 / lambda_min(Wt)) / (2 L): NIDS diverges, and `check` refuses it.

Missing neighbours: refused, since corrections of W z add up only if W stays.

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
    c: Array  # [m, n] what mixing has added over the rounds so far


@struct.dataclass
class NIDS(AddingUp):
    """Exact, with steps whose length does not depend on the network.

    NIDS with any gradients and codec; exact with gradients of all examples and messages that arrive as they are.

    A codec that loses something keeps the sum of c at zero, and ends about its own error away from the solution.
    Raises ValueError (from `check`) for settings out of range, networks that change or are not symmetric, and steps
    that diverge.
    """

    kind: ClassVar[str] = "nids"
    lr: StepLength = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "NIDS"

    def init(self, round: Round) -> State:
        """Start from x^1 = x^0 - lr g(x^0), x^0 being where the problem starts; it costs a gradient."""
        x = round.problem.begin()
        return State(x - self.lr * self.gradients(x, round), jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, c = state
        z = x - self.lr * self.gradients(x, round) + c
        pulled = round.pull(z) / 2  # (Wt - I) z
        return State(z + pulled, c + pulled)
