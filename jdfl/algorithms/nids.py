"""NIDS: a network-independent step length.

Z. Li, W. Shi, M. Yan: A Decentralized Proximal-Gradient Method With Network Independent Step-Sizes and Separated
Convergence Rates, 2019, without its proximal part and with one step length for all nodes.

    x^1     = x^0 - lr g(x^0)
    x^{k+1} = Wt (2 x^k - x^{k-1} - lr g(x^k) + lr g(x^{k-1})),     Wt = (I + W) / 2

The paper has Wt = I - c Lambda (I - W) with the nodes' step lengths on the diagonal of Lambda; this is its c = 1 / (2
lr). With z^k for the bracket and c^k = x^k - (x^{k-1} - lr g(x^{k-1})), what runs is

    z^k = x^k - lr g(x^k) + c^k,     x^{k+1} = Wt z^k,     c^1 = 0,     c^{k+1} = c^k + (Wt - I) z^k

which is the same but for rounding, which the first form adds up (see `differences`). It is exact diffusion after one
step without communication; x^1 is the start, so that round k makes x^{k+2}.

Steps: the paper proves convergence for lr < 2 / L, L the largest curvature of an f_i; that is sufficient, and `check`
warns beyond it. With quadratic f_i = w' H_i w / 2 a mode z^k of the recursion has det(z^2 Wt^-1 - (2 z - 1) I + lr (z -
1) H) = 0; at z = -1 this matrix is Wt^-1 + 3 I - 2 lr H, and if it is not positive semidefinite there is a real z < -1.
It is not for lr > (3 + 1 / lambda_min(Wt)) / (2 L): NIDS diverges, and `check` refuses it.

Missing neighbours: refused, since corrections of W z add up only if W stays.

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
    c: Array  # [m, n] what mixing has added over the rounds so far


@struct.dataclass
class NIDS:
    """Exact, with steps whose length does not depend on the network.

    NIDS with any gradients and codec; exact with gradients of all examples and messages that arrive as they are.

    A codec that loses something keeps the sum of c at zero, and ends about its own error away from the solution.
    Raises ValueError (from `check`) for settings out of range, networks that change or are not symmetric, and steps
    that diverge.
    """

    kind: ClassVar[str] = "nids"
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
        check_codec("NIDS", self.codec, problem.n, problem.m, problem.n, direct=True)
        check_network(network, "NIDS")
        check_step("NIDS", self.lr, self.gradients, problem, network)

    def prepare(self, problem: Problem, round: Round) -> "NIDS":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start from x^1 = x^0 - lr g(x^0), x^0 being where the problem starts; it costs a gradient."""
        x = problem.begin()
        x = x - self.lr * self.gradients(x, problem, round)
        spent = counts(problem.m, {"model": 0}, grads=1, releases=self.gradients.releases(1, 1))
        return State(x, jnp.zeros_like(x)), spent

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        x, c = state.x, state.c
        z = x - self.lr * self.gradients(x, problem, round) + c
        pulled = pull(self.codec, z, round) / 2  # (Wt - I) z
        x, c = z + pulled, c + pulled

        return State(x, c), counts(
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
