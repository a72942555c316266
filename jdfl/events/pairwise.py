"""Methods in which two neighbours meet and average, without a common clock: AD-PSGD, SwarmSGD and randomized gossip.

X. Lian, W. Zhang, C. Zhang, J. Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent, 2018
(Algorithm 1). Whenever a node i has finished a gradient at its snapshot, the model as it was when it began,

    x_i, x_j <- (x_i + x_j) / 2      with a random neighbour j
    x_i <- x_i - lr g_i(snapshot_i)

and it begins the next one at its new model, or at its model when it returns after it was away. j's computation goes on
meanwhile, at its own snapshot.

G. Nadiradze, A. Sabour, P. Davies, S. Li, D. Alistarh: Asynchronous Decentralized SGD with Quantized and Local Updates,
2021 (SwarmSGD, Algorithm 1, with blocking exchanges and a fixed number of local steps). When the clock of node i ticks
and it meets a random neighbour j,

    H times:  x_i <- x_i - lr g_i(x_i),    x_j <- x_j - lr g_j(x_j)
    x_i, x_j <- (x_i + x_j) / 2

A clock counts the local steps of its own node. Those of the partner count as gradients and take no time, as if it had
computed them before: a node computes twice as many gradients a second as in AD-PSGD.

S. Boyd, A. Ghosh, B. Prabhakar, D. Shah: Randomized Gossip Algorithms, 2006: x_i, x_j <- (x_i + x_j) / 2 whenever the
clock of one of them ticks. With exponential times it is their asynchronous model.

Axes: m nodes, b events, n parameters.
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
from jdfl.events.faults import absences
from jdfl.events.method import AsyncMethod, Tables, start
from jdfl.events.timeline import Events, Kind, Touch, meetings, with_returns
from jdfl.network import Graph, Timed


@struct.dataclass
class ADPSGD(AsyncMethod):
    """AD-PSGD: nodes average with a random neighbour whenever they have a gradient, and nobody waits."""

    paced: ClassVar[bool] = True
    kind: ClassVar[str] = "ad-psgd"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "AD-PSGD"
    bears: ClassVar[tuple[str, ...]] = ("lost messages", "absent nodes")
    kinds: ClassVar[tuple[Kind, ...]] = (
        Kind("finish", (Touch("node", "rw"), Touch("snapshot", "rw", own=True), Touch("node", "rw"))),
        Kind("return", (Touch("node", "rw"), Touch("snapshot", "w", own=True))),
    )
    lr: StepSize = 0.1

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """The nodes' models, and the snapshots at which they compute."""
        return {"node": start(round), "snapshot": start(round)}

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every node finishes one gradient after another, and begins a new one when it was away and returns."""
        found, away = meetings(network, key, seconds, columns=3), absences(network, seconds)
        return found if away is None else with_returns(found, away, seconds, kind=1)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Average with the neighbour, if there is one, and take the step; or begin at the model."""
        if kind == "return":
            return rows[0], rows[0]
        x, snapshot, other = rows
        g = self.gradients(snapshot, event.at())
        mean = (event.send(x, 2) + event.send(other, 0, by=2)) / 2
        new = jnp.where(event.there(2), mean, x) - self.lr * g
        return new, new, mean


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


@struct.dataclass
class RandomizedGossip(AsyncMethod):
    """Randomized gossip: averaging of one gradient of every node's loss, at the initial parameters."""

    kind: ClassVar[str] = "randomized-gossip"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "randomized gossip"
    bears: ClassVar[tuple[str, ...]] = ("lost messages", "absent nodes")
    kinds: ClassVar[tuple[Kind, ...]] = (Kind("meet", (Touch("node", "rw"), Touch("node", "rw"))),)

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """The values that are averaged: the gradients at the start."""
        return {"node": self.gradients(round.problem.initial_params(), round)}

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every node wakes with its clock, and meets a random neighbour."""
        return meetings(network, key, seconds, columns=2)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Average with the neighbour, if there is one."""
        x, other = rows
        mean = (event.send(x, 1) + event.send(other, 0, by=1)) / 2
        return jnp.where(event.there(1), mean, x), mean
