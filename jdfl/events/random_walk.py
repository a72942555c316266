"""Random-walk SGD: one or several tokens walk over the network, and carry the models.

B. Johansson, M. Rabi, M. Johansson: A Randomized Incremental Subgradient Method for Distributed Optimization in
Networked Systems, 2009. The node v that holds token k computes, and passes it on:

    x_k <- x_k - lr g_v(x_k)
    it goes to a random neighbour u with probability min(1, deg v / deg u), and stays otherwise

These probabilities (Metropolis and Hastings) visit all nodes equally often in the long run. A token that stays is used
again at once, and takes no time to travel. Tokens do not know of each other; node i shows the model of token i mod K.

Axes: m nodes, K tokens, L steps of a walk, b events, n parameters.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.devices import memory
from jdfl.events import faults, timeline, times
from jdfl.events.event import Event
from jdfl.events.method import AsyncMethod, Tables
from jdfl.events.timeline import NOTHING, Events, Kind, Touch
from jdfl.network import Graph, Network, Timed, Times, TimeTrace
from jdfl.problems import Problem

_WALK, _VISIT = Stream("random walk.path", "network"), Stream("random walk.time of a visit", "network")
_AT_ONCE = 256  # steps that are drawn for a token at a time
_BYTES = 122  # of a visit, while the walks are drawn


@struct.dataclass
class RandomWalkSGD(AsyncMethod):
    """Random-walk SGD: models walk over the network, and every node that is visited takes a step with its data."""

    kind: ClassVar[str] = "random-walk-sgd"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "random-walk SGD"
    kinds: ClassVar[tuple[Kind, ...]] = (Kind("visit", (Touch("token", "rw"), Touch(NOTHING, "r"))),)
    lr: StepSize = 0.1
    tokens: Count = struct.field(pytree_node=False, default=1)
    """Number of walks."""

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse what no asynchronous method takes, and traces, whose times are those of nodes, not of tokens."""
        super().check(problem, network)
        times = faults.with_times(network, self.title).compute
        if isinstance(times, TimeTrace):
            raise ValueError(
                f"Expected a distribution of compute times for {self.title}, got a TimeTrace. Use another."
            )

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """The tokens' models, and the tokens [m] whose models the nodes show."""
        x, token = round.problem.initial_params(), jnp.arange(self.tokens)
        return {"token": jnp.array(x[token % round.m]), "shown": jnp.arange(round.m) % self.tokens}

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """The visits of all tokens."""
        slow, fixed = np.asarray(network.slow(), np.float64), timeline.sent_in(network)
        known, token, room = times.known(network, seconds), np.arange(self.tokens), memory.host()
        node, first = jnp.asarray(token % network.m, jnp.int32), 0
        time, end = np.zeros(self.tokens), seconds
        if known is not None:
            time, end = times.units(time, known.unit, known.travel.dtype), known.last
        parts = list[tuple[np.ndarray, ...]]()
        while (time <= end).any():
            given = network.compute, network.latency, faults.links(network), key, node, first
            here, to, computing, travelling = map(np.asarray, _walk(*given))  # [L, K]
            if known is None:
                computing, travelling = computing * slow[here], travelling + fixed[here]
            else:
                computing, travelling = known.of(here)
            timeline.check_times(computing.T, network.compute)
            moved = here != to
            travelling = np.where(moved, travelling, 0)
            left = time + np.cumsum(computing + travelling, axis=0)  # when the token is at the next node
            done = left - travelling
            step, k = np.nonzero(done <= end)
            when = done[step, k] if known is None else known.seconds(done[step, k])
            parts.append((when, here[step, k], k, np.where(moved, to, -1)[step, k]))
            time, node, first = left[-1], jnp.asarray(to[-1]), first + _AT_ONCE
            had = sum(len(one[0]) for one in parts)
            timeline.check_number(had + timeline.still_to_come(first, time[time <= end], end), seconds, room, _BYTES)
        done, here, k, to = (np.concatenate(columns) for columns in zip(*parts))
        order = np.lexsort((k, done))
        done, here, k, to = done[order], here[order], k[order], to[order]
        return timeline.in_order(done, here, timeline.numbered(here), rows=np.stack([k, to], axis=1))

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Take a step, and send the model on."""
        x, _ = rows
        new = x - self.lr * self.gradients(x, event.at())
        return event.send(new, 1), None

    def params(self, state: Any) -> Array:
        """The models [m, n] of the tokens, node by node."""
        return state["token"][state["shown"]]


@jax.jit
def _walk(
    compute: Times, latency: Times, graph: Graph, key: Array, node: Array, first: int
) -> tuple[Array, Array, Array, Array]:
    """The next nodes of walks that are at nodes [K], those after them, and times of computing and travelling [L, K]."""
    degree = graph.in_degree.astype(jnp.float32)
    slots = jnp.argsort(~graph.mask, axis=1, stable=True)  # those with a neighbour first
    token = jnp.arange(len(node), dtype=jnp.int32)

    def one(at: Array, count: Array) -> tuple[Array, tuple[Array, Array, Array, Array]]:
        def drawn(at: Array, token: Array) -> tuple[Array, Array, Array, Array]:
            keys = [jax.random.fold_in(jax.random.fold_in(one.of(key), token), count) for one in (_WALK, _VISIT)]
            share, accepted = jax.random.uniform(keys[0], (2,), jnp.float32)
            times = jax.random.split(keys[1])
            slot = jnp.minimum(share * degree[at], jnp.maximum(degree[at] - 1, 0)).astype(jnp.int32)
            other = graph.senders[at, slots[at, slot]]
            to = jnp.where((degree[at] > 0) & (accepted * degree[other] < degree[at]), other, at)
            return at, to, compute.draw(times[0]), latency.draw(times[1])

        here = jax.vmap(drawn)(at, token)
        return here[1], here

    return lax.scan(one, node, jnp.int32(first) + jnp.arange(_AT_ONCE, dtype=jnp.int32))[1]
