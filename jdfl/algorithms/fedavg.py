"""FedAvg: a server averages the clients' models; the centralized baseline of the decentralized methods.

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, 2017 (Algorithm 1).

    S = a random set of max(1, C m) clients
    y_i = x after K steps  y <- y - lr g_i(y),   i in S
    x <- mean of y_i over S

The network plays no part: clients exchange messages with the server only, one in each direction. The paper weights
clients by their numbers of examples (`weighting="examples"`); "equal" minimises mean_i f_i, like other methods.

Missing neighbours: clients have none; networks with faults are refused.

Axes: m nodes (clients), n parameters.
"""

import math
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms import descent
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Channel, Round, exact
from jdfl.algorithms.updates import Updates, released
from jdfl.base import checks, struct
from jdfl.base.settings import Bound, Count, Provenance, StepSize
from jdfl.base.streams import Stream, each
from jdfl.codecs import Codec, Dense
from jdfl.devices import nodes
from jdfl.network.graph import Network
from jdfl.network.tables import called
from jdfl.problems import Problem

_CHOICE = Stream("fedavg.clients", "choice")
_DOWN = Channel("down", Stream("fedavg.down", "shared"))
_UP = Channel("up", Stream("fedavg.up", "shared"))


@struct.dataclass
class FedAvg(Algorithm):
    """FedAvg: a server averages models that clients train locally; the centralized baseline.

    Its state [m, n] holds the server's x in every row. Optimizers are reset in every round, because clients keep no
    state; the codec is used in both directions.
    """

    kind: ClassVar[str] = "fedavg"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps of a client per round."""
    fraction: Annotated[float, Bound("(0, 1]")] = struct.field(pytree_node=False, default=1.0)
    """Fraction of the clients that take part in a round."""
    weighting: Literal["equal", "examples"] = struct.field(pytree_node=False, default="equal")
    """Whether clients have equal weights or weights proportional to their numbers of examples."""
    gradients: Gradients = Gradients()
    updates: Updates | None = None
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    codec: Codec = Dense()
    title: ClassVar[str] = "FedAvg"
    channels: ClassVar[tuple[Channel, ...]] = (_DOWN, _UP)
    mixes: ClassVar[bool] = False

    def check(self, problem: Problem, network: Network) -> None:
        if getattr(self.updates, "trust", "") == "central":
            remedy = 'Only plain means have the noise of a mean; with these settings use trust="local".'
            checks.one_of(("equal",), remedy, weighting=self.weighting)
            if not exact(self.codec, jnp.zeros((1, 1), problem.dtype)):
                raise ValueError(f"Expected Dense() with trust = 'central', got codec = {self.codec!r}. {remedy}")
        super().check(problem, network)
        graph = jax.eval_shape(network.at, jnp.int32(0), jax.random.key(0))
        if graph.lossy or any(part is not None for part in (graph.away, graph.timing, graph.late)):
            raise ValueError(
                f"Expected a network for FedAvg without message loss, absent nodes, times and delays, got "
                f"{called(network)}: clients communicate with the server, and the network plays no part. Pass the base "
                "network, and a fraction below 1 for clients that do not answer."
            )

    @property
    def objective(self) -> str:
        """Which objective is minimised: with weights by examples another than the mean."""
        return "mean" if self.weighting == "equal" else "pi"

    def node_weights(self, problem: Problem, network: Network) -> np.ndarray | None:
        """The nodes' shares of all examples, unless their weights are equal."""
        sizes = np.asarray(problem.sizes, np.float64)
        return None if self.weighting == "equal" or np.ptp(sizes) == 0 else sizes / sizes.sum()

    def step(self, x: Array, round: Round) -> Array:
        """One round from x [m, n]; only the clients that take part cost anything."""
        on, size = self._chosen(round)  # [m] S, `size` of them over all devices

        def work(here: Round) -> Array:
            start = here.deliver(here.of(x), _DOWN)
            y, _ = descent.local_steps(self, start, descent.begin(self.optimizer, self.lr, start), here)
            return here.deliver(released(self.updates, start, y, here, size), _UP)

        y = round.each_of(on, -(-size * round.m // nodes.count(round.m)), work, jnp.zeros_like(x))
        once = on.astype(jnp.int32)
        share = (once * round.problem.sizes if self.weighting == "examples" else once).astype(x.dtype)
        mean = nodes.total(share[:, None] * y) / nodes.total(share)
        return jnp.broadcast_to(mean, x.shape)

    def _chosen(self, round: Round) -> tuple[Array, int]:
        """Which clients take part [m], drawn from their own keys, and their number."""
        m = nodes.count(round.m)
        size = max(1, math.floor(self.fraction * m + 0.5))
        if size == m:
            return jnp.ones((round.m,), jnp.bool_), size
        everyone = jnp.arange(m, dtype=jnp.int32)
        keys = each(round.context.stream(_CHOICE), everyone)
        bits = jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(keys)
        chosen = jnp.zeros((m,), jnp.bool_).at[jnp.lexsort((everyone, bits))[:size]].set(True)
        return nodes.own(chosen, round.m), size
