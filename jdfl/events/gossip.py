"""Randomized gossip: two neighbours average whenever the clock of one of them ticks.

S. Boyd, A. Ghosh, B. Prabhakar, D. Shah: Randomized Gossip Algorithms, 2006. With exponential times it is their
asynchronous model.

    x_i, x_j <- (x_i + x_j) / 2

Axes: b events, n parameters.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Provenance
from jdfl.events.event import Event
from jdfl.events.method import AsyncMethod, Tables
from jdfl.events.partners import meetings
from jdfl.events.timeline import Events
from jdfl.events.touches import Kind, Touch
from jdfl.network import Timed


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
        return {"node": self.gradients(round.problem.begin(), round)}

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every node wakes with its clock, and meets a random neighbour."""
        return meetings(network, key, seconds, columns=2)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Average with the neighbour, if there is one."""
        x, other = rows
        mean = (event.send(x, 1) + event.send(other, 0, by=1)) / 2
        return jnp.where(event.there(1), mean, x), mean
