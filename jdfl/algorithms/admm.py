"""ADMM: consensus by relaxed alternating minimisation, with a variable for every link.

N. Bastianello, R. Carli, L. Schenato, M. Todescato: Asynchronous Distributed Optimization Over Lossy Networks via
Relaxed ADMM: Stability and Linear Convergence, 2021. With d_i neighbours of node i and penalty rho:

    x_i  <- argmin_w f_i(w) + rho d_i ||w||^2 / 2 - <sum_j z_ij, w>
    z_ij <- (1 - alpha) z_ij - alpha (z_ji - 2 rho x_j)

The first line is the proximal operator of f_i / (rho d_i) at sum_j z_ij / (rho d_i). It is computed by `inner` proximal
gradient steps from the last x_i; with few of them the method is inexact in every round, but its limit stays the
optimum. The run starts from z_ij = rho x_i. Relaxation alpha = 1/2 is the usual ADMM, `jdfl.DADMM` with half the
penalty.

Only s_i = sum_j z_ij is used. With r_i = sum_j z_ji, u = s + r and v = s - r satisfy

    u_i <- (1 - 2 alpha) u_i + 2 alpha rho sum_j (x_j + x_i),       v_i <- v_i + 2 alpha rho sum_j (x_j - x_i)

so two vectors per node replace those of all links, and only x is sent: both nodes of a link know what the other
subtracts. v adds up differences, which lose nothing near consensus. Other methods with a variable for every link share
this.

The formulas agree with those of the package decent-bench, by the first author, which starts from z_ij = 0 and computes
proximal operators as exactly as it can. The paper's lost messages, where a link keeps its z_ij, are left out.

Missing neighbours: refused, because both nodes of a link must know what the other one has received.

Axes: m nodes, n parameters.
"""

from typing import Annotated, Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, Channel
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Bound, Count, Positive, Provenance
from jdfl.network import adding

Relaxation = Annotated[float | Array, Bound("(0, 1)")]


class OverLinks(Algorithm):
    """The common part of methods with a variable for every link: the links must stay the same, and W is not used."""

    needs: ClassVar[dict[str, bool]] = {"fixed": True, "undirected": True}
    mixes: ClassVar[bool] = False


class LinkSums(NamedTuple):
    """Sums over a node's neighbours j of the variables of its links."""

    both: Array  # [m, n] u_i, the sum of z_ij + z_ji
    difference: Array  # [m, n] v_i, the sum of z_ij - z_ji

    @property
    def own(self) -> Array:
        """The sum s_i [m, n] of the z_ij."""
        return (self.both + self.difference) / 2


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
        return State(x, consensus(x, self.penalty, round))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, z = state
        x = minimised(self, x, self.penalty * degree(x, round), z.own, round)
        return State(x, exchanged(z, x, self.penalty, self.relaxation, round))


def consensus(x: Array, penalty: Any, round: Round) -> LinkSums:
    """The sums for z_ij = penalty x_j, if all rows of x [m, n] are the same: these z_ij keep x where it is."""
    return LinkSums(2 * penalty * degree(x, round) * x, jnp.zeros_like(x))


def exchanged(z: LinkSums, x: Array, penalty: Any, relaxation: Any, round: Round, channel: Channel = MODEL) -> LinkSums:
    """The sums after all nodes have sent their x [m, n] and updated the variables of their links."""
    apart = differences(x, round, channel)
    step = 2 * relaxation * penalty
    both = (1 - 2 * relaxation) * z.both + step * (apart + 2 * degree(x, round) * x)
    return LinkSums(both, z.difference + step * apart)


def differences(x: Array, round: Round, channel: Channel = MODEL) -> Array:
    """sum_j (x_j - x_i) [m, n] over the neighbours j, after all nodes have sent their x [m, n]."""
    return round.on(adding(round.graph)).pull(x, channel)


def degree(x: Array, round: Round) -> Array:
    """The number of neighbours of every node [m, 1], in the type of x."""
    return round.graph.in_degree.astype(x.dtype)[:, None]


def minimised(algorithm: Any, x: Array, weight: Array, slope: Array, round: Round) -> Array:
    """Nearly the minimiser w_i [m, n] of f_i(w) + weight_i ||w||^2 / 2 - <slope_i, w>, by proximal gradient steps.

    `inner` steps from x [m, n] with step size `lr` make f_i linear and keep the quadratic term, so that lr < 2 / L
    suffices whatever the weight is, L being the curvature of f_i. Each costs a gradient.
    """

    def step(here: Round, w: Array) -> Array:
        return (w - algorithm.lr * (algorithm.gradients(w, here) - slope)) / (1 + algorithm.lr * weight)

    return round.repeat(algorithm.inner, step, x)
