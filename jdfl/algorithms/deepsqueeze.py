"""DeepSqueeze: decentralized SGD that sends compressed parameters, to which it adds what earlier messages lost.

H. Tang, X. Lian, S. Qiu, L. Yuan, C. Zhang, T. Zhang, J. Liu: DeepSqueeze: Decentralization Meets Error-Compensated
Compression, 2019.

    h_i  = x_i - lr g_i(x_i)
    z_i  = C(h_i + e_i)                                    (sent to all neighbours)
    e_i <- h_i + e_i - z_i
    x_i <- h_i + gamma sum_j W_ij (z_j - z_i)

The run starts from e_i = 0. gamma is eta in the paper. With exact messages and gamma = 1 it is D-PSGD with
`order="adapt-then-combine"`. W is doubly stochastic, so the average of the nodes moves by -lr times the average
gradient, whatever C loses. A message does not build on earlier ones, so the network may change and lose messages. It
has parameters, not differences, and what C loses stays in e. So the error does not vanish at consensus, and gamma must
be small for codecs that lose much.

Missing neighbours: their weight goes where the network says. W must stay doubly stochastic, so both directions of a
link fail together.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, Provenance, StepSize
from jdfl.codecs import Codec, Sparse


class State(NamedTuple):
    x: Array  # [m, n] parameters
    e: Array  # [m, n] what messages have lost so far


@struct.dataclass
class DeepSqueeze(Algorithm):
    """DeepSqueeze: compressed D-PSGD with error feedback.

    It takes any gradients, and any codec with a contraction factor. Raises ValueError (from `check`) for other codecs,
    and networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "deepsqueeze"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    gamma: Fraction = 0.1
    """Step size towards what the neighbours sent, in (0, 1]."""
    gradients: Gradients = Gradients()
    codec: Codec = Sparse(share=0.1)
    title: ClassVar[str] = "DeepSqueeze"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    codes: ClassVar[Codes] = "contracting"

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        h = state.x - self.lr * self.gradients(state.x, round)
        owed = h + state.e
        z = round.publish(owed, jnp.zeros_like(owed))  # C(owed)
        return State(h + self.gamma * round.pull(z, None), owed - z)
