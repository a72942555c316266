"""MATCHA: decentralized SGD over random matchings of a base graph.

J. Wang, A. K. Sahu, Z. Yang, G. Joshi, S. Kar: MATCHA: Speeding Up Decentralized SGD via Matching Decomposition
Sampling, 2019.

    y_i = x_i after K steps  x <- x - lr g_i(x)
    x_i <- sum_j W_ij^k y_j,   W^k = I - alpha sum_j B_j^k L_j,   B_j^k ~ Bernoulli(p_j)

The matchings with Laplacians L_j, the probabilities p_j and alpha are the network's: `network.matcha(base, budget)`
optimises them. On a fixed network W this is D-PSGD that adapts first, as budget = 1 is. The paper has K = 1.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody keeps its y.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar

from jax import Array

from jdfl import struct
from jdfl.algorithms import descent
from jdfl.algorithms.exchange import CODEC, check_codec, exchange, heard
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense
from jdfl.network.graph import Network
from jdfl.network.requirements import require
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Count, Positive


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters
    optimizer: Any  # the optimizer's, leaves [m, ...]


@struct.dataclass
class MATCHA:
    """Decentralized SGD over random matchings; use it with --network matcha.

    MATCHA, on a network of matchings. Raises ValueError (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "matcha"
    lr: Positive = 0.1
    """Length of the steps."""
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    """An optax optimizer, or a function that makes one of `lr`; None: plain gradient steps."""
    codec: Codec = Dense()
    """What travels on a wire."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, and networks whose W is not doubly stochastic."""
        descent.check_optimizer(self.optimizer)
        self.gradients.check(problem)
        check_codec("MATCHA", self.codec, problem.n, problem.m, problem.n, direct=True)
        require(network, "MATCHA", doubly_stochastic=True)

    def prepare(self, problem: Problem, round: Round) -> "MATCHA":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start where the problem says."""
        x = problem.begin()
        return State(x, descent.begin(self.optimizer, self.lr, x)), counts(problem.m, {"model": 0})

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        y, optimizer = descent.local_steps(
            self.local_steps, self.gradients, self.optimizer, self.lr, state.x, state.optimizer, problem, round
        )
        x = exchange(self.codec, y, round)
        return State(x, optimizer), counts(
            round.m,
            {"model": round.graph.out_degree},
            grads=self.local_steps,
            releases=self.gradients.releases(self.local_steps, 1),
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
