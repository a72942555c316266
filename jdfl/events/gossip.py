"""Randomized gossip: two neighbours average whenever the clock of one of them ticks.

S. Boyd, A. Ghosh, B. Prabhakar, D. Shah: Randomized Gossip Algorithms, 2006. With exponential times it is their
asynchronous model.

    x_i, x_j <- (x_i + x_j) / 2

Axes: b events, n parameters.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.events.method import AsyncMethod, Happening, Tables
from jdfl.events.plan import Kind, Touch
from jdfl.events.timeline import Events, meetings
from jdfl.network import Graph, Timed
from jdfl.problems import Problem


@struct.dataclass
class RandomizedGossip(AsyncMethod):
    """Randomized gossip: averaging of one gradient of every node's loss, at the initial parameters."""

    kind: ClassVar[str] = "randomized-gossip"
    title: ClassVar[str] = "randomized gossip"
    kinds: ClassVar[tuple[Kind, ...]] = (Kind("meet", (Touch("node", "rw"), Touch("node", "rw"))),)

    def tables(self, problem: Problem) -> Tables:
        """The values that are averaged: the gradients at the start."""
        x = problem.begin()
        return {"node": problem.each(problem.gradient, x, problem.data, problem.weight)}

    def events(self, graph: Graph, clock: Timed, key: Array, seconds: float) -> Events:
        """Every node wakes with its clock, and meets a random neighbour."""
        return meetings(graph, clock, key, seconds, columns=2)

    def handle(self, kind: str, rows: tuple[Any, ...], now: Happening) -> tuple[Any, ...]:
        """Average with the neighbour, if there is one."""
        x, other = rows
        mean = jnp.where(now.present[:, 1:], (x + other) / 2, x)
        return mean, mean
