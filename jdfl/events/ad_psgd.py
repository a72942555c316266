"""AD-PSGD: asynchronous decentralized parallel SGD.

X. Lian, W. Zhang, C. Zhang, J. Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent, 2018
(Algorithm 1). Whenever a node i has finished a gradient at its snapshot, the model as it was when it began,

    x_i, x_j <- (x_i + x_j) / 2      with a random neighbour j
    x_i <- x_i - lr g_i(snapshot_i)

and it begins the next one at its new model, or at its model when it returns after it was away. j's computation goes on
meanwhile, at its own snapshot.

Axes: m nodes, b events, n parameters.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.events import timeline
from jdfl.events.event import Event
from jdfl.events.faults import absences
from jdfl.events.method import AsyncMethod, Tables, start
from jdfl.events.partners import meetings
from jdfl.events.timeline import Events
from jdfl.events.touches import Kind, Touch
from jdfl.network import Timed


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
        return found if away is None else timeline.with_returns(found, away, seconds, kind=1)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Average with the neighbour, if there is one, and take the step; or begin at the model."""
        if kind == "return":
            return rows[0], rows[0]
        x, snapshot, other = rows
        g = self.gradients(snapshot, event.at())
        mean = (event.send(x, 2) + event.send(other, 0, by=2)) / 2
        new = jnp.where(event.there(2), mean, x) - self.lr * g
        return new, new, mean
