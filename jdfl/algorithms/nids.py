"""NIDS: decentralized gradient descent with a network-independent step size.

Z. Li, W. Shi, M. Yan: A Decentralized Proximal-Gradient Method With Network Independent Step-Sizes and Separated
Convergence Rates, 2019, without its proximal part and with one step size for all nodes.

    x^1     = x^0 - lr g(x^0)
    x^{k+1} = Wt (2 x^k - x^{k-1} - lr g(x^k) + lr g(x^{k-1})),     Wt = (I + W) / 2

The paper has Wt = I - c Lambda (I - W) with the nodes' step sizes on the diagonal of Lambda; this is its c = 1 / (2
lr). With z^k for the bracket and c^k = x^k - (x^{k-1} - lr g(x^{k-1})), the implementation computes

    z^k = x^k - lr g(x^k) + c^k,     x^{k+1} = Wt z^k,     c^1 = 0,     c^{k+1} = c^k + (Wt - I) z^k

which is the same up to rounding, which the first form accumulates (see `step_sizes`). It is exact diffusion after one
step without communication; the run starts at x^1, so round k computes x^{k+2}.

Step size: the paper proves convergence for lr < 2 / L, L the largest curvature of an f_i; this is sufficient, and
`check` warns beyond it. With quadratic f_i = w' H_i w / 2 a mode z^k of the recursion satisfies det(z^2 Wt^-1 - (2 z -
1) I + lr (z - 1) H) = 0. At z = -1 this matrix is Wt^-1 + 3 I - 2 lr H, and if it is not positive semidefinite there is
a real z < -1. This is the case for lr > (3 + 1 / lambda_min(Wt)) / (2 L): NIDS diverges, and `check` refuses it.

Missing neighbours: refused, because corrections of W z add up only if W stays the same.
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
    x: Array  # [m, n] parameters
    c: Array  # [m, n] what mixing has added so far


@struct.dataclass
class NIDS(AddingUp):
    """NIDS: exact first-order method whose step size does not depend on the network.

    It takes any gradients and codec; it is exact with gradients of all examples and lossless messages. With a lossy
    codec the sum of c stays zero, and the final error is about the codec's own. Raises ValueError (from `check`) for
    networks that change or are not symmetric, and step sizes that diverge.
    """

    kind: ClassVar[str] = "nids"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "NIDS"

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x - self.lr * self.gradients(x, round), jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, c = state
        z = x - self.lr * self.gradients(x, round) + c
        pulled = round.pull(z) / 2  # (Wt - I) z
        return State(z + pulled, c + pulled)
