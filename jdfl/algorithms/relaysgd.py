"""RelaySGD: nodes of a tree relay sums of parameters, so that every node's reach all others unchanged.

T. Vogels, L. He, A. Koloskova, T. Lin, S. P. Karimireddy, S. U. Stich, M. Jaggi: RelaySum for Decentralized Deep
Learning on Heterogeneous Data, 2021 (Algorithm 1).

    h_i     = x_i - lr g_i(x_i)
    m_i->j <- h_i + sum_k m_k->i,     c_i->j <- 1 + sum_k c_k->i,     over all neighbours k but j, of the last round
    x_i    <- (h_i + sum_j m_j->i) / (1 + sum_j c_j->i)

from m = c = 0. The c count the nodes whose parameters a message contains, until all nodes contribute to every x_i, each
from as many rounds ago as its message needs. Nodes stay in consensus at a point with zero average gradient: the method
is exact.

Messages use the links of a tree: of a breadth-first spanning tree from node 0, in which a node's parent is the one with
the smallest id among its neighbours that are nearest to node 0. A network that is a tree, such as `jdfl.network.star`,
is its own. W does not matter. The messages of a link are kept at the child: the last ones to and from its parent. All
messages of a node to its children follow from the sum of h_i and all messages that it has received, less the child's.

The update is from memory of the paper. The authors' code can also divide by m, and use initial parameters for nodes
that do not contribute yet; that form is left out.

Missing neighbours: refused, because messages contain earlier ones.

Axes: m nodes, d slots, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import StepSize
from jdfl.devices import nodes
from jdfl.problems import Problem


class State(NamedTuple):
    """What a round passes to the next; the last column of a message is its count."""

    x: Array  # [m, n] parameters
    up: Array  # [m, n + 1] last message to the parent
    down: Array  # [m, n + 1] last message from the parent


@struct.dataclass
class RelaySGD(Algorithm):
    """RelaySGD: decentralized SGD over a spanning tree, whose nodes relay sums; exact with a constant step size.

    It takes any gradients. Raises ValueError (from `check`) for settings out of range and for networks that are not
    fixed, undirected and connected.
    """

    kind: ClassVar[str] = "relaysgd"
    lr: StepSize = 0.05
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "RelaySGD"
    needs: ClassVar[dict[str, bool]] = {"fixed": True, "undirected": True, "connected": True}
    mixes: ClassVar[bool] = False

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """Those of n + 1 numbers: a sum of parameters and its count."""
        return {"model": codec.bits(problem.n, problem.n) * (problem.n + 1) // problem.n}

    def prepare(self, problem: Problem, moment: Moment, plan: Any) -> Array:
        """The ids [m] of the nodes' parents; -1 for the root, which is node 0."""
        graph, most = moment.graph, nodes.count(moment.m)

        def nearer(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            near = jnp.where(graph.mask, graph.gathered(carry[0])[graph.senders] + 1, most)
            new = jnp.minimum(carry[0], near.min(axis=1, initial=most))
            return new, nodes.total((new != carry[0]).astype(jnp.int32)) > 0

        start = jnp.where(moment.node == 0, 0, most).astype(jnp.int32)
        distance, _ = lax.while_loop(lambda carry: carry[1], nearer, (start, jnp.bool_(True)))
        before = graph.mask & (graph.gathered(distance)[graph.senders] == distance[:, None] - 1)
        ids = jnp.where(before, graph.gathered(moment.node)[graph.senders], most)
        return jnp.where(moment.node == 0, -1, ids.min(axis=1, initial=most))

    def init(self, round: Round) -> State:
        """Start from the problem's initial parameters, before any message."""
        x = round.problem.begin()
        nothing = jnp.zeros((x.shape[0], x.shape[1] + 1), x.dtype)
        return State(x, nothing, nothing)

    def step(self, state: State, round: Round) -> State:
        """One round."""
        (x, up, down), parent = state, round.ready
        to_children, to_parents = _tree(round, parent)
        h = jnp.pad(x - self.lr * self.gradients(x, round), ((0, 0), (0, 1)), constant_values=1)
        below = round.leaving(MODEL, h + to_parents.mix(up, None))
        down = jnp.where(parent[:, None] < 0, 0, to_children.mix(below + down) - up)
        total = h + down + to_parents.mix(below, None)
        return State(total[:, :-1] / total[:, -1:], below, down)


def _tree(round: Round, parent: Array) -> tuple[Round, Round]:
    """Rounds whose mixing gives every node the row of its parent [m], and the sum over its children's rows."""
    graph = round.graph
    from_parent = graph.mask & (graph.gathered(round.node)[graph.senders] == parent[:, None])
    from_child = graph.mask & (graph.gathered(parent)[graph.senders] == round.node[:, None])
    mask, own = from_parent | from_child, jnp.zeros_like(graph.self_weight)
    degree = jnp.sum(mask, axis=1, dtype=jnp.int32)
    used = replace(graph, mask=mask, self_weight=own, out_degree=degree)
    down, up = (replace(used, weight=slots.astype(graph.weight.dtype)) for slots in (from_parent, from_child))
    return round.on(down), round.on(up)
