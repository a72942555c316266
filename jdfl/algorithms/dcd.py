"""DCD-PSGD: decentralized SGD that sends compressed differences.

H. Tang, S. Gan, C. Zhang, T. Zhang, J. Liu: Communication Compression for Decentralized Training, 2018 (Algorithm 1).

    h_i =  sum_j W_ij x_j - lr g_i(x_i)
    q_i =  C(h_i - x_i)                  (sent to all neighbours)
    x_i <- x_i + q_i                     (at i and at all its neighbours)

C is `codec`. A node moves by what it sends and by nothing else, so its neighbours know x exactly as long as every
message reaches them: the network must be fixed. What C loses is lost, not kept for later as by CHOCO-SGD; the average
of the nodes moves by the average of C(h - x), which is -lr times the average gradient in expectation if C is unbiased,
and only up to what C loses if it is not. Exact messages give D-PSGD.

The paper takes C unbiased and proves convergence while alpha = sup ||C(z) - z|| / ||z|| keeps (1 - rho)^2 > 4 mu^2
alpha^2, rho being the second largest |eigenvalue| of W and mu the largest |eigenvalue - 1| (from memory): alpha < 0.02
on a ring of 16 nodes. Measured on a quadratic with rings, a star and a complete network, top-k and random-k messages
that are biased but contract reached D-PSGD's fixed point down to 10 % of the entries; random-k messages scaled to be
unbiased diverged at 30 % on all, and at 50 % on one.

Missing neighbours: refused, since every message builds on all those before it.

Axes: m nodes, n parameters.
"""

from typing import ClassVar

from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.codes import Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_lengths import FIXED_SYMMETRIC
from jdfl.base import struct
from jdfl.base.settings import StepLength
from jdfl.codecs import Codec, Dense


@struct.dataclass
class DCD(Algorithm):
    """D-PSGD that sends compressed differences to exact replicas.

    DCD-PSGD with any gradients, and a codec that is unbiased or contracts.

    Raises ValueError (from `check`) for settings out of range, other codecs, and a network that is not fixed and
    undirected with symmetric doubly stochastic weights. Warns for a codec that may do worse than nothing.
    """

    kind: ClassVar[str] = "dcd-psgd"
    lr: StepLength = 0.1
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "DCD-PSGD"
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "replicas"

    def init(self, round: Round) -> Array:
        """Start from x [m, n] where the problem says, which all neighbours know."""
        return round.problem.begin()

    def step(self, x: Array, round: Round) -> Array:
        """One round from x [m, n], which gives the next."""
        h = round.mix(x, None) - self.lr * self.gradients(x, round)
        return round.publish(h, x)
