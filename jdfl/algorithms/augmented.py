"""What the methods of multipliers share: sums of the links' variables, and minimising with a quadratic term.

In relaxed ADMM over a network every node i has a variable z_ij [n] for each neighbour j, which is updated with x_j:

    z_ij <- (1 - alpha) z_ij - alpha (z_ji - 2 rho x_j)

Only s_i = sum_j z_ij is used elsewhere. With r_i = sum_j z_ji and d_i neighbours, u = s + r and v = s - r satisfy

    u_i <- (1 - 2 alpha) u_i + 2 alpha rho sum_j (x_j + x_i),       v_i <- v_i + 2 alpha rho sum_j (x_j - x_i)

so two vectors per node replace those of all links, and only x is sent: both nodes of a link know what the other
subtracts. v adds up differences, which lose nothing near consensus.

Axes: m nodes, n parameters.
"""

from typing import Annotated, Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, Channel
from jdfl.algorithms.round import Round
from jdfl.base.settings import Bound
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
