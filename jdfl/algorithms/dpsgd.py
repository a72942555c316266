"""D-PSGD: decentralized parallel stochastic gradient descent.

X. Lian, C. Zhang, H. Zhang, C.-J. Hsieh, W. Zhang, J. Liu: Can Decentralized Algorithms Outperform Centralized
Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient Descent, 2017 (Algorithm 1).

    k = 0, T, 2T, ...:  x_i <- sum_j W_ij x_j - lr g_i(x_i)
    otherwise:          x_i <- x_i - lr g_i(x_i)

T = `period` is 1 in the paper. Two forms that the CEPS paper compares with are this class on other networks:
D-PSGD-DN on one that is drawn anew (`network.erdos_renyi_rounds`), D-PSGD-PC on `network.partial_communication`.
`order="adapt first"` steps before it mixes, x_i <- sum_j W_ij (x_j - lr g_j(x_j)): adapt-then-combine.

W may be any matrix whose rows sum to one. Where its columns do too, the average of the nodes moves by lr times the
average gradient, and by nothing else.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody takes its step alone. Of late messages (`network.delays`) it takes the newest.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.algorithms import descent
from jdfl.algorithms.exchange import CODEC, check_codec, exchange_every, exchange_late, heard, refuse_late
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.updates import Updates, check_updates, guarantee, noisy_releases
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense
from jdfl.network import Network, Past
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Count, Positive


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters
    optimizer: Any  # the optimizer's, leaves [m, ...]
    past: Past | None = None  # what all have sent, where messages are late


@struct.dataclass
class DPSGD:
    """Decentralized SGD: mix with the neighbours, step down the own gradient.

    D-PSGD with any gradients, optimizer and codec.

    A codec that loses something makes it inexact: the nodes mix their own x with what arrives of the others'.
    Raises ValueError (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "d-psgd"
    lr: Positive = 0.1
    """Length of the steps."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    updates: Updates | None = None
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients."""
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    """An optax optimizer, or a function that makes one of `lr`; None: plain gradient steps."""
    codec: Codec = Dense()
    """What travels on a wire."""
    period: Count = struct.field(pytree_node=False, default=1)
    """Rounds from one exchange of messages to the next."""
    order: Literal["mix first", "adapt first"] = struct.field(pytree_node=False, default="mix first")
    """Mix and step from where the node was, or step and mix what comes out."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)
    late: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        descent.check_optimizer(self.optimizer)
        self.gradients.check(problem)
        check_updates(self.updates, self.gradients)
        if self.period > 1:
            refuse_late("D-PSGD", network, f"period = 1, got period = {self.period}")
        check_codec("D-PSGD", self.codec, problem.n, problem.m, problem.n, direct=True)

    def prepare(self, problem: Problem, round: Round) -> "DPSGD":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start where the problem says."""
        x = problem.begin()
        return State(x, descent.begin(self.optimizer, self.lr, x), Past.begin(round.graph, x)), counts(
            problem.m, {"model": 0}
        )

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        x, talks = state.x, round.k % self.period == 0
        g = self.gradients(x, problem, round, communicating=talks)
        move, optimizer = descent.update(self.optimizer, self.lr, g, state.optimizer, x)
        move = move if self.updates is None else self.updates(move, round)
        if self.order == "mix first":
            mixed, past = self._exchange(x, state.past, round)
            x = mixed + move
        else:
            x, past = self._exchange(x + move, state.past, round)

        once = talks.astype(jnp.int32)
        done = counts(
            round.m,
            {"model": once * round.graph.out_degree},
            grads=1,
            releases=noisy_releases(self.updates, self.gradients.releases(1, once)),
            communications=once * heard(round.graph),
        )
        return State(x, optimizer, past), done

    def _exchange(self, x: Array, past: Past | None, round: Round) -> tuple[Array, Past | None]:
        if past is None:
            return exchange_every(self.period, self.codec, x, round), None
        return exchange_late(self.codec, x, round, past)

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
        """That of the gradients or updates: everything else is computed from them and from messages."""
        return guarantee(self.updates, self.gradients, problem)
