"""FedAvg: a server averages what clients learn; the centralized yardstick of the decentralized methods.

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, 2017 (Algorithm 1).

    S = a random set of max(1, C m) clients
    y_i = x after K steps  y <- y - lr g_i(y),   i in S
    x <- mean of y_i over S

The network plays no part: a client hears the server and the server hears it, one message each way. The paper weighs
clients by their numbers of examples (`weighting="examples"`); "equal" minimises mean_i f_i, as the others here do.

Missing neighbours: clients have none; networks with faults are refused.

Axes: m nodes (clients), n parameters.
"""

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jdfl import checks, nodes, ops, struct
from jdfl.algorithms import descent
from jdfl.algorithms.exchange import CODEC, check_codec, exact
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.updates import Updates, check_updates, guarantee, noisy_releases, released
from jdfl.base import Info, Round, counts
from jdfl.codecs import Codec, Dense, round_trip
from jdfl.network.arcs import called
from jdfl.network.graph import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Bound, Count, Positive
from jdfl.streams import Stream

_CHOICE = Stream("fedavg.clients", "choice")
_DOWN, _UP = Stream("fedavg.down", "shared"), Stream("fedavg.up", "shared")


@struct.dataclass
class FedAvg:
    """A server averages what clients learn: the centralized yardstick, which needs no network.

    FedAvg. Its state [m, n] is the server's x in every row.

    Optimizers start anew in every round, as clients forget; the codec is used both ways. Raises ValueError (from
    `check`) for settings out of range.
    """

    kind: ClassVar[str] = "fedavg"
    lr: Positive = 0.1
    """Length of the steps."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps of a client in a round."""
    fraction: Annotated[float, Bound("(0, 1]")] = struct.field(pytree_node=False, default=1.0)
    """Share of the clients that take part in a round."""
    weighting: Literal["equal", "examples"] = struct.field(pytree_node=False, default="equal")
    """Whether clients count alike or by their numbers of examples."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    updates: Updates | None = None
    """Clipping and noise of what a node has learnt in a round, instead of noise on gradients."""
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    """An optax optimizer, or a function that makes one of `lr`; None: plain gradient steps."""
    codec: Codec = Dense()
    """What travels on a wire."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        descent.check_optimizer(self.optimizer)
        self.gradients.check(problem)
        check_updates(self.updates, self.gradients)
        if self.updates is not None and self.updates.trust == "central":
            remedy = 'The noise of a mean is in plain means alone; with these use trust="local".'
            checks.one_of(("equal",), remedy, weighting=self.weighting)
            if not exact(self.codec, jnp.zeros((1, 1), problem.dtype)):
                raise ValueError(f"Expected codec = Dense() with trust = 'central', got {self.codec!r}. {remedy}")
        graph = jax.eval_shape(network.at, jnp.int32(0), jax.random.key(0))
        if graph.lossy or any(part is not None for part in (graph.away, graph.timing, graph.late)):
            raise ValueError(
                f"Expected a network for FedAvg without losses, absences, times and delays, got {called(network)}: "
                "clients speak to the server, and the network plays no part. Take the network inside, and a fraction "
                "below 1 for clients that do not answer."
            )
        check_codec("FedAvg", self.codec, problem.n, problem.m, problem.n, direct=True)

    def prepare(self, problem: Problem, round: Round) -> "FedAvg":
        """Let the codec draw what it shares, and the gradients prepare what they need."""
        codec = self.codec.prepare(round.stream(CODEC), round.node, problem.n, problem.n, problem.dtype)
        return replace(self, gradients=self.gradients.prepare(problem, round), codec=codec)

    def init(self, problem: Problem, round: Round) -> tuple[Array, Info]:
        """Start where the problem says."""
        return problem.begin(), counts(problem.m, {"down": 0, "up": 0})

    def step(self, x: Array, problem: Problem, round: Round) -> tuple[Array, Info]:
        """One round from x [m, n]; only the clients that take part, b of the m, cost anything."""
        on, size = self._chosen(round)  # [m] S, b of them on all devices together

        def work(clients: Array, arrived: Array) -> Array:
            mine, theirs = problem.nodes(clients), replace(round, node=round.node[clients])
            codec = self.codec.rows(clients)
            start = round_trip(codec, theirs.keys(_DOWN), x[clients])
            y, _ = descent.local_steps(
                self.local_steps,
                self.gradients.rows(clients, size),
                self.optimizer,
                self.lr,
                start,
                descent.begin(self.optimizer, self.lr, start),
                mine,
                theirs,
            )
            y = released(self.updates, start, y, theirs, size)
            y = round_trip(codec, theirs.keys(_UP), y)
            return arrived.at[clients].set(y, mode="drop")

        y = ops.for_rows(on, -(-size * round.m // nodes.count(round.m)), work, jnp.zeros_like(x))
        once = on.astype(jnp.int32)
        share = (once * problem.sizes if self.weighting == "examples" else once).astype(x.dtype)
        mean = nodes.total(share[:, None] * y) / nodes.total(share)
        return jnp.broadcast_to(mean, x.shape), counts(
            round.m,
            {"down": once, "up": once},
            grads=self.local_steps * once,
            releases=noisy_releases(self.updates, self.gradients.releases(self.local_steps, 1)) * once,
            communications=once,
        )

    def _chosen(self, round: Round) -> tuple[Array, int]:
        """Which clients take part [m], drawn by their own keys, and how many they are."""
        m = nodes.count(round.m)
        size = self._clients(m)
        if size == m:
            return jnp.ones((round.m,), jnp.bool_), size
        everyone = jnp.arange(m, dtype=jnp.int32)
        bits = jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(replace(round, node=everyone).keys(_CHOICE))
        chosen = jnp.zeros((m,), jnp.bool_).at[jnp.lexsort((everyone, bits))[:size]].set(True)
        return nodes.own(chosen, round.m), size

    def _clients(self, m: int) -> int:
        """How many of m nodes take part in a round."""
        return max(1, math.floor(self.fraction * m + 0.5))

    def params(self, state: Array) -> Array:
        """The server's parameters, the same for every node [m, n]."""
        return state

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """Two channels of the codec's size: from the server and to it."""
        return {"down": self.codec.bits(problem.n), "up": self.codec.bits(problem.n)}

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the gradients or updates: everything else is computed from them and from messages."""
        return guarantee(self.updates, self.gradients, problem, clients=self._clients(problem.m))
