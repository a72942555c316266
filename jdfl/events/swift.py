"""SWIFT: wait-free decentralized SGD, in which nodes average with the newest models that have arrived.

M. Bornstein, T. Rabbani, E. Wang, A. S. Bedi, F. Huang: SWIFT: Rapid Decentralized Federated Learning via Wait-Free
Model Communication, 2023 (Algorithm 1). Whenever node i has finished a gradient at its model x_i,

    x_i <- sum_j W_ij x_j - lr g_i(x_i)      with the newest x_j that has arrived from neighbour j
    x_i is sent to all neighbours

Weights are those of the network; the paper adapts them to how often nodes wake. A message that arrives at the very time
of an event comes too late for it, so that equal clocks give D-PSGD. All nodes know the initial models.

Axes: m nodes, b events, d slots of the table of in-neighbours, n parameters.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.events import faults, timeline
from jdfl.events.event import Event
from jdfl.events.method import AsyncMethod, Tables, start
from jdfl.events.slots import newest
from jdfl.events.timeline import Events, Kind, Touch
from jdfl.network import Timed

_BYTES = 312  # of an event without neighbours, until versions have rows


@struct.dataclass
class SWIFT(AsyncMethod):
    """SWIFT: nodes average with the newest models that have arrived, take a step, and wait for nobody."""

    kind: ClassVar[str] = "swift"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "SWIFT"
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    bears: ClassVar[tuple[str, ...]] = ("absent nodes",)
    kinds: ClassVar[tuple[Kind, ...]] = (
        Kind("wake", (Touch("node", "rw"), Touch("slot", "w"), Touch("slot", "r", many=True))),
    )
    message_tables: ClassVar[tuple[str, ...]] = ("slot",)
    lr: StepSize = 0.1

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """The nodes' models, and their versions that neighbours may read; the first m are the initial ones."""
        x = start(round)
        return {
            "node": x,
            "slot": jnp.concatenate([x, jnp.zeros((sizes.get("slot", len(x)) - len(x), x.shape[1]), x.dtype)]),
        }

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every node finishes one gradient after another."""
        each = _BYTES + 4 * faults.links(network).senders.shape[1]
        found = timeline.wakes(network, key, seconds, messages=False, each=each)
        own, read, size = newest(network, key, found)
        rows = np.concatenate([found.actor[:, None], own[:, None], read], axis=1)
        return replace(found, rows=rows, sizes={"slot": size})

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Average, take the step, and send the new model."""
        x, _, neighbours = rows
        event.combine()
        new = neighbours.mixed(x) - self.lr * self.gradients(x, event.at())
        return new, event.publish(new), None
