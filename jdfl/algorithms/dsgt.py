"""DSGT: distributed stochastic gradient tracking, optionally with differential privacy.

S. Pu, A. Nedic: Distributed stochastic gradient tracking methods, 2021.
DP-DSGT: J. Bayrooti, Z. Gao, A. Prorok: Differentially Private Decentralized Deep Learning with Consensus Algorithms,
2023: the same with gradients that are clipped per example and noisy, `Gradients(clip=..., mechanism=...)`.

    x_i <- sum_j W_ij (x_j - lr y_j)
    y_i <- sum_j W_ij y_j + g_i(x_i) - g_i,     g_i <- g_i(x_i)

The run starts from y_i = g_i = g_i(x_i). W is doubly stochastic, so the average of the y_i equals the average of the
g_i in every round, even when W changes from round to round: y_i tracks the average gradient.

A gradient is evaluated, and released where it is noisy, once at the start and once per round; x and y are computed from
these releases and from messages. The second paper's code starts from y = g = 0, which is this start one round later.

With one step size per node it is Aug-DGM (J. Xu, S. Zhu, Y. C. Soh, L. Xie: Augmented distributed gradient methods for
multi-agent optimization under uncoordinated constant stepsizes, 2015; from memory). The solution stays the same, since
all y_i are zero there.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing follows its own gradient. W must stay doubly stochastic, so both directions of a link fail together.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.codecs import Codec, Dense


class State(NamedTuple):
    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average gradient
    g: Array  # [m, n] last gradients


@struct.dataclass
class DSGT(Algorithm):
    """DSGT: gradient tracking; with clipped and noisy gradients it is DP-DSGT.

    It takes any gradients and codec. W z is computed as z_i + sum_j W_ij (C(z_j) - C(z_i)), so that y keeps its average
    with a lossy codec C. Raises ValueError (from `check`) for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "dsgt"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = struct.field(per_node=True, default=0.1)
    """Step size, or one per node [m], which has the same solution (Aug-DGM)."""
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "DSGT"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        g = self.gradients(x, round)
        return State(x, g, g)

    def step(self, state: State, round: Round) -> State:
        lr = self.lr if jnp.ndim(self.lr) == 0 else jnp.reshape(self.lr, (-1, 1))
        moved = state.x - lr * state.y
        x = moved + round.pull(moved)
        g = self.gradients(x, round)
        y = state.y + round.pull(state.y, TRACKER) + (g - state.g)
        return State(x, y, g)

    def visible(self, state: State) -> Array:
        """Both x and y [m, 2 n], as both are sent."""
        return jnp.concatenate([state.x, state.y], axis=1)
