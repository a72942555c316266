"""Exact diffusion: adapt, correct, combine.

K. Yuan, B. Ying, X. Zhao, A. H. Sayed: Exact Diffusion for Distributed Optimization and Learning - Part I: Algorithm
Development, 2019.

    psi_k = x_{k-1} - lr g(x_{k-1})
    phi_k = psi_k + x_{k-1} - psi_{k-1},     psi_0 = x_0
    x_k   = Wb phi_k,     Wb = (I + W) / 2

The implementation keeps c = x_{k-1} - psi_{k-1}, which is the sum of (Wb - I) phi over the rounds so far: x_k - psi_k =
phi_k - psi_k + (Wb - I) phi_k. In the printed form it would accumulate rounding errors (see `step_sizes`). The c_i sum
to zero, so nodes in consensus at a point with zero average gradient stay there.

The paper allows a left-stochastic W and a step size per node; this is its symmetric doubly stochastic case. Here x
follows the recursion of NIDS (`nids`), whose bounds on the step size apply: lr < 2 / L is sufficient, and `check` warns
beyond it; lr > (3 + 1 / lambda_min(Wb)) / (2 L) diverges on least squares and is refused. The step-size result of the
paper itself was not checked.

Missing neighbours: refused, because corrections of W phi add up only if W stays the same.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_sizes import AddingUp
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.codecs import Codec, Dense


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    c: Array  # [m, n] x - psi of the last round


@struct.dataclass
class ExactDiffusion(AddingUp):
    """Exact diffusion: take a local step, correct it, then mix; exact with a constant step size.

    It takes any gradients and codec; it is exact with gradients of all examples and lossless messages. With a lossy
    codec the sum of c stays zero, and the final error is about the codec's own.
    Raises ValueError (from `check`) for settings out of range, networks that change or are not symmetric, and step
    sizes that diverge.
    """

    kind: ClassVar[str] = "exact-diffusion"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "exact diffusion"

    def init(self, round: Round) -> State:
        """Start from x = psi = the problem's initial parameters."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, c = state
        phi = x - self.lr * self.gradients(x, round) + c
        pulled = round.pull(phi) / 2  # (Wb - I) phi
        return State(phi + pulled, c + pulled)
