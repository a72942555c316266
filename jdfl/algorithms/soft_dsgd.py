"""Soft-DSGD: decentralized SGD over links that lose parts of messages.

H. Ye, L. Liang, G. Y. Li: Decentralized Federated Learning with Unreliable Communications, 2022.

    h_i  = x_i - lr g_i(x_i)
    x_i <- h_i + sum_j W_ij R_ij (h_j - h_i),     R_ij diagonal with entries 0 or 1

R_ij are the entries of j's message that reach i; the others are replaced by the receiver's own. A message is sent once,
without acknowledgement (UDP), in packets of `packet` entries. Each packet arrives with probability `reliability`,
independently for every link, direction, packet and round. As R_ij and R_ji differ, the average of the nodes is
preserved only in expectation. With reliability = 1 it is D-PSGD with `order="adapt-then-combine"`.

The paper has a probability for every link, and weights W that are optimised for them, which `network.from_matrix`
takes. All links are equal here. In the authors' code single entries are lost; the simulation of packets is ours. Lost
packets have been sent and count as traffic. Whole messages are lost on networks such as `network.link_loss`.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing takes its step alone.

Axes: m nodes, d slots, n parameters.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm, Objective
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, Provenance, StepSize
from jdfl.base.streams import Stream

_ARRIVING = Stream("soft-dsgd.arriving packets", "choice")


@struct.dataclass
class SoftDSGD(Algorithm):
    """Soft-DSGD: D-PSGD that uses the parts of messages that arrive.

    It takes any gradients; its state is x [m, n].
    """

    kind: ClassVar[str] = "soft-dsgd"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    reliability: Fraction = 0.8
    """Probability that a packet arrives, in (0, 1]."""
    packet: Count = struct.field(pytree_node=False, default=1)
    """Entries of a message that arrive or are lost together."""
    objective: Objective = struct.field(pytree_node=False, default="mean")
    """Accept networks that preserve the mean of the nodes only, or all ("pi"), with the weights that they give."""
    title: ClassVar[str] = "Soft-DSGD"
    needs: ClassVar[dict[str, bool]] = {"table": True}

    def step(self, x: Array, round: Round) -> Array:
        h = x - self.lr * self.gradients(x, round)
        return round.mix(h) - self._lost(h, round)

    def _lost(self, h: Array, round: Round) -> Array:
        """What the lost packets of all messages h [m, n] would have added, sum_j W_ij (I - R_ij) (h_j - h_i) [m, n]."""
        graph, n = round.graph, h.shape[1]
        rows, ids, keys = graph.gathered(h), graph.gathered(round.node), round.keys(_ARRIVING)
        packets = -(-n // self.packet)

        def added(total: Array, slot: tuple[Array, Array]) -> tuple[Array, None]:
            sender, weight = slot
            key = jax.vmap(jax.random.fold_in)(keys, ids[sender])  # of the link from `sender`, in this direction
            drawn = jax.vmap(lambda one: jax.random.uniform(one, (packets,), jnp.float32))(key)
            lost = jnp.repeat(drawn >= self.reliability, self.packet, axis=1)[:, :n]
            return total + jnp.where(lost, weight.astype(h.dtype)[:, None] * (rows[sender] - h), 0), None

        return lax.scan(added, jnp.zeros_like(h), (graph.senders.T, graph.weight.T))[0]
