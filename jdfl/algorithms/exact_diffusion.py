"""Exact diffusion: adapt, correct, combine.

K. Yuan, B. Ying, X. Zhao, A. H. Sayed: Exact Diffusion for Distributed Optimization and Learning - Part I: Algorithm
Development, 2019.

    psi_k = x_{k-1} - lr g(x_{k-1})
    phi_k = psi_k + x_{k-1} - psi_{k-1},     psi_0 = x_0
    x_k   = Wb phi_k,     Wb = (I + W) / 2

What runs keeps c = x_{k-1} - psi_{k-1}, which is the sum of (Wb - I) phi over the rounds so far: x_k - psi_k = phi_k -
psi_k + (Wb - I) phi_k. As the printed difference it would add up its rounding (see `differences`). The c_i sum to zero,
so that nodes that agree and stand still do so where the average gradient is zero.

The paper has left-stochastic W and step lengths by node as well; this is its symmetric doubly stochastic case, in which
x follows the recursion of NIDS (`nids`), whose bounds of the steps hold: lr < 2 / L is sufficient and `check` warns
beyond it; lr > (3 + 1 / lambda_min(Wb)) / (2 L) diverges on least squares and is refused. What the paper itself proves
of the steps was not checked.

Missing neighbours: refused, since corrections of W phi add up only if W stays.

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
    c: Array  # [m, n] x - psi of the last round


@struct.dataclass
class ExactDiffusion:
    """Exact: adapt, correct, combine.

    Exact diffusion with any gradients and codec; exact with gradients of all examples and messages as they are.

    A codec that loses something keeps the sum of c at zero, and ends about its own error away from the solution.
    Raises ValueError (from `check`) for settings out of range, networks that change or are not symmetric, and steps
    that diverge.
    """

    kind: ClassVar[str] = "exact-diffusion"
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
        check_codec("exact diffusion", self.codec, problem.n, problem.m, problem.n, direct=True)
        check_network(network, "exact diffusion")
        check_step("exact diffusion", self.lr, self.gradients, problem, network)

    def prepare(self, problem: Problem, round: Round) -> "ExactDiffusion":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start from x = psi where the problem says."""
        x = problem.begin()
        return State(x, jnp.zeros_like(x)), counts(problem.m, {"model": 0})

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        x, c = state.x, state.c
        psi = x - self.lr * self.gradients(x, problem, round)
        phi = psi + c
        pulled = pull(self.codec, phi, round) / 2  # (Wb - I) phi
        x, c = phi + pulled, c + pulled

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
