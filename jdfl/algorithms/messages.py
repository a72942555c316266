"""The messages of one round: how vectors of all nodes reach their neighbours, and what of them is counted.

Codecs, late messages and rounds without exchange are dealt with here; what is sent is written down in the round's
`Book`. `Round` is this, and all else that a step can do.

Axes: m nodes, of all or of one device, n parameters.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.book import MODEL, Book, Channel
from jdfl.algorithms.moment import Moment
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense, Wire, round_trip, transmit
from jdfl.devices import nodes
from jdfl.network import Graph, Mail, Past
from jdfl.network import mix as mix_rows
from jdfl.privacy.flow import sent

To = Literal["neighbours", "one", "asked"]


@struct.dataclass
class Prepared:
    """What follows from settings, data and network, computed once before the first round."""

    gradients: Any = None  # what `Gradients.prepare` gives
    wire: Any = None  # what `Codec.prepare` gives
    own: Any = None  # what the algorithm's own `prepare` gives


@dataclass(frozen=True, kw_only=True)
class Messages:
    """What a step knows of its round's network, and the ways in which its nodes send."""

    moment: Moment
    prepared: Prepared
    book: Book = field(default_factory=Book)
    mail: dict[str, Any] = field(default_factory=dict)  # late messages, by channel
    exchanging: Array | None = None  # [] whether this is a round of exchange; None: every one is

    @property
    def k(self) -> Array:
        """The number of the round, int32 [], from 0; before the first round it is 0, too.

        It is traced by JAX, so that what depends on it is chosen by `jnp.where` or `lax.cond`, and never by a Python
        `if`. Nodes that were away or silent count rounds like all others.
        """
        return self.moment.k

    @property
    def graph(self) -> Graph:
        """Who hears whom in this round, and with which weights.

        It is for looking at, such as degrees [m] or the choice of neighbours: messages go through `mix`, `pull`,
        `publish`, `push` or `deliver`, which count them. Within `each_of` it stays that of all nodes.
        """
        return self.moment.graph

    @property
    def node(self) -> Array:
        """The global ids [m] of the nodes, int32.

        Use them, and not places in an array, for whatever tells nodes apart: on several devices they are those of one
        device's nodes, and within `each_of` those of a block [b].
        """
        return self.moment.node

    @property
    def m(self) -> int:
        """The number of nodes, of those on this device where they lie on several.

        Arrays of a step have so many rows. What depends on the size of the whole network takes
        `jdfl.nodes.count(round.m)`, and means over it `jdfl.nodes.mean`.
        """
        return self.moment.m

    @property
    def codec(self) -> Codec:
        """The algorithm's codec.

        For an algorithm without one it is `Dense` in the parameters' type, by which vectors arrive as they are. `mix`,
        `pull`, `publish` and `deliver` apply it; `push` sends numbers as they are.
        """
        return self.prepared.wire.codec

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """A key for every node [m] in this round, of a stream; `index` [] tells several draws of one round apart.

        They follow from the run's key, the round, the stream and the nodes' ids, and so are the same on any number of
        devices. Within `repeat` give `local_step` as the index, or all local steps draw the same.
        """
        return self.moment.keys(stream, index)

    def every(self, period: int) -> Self:
        """The round, whose messages are left out unless its number is a multiple of `period`.

        Use it with `mix`, which gives x itself in the other rounds, at no cost and without a message; the other ways to
        send would do their work all the same, uncounted.
        """
        return self if period == 1 else replace(self, exchanging=self.k % period == 0)

    def mix(self, x: Array, channel: Channel | None = MODEL) -> Array:
        """W x [m, n] for rows x [m, n] that all nodes send: own rows as they are, others' as they arrive.

        In rounds without exchange x itself. Of late messages the newest counts that has come.

        Args:
            x: The rows x [m, n] that are sent through the algorithm's codec.
            channel: On which they are counted; None: they are known to all already, such as public copies, and nothing
                is sent.
        """
        graph = self.graph
        if channel is None:
            return mix_rows(graph, x)
        index, x = self._sent(channel, x)
        if graph.late is not None:
            z = x if exact(self.codec, x) else self._received(x, jnp.ones((self.m,), jnp.bool_), channel, index)
            past = self.waiting(channel, Past, x).after(z, self.k)
            self.mail[channel.name] = past
            return past.mix(graph, x, self.k)

        def exchanged(x: Array, graph: Graph, wire: Wire, keys: Array | None) -> Array:
            if keys is None:
                return mix_rows(graph, x)
            z = transmit(wire, keys, x, graph.out_degree > 0)
            return mix_rows(graph, z) + graph.self_weight.astype(x.dtype)[:, None] * (x - z)

        operands = x, graph, self.prepared.wire, None if exact(self.codec, x) else self.shared_keys(channel, index)
        if self.exchanging is None:
            return exchanged(*operands)
        return ops.skipped_unless(self.exchanging, exchanged, x, *operands)

    def pull(self, x: Array, channel: Channel | None = MODEL) -> Array:
        """(W - I) z [m, n], z being what arrives of rows x [m, n] that all nodes send.

        It is computed from differences alone, so that sums of it over many rounds do not add up the rounding of W x - x
        (a share 1e-8 to 1e-7 of x). A node counts with what its neighbours receive of it, not with its own x: where W
        is doubly stochastic, the rows sum to zero whatever the codec loses.

        Args:
            x: The rows x [m, n] that are sent through the algorithm's codec.
            channel: On which they are counted; None: they are known to all already, nothing is sent, and z is x.
        """
        graph, z = self.graph, x
        if channel is not None:
            index, z = self._sent(channel, x)
            if not exact(self.codec, x):
                z = self._received(x, (graph.out_degree > 0) | (graph.in_degree > 0), channel, index)
        z = z - nodes.first(z)[None]  # the same for all, which changes no difference: near agreement all is exact
        weight, own = graph.weight.astype(x.dtype), graph.self_weight.astype(x.dtype)
        total = own + jnp.sum(weight, axis=1)  # 1, up to its rounding
        if graph.synchronised is not None:
            total = jnp.where(graph.synchronised, 1, total)
        return mix_rows(graph, z) - total[:, None] * z

    def publish(self, x: Array, copy: Array, channel: Channel = MODEL, by: Array | None = None) -> Array:
        """The public copies copy + C(x - copy) of x [m, n], after the nodes have sent C(x - copy) to all neighbours.

        Args:
            x: The rows x [m, n] that the copies follow.
            copy: The copies so far, copy [m, n], the same at a node and at all its neighbours.
            channel: On which messages are counted; C is the algorithm's codec.
            by: The only nodes that send, by [m] bool, while other copies stay; None: all.
        """
        index, x = self._sent(channel, x, by)
        new = copy + self._received(x - copy, jnp.ones((self.m,), jnp.bool_) if by is None else by, channel, index)
        return new if by is None else jnp.where(by[:, None], new, copy)

    def push(self, x: Array, weight: Array, channel: Channel) -> tuple[Array, Array]:
        """Sums [m, n] and [m] of what arrives where nodes share out what they have by the columns of W.

        What is late is added to the sums of the round in which it arrives, so that nothing is lost of the sum over all.

        Args:
            x: The rows x [m, n], which go through no codec.
            weight: The normalising scalars weight [m] of push-sum, shared out in the same way.
            channel: On which messages are counted, each of both together.
        """
        graph = self.graph
        _, x = self._sent(channel, x)
        if graph.late is None:
            return mix_rows(graph, x), mix_rows(graph, weight[:, None])[:, 0]
        both = jnp.concatenate([x, weight[:, None]], axis=1)
        sums, self.mail[channel.name] = self.waiting(channel, Mail, both).mix(graph, both, self.k)
        return sums[:, :-1], sums[:, -1]

    def deliver(self, x: Array, channel: Channel) -> Array:
        """What arrives of the rows of x [m, n] at one receiver each, such as a server, one message per node.

        Row i [n] is what its receiver decodes by the algorithm's codec. The network has no part in it: nothing is
        weighted, late or lost. For messages to neighbours there are `mix` and `publish`.
        """
        self.book.send(channel, 1, 1)
        return round_trip(self.prepared.wire, self.shared_keys(channel), self.leaving(channel, x, to="one"))

    def leaving(self, channel: Channel, x: Array, by: Array | None = None, *, to: To = "neighbours") -> Array:
        """The rows x [m, n], marked as what leaves the nodes on a channel.

        All that leaves a node passes here: privacy is judged by what is marked.

        Args:
            channel: Where the rows are counted.
            x: The rows x [m, n] before they are coded.
            by: The only nodes that send, by [m] bool; None: all.
            to: Who gets a row: all out-"neighbours", "one" receiver of its own, or those that "asked".
        """
        return sent(x, channel.name)

    def _sent(self, channel: Channel, x: Array, by: Array | None = None) -> tuple[int, Array]:
        """Count a message x [m, n] to all out-neighbours, of all nodes or those `by` [m] which it is sent.

        Returns how often the step has sent on the channel before, and x, marked.
        """
        times: Any = 1 if self.exchanging is None else self.exchanging.astype(jnp.int32)
        sender = times if by is None else times * by.astype(jnp.int32)
        heard = (self.graph.in_degree > 0).astype(jnp.int32)
        index = self.book.send(channel, sender * self.graph.out_degree, times * heard)
        return index, self.leaving(channel, x, by)

    def _received(self, x: Array, wanted: Array, channel: Channel, index: int) -> Array:
        """What receivers make of the rows of x [m, n] that are `wanted` [m]."""
        return transmit(self.prepared.wire, self.shared_keys(channel, index), x, wanted)

    def shared_keys(self, channel: Channel, index: int = 0) -> Array:
        """The keys [m] that both ends of a channel draw from, those of the sender; `index` tells messages apart.

        `mix`, `pull`, `publish` and `deliver` take them for themselves; a method that calls a codec itself needs them.
        The channel must have a stream. Noise must never be drawn from them, since receivers know them.
        """
        assert channel.stream is not None  # of channels on which vectors go through a codec
        return self.keys(channel.stream, index)

    def waiting(self, channel: Channel, kind: Any, x: Array) -> Any:
        """Late messages of a channel; the first time, those of `kind` (`Past` or `Mail`) for rows like x [m, n].

        For networks alone whose messages are late. Whoever takes them puts what they have become into `mail` under the
        channel's name, as `mix` and `push` do, and the next round begins with it.
        """
        if channel.name not in self.mail:
            self.mail[channel.name] = kind.begin(self.graph, x)
        return self.mail[channel.name]


def exact(codec: Codec, x: Array) -> bool:
    """Whether vectors of the type of x [m, n] arrive as they are."""
    return isinstance(codec, Dense) and codec.precision == x.dtype.name
