"""One round as the step of an algorithm sees it: the gradients, messages, noise and keys of all nodes at once.

A step says what the nodes compute. How that is executed (codecs, late messages, blocks of nodes, devices) and what it
counts (messages, gradients, releases) is done here: while JAX traces a step, all that goes through its `Round` is
written down in a `Book`, from which counts, ledgers and statements about privacy follow. An algorithm counts and claims
nothing itself.

Axes: m nodes, of all or of one device, n parameters, b nodes of a block.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.book import Book, Channel, Told
from jdfl.algorithms.moment import Moment
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.streams import Stream
from jdfl.codecs import Codec, Dense, Wire, round_trip, transmit
from jdfl.devices import nodes
from jdfl.network import Graph, Mail, Past
from jdfl.network import mix as mix_rows
from jdfl.privacy import Mechanism
from jdfl.privacy.flow import released, sent
from jdfl.problems import Problem

T = TypeVar("T")
MODEL = Channel("model", Stream("message.model", "shared"))
TRACKER = Channel("tracker", Stream("message.tracker", "shared"))


@struct.dataclass
class Prepared:
    """What follows from settings, data and network, computed once before the first round."""

    gradients: Any = None  # what `Gradients.prepare` gives
    wire: Any = None  # what `Codec.prepare` gives
    own: Any = None  # what the algorithm's own `prepare` gives


@dataclass(frozen=True)
class Round:
    """What a step knows of its round, and all that it can do besides arithmetic.

    `graph` says who hears whom, `k` counts rounds from 0, `node` [m] are the nodes' ids, and `ready` is what the
    algorithm's `prepare` made (of `prepared`, which has the `Wire`, too). What the step does is written into `book`.
    Inside `repeat` and `each_of` it is of one local step, or of a block of nodes.
    """

    moment: Moment
    problem: Problem
    prepared: Prepared
    book: Book
    mail: dict[str, Any]  # late messages, by channel
    exchanging: Array | None = None  # [] whether this is a round of exchange; None: every one is
    local_step: Array | int = 0  # number of the local step in the round, of `local_steps`
    local_steps: int = 1
    inner: bool = False  # within `repeat`
    rows: Array | None = None  # [b] the nodes of a block; None: all

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
    def ready(self) -> Any:
        """What the algorithm's `prepare` has made, the same in all rounds; None where it makes nothing.

        Within `each_of` its arrays have the rows of all nodes still: `here.of` takes those of the block. A schedule for
        all rounds [T] is read at `round.k`.
        """
        return self.prepared.own

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

    # Messages

    def every(self, period: int) -> "Round":
        """The round, whose messages are left out unless its number is a multiple of `period`.

        Use it with `mix`, which gives x itself in the other rounds, at no cost and without a message; the other ways to
        send would do their work all the same, uncounted.
        """
        return self if period == 1 else replace(self, exchanging=self.k % period == 0)

    def mix(self, x: Array, channel: Channel | None = MODEL) -> Array:
        """W x [m, n] for rows x [m, n] that all nodes send: own rows as they are, others' as they arrive.

        In rounds without exchange x itself. Of late messages the newest counts that has come. With `channel` None the
        rows are known to all already, such as public copies, and nothing is sent.
        """
        graph = self.graph
        if channel is None:
            return mix_rows(graph, x)
        index, x = self._sent(channel), sent(x, channel.name)
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
        """(W - I) z [m, n], z being what arrives of rows x [m, n] that all nodes send (`channel` None: x itself).

        It is computed from differences alone, so that sums of it over many rounds do not add up the rounding of
        W x - x (a share 1e-8 to 1e-7 of x). A node counts with what its neighbours receive of it, not with its own x:
        where W is doubly stochastic, the rows sum to zero whatever the codec loses.
        """
        graph, z = self.graph, x
        if channel is not None:
            index, z = self._sent(channel), sent(x, channel.name)
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

        C is the codec, copy [m, n] are the copies so far. With `by` [m] only these nodes send, and other copies stay.
        """
        index = self._sent(channel, by)
        x = sent(x, channel.name)
        new = copy + self._received(x - copy, jnp.ones((self.m,), jnp.bool_) if by is None else by, channel, index)
        return new if by is None else jnp.where(by[:, None], new, copy)

    def push(self, x: Array, weight: Array, channel: Channel) -> tuple[Array, Array]:
        """Sums [m, n] and [m] of what arrives where nodes share out x [m, n] and `weight` [m] by the columns of W.

        What is late is added to the sums of the round in which it arrives, so that nothing is lost of the sum over all.
        """
        graph, x = self.graph, sent(x, channel.name)
        self._sent(channel)
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
        return round_trip(self.prepared.wire, self.shared_keys(channel), sent(x, channel.name))

    def _sent(self, channel: Channel, by: Array | None = None) -> int:
        """Count a message to all out-neighbours, of all nodes or those `by` [m] which it is sent."""
        times: Any = 1 if self.exchanging is None else self.exchanging.astype(jnp.int32)
        sender = times if by is None else times * by.astype(jnp.int32)
        heard = (self.graph.in_degree > 0).astype(jnp.int32)
        return self.book.send(channel, sender * self.graph.out_degree, times * heard)

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

    # Noise

    def noisy(self, mechanism: Mechanism, x: Array, sensitivity: Any, stream: Stream, told: Told | Stream) -> Array:
        """The rows of x [m, n] with a mechanism's noise of a stream, scaled by a `sensitivity` [m] or [].

        `told` says what that guarantees (see `release`), or is the stream whose release covers this noise, too.
        Every local step has noise of its own. Raises ValueError for a stream that the round has drawn from before.
        """
        if isinstance(told, Stream):
            self.book.include(stream, told)
        else:
            self.release(stream, told)
        add = jax.vmap(mechanism.add, (0, 0, 0 if jnp.ndim(sensitivity) else None))
        return released(add(self.keys(stream, self.local_step), x, sensitivity))

    def release(self, stream: Stream, told: Told, *, look: int = 0, following: bool = False) -> None:
        """Count a release with noise of a stream, about which `told(problem, looks)` says what it guarantees.

        `look` counts the releases of one sample. With `following` it is made only by what follows an exchange.
        """
        self.book.release(stream, told, look)
        if not following:
            self.book.releases = self.book.releases + 1
        elif self.inner:
            self.book.once += 1
        else:
            self.book.releases = self.book.releases + jnp.asarray(self.follows_exchange, jnp.int32)

    @property
    def follows_exchange(self) -> Array | bool:
        """Whether what is computed here [] comes right after an exchange of messages, or before one.

        True in a round of exchange, and of several local steps in the first alone. Gradients with noisy =
        "communicating" have noise where it is true. It may be traced by JAX.
        """
        if self.inner:
            return self.local_step == 0
        return True if self.exchanging is None else self.exchanging

    # Parts of a round

    def repeat(self, count: int, step: Callable[["Round", T], T], carry: T) -> T:
        """`carry` after `count` local steps, each `step(here, carry)` with a round of its own.

        `carry` is a tree of arrays whose shapes stay. `here.local_step` counts the steps from 0, so that each draws
        examples and noise of its own. What a step does is counted `count` times.
        """
        books: list[Book] = []

        def one(t: Array, carry: T) -> T:
            books.append(Book())  # JAX may trace it more than once
            local = {"local_step": self.local_step * count + t, "local_steps": self.local_steps * count}
            return step(replace(self, book=books[-1], inner=True, **local), carry)

        result = one(jnp.int32(0), carry) if count == 1 else lax.fori_loop(0, count, one, carry)
        self.book.absorb(books[-1], count)
        return result

    def each_of(self, due: Array, block: int | None, work: Callable[["Round"], T], otherwise: T | None = None) -> T:
        """`work(here)`, a tree of rows, for the nodes that are `due` [m] bool, and `otherwise` [m, ...] for the rest.

        `here` is the round of b nodes, `block` at a time, so that other nodes cost nothing; `here.of(x)` are their rows
        of an x [m, ...]. With `block` None all nodes are worked on at once, and the rows of the rest mean nothing.
        """
        books: list[Book] = []

        def some(rows: Array, carry: T) -> T:
            books.append(Book())  # JAX may trace it more than once
            made = work(self._block(rows, books[-1]))
            return jax.tree.map(lambda all, new: all.at[rows].set(new, mode="drop"), carry, made)

        if block is None:
            books.append(Book())
            result = work(replace(self, book=books[-1]))
        else:
            result = ops.for_rows(due, min(nodes.count(self.m), block), some, otherwise)
        self.book.absorb(books[-1], due.astype(jnp.int32))
        return result

    def of(self, x: Array) -> Array:
        """The rows of x [m, ...] of this block's nodes, of all where it is no block.

        Within `each_of` fields of the state and what `ready` holds have to go through it, while keys, ids, gradients,
        codec and the problem of `here` are those of the block already.
        """
        return x if self.rows is None else x[self.rows]

    def _block(self, rows: Array, book: Book) -> "Round":
        """The round of the nodes `rows` [b] alone; ids out of range clip."""
        ready = self.prepared
        if ready.gradients is not None:
            ready = replace(ready, gradients=ready.gradients.rows(rows))
        if ready.wire is not None:
            ready = replace(ready, wire=ready.wire.rows(rows))
        moment = replace(self.moment, node=self.node[rows])
        return replace(self, moment=moment, problem=self.problem.nodes(rows), prepared=ready, book=book, rows=rows)


def exact(codec: Codec, x: Array) -> bool:
    """Whether vectors of the type of x [m, n] arrive as they are."""
    return isinstance(codec, Dense) and codec.precision == x.dtype.name
