"""What a step knows of its round's network, and how rows leave the nodes, are counted, and arrive.

`Messages` has the operations with which steps send; they are made of what is here.

Axes: m nodes, of all or of one device, n parameters.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.book import Book, Channel
from jdfl.algorithms.moment import Moment
from jdfl.base import struct
from jdfl.base.marking import sent
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense, transmit
from jdfl.devices import nodes
from jdfl.network import Graph
from jdfl.robust import Aimed, Rule, Weighted
from jdfl.robust.attacks import Lies

To = Literal["neighbours", "one", "asked"]


@struct.dataclass
class Prepared:
    """What follows from settings, data and network, computed once before the first round."""

    gradients: Any = None  # result of `Gradients.prepare`
    wire: Any = None  # result of `Codec.prepare`
    own: Any = None  # result of the algorithm's own `prepare`


@dataclass(frozen=True, kw_only=True)
class Sending:
    """What a step knows of its round's network, with the parts of all operations that send."""

    moment: Moment
    prepared: Prepared
    book: Book = field(default_factory=Book)
    mail: dict[str, Any] = field(default_factory=dict)  # delayed messages, by channel
    exchanging: Array | None = None  # [] whether this round exchanges messages; None: all rounds do
    rule: Rule | None = None  # how rows are combined; None: by W
    lies: Lies | None = None  # what attackers send; None: all nodes are honest

    @property
    def k(self) -> Array:
        """The number of the round, int32 [], from 0; also 0 before the first round.

        It is traced by JAX: choose by `jnp.where` or `lax.cond`, never by a Python `if`. Nodes that were offline or
        silent count rounds like all others.
        """
        return self.moment.k

    @property
    def graph(self) -> Graph:
        """The links of this round and their mixing weights.

        Read it, for example for degrees [m] or a choice of neighbours, but send through `mix`, `pull`, `publish`,
        `push` or `deliver`, which count messages. Within `each_of` it remains the graph of all nodes.
        """
        return self.moment.graph

    @property
    def node(self) -> Array:
        """The global ids [m] of the nodes, int32.

        Use them rather than array positions to distinguish nodes: on several devices they are the ids of one device's
        nodes, and within `each_of` those of a block [b].
        """
        return self.moment.node

    @property
    def m(self) -> int:
        """The number of nodes, or of this device's nodes where they are sharded over several devices.

        Arrays of a step have this number of rows. For the size of the whole network use `jdfl.nodes.count(round.m)`,
        and for means over it `jdfl.nodes.mean`.
        """
        return self.moment.m

    @property
    def codec(self) -> Codec:
        """The algorithm's codec.

        For an algorithm without one it is a lossless `Dense` of the parameters' type. `mix`, `pull`, `publish` and
        `deliver` apply it; `push` sends numbers unencoded.
        """
        return self.prepared.wire.codec

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """A key of a stream for every node [m] in this round; `index` [] distinguishes several draws of one round.

        Keys follow from the run's key, the round, the stream and the nodes' ids, so they do not depend on the number of
        devices. Within `repeat` pass `local_step` as the index; otherwise all local steps draw the same numbers.
        """
        return self.moment.keys(stream, index)

    def leaving(self, channel: Channel, x: Array, by: Array | None = None, *, to: To = "neighbours") -> Array:
        """The rows x [m, n], marked as leaving the nodes on a channel.

        Everything that leaves a node passes through here, and privacy is derived from these marks.

        Args:
            channel: Where the rows are counted.
            x: The rows x [m, n] before encoding.
            by: The nodes that send, by [m] bool; None: all.
            to: The receivers of a row: all out-"neighbours", "one" receiver per row, or those that "asked".
        """
        return sent(x, channel.name)

    def _sent(self, channel: Channel, x: Array, by: Array | None = None) -> tuple[int, Array]:
        """Count a message x [m, n] to all out-neighbours, from all nodes or from those in `by` [m]."""
        times: Any = 1 if self.exchanging is None else self.exchanging.astype(jnp.int32)
        sender = times if by is None else times * by.astype(jnp.int32)
        heard = (self.graph.in_degree > 0).astype(jnp.int32)
        index = self.book.send(channel, sender * self.graph.out_degree, times * heard)
        return index, self.leaving(channel, x, by)

    def _arriving(self, channel: Channel, x: Array, index: int) -> tuple[Array, Aimed | None]:
        """What receivers decode from the rows x [m, n] of all nodes, and from those that attackers send instead."""
        x, aimed = (x, None) if self.lies is None else self.lies.of(self.graph, x, channel.name, index)
        z = x if exact(self.codec, x) else self._received(x, self.graph.out_degree > 0, channel, index)
        return z, aimed

    def _combined(self, own: Array, z: Array, aimed: Aimed | None = None) -> Array:
        """The rows [m, n] by the rule, or by W, of the nodes' own rows [m, n] and those that arrive, z [m, n]."""
        self._refuse_late()
        rule, problem = self.rule or Weighted(), getattr(self, "problem", None)
        losses = None if problem is None else problem.values
        result = rule(self.graph, own, z, aimed=aimed, k=self.k, losses=losses)
        if rule.minimises and self.book.moved is not True:  # rows that are all alike are combined, too
            moved = jnp.any(result != own, axis=1) | nodes.every(jnp.all(z == nodes.first(z)[None], axis=1))
            self.book.moved = moved if self.book.moved is None else self.book.moved | moved
        elif self.book.moved is None:
            self.book.moved = True
        return result if self.exchanging is None else jnp.where(self.exchanging, result, own)

    def with_lies(self, channel: Channel, x: Array) -> Array:
        """The rows x [m, n] with those that attackers send instead; ValueError for attacks that differ by receiver."""
        if self.lies is None:
            return x
        x, aimed = self.lies.of(self.graph, x, channel.name, self.book.uses.get(channel.name, 0))
        if aimed is None:
            return x
        raise ValueError(
            f"Expected a method that mixes for the attack {self.lies.attack.title}, which sends every neighbour "
            f"another row, got one whose rows on the channel {channel.name!r} are the same for all receivers. Use "
            "another attack, such as jdfl.robust.ALIE()."
        )

    def _refuse_late(self) -> None:
        if self.graph.late is not None:
            raise ValueError(
                "Expected a network without delayed messages for robust rules and attacks. Leave out network.delays."
            )

    def _received(self, x: Array, wanted: Array, channel: Channel, index: int) -> Array:
        """What receivers decode from the rows of x [m, n] that are `wanted` [m]."""
        return transmit(self.prepared.wire, self.shared_keys(channel, index), x, wanted)

    def shared_keys(self, channel: Channel, index: int = 0) -> Array:
        """The sender's keys [m], from which both ends of a channel draw; `index` distinguishes messages.

        `mix`, `pull`, `publish` and `deliver` use them internally; a method that calls a codec itself needs them. The
        channel must have a stream. Never draw noise from them, because receivers know them.
        """
        assert channel.stream is not None  # true of channels on which vectors go through a codec
        return self.keys(channel.stream, index)

    def waiting(self, channel: Channel, kind: Any, x: Array) -> Any:
        """Delayed messages of a channel; the first time, an empty `kind` (`Past` or `Mail`) for rows like x [m, n].

        Only for networks with delayed messages. The caller stores the updated value in `mail` under the channel's name,
        as `mix` and `push` do, and the next round starts with it.
        """
        if channel.name not in self.mail:
            self.mail[channel.name] = kind.begin(self.graph, x)
        return self.mail[channel.name]


def exact(codec: Codec, x: Array) -> bool:
    """Whether the codec transmits vectors of the type of x [m, n] without loss."""
    return isinstance(codec, Dense) and codec.precision == x.dtype.name
