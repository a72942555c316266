"""LEAD and CEDAS: NIDS and exact diffusion that send compressed differences to slowly moving public copies.

X. Liu, Y. Li, R. Wang, J. Tang, M. Yan: Linear Convergent Decentralized Optimization with Compression, 2021 (LEAD); K.
Huang, S. Pu: CEDAS: A Compressed Decentralized Stochastic Gradient Method with Improved Convergence, 2023.

    y_i  = x_i - lr g_i(x_i) - lr d_i
    z_i  = h_i + C(y_i - h_i)                              (C(...) is sent to all neighbours)
    h_i <- h_i + alpha (z_i - h_i)                         (at i and at all its neighbours)
    d_i <- d_i + gamma / (2 lr) sum_j W_ij (z_i - z_j)
    x_i <- x_i - lr g_i(x_i) - lr d_i

LEAD starts from x_i = x_i^0 - lr g_i(x_i^0), h_i = x_i^0 and d_i = 0, so round k computes x^{k+2}. The d_i sum to zero
and become the negative gradients at the solution. The differences vanish there, and with gradients of all examples the
method is exact for every unbiased C, if alpha and gamma are small enough for its variance: alpha <= 1 / (1 + omega) for
E ||C(z) - z||^2 <= omega ||z||^2. With exact messages and gamma = 1 it is `jdfl.NIDS`, whatever alpha is.

CEDAS starts from x_i = h_i and d_i = 0, has lr_k = lr / (1 + decay k) for lr in round k, and keeps lr d_i instead of
d_i. Falling step sizes remove the error that stochastic gradients leave; decay = 0 keeps them constant. With exact
messages, gamma = 1 and a constant step size it is `jdfl.ExactDiffusion`. Whether its paper starts with a gradient step,
as LEAD does, was not checked, and neither were its constants for the step sizes.

The papers assume an unbiased C. Biased codecs that contract need small steps: least squares at 6 nodes that sent the
largest 30 % converged with gamma = 0.5 and alpha = 0.4. Random 30 %, without the factor that makes them unbiased,
converged neither with them nor with 0.2 for both.

Missing neighbours: refused, because every message builds on all earlier ones.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, NotNegative, Provenance, StepSize
from jdfl.codecs import QSGD, Codec


class State(NamedTuple):
    x: Array  # [m, n] parameters
    c: Array  # [m, n] -lr d, what mixing has added so far
    h: Array  # [m, n] public copies of y, the same at the node and at all its neighbours


@struct.dataclass
class LEAD(Algorithm):
    """LEAD: exact first-order method with compressed messages; with exact ones it is NIDS.

    It takes any gradients, and any codec that is unbiased or has a contraction factor. Raises ValueError (from `check`)
    for other codecs, and a network that is not fixed and undirected with symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "lead"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    gamma: Fraction = 1.0
    """Factor on what mixing adds, in (0, 1]."""
    alpha: Fraction = 0.5
    """Step size of the public copies, in (0, 1]."""
    gradients: Gradients = Gradients()
    codec: Codec = QSGD(levels=127, norm="max")
    title: ClassVar[str] = "LEAD"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma", "alpha")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "slow copies"

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x - self.lr * self.gradients(x, round), jnp.zeros_like(x), x)

    def step(self, state: State, round: Round) -> State:
        return _corrected(self, state, self.lr, round)

    def visible(self, state: State) -> Array:
        """What others have seen [m, n]: the public copies."""
        return state.h


@struct.dataclass
class CEDAS(LEAD):
    """CEDAS: exact diffusion with compressed messages and falling step sizes.

    It takes any gradients, and any codec that is unbiased or has a contraction factor. Raises ValueError (from `check`)
    as `LEAD` does.
    """

    kind: ClassVar[str] = "cedas"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    decay: NotNegative = 0.0
    """Rate of the falling step sizes lr / (1 + decay k); 0: constant."""
    title: ClassVar[str] = "CEDAS"
    exact: ClassVar[bool] = True

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x), x)

    def step(self, state: State, round: Round) -> State:
        lr = self.lr / (1 + self.decay * round.k.astype(state.x.dtype))
        return _corrected(self, state, lr, round)


def _corrected(algorithm: LEAD, state: State, lr: Array | float, round: Round) -> State:
    """One round of LEAD (Algorithm 1) or CEDAS with a step size lr []."""
    x, c, h = state
    moved = x - lr * algorithm.gradients(x, round)
    z = round.publish(moved + c, h)
    c = c + algorithm.gamma / 2 * round.pull(z, None)
    return State(moved + c, c, h + algorithm.alpha * (z - h))
