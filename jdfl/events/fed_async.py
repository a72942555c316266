"""FedAsync and FedBuff: a server that waits for nobody; centralized baselines of asynchronous methods.

C. Xie, S. Koyejo, I. Gupta: Asynchronous Federated Optimization, 2019 (Algorithm 1, polynomial staleness). Client i
trains from the server's model x as it received it, for K steps, and sends its y_i:

    y_i <- y_i - lr (g_i(y_i) + rho (y_i - x as received))
    x   <- (1 - a) x + a y_i,    a = mixing (1 + tau)^-power

tau is the number of models that the server has made meanwhile. Then the client receives the new x and goes on.

J. Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation, 2022 (Algorithm 1). The server adds up
y_i - (x as received), weighted by (1 + tau)^-power with power = 1/2, and adds server_lr / size times the sum to x once
it has `size` of them.

The network's links play no part, only its times: a client waits for one message each time. A message that is lost is
one to the server.

Axes: m nodes (clients), b events, n parameters.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.round import Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, NotNegative, Positive, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.events import faults, timeline
from jdfl.events.event import Event
from jdfl.events.method import AsyncMethod, Tables, start
from jdfl.events.timeline import Events, Kind, Touch
from jdfl.network import Timed

_UP, _DOWN = Channel("up", Stream("events.up", "shared")), Channel("down", Stream("events.down", "shared"))
_BYTES = 254  # of an exchange without rows, while events are drawn
_TRAIN = Kind("train", (Touch("upload", "w"), Touch("download", "r")))


class _Server(AsyncMethod):
    """What both have in common: clients that train, and a server that answers."""

    channels = (_UP, _DOWN)
    paced: ClassVar[bool] = True
    directed: ClassVar[bool] = True
    bears: ClassVar[tuple[str, ...]] = ("lost messages", "absent nodes")
    lr: Any
    local_steps: int

    def tables(self, round: Round, sizes: Mapping[str, int]) -> Tables:
        """The server's model and buffer, and what every client has received and will send."""
        x = start(round)
        return {"server": x[:1], "buffer": jnp.zeros_like(x[:1]), "download": x, "upload": jnp.zeros_like(x)}

    def params(self, state: Any) -> Array:
        """The server's model, for all clients [m, n]."""
        return jnp.broadcast_to(state["server"], state["download"].shape)

    def visible(self, state: Any) -> Array:
        """What every client has sent and received last [m, 2 n]."""
        return jnp.concatenate([state["upload"], state["download"]], axis=1)

    def trained(self, x: Array, event: Event, rho: Any = 0.0) -> Array:
        """The clients' models [b, n] after their local steps from x [b, n], as the server receives them."""
        y = x
        for t in range(self.local_steps):
            y = y - self.lr * (self.gradients(y, event.at(turn=t)) + rho * (y - x))
        return event.post(y, 0, _UP)

    def answered(self, x: Array, event: Event) -> Array:
        """The server's models [b, n] as the clients receive them."""
        event.combine()
        return event.post(x, 0, _DOWN)

    def exchanges(self, network: Timed, key: Array, seconds: float, every: int, columns: int) -> Events:
        """Every client trains again and again, and the server applies at once what it sends, if it arrives."""
        found = timeline.wakes(network, key, seconds, gradients=self.local_steps, each=_BYTES + 20 * columns)
        come, far = ~faults.lost(network, key, found.actor, found.count), len(found) + 1
        place = np.cumsum(come) - 1  # how many models the server had applied by then
        by_client = np.lexsort((found.count, found.actor))
        client = found.actor[by_client].astype(np.int64) * far
        newest = np.maximum.accumulate(client + np.where(come, place + 1, 0)[by_client]) - client
        received = np.zeros(len(found), np.int64)  # the same, when the client had its last answer
        received[by_client[1:]] = np.where(np.diff(client) == 0, newest[:-1], 0)
        stale = place // every - received // every
        rows = np.zeros((len(found), columns), np.int32)
        rows[:, 0] = found.actor
        training = np.full_like(rows, -1)
        training[:, :2] = found.actor[:, None]
        applying = np.where(np.arange(columns) == columns - 1, found.actor[:, None], rows)[come]
        both = np.concatenate([np.arange(len(found)), np.flatnonzero(come)])
        last = place % every == every - 1
        kind = np.arange(len(both)) >= len(found)
        given: Any = {"kind": kind, "rows": np.concatenate([training, applying])}
        data = np.where(kind, (2 * stale + last)[both], 0)
        # `data`: 2 x the versions since the client's own, plus 1 with the last model of `every`, which makes a version
        return timeline.in_order(found.time[both], found.actor[both], found.count[both], **given, data=data)


@struct.dataclass
class FedAsync(_Server):
    """FedAsync: the server mixes every model that arrives into its own, the less the older it is."""

    kind: ClassVar[str] = "fed-async"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "FedAsync"
    kinds: ClassVar[tuple[Kind, ...]] = (
        _TRAIN,
        Kind("apply", (Touch("download", "w"), Touch("server", "rw"), Touch("upload", "r")), costly=False),
    )
    lr: StepSize = 0.1
    mixing: Fraction = 0.6
    """Weight of a model that is not stale, in (0, 1]."""
    power: NotNegative = 0.5
    """How fast the weight falls with staleness; 0: not at all."""
    rho: NotNegative = 0.0
    """Weight of the distance from the received model in the clients' losses."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps K of a client."""

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every client trains again and again; the server applies a model at once."""
        return self.exchanges(network, key, seconds, every=1, columns=3)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Train; or mix into the server's model, and answer."""
        if kind == "train":
            return self.trained(rows[1], event, self.rho), None
        _, x, y = rows
        part = self.mixing * (1.0 + (event.data // 2)[:, None].astype(x.dtype)) ** -self.power
        x = (1 - part) * x + part * y
        return self.answered(x, event), x, None


@struct.dataclass
class FedBuff(_Server):
    """FedBuff: the server adds up what models have changed, and moves after every so many of them."""

    kind: ClassVar[str] = "fed-buff"
    provenance: ClassVar[Provenance] = ("from memory",)
    title: ClassVar[str] = "FedBuff"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "server_lr")
    kinds: ClassVar[tuple[Kind, ...]] = (
        _TRAIN,
        Kind(
            "apply",
            (Touch("download", "rw"), Touch("server", "rw"), Touch("buffer", "rw"), Touch("upload", "r")),
            costly=False,
        ),
    )
    lr: StepSize = 0.1
    server_lr: Positive = 1.0
    """Step size of the server."""
    size: Count = struct.field(pytree_node=False, default=10)
    """Number of models between two steps of the server."""
    power: NotNegative = 0.5
    """How fast the weight of a model falls with staleness; 0: not at all."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps K of a client."""

    def events(self, network: Timed, key: Array, seconds: float) -> Events:
        """Every client trains again and again; the server applies a model at once."""
        return self.exchanges(network, key, seconds, every=self.size, columns=4)

    def handle(self, kind: str, rows: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        """Train; or add to the buffer, move if it is full, and answer."""
        if kind == "train":
            return self.trained(rows[1], event), None
        before, x, buffer, y = rows
        weight = (1.0 + (event.data // 2)[:, None].astype(x.dtype)) ** -self.power
        buffer, full = buffer + weight * (y - before), (event.data % 2 == 1)[:, None]
        x = jnp.where(full, x + self.server_lr / self.size * buffer, x)
        return self.answered(x, event), x, jnp.where(full, 0, buffer), None
