"""PENS and L2C: personal models, averaged with the neighbours that a node prefers by its own data.

N. Onoszko, G. Karlsson, O. Mogren, E. L. Zec: Decentralized Federated Learning of Deep Neural Networks on Non-IID Data,
2021 (PENS); S. Li, T. Zhou, X. Tian, D. Tao: Learning to Collaborate in Decentralized Learning of Personalized Models,
2022 (L2C).

    y_i = x_i after K steps  y <- y - lr g_i(y)                                                             (both)

    k < `selection`:   S_i = the `best` in-neighbours j with the smallest f_i(y_j)                          (PENS)
    k >= `selection`:  S_i = those that were in S_i more often than random choices of `best` would have been
    x_i <- (y_i + sum_{j in S_i} y_j) / (1 + |S_i|)

    u_i = y_i - x_i,     w_i = softmax(b_i),     x_i <- x_i + sum_j w_ij u_j                                 (L2C)
    b_ij <- b_ij - lr_weights w_ij (s_ij - sum_l w_il s_il),     s_ij = g_i(x_i)' u_j

In PENS f_i is the loss on all training examples of node i. Random choices would have taken a neighbour in `selection`
`best` / d_i rounds, d_i being the in-degree. The paper and the package gossipy have gossip without rounds: a node waits
for ten models of random peers, compares these and trains after averaging, and later sends to random selected peers.
Here all in-neighbours send in the first part, and a node averages all of its selected neighbours in the second. With
`best` of at least d_i nothing is selected. The choice of neighbours is visible and depends on its records without
noise: no privacy can be claimed.

L2C starts from b_ij = 0, and its sums are over node i and its in-neighbours. The second line is a gradient step on the
loss of the new x_i. The gradient in s_ij is the paper's of validation examples, which problems here do not have: it is
that of the first local step's sample. From round `prune` on, a node asks only the `keep` neighbours that have the
largest w_ij by then. The variant meta-L2C, which computes weights by a neural network, is left out. Weights depend on
records only through `gradients`, so noise on these covers them, and which neighbours are asked, too.

Missing neighbours: refused, because a node counts or weights each of its neighbours on a fixed network.

Axes: m nodes, n parameters, d slots of the neighbour table.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import choosing
from jdfl.algorithms.algorithm import Algorithm, Personal
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Natural, Positive, Provenance, StepSize


class Chosen(NamedTuple):
    x: Array  # [m, n] parameters
    chosen: Array  # [m, d] in how many rounds of the selection a neighbour was among the best, int32


@struct.dataclass
class PENS(Algorithm):
    """PENS: nodes average with the neighbours whose models have the smallest loss on their own data.

    Models are personal: nodes with different data need not agree. Raises ValueError (from `check`) for networks that
    change.
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

    def init(self, round: Round) -> Chosen:
        return Chosen(round.problem.initial_params(), jnp.zeros(round.graph.senders.shape, jnp.int32))

    def step(self, state: Chosen, round: Round) -> Chosen:
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
        return Chosen(choosing.combined(used * share[:, None], share, x, round), chosen)


class Weighted(NamedTuple):
    x: Array  # [m, n] parameters
    b: Array  # [m, d + 1] logarithms of the weights up to a common shift, the node's own first
    kept: Array  # [m, d] neighbours that have a weight, bool


@struct.dataclass
class L2C(Algorithm):
    """L2C: every node learns with which weights it adds its neighbours' updates to its own model.

    Models are personal: nodes with different data need not agree. It takes any gradients. Raises ValueError (from
    `check`) for settings out of range and for networks that change.
    """

    kind: ClassVar[str] = "l2c"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    lr_weights: Positive = 0.1
    """Step size of the weights."""
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    prune: Count | None = struct.field(pytree_node=False, default=None)
    """Round from which only some neighbours send; None: never."""
    keep: Natural = struct.field(pytree_node=False, default=1)
    """Neighbours of a node that still send then."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "L2C"
    personal: ClassVar[Personal] = "models"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "lr_weights")
    needs: ClassVar[dict[str, bool]] = {"fixed": True}

    def init(self, round: Round) -> Weighted:
        x, mask = round.problem.initial_params(), round.graph.mask
        return Weighted(x, jnp.zeros((len(mask), mask.shape[1] + 1), x.dtype), mask)

    def step(self, state: Weighted, round: Round) -> Weighted:
        x, b, kept = state
        if self.prune is not None:
            kept = jnp.where(round.k == self.prune, choosing.largest(b[:, 1:], kept, self.keep), kept)
        y = round.repeat(self.local_steps, lambda here, y: y - self.lr * self.gradients(y, here), x)
        u = choosing.sent_to(kept, y - x, round)
        w = jax.nn.softmax(jnp.where(jnp.pad(kept, ((0, 0), (1, 0)), constant_values=True), b, -jnp.inf), axis=1)
        x = x + choosing.combined(w[:, 1:], w[:, 0], u, round)
        g = self.gradients(x, round, look=1)

        def slope(other: Array) -> Array:
            return jnp.sum(g * other, axis=1)

        s = jnp.concatenate([slope(u)[:, None], choosing.by_neighbour(slope, u, round)], axis=1)
        return Weighted(x, b - self.lr_weights * w * (s - jnp.sum(w * s, axis=1, keepdims=True)), kept)
