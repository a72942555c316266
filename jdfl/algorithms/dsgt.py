"""DSGT: distributed stochastic gradient tracking, also with differential privacy.

S. Pu, A. Nedic: Distributed stochastic gradient tracking methods, 2021.
DP-DSGT: J. Bayrooti, Z. Gao, A. Prorok: Differentially Private Decentralized Deep Learning with Consensus Algorithms,
2023: the same with gradients that are clipped per example and noisy, `Gradients(clip=..., mechanism=...)`.

    x_i <- sum_j W_ij (x_j - lr y_j)
    y_i <- sum_j W_ij y_j + g_i(x_i) - g_i,     g_i <- g_i(x_i)

from x_i = 0 and y_i = g_i = g_i(0). W is doubly stochastic, so that the average of the y_i is that of the g_i in
every round, also when W changes from round to round: y_i follows the average gradient.

A gradient is evaluated, and released where it is noisy, once at the start and once in every round; x and y are computed
from these releases and from messages. The second paper's code starts from y = g = 0 instead, which is this start one
round later.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody follows its own gradient. W must stay doubly stochastic, so that both ways of a link are missing together.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.algorithms.differences import pull
from jdfl.algorithms.exchange import CODEC, TRACKER, check_codec, heard
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense
from jdfl.network.graph import Network
from jdfl.network.requirements import require
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Positive


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters
    y: Array  # [m, n] trackers of the average gradient
    g: Array  # [m, n] last gradients


@struct.dataclass
class DSGT:
    """Gradient tracking; clipped and noisy it is DP-DSGT.

    Gradient tracking with any gradients and codec.

    W z is taken as z_i + sum_j W_ij (C(z_j) - C(z_i)), so that y keeps its average with a codec C that loses something.
    Raises ValueError (from `check`) for settings out of range and for networks whose W is not doubly stochastic.
    """

    kind: ClassVar[str] = "dsgt"
    lr: Positive = 0.1
    """Length of the steps."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    codec: Codec = Dense()
    """What travels on a wire."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, and networks whose W is not doubly stochastic."""
        self.gradients.check(problem)
        check_codec("DSGT", self.codec, problem.n, problem.m, problem.n, direct=True)
        require(network, "DSGT", doubly_stochastic=True)

    def prepare(self, problem: Problem, round: Round) -> "DSGT":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start from x where the problem says and y = g(x)."""
        x = problem.begin()
        g = self.gradients(x, problem, round)
        none = {"model": 0, "tracker": 0}
        return State(x, g, g), counts(problem.m, none, grads=1, releases=self.gradients.releases(1, 1))

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        moved, y = state.x - self.lr * state.y, state.y
        x = moved + pull(self.codec, moved, round)
        g = self.gradients(x, problem, round)
        y = y + pull(self.codec, y, round, TRACKER) + (g - state.g)

        messages = round.graph.out_degree
        return State(x, y, g), counts(
            round.m,
            {"model": messages, "tracker": messages},
            grads=1,
            releases=self.gradients.releases(1, 1),
            communications=heard(round.graph),
        )

    def params(self, state: State) -> Array:
        """The parameters x [m, n]."""
        return state.x

    def visible(self, state: State) -> Array:
        """Both x and y [m, 2 n], as both are sent."""
        return jnp.concatenate([state.x, state.y], axis=1)

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """Two channels, the codec's size each."""
        bits = self.codec.bits(problem.n)
        return {"model": bits, "tracker": bits}

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the gradients: everything else is computed from them and from messages."""
        return self.gradients.guarantee(problem)
