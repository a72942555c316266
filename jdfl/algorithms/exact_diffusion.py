"""Exact diffusion: adapt, correct, combine.

K. Yuan, B. Ying, X. Zhao, A. H. Sayed: Exact Diffusion for Distributed Optimization and Learning - Part I: Algorithm
Development, 2019.

    psi_k = x_{k-1} - lr g(x_{k-1})
    phi_k = psi_k + x_{k-1} - psi_{k-1},     psi_0 = x_0
    x_k   = Wb phi_k,     Wb = (I + W) / 2

What runs keeps c = x_{k-1} - psi_{k-1}, which is the sum of (Wb - I) phi over the rounds so far: x_k - psi_k = phi_k -
psi_k + (Wb - I) phi_k. As the printed difference it would add up its rounding (see `differences`). The c_i sum to zero,
so that nodes that agree and stand still do so where the average gradient is zero.

The paper has left-stochastic W and step lengths by node as well; this is its symmetric doubly stochastic case, in which
x follows the recursion of NIDS (`nids`), whose bounds of the steps hold: lr < 2 / L is sufficient and `check` warns
beyond it; lr > (3 + 1 / lambda_min(Wb)) / (2 L) diverges on least squares and is refused. What the paper itself proves
of the steps was not checked.

Missing neighbours: refused, since corrections of W phi add up only if W stays.

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
    c: Array  # [m, n] x - psi of the last round


@struct.dataclass
class ExactDiffusion(AddingUp):
    """Exact: adapt, correct, combine.

    Exact diffusion with any gradients and codec; exact with gradients of all examples and messages as they are.

    A codec that loses something keeps the sum of c at zero, and ends about its own error away from the solution.
    Raises ValueError (from `check`) for settings out of range, networks that change or are not symmetric, and steps
    that diverge.
    """

    kind: ClassVar[str] = "exact-diffusion"
    lr: StepLength = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "exact diffusion"

    def init(self, round: Round) -> State:
        """Start from x = psi where the problem says."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, c = state
        phi = x - self.lr * self.gradients(x, round) + c
        pulled = round.pull(phi) / 2  # (Wb - I) phi
        return State(phi + pulled, c + pulled)
