"""NGC: neighbourhood gradient clustering, which averages gradients of neighbours' models and on neighbours' data.

S. A. Aketi, S. Kodge, K. Roy: Neighborhood Gradient Clustering: An Efficient Decentralized Learning Method for Non-IID
Data Distributions, 2022.

    c_ij = g_i(x_j),   for all j in N_i and i itself                          (c_ij is sent to j)
    s_i  = sum_j W_ij ((1 - alpha) c_ij + alpha c_ji)
    v_i <- momentum v_i + s_i,   x_i <- x_i + gamma sum_j W_ij (x_j - x_i) - lr v_i

The run starts from v_i = 0. The c_ji are gradients of a node's model on its neighbours' data. They need a second
message on every link, on the channel "cross gradient", which is counted even for alpha = 0. All gradients of a node in
a round use the same examples.

The s_i are as in the authors' code. The order of the last line could not be checked: here nodes mix the models at which
they evaluate gradients, so that one message serves for both.

Missing neighbours: their weight goes where the network says, by default to the node itself, also in s_i. W must stay
doubly stochastic and symmetric, so both directions of a link fail together.

Axes: m nodes, d slots, n parameters.
"""

from dataclasses import replace
from typing import Annotated, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import MODEL, Channel, Round, StepTrace
from jdfl.base import struct
from jdfl.base.settings import Bound, Fraction, Momentum, Provenance, StepSize

_CROSS = Channel("cross gradient")


class State(NamedTuple):
    x: Array  # [m, n] parameters
    v: Array  # [m, n] momentum


@struct.dataclass
class NGC(Algorithm):
    """NGC: D-PSGD with gradients that are averaged over the neighbours' models and data.

    Raises ValueError (from `check`) for networks that are not undirected with symmetric doubly stochastic weights or
    have synchronised rounds.
    """

    kind: ClassVar[str] = "ngc"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = 0.05
    alpha: Annotated[float | Array, Bound("[0, 1]")] = 1.0
    """Weight of gradients on the neighbours' data; the rest is that of gradients of the neighbours' models."""
    momentum: Momentum = 0.0
    """Momentum of the averaged gradients."""
    gamma: Fraction = 1.0
    """Part of the mixing step that is taken."""
    gradients: Exact = Gradients()
    title: ClassVar[str] = "NGC"
    needs: ClassVar[dict[str, bool]] = {
        "table": True,
        "undirected": True,
        "doubly_stochastic": True,
        "symmetric_weights": True,
    }
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, _CROSS)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, v = state
        graph, others = round.graph, round.graph.gathered(x)
        round.trace.grads = graph.in_degree
        round.trace.send(_CROSS, graph.in_degree, jnp.minimum(graph.in_degree, 1))

        def crossed(total: Array, slot: tuple[Array, Array]) -> tuple[Array, None]:
            senders, weight = slot
            c = self.gradients(others[senders], replace(round, trace=StepTrace()))  # counted above
            c = weight.astype(x.dtype)[:, None] * round.leaving(_CROSS, c)
            back = replace(graph, senders=senders[:, None]).returned(c[:, None])
            return total + (1 - self.alpha) * c + self.alpha * back, None

        own = graph.self_weight.astype(x.dtype)[:, None] * self.gradients(x, round)
        s, _ = lax.scan(crossed, own, (graph.senders.T, graph.weight.T))
        v = self.momentum * v + s
        return State(x + self.gamma * round.pull(x) - self.lr * v, v)
