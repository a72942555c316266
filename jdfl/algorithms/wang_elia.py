"""Wang-Elia: gradient descent with proportional and integral control of the disagreement.

J. Wang, N. Elia: Control Approach to Distributed Optimization, 2010; M. Bin, I. Notarnicola, T. Parisini: Stability,
Linear Convergence, and Robustness of the Wang-Elia Algorithm for Distributed Consensus Optimization, 2022.

    x_i <- x_i - sum_j K_ij (x_j + z_j) - lr g_i(x_i)
    z_i <- z_i + sum_j K_ij x_j,     K = gain (I - W)

Both right sides have the old x, and the run starts from z_i = 0. At rest the x_i are equal, and K z cancels the
gradients, so lr times their sum is zero: the method is exact. As a recursion in x it is that of EXTRA with other
matrices: x^{k+2} = (2 I - K) x^{k+1} - (I - K + K^2) x^k - lr (g(x^{k+1}) - g(x^k)).

This is the form of the package decent-bench, with its gain. Without gradients a mode of K with eigenvalue k is
multiplied by a complex number of squared modulus 1 - k + k^2, which is below 1 for k < 1: with gain = 1/2 for every W
without the eigenvalue -1.

Missing neighbours: refused, because the integral of K x adds up only if W stays the same.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, Provenance, StepSize
from jdfl.base.streams import Stream

_INTEGRAL = Channel("integral", Stream("message.integral", "shared"))


class State(NamedTuple):
    x: Array  # [m, n] parameters
    z: Array  # [m, n] integrals of the disagreement, which sum to zero


@struct.dataclass
class WangElia(Algorithm):
    """Wang-Elia: exact first-order method by integral control, with two messages per round.

    It takes any gradients. Raises ValueError (from `check`) for networks that change or are not symmetric.
    """

    kind: ClassVar[str] = "wang-elia"
    provenance: ClassVar[Provenance] = ("other code read",)
    lr: StepSize = 0.05
    gain: Fraction = 0.5
    """Factor of I - W in K."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "Wang-Elia"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, _INTEGRAL)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, z = state
        pulled = self.gain * round.pull(x)  # -K x
        moved = pulled + self.gain * round.pull(z, _INTEGRAL)
        return State(x + moved - self.lr * self.gradients(x, round), z - pulled)
