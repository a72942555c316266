"""Zip-DL: a noise of its own in the message to each neighbour, which sums to zero over a node's messages.

S. Biswas, D. Frey, R. Gaudel, A.-M. Kermarrec, D. Lerévérend, R. Pires, R. Sharma, F. Taïani: Low-Cost
Privacy-Preserving Decentralized Learning, 2025.

    y_i = x_i after K steps  y <- y - lr g_i(y)
    n_ij = c_i (z_ij - sum_l W_li z_il),     z_ij standard normal, for every neighbour j and j = i
    x_i <- sum_j W_ij (y_j + n_ji),          n_ji: the noise in the message from j to i

c_i is `noise` / sqrt(1 - sum_l W_li^2), so the variance of n_ij averages `noise`^2 under the weights W_ji. A node adds
n_ii to its own y. For every node sum_j W_ji n_ij = 0, so the average of all x moves as without noise. With equal
weights this is the authors' code, in which the noises have zero sum and a standard deviation of `noise`; the weighted
form is ours. That code can leave out n_ii.

`jdfl.DECOR` cancels noise between two nodes that share a secret; here no secret is needed. Several neighbours that
average what they receive from a node remove most of its noise. The paper has pairwise guarantees against single
neighbours; n_ii appears again in later messages, and no epsilon is derived from n_ij here. Only noise of `gradients` is
claimed.

Missing neighbours: refused, because a lost message would leave noise that does not cancel.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, NotNegative, Provenance, StepSize
from jdfl.base.streams import Stream, each

_NOISE = Stream("zip-dl.noise", "private")


@struct.dataclass
class ZipDL(Algorithm):
    """Zip-DL: decentralized SGD whose messages to different neighbours have different noise that cancels.

    Its state is x [m, n]. The noise hides models from single neighbours; no privacy is claimed for it. Raises
    ValueError (from `check`) for settings out of range, and for networks that are not fixed and undirected with
    symmetric doubly stochastic weights.
    """

    kind: ClassVar[str] = "zip-dl"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.1
    noise: NotNegative = 0.1
    """Standard deviation of the noise in a message."""
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "Zip-DL"
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC

    def step(self, x: Array, round: Round) -> Array:
        y = round.repeat(self.local_steps, lambda here, y: y - self.lr * self.gradients(y, here), x)
        centre, arriving = self._noise(y, round)
        return round.mix(y - centre) + arriving

    def _noise(self, y: Array, round: Round) -> tuple[Array, Array]:
        """c_i sum_l W_li z_il, and sum_j W_ij c_j z_ji, both like y [m, n] for symmetric W."""
        graph, key = round.graph, round.context.stream(_NOISE)
        own = graph.self_weight.astype(y.dtype)
        rest = 1 - own**2 - jnp.sum(jnp.square(graph.weight.astype(y.dtype)), axis=1)
        c = jnp.where(graph.in_degree > 0, self.noise / jnp.sqrt(jnp.where(rest > 0, rest, 1)), 0)
        ids, scales = graph.gathered(round.node), graph.gathered(c)

        def drawn(sender: Array, receiver: Array) -> Array:
            keys = jax.vmap(jax.random.fold_in)(each(key, sender), receiver)
            return jax.vmap(lambda one: jax.random.normal(one, y.shape[1:], y.dtype))(keys)

        def added(sums: tuple[Array, Array], slot: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
            senders, weight = slot[0], slot[1].astype(y.dtype)[:, None]
            leaving, arriving = drawn(round.node, ids[senders]), drawn(ids[senders], round.node)
            return (sums[0] + weight * leaving, sums[1] + weight * scales[senders][:, None] * arriving), None

        mine = own[:, None] * drawn(round.node, round.node)
        leaving, arriving = lax.scan(added, (mine, c[:, None] * mine), (graph.senders.T, graph.weight.T))[0]
        return c[:, None] * leaving, arriving
