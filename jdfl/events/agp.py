"""AGP: asynchronous gradient push, stochastic gradient descent with push-sum and nobody waiting for messages.

M. Assran, M. Rabbat: Asynchronous Gradient Push, 2021 (Algorithm 1). Whenever node i has finished a gradient at its
z_i = x_i / w_i,

    x_i <- x_i - lr g_i(z_i)
    (x_i, w_i) / 2  is sent to a random out-neighbour, and the other half stays
    (x_i, w_i) <- (x_i, w_i) + all that has arrived meanwhile

Messages arrive after their travel time, in whatever order. The sums of x and of w over nodes, mailboxes and messages on
their way are kept. The paper sends to all out-neighbours at once; with one at a time it is the push-sum of D. Kempe,
A. Dobra, J. Gehrke: Gossip-Based Computation of Aggregate Information, 2003.

A node that acts many times before it receives anything has a small w_i, and moves z_i by lr / w_i times a gradient:
runs may diverge with any lr where times between two events have no positive lower bound, as exponential ones. The
authors' code bounds them from below for that reason; ParetoTime and FixedTime do, too. The same happens to the
neighbours of a node that is much slower than they are, in whose mailbox their halves wait.

Axes: m nodes, b events, n parameters.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.round import MODEL, Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.events import faults, timeline
from jdfl.events.event import Event
from jdfl.events.method import AsyncMethod, Tables, start
from jdfl.events.slots import slots
from jdfl.events.timeline import Events, Kind, Touch
from jdfl.network import Network, Timed
from jdfl.network.faults import LinkLoss
from jdfl.problems import Problem

_BYTES = 310  # of a step, until its message has a slot


@struct.dataclass
class AGP(AsyncMethod):
    """Asynchronous gradient push: nodes send half of their model to a random out-neighbour, and never wait."""

    paced: ClassVar[bool] = True
    kind: ClassVar[str] = "agp"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    title: ClassVar[str] = "AGP"
    directed: ClassVar[bool] = True
    bears: ClassVar[tuple[str, ...]] = ("lost messages", "absent nodes")
    kinds: ClassVar[tuple[Kind, ...]] = (
        Kind("step", (Touch("node", "rw"), Touch("mailbox", "rw"), Touch("slot", "w"))),
        Kind("arrive", (Touch("mailbox", "rw"), Touch("slot", "r"))),
    )
    message_tables: ClassVar[tuple[str, ...]] = ("slot",)
    lr: StepSize = 0.1

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse what no asynchronous method takes, and lost messages that lose their share of the sum."""
        super().check(problem, network)
        for fault in faults.faults(faults.with_times(network, self.title)):
            if isinstance(fault, LinkLoss) and fault.weights != "sender":
                raise ValueError(
                    f"Expected weights = 'sender' in link_loss for {self.title}, got {fault.weights!r}: what is lost "
                    "would be missing in the sum of all nodes. The sender keeps it then, as if it had a receipt."
                )

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """Models and push-sum weights, of nodes, in their mailboxes, and on their way."""
        x = start(round)
        weight, empty = jnp.ones(round.m, x.dtype), jnp.zeros((sizes.get("slot", 1), round.problem.n), x.dtype)
        return {
            "node": (x, weight),
            "mailbox": (jnp.zeros_like(x), jnp.zeros_like(weight)),
            "slot": (empty, jnp.zeros_like(empty[:, 0])),
        }

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every node finishes one gradient after another; messages arrive later."""
        steps = timeline.wakes(network, key, seconds, messages=False, each=_BYTES)
        away = faults.absences(network, seconds)
        to = timeline.partners(network, timeline.heard_by(faults.links(network)), steps, key, away)
        arrival = timeline.arrivals(network, key, steps)
        sent = np.flatnonzero(to >= 0)
        come = sent[arrival[sent] <= seconds]
        both = np.concatenate([np.arange(len(steps)), come])  # the steps, and those whose messages arrive
        time, kind = np.concatenate([steps.time, arrival[come]]), np.arange(len(both)) >= len(steps)
        place = np.empty(len(both))
        place[timeline.order_of(time, kind, steps.actor[both], steps.count[both])] = np.arange(len(both))
        freed = np.full(len(steps), np.inf)
        freed[come] = place[len(steps) :]
        slot = np.full(len(steps), -1, np.int32)
        slot[sent], size = slots(place[sent], freed[sent], network.m)
        slot[to < -1] = -2  # is sent, and lost
        stepping = np.stack([steps.actor, steps.actor, slot], axis=1)
        arriving = np.stack([to, slot, np.full(len(steps), -1)], axis=1)[come]
        rows = np.concatenate([stepping, arriving])
        given = time, steps.actor[both], steps.count[both]
        return timeline.in_order(*given, kind=kind, rows=rows, sizes={"slot": size})

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Take a step, send a half, and take what has arrived; or put a message into a mailbox."""
        if kind == "arrive":
            return jax.tree.map(jnp.add, *rows), None
        (x, weight), mailbox, _ = rows
        x = x - self.lr * self.gradients(x / weight[:, None], event.at())
        sent = jnp.where(event.there(2), 0.5, 0).astype(x.dtype)
        slot = event.post(sent * x, 2), sent[:, 0] * weight
        event.combine()
        left = (1 - sent) * x, (1 - sent[:, 0]) * weight
        return jax.tree.map(jnp.add, left, mailbox), jax.tree.map(jnp.zeros_like, mailbox), slot

    def params(self, state: Any) -> Array:
        """The nodes' parameters x / w [m, n]."""
        x, weight = state["node"]
        return x / weight[:, None]

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """The model, and one number more: the push-sum weight."""
        return {MODEL.name: 8 * problem.dtype.itemsize * (problem.n + 1)}
