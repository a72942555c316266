"""DCD-PSGD and ECD-PSGD: decentralized SGD that sends compressed differences, or compressed extrapolations.

H. Tang, S. Gan, C. Zhang, T. Zhang, J. Liu: Communication Compression for Decentralized Training, 2018 (Algorithms 1
and 2).

    h_i     = sum_j W_ij x_j - lr g_i(x_i)
    x_i    <- x_i + C(h_i - x_i)                                       (DCD; at i and at all its neighbours)

    y_i     = sum_j W_ij xhat_j - lr g_i(x_i),     z_i = (1 - t / 2) x_i + t / 2 y_i,     t = k + 1 in round k
    xhat_i <- (1 - 2 / t) xhat_i + 2 / t C(z_i)                        (ECD; at i and at all its neighbours)
    x_i    <- y_i

C(...) is sent to all neighbours, and C is `codec`. With exact messages both are D-PSGD. ECD starts from xhat_i = x_i.

In DCD a node moves only by what it sends, so its neighbours know x exactly as long as every message reaches them: the
network must be fixed. What C loses is lost for good, unlike in CHOCO-SGD. The average of the nodes moves by the average
of C(h - x), which is -lr times the average gradient in expectation if C is unbiased, and approximately so otherwise.

The paper assumes an unbiased C and proves convergence while alpha = sup ||C(z) - z|| / ||z|| satisfies (1 - rho)^2 > 4
mu^2 alpha^2, rho being the second largest |eigenvalue| of W and mu the largest |eigenvalue - 1|: alpha < 0.02 on a
ring of 16 nodes. Measured on a quadratic, biased top-k and random-k messages reached D-PSGD's fixed point down to 10 %
of the entries; random-k messages scaled to be unbiased diverged at 30 %.

In ECD the error of xhat after round t is (1 - 2 / t) times that before it plus 2 / t times that of C: it falls as 1 /
sqrt(t) if the errors of C are independent, zero on average, and bounded. C must therefore be unbiased. But z is as
large as x + t / 2 (y - x), so the assumption of bounded errors fails for a C whose error grows with its vector, unless
y - x falls as 1 / t.

Missing neighbours: refused, because every message builds on all earlier ones.
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
    x: Array  # [m, n] parameters
    hat: Array  # [m, n] estimates of x, the same at the node and at all its neighbours


@struct.dataclass
class DCD(Algorithm):
    """DCD-PSGD: D-PSGD that sends compressed differences to exact replicas.

    It takes any gradients, and a codec that is unbiased or has a contraction factor.

    Raises ValueError (from `check`) for other codecs, and a network that is not fixed and undirected with symmetric
    doubly stochastic weights. Warns about a codec whose error may exceed the vector.
    """

    kind: ClassVar[str] = "dcd-psgd"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = QSGD(levels=127, norm="max")
    title: ClassVar[str] = "DCD-PSGD"
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "replicas"

    def step(self, x: Array, round: Round) -> Array:
        h = round.mix(x, None) - self.lr * self.gradients(x, round)
        return round.publish(h, x)


@struct.dataclass
class ECD(Algorithm):
    """ECD-PSGD: D-PSGD that sends compressed extrapolations of its parameters.

    It takes any gradients, and an unbiased codec. Raises ValueError (from `check`) for other codecs, and a network that
    is not fixed and undirected with symmetric doubly stochastic weights.
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
        x = round.problem.initial_params()
        return State(x, x)

    def step(self, state: State, round: Round) -> State:
        x, hat = state
        y = round.mix(hat, None) - self.lr * self.gradients(x, round)
        t = (round.k + 1).astype(x.dtype)
        z = x + t / 2 * (y - x)
        z = round.publish(z, jnp.zeros_like(z))  # C(z)
        return State(y, hat + 2 / t * (z - hat))

    def visible(self, state: State) -> Array:
        """What others have seen [m, n]: the estimates of x."""
        return state.hat
