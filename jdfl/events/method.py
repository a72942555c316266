"""Asynchronous methods: what their events touch, and what one event computes.

Axes: m nodes, b events that are computed together, n parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.book import Book
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.algorithms.sending import Prepared
from jdfl.base import struct
from jdfl.base.streams import Keys, Stream, each
from jdfl.events.plan import Kind
from jdfl.events.timeline import Events
from jdfl.network import Graph, Timed
from jdfl.problems import Problem

Tables = Mapping[str, Any]  # trees with leaves [rows, ...]


@struct.dataclass
class Instant(Moment):
    """Events of several nodes: `node` [b] are their actors, and keys follow from how many each has had."""

    count: Array | None = None  # int32 [b] the number of the event among those of its actor

    @classmethod
    def of(cls, keys: Keys, node: Array, count: Array) -> "Instant":
        """Events of nodes [b] and counts [b] in a run with these keys; its graph has no links."""
        nobody, nothing = jnp.zeros((len(node), 1), jnp.int32), jnp.zeros((len(node), 1), jnp.float32)
        graph = Graph(nobody, nobody > 0, nothing, nothing[:, 0] + 1, nobody[:, 0])
        return cls(jnp.int32(0), keys.run, graph, node, keys, count)

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """A stream's key for every event [b]; `index` [] distinguishes several draws of one event."""
        assert self.count is not None
        return jax.vmap(jax.random.fold_in)(each(self.stream(stream), self.node, index), self.count)


@dataclass(frozen=True)
class Happening:
    """What an event knows besides the rows that it touches; of b events at once."""

    problem: Problem
    prepared: Prepared
    instant: Instant
    row: Array  # int32 [b, C] the rows of its touches; 0 where there is none
    present: Array  # [b, C] bool whether there is one

    def at(self, node: Array, part: int = 0) -> Round:
        """The round in which nodes [b] evaluate gradients; `part` distinguishes several nodes of one event.

        Their keys are those of the event's actor, so that nobody's draws depend on the order of execution.
        """
        ready = replace(self.prepared, gradients=self.prepared.gradients.rows(node))
        given = {"moment": self.instant, "problem": self.problem.nodes(node), "prepared": ready}
        return Round(**given, book=Book(), rows=node, local_step=part)


@struct.dataclass
class AsyncMethod:
    """An asynchronous method. A subclass has its settings, `kinds`, `tables`, `events` and `handle`.

    Times, partners and paths must not depend on parameters; what an event computes may.
    """

    kind: ClassVar[str] = ""
    title: ClassVar[str] = ""
    kinds: ClassVar[tuple[Kind, ...]] = ()
    gradients: Gradients = Gradients()

    def tables(self, problem: Problem) -> Tables:
        """Return the tables at the start, by name."""
        raise NotImplementedError

    def events(self, graph: Graph, clock: Timed, key: Array, seconds: float) -> Events:
        """Return the events until a time, sorted, with the rows of their touches."""
        raise NotImplementedError

    def handle(self, kind: str, rows: tuple[Any, ...], now: Happening) -> tuple[Any, ...]:
        """Return the new rows [b, ...] of every touch of events of a kind; None for those that are read only."""
        raise NotImplementedError

    def params(self, tables: Tables) -> Array:
        """Return the nodes' parameters [m, n]."""
        return tables["node"]

    def prepared(self, problem: Problem, moment: Moment) -> Prepared:
        """Return what gradients need besides settings and data."""
        return Prepared(self.gradients.prepare(problem, moment))


def start(problem: Problem) -> Array:
    """The initial parameters of all nodes [m, n], in an array of their own."""
    return jnp.array(problem.begin())
