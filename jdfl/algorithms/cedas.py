"""CEDAS: compressed exact diffusion with falling step sizes.

K. Huang, S. Pu: CEDAS: A Compressed Decentralized Stochastic Gradient Method with Improved Convergence, 2023.

    y_i  = x_i - lr_k g_i(x_i) - d_i
    z_i  = h_i + C(y_i - h_i)                              (C(...) is sent to all neighbours)
    h_i <- h_i + alpha (z_i - h_i)                         (at i and at all its neighbours)
    d_i <- d_i + gamma / 2 sum_j W_ij (z_i - z_j)
    x_i <- x_i - lr_k g_i(x_i) - d_i

from x_i = h_i and d_i = 0, with lr_k = lr / (1 + decay k) in round k. Falling step sizes remove the error that
stochastic gradients leave; decay = 0 keeps them constant. With exact messages, gamma = 1 and a constant step size it is
`jdfl.ExactDiffusion`. It differs from LEAD in the start, and in d, which LEAD multiplies by the step size.

The paper assumes an unbiased C. Whether it starts with a gradient step of its own, as LEAD does, was not checked, and
neither were its constants for the step sizes.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters.
"""

from typing import ClassVar

import jax.numpy as jnp

from jdfl.algorithms.lead import LEAD, State, corrected
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import NotNegative, Provenance


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
        """Start from x = h = the initial parameters, which all neighbours know."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x), x)

    def step(self, state: State, round: Round) -> State:
        """One round."""
        lr = self.lr / (1 + self.decay * round.k.astype(state.x.dtype))
        return corrected(self, state, lr, round)
