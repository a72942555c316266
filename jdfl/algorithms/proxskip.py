"""ProxSkip: gradient steps at every node, and messages only in rounds that a common coin chooses.

K. Mishchenko, G. Malinovsky, S. Stich, P. Richtarik: ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication
Acceleration! Finally!, 2022 (decentralized Scaffnew).

    z_i <- x_i - lr g_i(x_i) - y_i
    with probability p, for all nodes:   x_i <- sum_j Wb_ij z_j,   y_i <- y_i + beta (z_i - x_i)
    otherwise:                           x_i <- z_i

with Wb = I - gamma (I - W), from y_i = 0, and one coin for all nodes. The paper has the control variates h_i = -y_i /
lr, beta = p, and lr tau / p for gamma. The y_i sum to zero, so nodes stay in consensus at a point with zero average
gradient: the method is exact for every p. With p = 1 and gamma = 1/2 it is exact diffusion. The package decent-bench
has the same update, with gamma = 1 / (2 chi) and a beta of its own.

Missing neighbours: refused, because corrections add up only if W stays the same.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Fraction, Provenance, StepSize
from jdfl.base.streams import Stream

COIN = Stream("proxskip.coin", "choice")


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    y: Array  # [m, n] control variates, times -lr


@struct.dataclass
class ProxSkip(Algorithm):
    """ProxSkip: decentralized Scaffnew, whose nodes exchange messages with probability p; exact.

    It takes any gradients. Raises ValueError (from `check`) for settings out of range and for networks that are not
    fixed and undirected with symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "proxskip"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    p: Fraction = 0.5
    """Probability that a round has an exchange of messages, the same coin for all nodes."""
    gamma: Fraction = 0.5
    """Part of the mixing step that is taken: 1 mixes with W, 1/2 with (I + W) / 2."""
    beta: Fraction | None = None
    """Step size of the control variates; None: p."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "ProxSkip"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC

    def init(self, round: Round) -> State:
        """Start from the problem's initial parameters."""
        x = round.problem.begin()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, y = state
        coin = jax.random.bernoulli(round.moment.stream(COIN), jnp.asarray(self.p, jnp.float32))
        round = replace(round, exchanging=coin)
        z = x - self.lr * self.gradients(x, round) - y
        pulled = jnp.where(coin, self.gamma * round.pull(z), 0)  # (Wb - I) z
        return State(z + pulled, y - (self.p if self.beta is None else self.beta) * pulled)
