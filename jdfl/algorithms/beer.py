"""BEER: gradient tracking that sends compressed differences to public copies of parameters and trackers.

H. Zhao, B. Li, Z. Li, P. Richtarik, Y. Chi: BEER: Fast O(1/T) Rate for Decentralized Nonconvex Optimization with
Communication Compression, 2022 (Algorithm 1).

    x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i) - lr v_i,              xhat_i <- xhat_i + C(x_i - xhat_i)
    v_i <- v_i + gamma sum_j W_ij (vhat_j - vhat_i) + g_i(x_i) - g_i,      vhat_i <- vhat_i + C(v_i - vhat_i)

with g_i <- g_i(x_i) afterwards; C(...) is sent. Copies are mixed before they move. The average of the v_i is that of
the g_i in every round, whatever C loses, and all errors vanish together with the differences: with gradients of all
examples the method is exact for every C with a contraction factor.

The run starts as in the paper and in the authors' code: v_i = g_i = g_i(x_i), which is not sent, so vhat_i = 0. Their
xhat_i begins at 0, too, and here at x_i, which all neighbours know. With `start="zero"` v_i = g_i = 0, and the second
line comes before the first, so that the first v is sent as well: then the method is gradient tracking (`jdfl.DIGing`)
with exact messages and gamma = 1, and it is `jdfl.CPGT` without noise for every C.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters.
"""

from typing import ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes
from jdfl.algorithms.book import MODEL, TRACKER, Channel
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, Provenance, StepSize
from jdfl.codecs import Codec, Sparse


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    v: Array  # [m, n] trackers of the average of g
    g: Array  # [m, n] last gradients, or what stands for them
    x_hat: Array  # [m, n] public copies of x, the same at the node and at all its neighbours
    v_hat: Array  # [m, n] public copies of v


@struct.dataclass
class BEER(Algorithm):
    """BEER: compressed gradient tracking; exact with a constant step size whatever the messages lose.

    It takes any gradients, and any codec with a contraction factor; lossy ones need a small gamma. Raises ValueError
    (from `check`) for settings out of range, other codecs, and a network that is not fixed and undirected with
    symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "beer"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = 0.05
    gamma: Fraction = 0.5
    """Step size towards the neighbours' public copies, in (0, 1]."""
    gradients: Gradients = Gradients()
    codec: Codec = Sparse(share=0.3)
    start: Literal["gradient", "zero"] = struct.field(pytree_node=False, default="gradient")
    """Begin with the gradients as trackers, unsent (paper, authors' code), or with zero and send the first trackers."""
    title: ClassVar[str] = "BEER"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        """Start from x = xhat = the initial parameters, which all neighbours know, vhat = 0, and v = g = g(x) or 0."""
        x, zero = round.problem.begin(), jnp.zeros_like(round.problem.begin())
        g = zero if self.start == "zero" else self.estimate(x, None, round)
        return State(x, g, g, x, zero)

    def estimate(self, x: Array, last: Array | None, round: Round) -> Array:
        """Return what is tracked at x [m, n]: the gradients; `last` [m, n] is what was tracked before, if anything."""
        return self.gradients(x, round)

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, v, g, x_hat, v_hat = state

        def moved() -> tuple[Array, Array]:
            new = x + self.gamma * round.pull(x_hat, None) - self.lr * v
            return new, round.publish(new, x_hat)

        if self.start == "gradient":
            x, x_hat = moved()
        new = self.estimate(x, g, round)
        v = v + self.gamma * round.pull(v_hat, None) + (new - g)
        v_hat = round.publish(v, v_hat, TRACKER)
        if self.start == "zero":
            x, x_hat = moved()
        return State(x, v, new, x_hat, v_hat)

    def visible(self, state: State) -> Array:
        """What others have seen [m, 2 n]: the public copies of x and v."""
        return jnp.concatenate([state.x_hat, state.v_hat], axis=1)
