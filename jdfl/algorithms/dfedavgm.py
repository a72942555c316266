"""DFedAvgM: decentralized federated averaging with momentum.

T. Sun, D. Li, B. Wang: Decentralized Federated Averaging, 2022 (arXiv 2104.11375; Algorithms 1 and 2).

    K times:  y_i+ = y_i - lr g_i(y_i) + theta (y_i - y_i-),   from y_i- = y_i = x_i
    x_i <- sum_j W_ij y_j

y_i- is the point before y_i: momentum starts anew in every round. The y_j go through `codec`; a node mixes its own y as
it is.

In Algorithm 2, the quantised form, the nodes send Q(y - x) instead, Q being `codec`. How the paper mixes these could
not be looked up, and of two readings none will do: sum_j W_ij (x_j + Q(y_j - x_j)) needs x_j, a sum over the neighbours
of node j, which node i cannot know from what it hears; and x_i + sum_j W_ij Q(y_j - x_j) makes x - x_0 W times the sum
of all messages, mixed only once however many rounds there are, so that nodes with different data never agree (on least
squares they came to rest at minima of their own, or diverged where W has negative eigenvalues). With `quantised` the
nodes do what the first asks for by what they can know: all keep xhat_j, what was heard of y_j so far, and hear the
difference to it,

    q_j = Q(y_j - xhat_j);   xhat_j <- xhat_j + q_j;   x_i <- sum_j W_ij xhat_j.

Exact messages make it the plain form. What Q loses is lost: the average moves by the local steps in expectation if Q is
unbiased, and only up to what Q loses if not. Every message must reach all neighbours, hence a fixed network.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody keeps its y. Of late messages (`network.delays`) it takes the newest. The quantised form is refused.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
from jax import Array, lax

from jdfl import struct
from jdfl.algorithms.dcd import check_replicas
from jdfl.algorithms.exchange import CODEC, check_codec, exchange_late, heard, received
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.updates import Updates, check_updates, guarantee, noisy_releases, released
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense
from jdfl.network import Network, Past, mix
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Count, Momentum, Positive


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters after mixing
    hat: Array | None  # [m, n] what all neighbours know of y, if quantised
    past: Past | None = None  # what all have sent, where messages are late


@struct.dataclass
class DFedAvgM:
    """Local steps with momentum, then mixing; quantised with public copies.

    DFedAvgM with any gradients and codec, plain or quantised.

    The plain form takes any network. Raises ValueError (from `check`) for settings out of range; if quantised also for
    a codec that is neither unbiased nor contracts, and a network that is not fixed and undirected with symmetric doubly
    stochastic weights. Warns then, as DCD-PSGD, of a codec that may do worse than nothing.
    """

    kind: ClassVar[str] = "dfedavgm"
    lr: Positive = 0.1
    """Length of the steps."""
    theta: Momentum = 0.9
    """Momentum of the local steps, which starts anew in every round."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps before each exchange of messages."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    updates: Updates | None = None
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients."""
    codec: Codec = Dense()
    """What travels on a wire."""
    quantised: bool = struct.field(pytree_node=False, default=False)
    """Send differences to public copies instead of the parameters."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)
    late: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings, codecs and networks that it cannot have, naming them."""
        self.gradients.check(problem)
        check_updates(self.updates, self.gradients)
        check_codec("DFedAvgM", self.codec, problem.n, problem.m, problem.n, direct=not self.quantised)
        if self.quantised:
            check_replicas("quantised DFedAvgM", self.codec, problem, network)

    def prepare(self, problem: Problem, round: Round) -> "DFedAvgM":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start from x = xhat where the problem says, which all neighbours know."""
        x = problem.begin()
        hat = x if self.quantised else None
        return State(x, hat, Past.begin(round.graph, x)), counts(problem.m, {"model": 0})

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        x, hat, past, graph = state.x, state.hat, state.past, round.graph

        def local(t: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            y, before = carry
            g = self.gradients(y, problem, round, step=t, steps=self.local_steps, communicating=t == 0)
            return y - self.lr * g + self.theta * (y - before), y

        y, _ = lax.fori_loop(0, self.local_steps, local, (x, x))
        y = released(self.updates, x, y, round)
        if hat is None:
            x, past = exchange_late(self.codec, y, round, past)
        else:
            everyone = jnp.ones((round.m,), jnp.bool_)  # a node that nobody hears moves by its messages too
            hat = hat + received(self.codec, y - hat, round, everyone)
            x = mix(graph, hat)

        done = counts(
            round.m,
            {"model": graph.out_degree},
            grads=self.local_steps,
            releases=noisy_releases(self.updates, self.gradients.releases(self.local_steps, 1)),
            communications=heard(graph),
        )
        return State(x, hat, past), done

    def params(self, state: State) -> Array:
        """The parameters x [m, n]."""
        return state.x

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """One channel, the codec's size."""
        return {"model": self.codec.bits(problem.n)}

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the gradients or updates: everything else is computed from them and from messages."""
        return guarantee(self.updates, self.gradients, problem)
