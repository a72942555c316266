"""EXTRA: an exact first-order algorithm.

W. Shi, Q. Ling, G. Wu, W. Yin: EXTRA: An Exact First-Order Algorithm for Decentralized Consensus Optimization, 2015.

    x^1     = W x^0 - lr g(x^0)
    x^{k+2} = (I + W) x^{k+1} - Wt x^k - lr (g(x^{k+1}) - g(x^k)),     Wt = (I + W) / 2

Summed over the rounds, as the paper does too, this is D-PSGD with a correction,

    x^{k+1} = W x^k - lr g(x^k) + s^k,     s^0 = 0,     s^{k+1} = s^k + (W - Wt) x^k,     W - Wt = (W - I) / 2

which is what runs: the two forms are equal but for rounding, which the first one adds up (see `differences`). The s_i
sum to zero, so that nodes that agree and stand still do so where the average gradient is zero.

Steps: the paper proves convergence for lr < 2 lambda_min(Wt) / L = (1 + lambda_min(W)) / L, L the largest curvature of
an f_i; that is sufficient, and `check` warns beyond it. With quadratic f_i = w' H_i w / 2 a mode z^k of the recursion
has det(z^2 I - z (I + W - lr H) + Wt - lr H) = 0; at z = -1 this matrix is (5 I + 3 W) / 2 - 2 lr H, and if it is not
positive semidefinite there is a real z < -1. Its entries of node i alone give lr > (5 + 3 W_ii) / (4 L_i): EXTRA
diverges, and `check` refuses it.

Missing neighbours: refused, since corrections of W x add up only if W stays.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.algorithms.differences import check_network, check_step, pull
from jdfl.algorithms.exchange import CODEC, check_codec, heard
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense
from jdfl.network.graph import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Positive


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters
    s: Array  # [m, n] sum of (W - Wt) x over the rounds so far


@struct.dataclass
class EXTRA:
    """Exact first-order algorithm: the optimum itself with constant steps.

    EXTRA with any gradients and codec; exact with gradients of all examples and messages that arrive as they are.

    A codec that loses something keeps the sum of s at zero, and ends about its own error away from the solution.
    Raises ValueError (from `check`) for settings out of range, networks that change or are not symmetric, and steps
    that diverge.
    """

    kind: ClassVar[str] = "extra"
    lr: Positive = 0.1
    """Length of the steps."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    codec: Codec = Dense()
    """What travels on a wire."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, networks that do not fit, and steps that diverge; warn of long steps."""
        self.gradients.check(problem)
        check_codec("EXTRA", self.codec, problem.n, problem.m, problem.n, direct=True)
        check_network(network, "EXTRA")
        check_step("EXTRA", self.lr, self.gradients, problem, network)

    def prepare(self, problem: Problem, round: Round) -> "EXTRA":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start where the problem says."""
        x = problem.begin()
        return State(x, jnp.zeros_like(x)), counts(problem.m, {"model": 0})

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        x, s = state.x, state.s
        pulled = pull(self.codec, x, round)  # (W - I) x
        g = self.gradients(x, problem, round)
        x, s = x + pulled - self.lr * g + s, s + pulled / 2

        return State(x, s), counts(
            round.m,
            {"model": round.graph.out_degree},
            grads=1,
            releases=self.gradients.releases(1, 1),
            communications=heard(round.graph),
        )

    def params(self, state: State) -> Array:
        """The parameters x [m, n]."""
        return state.x

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """One channel, the codec's size."""
        return {"model": self.codec.bits(problem.n)}

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the gradients: everything else is computed from them and from messages."""
        return self.gradients.guarantee(problem)
