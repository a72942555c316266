"""SwarmSGD: pairs of nodes take local steps and average when they meet.

G. Nadiradze, A. Sabour, P. Davies, S. Li, D. Alistarh: Asynchronous Decentralized SGD with Quantized and Local Updates,
2021 (Algorithm 1, with blocking exchanges and a fixed number of local steps). When the clock of node i ticks and it
meets a random neighbour j,

    H times:  x_i <- x_i - lr g_i(x_i),    x_j <- x_j - lr g_j(x_j)
    x_i, x_j <- (x_i + x_j) / 2

A clock counts the local steps of its own node. Those of the partner count as gradients and take no time, as if it had
computed them before: a node computes twice as many gradients a second as in AD-PSGD.

Axes: b events, n parameters.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Provenance, StepSize
from jdfl.events.event import Event
from jdfl.events.method import AsyncMethod, Tables, start
from jdfl.events.partners import meetings
from jdfl.events.timeline import Events
from jdfl.events.touches import Kind, Touch
from jdfl.network import Graph, Timed


@struct.dataclass
class SwarmSGD(AsyncMethod):
    """SwarmSGD: local steps at both nodes of a meeting, then their average."""

    paced: ClassVar[bool] = True
    kind: ClassVar[str] = "swarm-sgd"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "SwarmSGD"
    bears: ClassVar[tuple[str, ...]] = ("lost messages", "absent nodes")
    kinds: ClassVar[tuple[Kind, ...]] = (Kind("meet", (Touch("node", "rw"), Touch("node", "rw"))),)
    lr: StepSize = 0.1
    local_steps: Count = struct.field(pytree_node=False, default=2)
    """Gradient steps H of both nodes before they average."""

    def shares(self, rate: np.ndarray, graph: Graph) -> np.ndarray:
        """A node's own meetings, and those with neighbours who choose it."""
        met = np.where(np.asarray(graph.mask), (rate / np.maximum(graph.in_degree, 1))[np.asarray(graph.senders)], 0)
        return rate + met.sum(axis=1)

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """The nodes' models."""
        return {"node": start(round)}

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every node wakes with its clock, and meets a random neighbour."""
        return meetings(network, key, seconds, columns=2, gradients=self.local_steps)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Take the steps of both, and average."""
        x, other = rows
        for t in range(self.local_steps):
            x = x - self.lr * self.gradients(x, event.at(0, t))
            other = other - self.lr * self.gradients(other, event.at(1, t))
        mean = (event.send(x, 1) + event.send(other, 0, by=1)) / 2
        return jnp.where(event.there(1), mean, x), mean
