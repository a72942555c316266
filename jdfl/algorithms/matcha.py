"""MATCHA: decentralized SGD over random matchings of a base graph.

J. Wang, A. K. Sahu, Z. Yang, G. Joshi, S. Kar: MATCHA: Speeding Up Decentralized SGD via Matching Decomposition
Sampling, 2019.

    y_i = x_i after K steps  x <- x - lr g_i(x)
    x_i <- sum_j W_ij^k y_j,   W^k = I - alpha sum_j B_j^k L_j,   B_j^k ~ Bernoulli(p_j)

The matchings with Laplacians L_j, the probabilities p_j and alpha belong to the network: `network.matcha(base, budget)`
optimises them. On a fixed network W, including budget = 1, this is D-PSGD in adapt-then-combine form. The paper has K =
1.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing keeps its y.
"""

from typing import Any, ClassVar, NamedTuple

from jax import Array

from jdfl.algorithms import descent
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize
from jdfl.codecs import Codec, Dense


class State(NamedTuple):
    x: Array  # [m, n] parameters
    optimizer: Any  # state of the optimizer, leaves [m, ...]


@struct.dataclass
class MATCHA(Algorithm):
    """MATCHA: decentralized SGD over random matchings of a base graph; use it with --network matcha."""

    kind: ClassVar[str] = "matcha"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    codec: Codec = Dense()
    title: ClassVar[str] = "MATCHA"
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, descent.begin(self.optimizer, self.lr, x))

    def step(self, state: State, round: Round) -> State:
        y, optimizer = descent.local_steps(self, *state, round)
        return State(round.mix(y), optimizer)
