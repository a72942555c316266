"""AD-PSGD: asynchronous decentralized parallel SGD.

X. Lian, W. Zhang, C. Zhang, J. Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent, 2018
(Algorithm 1). Whenever a node i has finished a gradient at its snapshot, the model as it was when it began,

    x_i, x_j <- (x_i + x_j) / 2      with a random neighbour j
    x_i <- x_i - lr g_i(snapshot_i)

and it begins the next one at its new model. j's computation goes on meanwhile, at its own snapshot.

Axes: m nodes, b events, n parameters.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.base import struct
from jdfl.base.settings import StepSize
from jdfl.events.method import AsyncMethod, Happening, Tables, start
from jdfl.events.plan import Kind, Touch
from jdfl.events.timeline import Events, meetings
from jdfl.network import Graph, Timed
from jdfl.problems import Problem


@struct.dataclass
class ADPSGD(AsyncMethod):
    """AD-PSGD: nodes average with a random neighbour whenever they have a gradient, and nobody waits."""

    kind: ClassVar[str] = "ad-psgd"
    title: ClassVar[str] = "AD-PSGD"
    kinds: ClassVar[tuple[Kind, ...]] = (
        Kind("finish", (Touch("node", "rw"), Touch("snapshot", "rw", own=True), Touch("node", "rw"))),
    )
    lr: StepSize = 0.1

    def tables(self, problem: Problem) -> Tables:
        """The nodes' models, and the snapshots at which they compute."""
        return {"node": start(problem), "snapshot": start(problem)}

    def events(self, graph: Graph, clock: Timed, key: Array, seconds: float) -> Events:
        """Every node finishes one gradient after another."""
        return meetings(graph, clock, key, seconds, columns=3)

    def handle(self, kind: str, rows: tuple[Any, ...], now: Happening) -> tuple[Any, ...]:
        """Average with the neighbour, if there is one, and take the step."""
        x, snapshot, other = rows
        mean = jnp.where(now.present[:, 2:], (x + other) / 2, x)
        new = mean - self.lr * self.gradients(snapshot, now.at(now.instant.node))
        return new, new, mean
