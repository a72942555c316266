"""ADMM: consensus by relaxed alternating minimisation, with a variable for every link.

N. Bastianello, R. Carli, L. Schenato, M. Todescato: Asynchronous Distributed Optimization Over Lossy Networks via
Relaxed ADMM: Stability and Linear Convergence, 2021. With d_i neighbours of node i and penalty rho:

    x_i  <- argmin_w f_i(w) + rho d_i ||w||^2 / 2 - <sum_j z_ij, w>
    z_ij <- (1 - alpha) z_ij - alpha (z_ji - 2 rho x_j)

The first line is the proximal operator of f_i / (rho d_i) at sum_j z_ij / (rho d_i). It is computed by `inner` proximal
gradient steps from the last x_i; with few of them the method is inexact in every round, but its limit stays the
optimum. The z_ij are kept as two sums per node (see `augmented`), and only x is sent. The run starts from z_ij = rho
x_i. Relaxation alpha = 1/2 is the usual ADMM, `jdfl.DADMM` with half the penalty.

The formulas agree with those of the package decent-bench, by the first author, which starts from z_ij = 0 and computes
proximal operators as exactly as it can. The paper's lost messages, where a link keeps its z_ij, are left out.

Missing neighbours: refused, because both nodes of a link must know what the other one has received.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, NamedTuple

from jax import Array

from jdfl.algorithms import augmented
from jdfl.algorithms.augmented import LinkSums, OverLinks, Relaxation
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    z: LinkSums  # of the variables of the links


@struct.dataclass
class ADMM(OverLinks):
    """ADMM: relaxed consensus ADMM with proximal steps; exact with a constant penalty.

    Raises ValueError (from `check`) for settings out of range and for networks that change or have one-way links.
    """

    kind: ClassVar[str] = "admm"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    penalty: Positive = 0.5
    """Weight rho of the constraint of a link."""
    relaxation: Relaxation = 0.5
    """Weight alpha of the new values of the links' variables."""
    lr: Positive = 0.2
    """Step size of the inner steps."""
    inner: Count = struct.field(pytree_node=False, default=10)
    """Steps towards the proximal operator; each shrinks the error by 1 + lr w or more, w being the quadratic weight."""
    gradients: Exact = Gradients()
    title: ClassVar[str] = "ADMM"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "penalty")

    def init(self, round: Round) -> State:
        """Start from the initial parameters x and links that agree with them."""
        x = round.problem.begin()
        return State(x, augmented.consensus(x, self.penalty, round))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, z = state
        x = augmented.minimised(self, x, self.penalty * augmented.degree(x, round), z.own, round)
        return State(x, augmented.exchanged(z, x, self.penalty, self.relaxation, round))
