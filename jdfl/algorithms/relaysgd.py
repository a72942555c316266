"""RelaySGD: nodes of a tree relay sums of parameters, so that every node's reach all others unchanged.

T. Vogels, L. He, A. Koloskova, T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi: RelaySum for Decentralized Deep
Learning on Heterogeneous Data, 2021 (Algorithm 1).

    h_i     = x_i - lr g_i(x_i)
    m_i->j <- h_i + sum_k m_k->i,     c_i->j <- 1 + sum_k c_k->i,     over all neighbours k but j, of the last round
    x_i    <- (h_i + sum_j m_j->i) / (1 + sum_j c_j->i)

The run starts from m = c = 0. The c count the nodes that contribute. In the end all do, with older parameters. Nodes
stay in consensus at a point with zero average gradient: the method is exact. Messages use a breadth-first spanning tree
from node 0, in which a node's parent has the smallest id of its neighbours nearest to node 0. A network that is a tree,
such as `jdfl.network.star`, is its own spanning tree. The messages of a link are kept at the child. All messages of a
node to its children follow from the sum of h_i and all messages that it received, less the child's own.

The authors' code can also divide by m, with initial parameters for nodes that do not contribute yet; this is left out.

Missing neighbours: refused, because messages contain earlier ones.
"""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, Round, RoundContext
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.network.links import branches, parents
from jdfl.problems import Problem


class State(NamedTuple):
    """What a round passes to the next; the last column of a message is its count."""

    x: Array  # [m, n] parameters
    up: Array  # [m, n + 1] last message to the parent
    down: Array  # [m, n + 1] last message from the parent


@struct.dataclass
class RelaySGD(Algorithm):
    """RelaySGD: decentralized SGD over a spanning tree, whose nodes relay sums; exact with a constant step size.

    It takes any gradients. Raises ValueError (from `check`) for networks that are not fixed, undirected and connected.
    """

    kind: ClassVar[str] = "relaysgd"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = 0.05
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "RelaySGD"
    exact: ClassVar[bool] = True
    needs: ClassVar[dict[str, bool]] = {"fixed": True, "undirected": True, "connected": True}
    mixes: ClassVar[bool] = False

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """Those of n + 1 numbers: a sum of parameters and its count."""
        return {"model": codec.bits(problem.n, problem.n) * (problem.n + 1) // problem.n}

    def prepare(self, problem: Problem, context: RoundContext, plan: Any) -> Array:
        """The ids [m] of the nodes' parents; -1 for the root, which is node 0."""
        return parents(context.graph, context.node)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        nothing = jnp.zeros((x.shape[0], x.shape[1] + 1), x.dtype)
        return State(x, nothing, nothing)

    def step(self, state: State, round: Round) -> State:
        (x, up, down), parent = state, round.ready
        to_children, to_parents = (round.on(graph) for graph in branches(round.graph, round.node, parent))
        h = jnp.pad(x - self.lr * self.gradients(x, round), ((0, 0), (0, 1)), constant_values=1)
        below = round.with_lies(MODEL, round.leaving(MODEL, h + to_parents.mix(up, None)))
        down = jnp.where(parent[:, None] < 0, 0, to_children.mix(below + down) - up)
        total = h + down + to_parents.mix(below, None)
        return State(total[:, :-1] / total[:, -1:], below, down)
