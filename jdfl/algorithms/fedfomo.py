"""FedFomo: neighbours' models weighted by how much they lower the loss on a node's own data.

M. Zhang, K. Sapra, S. Fidler, S. Yeung, J. M. Alvarez: Personalized Federated Learning with First Order Model
Optimization, 2021.

    y_i = x_i after K steps  y <- y - lr g_i(y)
    w_ij = max(0, f_i(x_i) - f_i(y_j)) / |y_j - x_i|,     for every in-neighbour j and j = i
    x_i <- x_i + sum_j (w_ij / sum_l w_il) (y_j - x_i)

x_i stays where no model lowers its loss. f_i is the loss on all examples of node i; the paper takes validation examples
that are not trained on, which problems here do not have.

The paper has a server that passes on the models which a client asks for, some of them at random. Here, as in
comparisons with decentralized methods, every node considers the models of all its in-neighbours. The published code of
DisPFL, from which the normalisation was taken, has the neighbours' models before their local steps.

Models are moved by losses on records that have no noise, so no privacy can be claimed.

Missing neighbours: they have no weight, and a node that receives nothing keeps its y, if that lowers its loss.

Axes: m nodes, n parameters, d slots of the neighbour table.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import choosing
from jdfl.algorithms.algorithm import Algorithm, Personal
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import Round
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize


@struct.dataclass
class FedFomo(Algorithm):
    """FedFomo: personal models that move towards those neighbours' models which have a smaller loss.

    Its state is x [m, n]. Nodes with different data need not agree.
    """

    kind: ClassVar[str] = "fedfomo"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    gradients: Exact = Gradients()
    title: ClassVar[str] = "FedFomo"
    needs: ClassVar[dict[str, bool]] = {"table": True}
    personal: ClassVar[Personal] = "models"

    def step(self, x: Array, round: Round) -> Array:
        y = round.repeat(self.local_steps, lambda here, y: y - self.lr * self.gradients(y, here), x)
        y, before = choosing.sent_to(round.graph.mask, y, round), round.problem.values(x)

        def gain(other: Array) -> Array:
            far = ops.length(other - x, "l2")
            lower = jnp.maximum(before - round.problem.values(other), 0)
            return jnp.where(far > 0, lower / jnp.where(far > 0, far, 1), 0)

        own, others = gain(y), jnp.where(round.graph.mask, choosing.by_neighbour(gain, y, round), 0)
        total = own + jnp.sum(others, axis=1)
        share = jnp.where(total > 0, 1 / jnp.where(total > 0, total, 1), 0)
        mixed = choosing.combined(others * share[:, None], own * share, y, round)
        return jnp.where((total > 0)[:, None], mixed, x)
