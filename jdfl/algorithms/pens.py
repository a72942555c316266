"""PENS: performance-based neighbour selection, by the losses of the neighbours' models on a node's own data.

N. Onoszko, G. Karlsson, O. Mogren, E. L. Zec: Decentralized Federated Learning of Deep Neural Networks on Non-IID Data,
2021.

    y_i = x_i after K steps  y <- y - lr g_i(y)
    k < `selection`:   S_i = the `best` in-neighbours j with the smallest f_i(y_j)
    k >= `selection`:  S_i = those that were in S_i more often than random choices of `best` would have been
    x_i <- (y_i + sum_{j in S_i} y_j) / (1 + |S_i|)

Random choices would have taken a neighbour in `selection` `best` / d_i rounds, d_i being the in-degree. f_i is the loss
on all training examples of node i.

The paper and the package gossipy have gossip without rounds: a node waits for ten models of random peers, compares
these and trains after averaging, and later sends to random selected peers. Here all in-neighbours send in the first
part, and a node averages all of its selected neighbours in the second. With `best` of at least d_i nothing is selected,
and nodes average with equal weights throughout.

Losses stay within the node, but which neighbours it asks for their models is visible and depends on its records without
noise. No privacy can be claimed.

Missing neighbours: refused, because a node counts how often it preferred each of its neighbours on a fixed network.

Axes: m nodes, n parameters, d slots of the neighbour table.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import choosing
from jdfl.algorithms.algorithm import Algorithm, Personal
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize


class State(NamedTuple):
    """What a round passes to the next."""

    x: Array  # [m, n] parameters
    chosen: Array  # [m, d] in how many rounds of the selection a neighbour was among the best, int32


@struct.dataclass
class PENS(Algorithm):
    """PENS: nodes average with the neighbours whose models have the smallest loss on their own data.

    Models are personal: nodes with different data need not agree. Raises ValueError (from `check`) for settings out of
    range and for networks that change.
    """

    kind: ClassVar[str] = "pens"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    best: Count = struct.field(pytree_node=False, default=2)
    """Neighbours that a node prefers in a round of the selection."""
    selection: Count = struct.field(pytree_node=False, default=50)
    """Rounds of the selection; later only selected neighbours send."""
    gradients: Exact = Gradients()
    title: ClassVar[str] = "PENS"
    personal: ClassVar[Personal] = "models"
    needs: ClassVar[dict[str, bool]] = {"fixed": True}

    def init(self, round: Round) -> State:
        """Start from the initial parameters, without any choice."""
        return State(round.problem.begin(), jnp.zeros(round.graph.senders.shape, jnp.int32))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        graph, selecting = round.graph, round.k < self.selection
        x = round.repeat(self.local_steps, lambda here, x: x - self.lr * self.gradients(x, here), state.x)
        degree = graph.in_degree[:, None]
        often = state.chosen.astype(jnp.float32) * degree.astype(jnp.float32) > self.selection * self.best
        often = graph.mask & (often | (degree <= self.best))
        x = choosing.sent_to(jnp.where(selecting, graph.mask, often), x, round)
        best = choosing.largest(-choosing.by_neighbour(round.problem.values, x, round), graph.mask, self.best)
        used = jnp.where(selecting, best, often).astype(x.dtype)
        share = 1 / (1 + jnp.sum(used, axis=1))
        chosen = state.chosen + (best & selecting).astype(jnp.int32)
        return State(choosing.combined(used * share[:, None], share, x, round), chosen)
