"""ATG: gradient tracking in which ADMM computes the averages of x and of the gradients.

G. Carnevale, N. Bastianello, G. Notarstefano, R. Carli: ADMM-Tracking Gradient for Distributed Optimization Over
Asynchronous and Unreliable Networks, 2025.

    y_i  <- (x_i + sum_j z_ij) / (1 + rho d_i),             s_i  <- (g_i(x_i) + sum_j q_ij) / (1 + rho d_i)
    x_i  <- (1 - gamma) x_i + gamma (y_i - delta s_i)
    z_ij <- (1 - alpha) z_ij - alpha (z_ji - 2 rho y_j),    q_ij <- (1 - alpha) q_ij - alpha (q_ji - 2 rho s_j)

Node i has d_i neighbours, rho is the penalty and alpha the relaxation. y_i and s_i approach the averages of the x_i and
g_i(x_i) by steps of relaxed ADMM. The averages of the y_i and s_i equal these only in the limit. The z_ij and q_ij are
kept as two sums each per node (see `jdfl.ADMM`), and only y and s are sent. The run starts from z_ij = rho x_i, where y
= x, and q_ij = 0. The formulas are those of the package decent-bench, by one of the authors, which starts from zero.
The form for lost messages and inactive nodes is left out.

Missing neighbours: refused, because both nodes of a link must know what the other one has received.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import admm
from jdfl.algorithms.admm import LinkSums, OverLinks, Relaxation
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, Positive, Provenance


class State(NamedTuple):
    x: Array  # [m, n] parameters
    z: LinkSums  # of the links' variables for the average of x
    q: LinkSums  # of those for the average gradient


@struct.dataclass
class ATG(OverLinks):
    """ATG: gradient tracking by ADMM; exact with a constant step size.

    It takes any gradients. Raises ValueError (from `check`) for networks that change or have one-way links.
    """

    kind: ClassVar[str] = "atg"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    delta: Positive = 0.5
    """Step size along the tracked gradient."""
    gamma: Fraction = 0.5
    """Weight of the new x."""
    penalty: Positive = 0.5
    """Weight rho of the constraint of a link."""
    relaxation: Relaxation = 0.9
    """Weight alpha of the new values of the links' variables."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "ATG"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("delta", "gamma")
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, admm.consensus(x, self.penalty, round), LinkSums(jnp.zeros_like(x), jnp.zeros_like(x)))

    def step(self, state: State, round: Round) -> State:
        x, z, q = state
        weight = 1 + self.penalty * admm.degree(x, round)
        y = (x + z.own) / weight
        s = (self.gradients(x, round) + q.own) / weight
        x = (1 - self.gamma) * x + self.gamma * (y - self.delta * s)
        links = self.penalty, self.relaxation, round
        return State(x, admm.exchanged(z, y, *links), admm.exchanged(q, s, *links, TRACKER))
