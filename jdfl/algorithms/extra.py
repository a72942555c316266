"""EXTRA: an exact first-order algorithm for decentralized optimization; and SimpleGT, with another second matrix.

W. Shi, Q. Ling, G. Wu, W. Yin: EXTRA: An Exact First-Order Algorithm for Decentralized Consensus Optimization, 2015.

    x^1     = W x^0 - lr g(x^0)
    x^{k+2} = (I + W) x^{k+1} - Wt x^k - lr (g(x^{k+1}) - g(x^k)),     Wt = (I + W) / 2

Summed over the rounds, as in the paper, this is D-PSGD with a correction,

    x^{k+1} = W x^k - lr g(x^k) + s^k,     s^0 = 0,     s^{k+1} = s^k + (W - Wt) x^k,     W - Wt = (W - I) / 2

which is what the implementation computes: the two forms are equal up to rounding, which the first accumulates (see
`step_sizes`). The s_i sum to zero, so nodes in consensus at a point with zero average gradient stay there.

Step size: the paper proves convergence for lr < 2 lambda_min(Wt) / L = (1 + lambda_min(W)) / L, L the largest curvature
of an f_i; this is sufficient, and `check` warns beyond it. With quadratic f_i = w' H_i w / 2 a mode z^k of the
recursion satisfies det(z^2 I - z (I + W - lr H) + Wt - lr H) = 0. At z = -1 this matrix is (5 I + 3 W) / 2 - 2 lr H,
and if it is not positive semidefinite there is a real z < -1. The entries of node i alone give lr > (5 + 3 W_ii) / (4
L_i): EXTRA diverges, and `check` refuses it.

SimpleGT, which the package decent-bench has without a paper, is EXTRA with I in the place of Wt: s^{k+1} = s^k + (W -
I) x^k. The paper assumes Wt <= (I + W) / 2, which excludes it. Its mixing alone does not bring the nodes together:
without gradients a mode of W with eigenvalue w is multiplied by the roots of z^2 - (1 + w) z + 1, whose modulus is 1
for all w. Only curvature damps a disagreement, for small lr by about 1 - lr h / 2 per round, h being the average
curvature of the f_i along the mode. So the method is exact for strongly convex f_i; where no f_i is curved,
disagreements remain and noise adds up. On least squares lr > (3 + W_ii) / (2 L_i) at some node i diverges.

Missing neighbours: refused, because corrections of W x add up only if W stays the same.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_sizes import AddingUp
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.codecs import Codec, Dense


class State(NamedTuple):
    x: Array  # [m, n] parameters
    s: Array  # [m, n] sum of (W - Wt) x over the rounds so far, with Wt = I for SimpleGT


@struct.dataclass
class EXTRA(AddingUp):
    """EXTRA: exact first-order method that reaches the optimum with a constant step size.

    It takes any gradients and codec; it is exact with gradients of all examples and lossless messages. With a lossy
    codec the sum of s stays zero, and the final error is about the codec's own. Raises ValueError (from `check`) for
    networks that change or are not symmetric, and step sizes that diverge.
    """

    kind: ClassVar[str] = "extra"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "EXTRA"

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, s = state
        pulled = round.pull(x)  # (W - I) x
        return State(x + pulled - self.lr * self.gradients(x, round) + s, s + pulled / 2)


@struct.dataclass
class SimpleGT(Algorithm):
    """SimpleGT: exact first-order method that is only marginally stable where losses have no curvature.

    It takes any gradients. Raises ValueError (from `check`) for networks that change or are not symmetric.
    """

    kind: ClassVar[str] = "simple-gt"
    provenance: ClassVar[Provenance] = ("other code read",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "SimpleGT"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, s = state
        pulled = round.pull(x)  # (W - I) x
        return State(x + pulled - self.lr * self.gradients(x, round) + s, s + pulled)
