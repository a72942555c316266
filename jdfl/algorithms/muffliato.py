"""Muffliato: a noisy gradient step, followed by several rounds of gossip.

E. Cyffers, M. Even, A. Bellet, L. Massoulié: Muffliato: Peer-to-Peer Privacy Amplification for Decentralized
Optimization and Averaging, 2022 (Algorithms 1 and 2).

    k = 0, K, 2K, ...:  x_i <- x_i - lr (g_i(x_i) + noise)
    every round:        x_i <- w sum_j W_ij x_j + (1 - w) x_i-

K is `gossips`; x_i- is what node i sent in the round before. w is 1 in the round of a gradient, and always unless
`accelerated`; otherwise it is 2 (1 - sqrt(l (1 - l / 4))) / (1 - l / 2)^2 with the spectral gap l of W. Averaging of
values uses the losses ||x - value_i||^2 / 2, lr = 1 and K rounds. `jdfl.observe` computes what nodes learn about one
another; the authors' code adds up what single messages reveal, although they share noise, and that sum is exceeded
(`python -m experiments.observers`).

Missing neighbours: their weight goes where the network says, by default to the node itself; with acceleration, networks
that change are refused.
"""

import math
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize
from jdfl.network import Network, spectral_gap
from jdfl.problems import Problem


class State(NamedTuple):
    x: Array  # [m, n] parameters
    before: Array  # [m, n] messages of the previous round


@struct.dataclass
class Muffliato(Algorithm):
    """Muffliato: a noisy gradient step, then gossip that averages the noise; adapt-then-combine.

    With one gossip round it is adapt-then-combine D-PSGD. Raises ValueError (from `check`) for networks that do not
    allow acceleration.
    """

    kind: ClassVar[str] = "muffliato"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    gossips: Count = struct.field(pytree_node=False, default=5)
    """Rounds of gossip after every gradient step."""
    accelerated: bool = struct.field(pytree_node=False, default=False)
    """Extrapolate beyond the neighbours' mean with Chebyshev polynomials."""
    title: ClassVar[str] = "Muffliato"

    @property
    def needs(self) -> dict[str, bool]:
        """Requirements on the network: acceleration needs one with a spectral gap."""
        return FIXED_SYMMETRIC if self.accelerated else {}

    def plan(self, problem: Problem, network: Network, steps: int) -> Array:
        """The weights w [T] of the mixed vectors; 1 without acceleration."""
        gap = spectral_gap(network) if self.accelerated else 1.0
        w = 2 * (1 - math.sqrt(gap * (1 - gap / 4))) / (1 - gap / 2) ** 2 if gap < 1 else 1.0
        return jnp.asarray(np.where(np.arange(steps) % self.gossips == 0, 1.0, w), problem.dtype)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, x)

    def step(self, state: State, round: Round) -> State:
        x, w = state.x, round.ready[round.k].astype(state.x.dtype)
        due = jnp.broadcast_to(round.k % self.gossips == 0, (round.m,))
        g = round.each_of(due, round.m, lambda here: self.gradients(here.of(x), here), jnp.zeros_like(x))
        x = x - self.lr * g
        return State(w * round.mix(x) + (1 - w) * state.before, x)
