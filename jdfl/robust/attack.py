"""Attacks: what nodes that lie send in place of their rows.

Attackers see all rows of a round, know which nodes are honest, and act together. Otherwise they follow the method:
their own states are those of honest nodes with their data.

Axes: m nodes, n parameters.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar
from zlib import crc32

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.base.settings import Provenance
from jdfl.base.streams import Stream
from jdfl.network import Graph
from jdfl.problems import Problem
from jdfl.robust.received import Aimed

DRAWN = Stream("attack", "choice")


@dataclass(frozen=True)
class Scene:
    """What attackers know when rows are sent."""

    graph: Graph  # of the round
    x: Array  # [m, n] what all nodes would send if all were honest
    liars: Array  # [m] bool the attackers
    ready: Any = None  # the result of the attack's `prepare`
    key: Any = None  # [] for what they draw

    @cached_property
    def honest(self) -> Array:
        """1 for honest nodes and 0 for attackers, honest [m, 1] of the rows' type."""
        return (~self.liars)[:, None].astype(self.x.dtype)

    @cached_property
    def mean(self) -> Array:
        """The mean of the honest rows [n]."""
        return jnp.sum(self.honest * self.x, axis=0) / jnp.sum(self.honest)

    @cached_property
    def deviation(self) -> Array:
        """The standard deviation of every coordinate over the honest rows [n], with m - 1 in the denominator."""
        squares = jnp.sum(self.honest * (self.x - self.mean[None]) ** 2, axis=0)
        return jnp.sqrt(squares / jnp.maximum(jnp.sum(self.honest) - 1, 1))

    def alike(self, row: Array) -> Array:
        """The same row [n] for all nodes [m, n]."""
        return jnp.broadcast_to(row[None], self.x.shape)


@struct.dataclass
class Attack:
    """An attack. A subclass has its settings and `rows`; it may alter the attackers' data or the weights instead.

    Class variables: `kind` and `title` are its names, and `aimed` says that row i is what node i receives, from every
    attacker, instead of what node i sends. `provenance` says what it was written from.
    """

    kind: ClassVar[str] = ""
    provenance: ClassVar[Provenance] = ()
    title: ClassVar[str] = ""
    aimed: ClassVar[bool] = False

    def rows(self, scene: Scene) -> Array:
        """Return the rows [m, n] that attackers send, in the places of the attackers; here what they would send anyway.

        Of an attack that is `aimed` they are the rows that the nodes receive, in the places of the receivers.
        """
        return scene.x

    def prepare(self, graph: Graph, liars: Array) -> Any:
        """Return what all rounds need, from the first graph and the attackers liars [m]; None: nothing."""
        return None

    def problem(self, problem: Problem, liars: Array) -> Problem:
        """Return the problem with the data that attackers liars [m] train on."""
        return problem

    def graph(self, graph: Graph, liars: Array) -> Graph:
        """Return the graph with the weights that the nodes use if the attackers liars [m] lie about their links."""
        return graph

    def check(self, problem: Problem) -> None:
        """Raise ValueError for a problem that the attack does not fit."""


@dataclass
class Lies:
    """The attack of one round, as `jdfl.Round` applies it."""

    attack: Attack
    liars: Array  # [m] bool the attackers of this round
    ready: Any
    key: Array  # [] of `DRAWN` in this round
    channels: set[str] = field(default_factory=set)  # those on which it was applied

    def of(self, graph: Graph, x: Array, channel: str, index: int) -> tuple[Array, Aimed | None]:
        """The rows that all receive [m, n], and those that single nodes receive."""
        self.channels.add(channel)
        key = jax.random.fold_in(jax.random.fold_in(self.key, jnp.uint32(crc32(channel.encode()))), index)
        rows = self.attack.rows(Scene(graph, x, self.liars, self.ready, key)).astype(x.dtype)
        if self.attack.aimed:
            return x, Aimed(self.liars, rows)
        return jnp.where(self.liars[:, None], rows, x), None
