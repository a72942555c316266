"""DCD-PSGD: decentralized SGD that sends compressed differences.

H. Tang, S. Gan, C. Zhang, T. Zhang, J. Liu: Communication Compression for Decentralized Training, 2018 (Algorithm 1).

    h_i =  sum_j W_ij x_j - lr g_i(x_i)
    q_i =  C(h_i - x_i)                  (sent to all neighbours)
    x_i <- x_i + q_i                     (at i and at all its neighbours)

C is `codec`. A node moves only by what it sends, so its neighbours know x exactly as long as every message reaches
them: the network must be fixed. What C loses is lost for good, unlike in CHOCO-SGD. The average of the nodes moves by
the average of C(h - x), which is -lr times the average gradient in expectation if C is unbiased, and approximately so
otherwise. With exact messages it is D-PSGD.

The paper assumes an unbiased C and proves convergence while alpha = sup ||C(z) - z|| / ||z|| satisfies (1 - rho)^2 > 4
mu^2 alpha^2, rho being the second largest |eigenvalue| of W and mu the largest |eigenvalue - 1|: alpha < 0.02 on a
ring of 16 nodes. Measured on a quadratic with rings, a star and a complete network, biased top-k and random-k messages
with a contraction factor reached D-PSGD's fixed point down to 10 % of the entries. Random-k messages scaled to be
unbiased diverged on all networks at 30 % of the entries, and on one at 50 %.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters.
"""

from typing import ClassVar

from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.codecs import QSGD, Codec


@struct.dataclass
class DCD(Algorithm):
    """DCD-PSGD: D-PSGD that sends compressed differences to exact replicas.

    It takes any gradients, and a codec that is unbiased or has a contraction factor.

    Raises ValueError (from `check`) for settings out of range, other codecs, and a network that is not fixed and
    undirected with symmetric doubly stochastic weights. Warns about a codec whose error may exceed the vector.
    """

    kind: ClassVar[str] = "dcd-psgd"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = QSGD(levels=127, norm="max")
    title: ClassVar[str] = "DCD-PSGD"
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "replicas"

    def init(self, round: Round) -> Array:
        """Start from the problem's initial parameters x [m, n], which all neighbours know."""
        return round.problem.begin()

    def step(self, x: Array, round: Round) -> Array:
        """One round from x [m, n] to the next."""
        h = round.mix(x, None) - self.lr * self.gradients(x, round)
        return round.publish(h, x)
