"""BEER: gradient tracking that sends compressed differences to public copies of parameters and trackers.

H. Zhao, B. Li, Z. Li, P. Richtarik, Y. Chi: BEER: Fast O(1/T) Rate for Decentralized Nonconvex Optimization with
Communication Compression, 2022 (Algorithm 1).

    v_i <- v_i + gamma sum_j W_ij (vhat_j - vhat_i) + g_i(x_i) - g_i,      vhat_i <- vhat_i + C(v_i - vhat_i)
    x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i) - lr v_i,              xhat_i <- xhat_i + C(x_i - xhat_i)

with g_i <- g_i(x_i) afterwards, from xhat_i = x_i and v_i = vhat_i = g_i = 0; C(...) is sent. Copies are mixed before
they move. The average of the v_i is that of the g_i in every round, whatever C loses, and all errors vanish together
with the differences: with gradients of all examples the method is exact for every C with a contraction factor.

The paper prints the x of a round before its v, from v = g(x), and never sends this first v: its vhat begins one message
behind. Sent as well, the method is gradient tracking (`jdfl.DIGing`) with exact messages and gamma = 1, and it is
`jdfl.CPGT` without noise for every C. The start is from memory and from the authors' code.

Missing neighbours: refused, because every message builds on all earlier ones.

Axes: m nodes, n parameters.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, TRACKER, Channel
from jdfl.algorithms.codes import Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_sizes import FIXED_SYMMETRIC
from jdfl.base import struct
from jdfl.base.settings import Fraction, StepSize
from jdfl.codecs import Codec, Dense


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
    lr: StepSize = 0.05
    gamma: Fraction = 0.5
    """Step size towards the neighbours' public copies, in (0, 1]."""
    gradients: Gradients = Gradients()
    codec: Codec = Dense()
    title: ClassVar[str] = "BEER"
    exact: ClassVar[bool] = True
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    def init(self, round: Round) -> State:
        """Start from x = xhat = the initial parameters, which all neighbours know, and v = vhat = g = 0."""
        x, zero = round.problem.begin(), jnp.zeros_like(round.problem.begin())
        return State(x, zero, zero, x, zero)

    def step(self, state: State, round: Round) -> State:
        """One round."""
        return tracked(self, state, self.gradients(state.x, round), round)

    def visible(self, state: State) -> Array:
        """What others have seen [m, 2 n]: the public copies of x and v."""
        return jnp.concatenate([state.x_hat, state.v_hat], axis=1)


def tracked(algorithm: Any, state: State, g: Array, round: Round) -> State:
    """One round of BEER, or of a method that tracks other estimates g [m, n] of the gradients at x."""
    x, v, last, x_hat, v_hat = state
    v = v + algorithm.gamma * round.pull(v_hat, None) + (g - last)
    v_hat = round.publish(v, v_hat, TRACKER)
    x = x + algorithm.gamma * round.pull(x_hat, None) - algorithm.lr * v
    return State(x, v, g, round.publish(x, x_hat), v_hat)
