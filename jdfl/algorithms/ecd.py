"""ECD-PSGD: decentralized SGD that sends compressed extrapolations, whose errors average out.

H. Tang, S. Gan, C. Zhang, T. Zhang, J. Liu: Communication Compression for Decentralized Training, 2018 (Algorithm 2).

    y_i     = sum_j W_ij xhat_j - lr g_i(x_i)
    z_i     = (1 - t / 2) x_i + t / 2 y_i,     t = k + 1 in round k            (C(z_i) is sent to all neighbours)
    xhat_i <- (1 - 2 / t) xhat_i + 2 / t C(z_i)                                (at i and at all its neighbours)
    x_i    <- y_i

from xhat_i = x_i. If C loses nothing, xhat = x, and the method is D-PSGD. Otherwise the error of xhat after round t is
(1 - 2 / t) times that before it plus 2 / t times that of C: it falls as 1 / sqrt(t) if the errors of C are independent,
zero on average, and bounded. C must therefore be unbiased. But z is as large as x + t / 2 (y - x), so the assumption of
bounded errors fails for a C whose error grows with its vector, unless y - x falls as 1 / t.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.codecs import QSGD, Codec


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    hat: Array  # [m, n] estimates of x, the same at the node and at all its neighbours


@struct.dataclass
class ECD(Algorithm):
    """ECD-PSGD: D-PSGD that sends compressed extrapolations of its parameters.

    It takes any gradients, and an unbiased codec. Raises ValueError (from `check`) for settings out of range, other
    codecs, and a network that is not fixed and undirected with symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "ecd-psgd"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = QSGD(levels=127, norm="max")
    title: ClassVar[str] = "ECD-PSGD"
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "unbiased"

    def init(self, round: Round) -> State:
        """Start from x = xhat = the problem's initial parameters, which all neighbours know."""
        x = round.problem.begin()
        return State(x, x)

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, hat = state
        y = round.mix(hat, None) - self.lr * self.gradients(x, round)
        t = (round.k + 1).astype(x.dtype)
        z = x + t / 2 * (y - x)
        z = round.publish(z, jnp.zeros_like(z))  # C(z)
        return State(y, hat + 2 / t * (z - hat))

    def visible(self, state: State) -> Array:
        """What others have seen [m, n]: the estimates of x."""
        return state.hat
