"""DFedSAM: decentralized federated averaging with sharpness-aware local steps, and DFedSAM-MGS.

Y. Shi, L. Shen, K. Wei, Y. Sun, B. Yuan, X. Wang, D. Tao: Improving the Model Consistency of Decentralized Federated
Learning, 2023.

    K times:  e_i = rho g_i(y_i) / ||g_i(y_i)||,   y_i <- y_i - lr g_i(y_i + e_i),   from y_i = x_i
    Q times:  y_i <- sum_j W_ij y_j
    x_i <- y_i

Both gradients of a step see the same examples. Q = `gossip_steps` is 1 in DFedSAM and more in DFedSAM-MGS (multiple
gossip steps), each of them a message on every link.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody keeps its y.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import jax.numpy as jnp
from jax import Array, lax

from jdfl import ops, struct
from jdfl.algorithms.exchange import CODEC, check_codec, exchange, heard
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.updates import Updates, check_updates, guarantee, noisy_releases, released
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense
from jdfl.network.graph import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Count, NotNegative, Positive


@struct.dataclass
class DFedSAM:
    """Sharpness-aware local steps, then mixing, once or several times.

    DFedSAM. Its state is x [m, n]. Raises ValueError (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "dfedsam"
    lr: Positive = 0.1
    """Length of the steps."""
    rho: NotNegative = 0.01
    """How far up the gradient is taken."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Steps of two gradients each before the messages."""
    gossip_steps: Count = struct.field(pytree_node=False, default=1)
    """Exchanges of messages in a round."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    updates: Updates | None = None
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients."""
    codec: Codec = Dense()
    """What travels on a wire."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        self.gradients.check(problem)
        check_updates(self.updates, self.gradients)
        check_codec("DFedSAM", self.codec, problem.n, problem.m, problem.n, direct=True)

    def prepare(self, problem: Problem, round: Round) -> "DFedSAM":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[Array, Info]:
        """Start where the problem says."""
        return problem.begin(), counts(problem.m, {"model": 0})

    def step(self, x: Array, problem: Problem, round: Round) -> tuple[Array, Info]:
        """One round."""

        def local(t: Array, y: Array) -> Array:
            here = {"step": t, "steps": self.local_steps, "communicating": t == 0}
            gradients = partial(self.gradients, problem=problem, round=round, **here)
            g = gradients(y)
            norm = ops.length(g, "l2")[:, None]
            e = self.rho * g / jnp.where(norm > 0, norm, 1.0)
            return y - self.lr * gradients(y + e, look=1)

        y = lax.fori_loop(0, self.local_steps, local, x)
        y = released(self.updates, x, y, round)
        for q in range(self.gossip_steps):
            y = exchange(self.codec, y, round, q)

        return y, counts(
            round.m,
            {"model": self.gossip_steps * round.graph.out_degree},
            grads=2 * self.local_steps,
            releases=noisy_releases(self.updates, self.gradients.releases(2 * self.local_steps, 2)),
            communications=self.gossip_steps * heard(round.graph),
        )

    def params(self, state: Array) -> Array:
        """The parameters x: the `state` [m, n] itself."""
        return state

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """One channel, the codec's size."""
        return {"model": self.codec.bits(problem.n)}

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the gradients or updates: everything else is computed from them and from messages."""
        return guarantee(self.updates, self.gradients, problem, looks=2)
