"""One round as an algorithm's step sees it: gradients, messages, noise and keys of all nodes at once.

A step defines what the nodes compute. How that is executed (codecs, delayed messages, blocks of nodes, devices) and
what it counts (messages, gradients, releases) is determined here. While JAX traces a step, everything that goes through
its `Round` is recorded in a `StepTrace`, from which counts, ledgers and privacy statements are derived. An algorithm
claims nothing itself, and counts in `round.trace` only what it sends or evaluates without calling its round.

Axes: m nodes, of all or of one device, n parameters, b nodes of a block.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal, Self, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import get_opaque_trace_state

from jdfl.arrays import ops
from jdfl.base import checks, marking, schedules, struct
from jdfl.base.marking import sent
from jdfl.base.streams import Keys, Stream, each
from jdfl.codecs import Codec, Dense, Wire, round_trip, transmit
from jdfl.devices import nodes
from jdfl.network import Graph
from jdfl.network import mix as mix_rows
from jdfl.network.late import Mail, Past
from jdfl.privacy.exact import ExactGaussian
from jdfl.privacy.flow import Booking
from jdfl.privacy.guarantee import Guarantee
from jdfl.privacy.mechanisms import Gaussian, Laplace, Mechanism
from jdfl.problems import Problem
from jdfl.problems.ragged import first_parts
from jdfl.robust.attacks import Lies
from jdfl.robust.rule import Aimed, Rule, Weighted

T = TypeVar("T")
To = Literal["neighbours", "one", "asked"]
LOOKS = 4  # largest number of releases from one sample
Claim = Callable[[Problem, int], Guarantee]  # guarantee of noise, given the problem and the number of looks at a sample
_KNOWN = (Gaussian, Laplace, ExactGaussian)  # their noise has the law of their events


@dataclass(frozen=True)
class Channel:
    """A kind of message: its name in count tables, and the stream that sender and receiver both draw from (codecs)."""

    name: str
    stream: Stream | None = None  # None: no random numbers


MODEL = Channel("model", Stream("message.model", "shared"))
TRACKER = Channel("tracker", Stream("message.tracker", "shared"))


@struct.dataclass
class StepCounts:
    """The counts of one round, per node; the host multiplies them by bits.

    They are derived from what a step does through its `Round`. They are added up over a chunk of rounds, and on the
    host as exact integers.
    """

    sent: dict[str, Array]  # int32 [m] messages that the node sent, by channel
    grads: Array  # int32 [m] gradients of its own loss that the node evaluated
    releases: Array  # int32 [m] noisy functions of its data that others may see
    communications: Array  # int32 [m] how often the node received what it combines
    combined: Array  # int32 [m] the same, 0 where a robust rule has left its row as it was


@dataclass
class StepTrace:
    """The record of a traced step. Counts are whole numbers that hold for every node, or arrays [m]."""

    grads: Any = 0  # gradients that a node evaluates
    _releases: Any = 0  # noisy functions of its data that others may see
    once: int = 0  # releases made only by the first of several local steps
    sent: dict[str, Any] = field(default_factory=dict)  # messages that leave a node, by channel; [m, g]: also by size
    combined: dict[str, Any] = field(default_factory=dict)  # how often a node combines what it received, by channel
    uses: dict[str, int] = field(default_factory=dict)  # how often the step sends, by channel
    moved: Any = None  # [m] bool the rows that a robust rule has changed; None: no rule had to combine any
    noises: dict[Stream, tuple[Claim, frozenset[int]]] = field(default_factory=dict)  # guarantee and looks of noise
    parts: dict[Stream, Stream] = field(default_factory=dict)  # noise covered by the releases of another stream
    loose: set[Stream] = field(default_factory=set)  # parts drawn a different number of times than their releases
    inside: set[Stream] = field(default_factory=set)  # streams drawn in inner parts of the step
    altered: bool = False  # whether other code than jdfl's has had to do with it, or with its round
    correlated: bool = False  # whether releases depend on earlier rounds through rows that are not checked here
    booked: list[Booking] = field(default_factory=list)  # all noise, for the walk through the traced program
    here: Any = field(default_factory=get_opaque_trace_state)  # the trace in which the part of the step is made

    def __getattribute__(self, name: str) -> Any:
        """Anything of the trace, which counts for nothing once a step has looked for itself."""
        if not marking.ours():
            object.__setattr__(self, "altered", True)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Change a count, in the trace of the part of the step that it belongs to."""
        if name == "grads":  # which no claim rests on, and every step may count
            self.check_here("gradients")
        elif not marking.ours():
            super().__setattr__("altered", True)
        super().__setattr__(name, value)

    @property
    def releases(self) -> Any:
        """Noisy functions of a node's data that others may see."""
        return self._releases

    def released(self, number: Any) -> None:
        """Count releases, a number or one per node [m]."""
        self._releases = self._releases + number

    def check_here(self, what: str) -> None:
        """Raise ValueError in another trace than that of this part of the step, such as a loop of the step's own."""
        if self.__dict__.get("here", here := get_opaque_trace_state()) != here:
            raise ValueError(
                f"Expected {what} in the step itself, got them inside jax.vmap, a loop, a condition, jit or another "
                "transformation of the step's own, where they happen another number of times than they are counted. "
                "Use round.repeat for local steps, round.each_of for some nodes, and round.every for some rounds; "
                "problem.gradients counts nothing."
            )

    def send(self, channel: Channel, sent: Any, combined: Any) -> int:
        """Count a message on a channel; returns how often the step has already sent on it."""
        self.check_here("messages")
        name = channel.name
        self.sent[name] = self.sent.get(name, 0) + sent
        self.combined[name] = self.combined.get(name, 0) + combined
        self.uses[name] = self.uses.get(name, 0) + 1
        return self.uses[name] - 1

    def release(self, booking: Booking, claim: Claim) -> None:
        """Record noise drawn from a stream.

        Args:
            booking: The noise, with its stream and its number among the releases of one sample.
            claim: The guarantee of the noise.

        Raises ValueError for a stream that others know, where the step has already drawn the same noise, or noise of
        this stream with a different guarantee.
        """
        stream, look = self._private(booking), booking.look
        before, looks = self.noises.get(stream, (claim, frozenset[int]()))
        if look in looks or stream in self.parts:
            raise ValueError(_twice(stream))
        if before != claim:
            raise ValueError(
                f"Expected all noise of the stream {stream.name!r} to give the same guarantee, got two mechanisms or "
                "clips in one step. Draw the second noise from another jdfl.Stream."
            )
        self.noises[stream] = claim, looks | {look}

    def _private(self, booking: Booking) -> Stream:
        stream = booking.stream
        if not marking.plain(stream, Stream):
            checks.refuse("a jdfl.Stream as it was declared", "stream", stream, "Other classes may draw anything.")
        if stream.root != "private":
            raise ValueError(
                f"Expected noise of a stream with the root 'private', got {stream!r}: others can compute what it "
                f"draws. Declare it as jdfl.Stream({stream.name!r}, 'private')."
            )
        self.check_here("noise")
        self.booked.append(booking)
        return stream

    def include(self, booking: Booking, whole: Stream) -> None:
        """Record the noise of a `booking` that is accounted for by the releases of `whole`.

        Raises ValueError where the step has already drawn the same noise.
        """
        stream = self._private(booking)
        if stream in self.noises or stream in self.parts:
            raise ValueError(_twice(stream))
        self.parts[stream] = whole

    def absorb(self, inner: "StepTrace", times: Any) -> None:
        """Add an inner part of the step that nodes execute `times` times (a number, or [m]).

        Raises ValueError where the step has drawn the same noise outside that part.
        """
        self.grads = self.grads + inner.grads * times
        self._releases = self._releases + inner._releases * times + inner.once
        for name, number in inner.sent.items():
            self.sent[name] = self.sent.get(name, 0) + number * times
        for name, number in inner.combined.items():
            self.combined[name] = self.combined.get(name, 0) + number * times
        for name, number in inner.uses.items():
            self.uses[name] = self.uses.get(name, 0) + number
        for stream in (*inner.noises, *inner.parts):
            if stream in self.noises or stream in self.parts:
                raise ValueError(_twice(stream))
        self.booked += inner.booked
        self.noises |= inner.noises
        self.parts |= inner.parts
        self.loose |= inner.uncovered()
        self.correlated |= inner.correlated
        self.altered |= inner.altered
        self.moved = self.moved if inner.moved is None else True
        self.inside |= {*inner.noises, *inner.parts}

    def uncovered(self) -> set[Stream]:
        """Noise that is declared part of releases which the same part of the step does not make."""
        return self.loose | {
            part
            for part, whole in self.parts.items()
            if whole not in self.noises or (whole in self.inside) != (part in self.inside)
        }

    def info(
        self, m: int, channels: tuple[Channel, ...], sizes: dict[str, tuple[int, ...]], group: Array | None = None
    ) -> StepCounts:
        """The counts; messages of one round on different channels are combined once.

        Args:
            m: The number of nodes.
            channels: The channels of the algorithm.
            sizes: The bits of one message by channel, of every group of nodes; one number without groups.
            group ([m]): The group of every node, by which messages are counted; None: all messages have one size.

        Raises ValueError for messages on a channel that is not among the algorithm's `channels`: their bytes would be
        missing from all counts.
        """
        names = [one.name for one in channels]
        if others := [name for name in self.sent if name not in names]:
            raise ValueError(
                f"Expected messages on the channels {names}, got messages on {others}. List every channel that the "
                "step uses in the `channels` of the algorithm."
            )
        combined = reduce(jnp.maximum, self.combined.values()) if self.combined else 0
        some = combined if self.moved is None else jnp.where(self.moved, combined, 0)

        def per_node(count: Any) -> Array:
            return jnp.broadcast_to(jnp.asarray(count, jnp.int32), (m,))

        def of_group(sent: Any, g: int) -> Any:  # a column, or the messages of the nodes that belong to it
            return sent[:, g] if jnp.ndim(sent) == 2 else jnp.where(group == g, sent, 0)

        sent: dict[str, Any] = {}
        for name in names:
            number = self.sent.get(name, 0)
            for g, part in [(None, name)] if group is None else enumerate(parts(name, sizes[name])):
                sent[part] = sent.get(part, 0) + (number if g is None else of_group(number, g))
        others = self.grads, self.releases, combined, some
        return StepCounts({name: per_node(number) for name, number in sent.items()}, *map(per_node, others))


def parts(channel: str, sizes: tuple[int, ...]) -> list[str]:
    """The names under which the messages of groups are counted: the `channel`, with their `sizes` if these differ."""
    return [channel if len(set(sizes)) == 1 else f"{channel} of {bits} bits" for bits in sizes]


def _twice(stream: Stream) -> str:
    return (
        f"Expected fresh noise for every release, got the stream {stream.name!r} twice in one round: the difference of "
        "two releases with the same noise contains none. Give the second release another stream or another `look`."
    )


@struct.dataclass
class RoundContext:
    """The context of the start of a run, or of one of its rounds."""

    k: Array  # int32 [] the round, from 0
    key: Array  # [] key of all draws of this round
    graph: Graph  # links and mixing weights of this round
    node: Array  # [m] int32 global ids of the nodes
    roots: Keys | None = None  # keys of the round under each root; None, outside a run: derived from `key`

    @property
    def m(self) -> int:
        """The number of nodes, or of this device's nodes where they are sharded over several devices."""
        return self.node.shape[0]

    def stream(self, stream: Stream) -> Array:
        """The key [] of a stream in this round, under the root that the stream was declared with.

        Raises ValueError for streams of networks, which are drawn from before there is a round.
        """
        if stream.root == "network":
            raise ValueError(
                f"Expected a stream whose root is not the network's, got {stream!r}: the graph is drawn already. "
                "Declare it as private, choice or shared."
            )
        return stream.of(getattr(self.roots or Keys.of(self.key), stream.root))

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """A stream's key for every node [m] in this round; `index` [] distinguishes several draws of one round."""
        return each(self.stream(stream), self.node, index)


@struct.dataclass
class Prepared:
    """What follows from settings, data and network, computed once before the first round."""

    gradients: Any = None  # result of `Gradients.prepare`
    wire: Any = None  # result of `Codec.prepare`
    own: Any = None  # result of the algorithm's own `prepare`


@dataclass(frozen=True, kw_only=True)
class Round:
    """What a step knows of its round, and everything it can do besides arithmetic.

    `graph` has the links and mixing weights, `k` is the number of the round from 0, `node` [m] are the nodes' ids, and
    `ready` is the result of the algorithm's `prepare` (`prepared` also has the `Wire`). What the step does is recorded
    in `trace`. Inside `repeat` and `each_of` it describes one local step, or a block of nodes.
    """

    context: RoundContext
    problem: Problem
    prepared: Prepared
    trace: StepTrace = field(default_factory=StepTrace)
    mail: dict[str, Any] = field(default_factory=dict)  # delayed messages, by channel
    exchanging: Array | None = None  # [] whether this round exchanges messages; None: all rounds do
    rule: Rule | None = None  # how rows are combined; None: by W
    lies: Lies | None = None  # what attackers send; None: all nodes are honest
    local_step: Array | int = 0  # number of the local step in the round, below `local_steps`
    local_steps: int = 1
    inner: bool = False  # within `repeat`
    rows: Array | None = None  # [b] the nodes of a block; None: all
    due: Array | None = None  # [m] bool the only nodes whose noise is counted; None: all
    turns: tuple[int | None, ...] = ()  # of the loops that this part of the step is in; None: blocks of nodes
    altered: bool = False  # whether a step has made it, or one that it was made from

    def __post_init__(self) -> None:
        if not marking.ours(3):  # after `__init__`
            object.__setattr__(self, "altered", True)

    @property
    def k(self) -> Array:
        """The number of the round, int32 [], from 0; also 0 before the first round.

        It is traced by JAX: choose by `jnp.where` or `lax.cond`, never by a Python `if`. Nodes that were absent or
        silent count rounds like all others.
        """
        return self.context.k

    @property
    def graph(self) -> Graph:
        """The links of this round and their mixing weights.

        Read it, for example for degrees [m] or a choice of neighbours, but send through `mix`, `pull`, `publish`,
        `push` or `deliver`, which count messages. Within `each_of` it remains the graph of all nodes.
        """
        return self.context.graph

    @property
    def node(self) -> Array:
        """The global ids [m] of the nodes, int32.

        Use them rather than array positions to distinguish nodes: on several devices they are the ids of one device's
        nodes, and within `each_of` those of a block [b].
        """
        return self.context.node

    @property
    def m(self) -> int:
        """The number of nodes, or of this device's nodes where they are sharded over several devices.

        Arrays of a step have this number of rows. For the size of the whole network use `jdfl.nodes.count(round.m)`,
        and for means over it `jdfl.nodes.mean`.
        """
        return self.context.m

    @property
    def codec(self) -> Codec:
        """The algorithm's codec.

        For an algorithm without one it is a lossless `Dense` of the parameters' type. `mix`, `pull`, `publish` and
        `deliver` apply it; `push` sends numbers unencoded.
        """
        return self.prepared.wire.codec

    @property
    def ready(self) -> Any:
        """The result of the algorithm's `prepare`, the same in all rounds; None where it returns nothing.

        Within `each_of` its arrays still have the rows of all nodes: `here.of` selects those of the block. A schedule
        for all rounds [T] is read at `round.k`.
        """
        return self.prepared.own

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """A key of a stream for every node [m] in this round; `index` [] distinguishes several draws of one round.

        Keys follow from the run's key, the round, the stream and the nodes' ids, so they do not depend on the number of
        devices. Within `repeat` pass `local_step` as the index; otherwise all local steps draw the same numbers.
        """
        return self.context.keys(stream, index)

    # Messages

    def mix(self, x: Array, channel: Channel | None = MODEL) -> Array:
        """W x [m, n] for rows x [m, n] that all nodes send: a node's own row unencoded, the others' as decoded.

        In rounds without exchange it is x itself. Of delayed messages the newest that has arrived is used. In a round
        with a `rule` it is the rule's result.

        Args:
            x: The rows x [m, n] that are sent through the algorithm's codec.
            channel: The channel on which they are counted; None: all nodes know them already, like public copies, and
                nothing is sent.
        """
        graph = self.graph
        if channel is None and self.rule is not None:
            return self._combined(x, x)
        if channel is None:
            mixed = mix_rows(graph, x)
            return mixed if self.exchanging is None else jnp.where(self.exchanging, mixed, x)
        index, x = self._sent(channel, x)
        if self.rule is not None or self.lies is not None:
            return self._combined(x, *self._arriving(channel, x, index))
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
        """(W - I) z [m, n], z being the decoded rows x [m, n] that all nodes send.

        It is computed from differences only, so sums of it over many rounds do not accumulate the rounding of W x - x
        (1e-8 to 1e-7 relative to x). A node's own contribution is what its neighbours decode, not its x: where W is
        doubly stochastic, the rows sum to zero whatever the codec loses.

        Args:
            x: The rows x [m, n] that are sent through the algorithm's codec.
            channel: The channel on which they are counted; None: all nodes know them already, nothing is sent, and z is
                x.
        """
        graph, z = self.graph, x
        if channel is None and self.rule is not None:
            return self._combined(x, x) - x
        if channel is not None:
            index, z = self._sent(channel, x)
            if self.rule is not None or self.lies is not None:
                own = z if exact(self.codec, x) else self._received(z, graph.out_degree > 0, channel, index)
                return self._combined(own, *self._arriving(channel, z, index)) - own
            if not exact(self.codec, x):
                z = self._received(x, (graph.out_degree > 0) | (graph.in_degree > 0), channel, index)
        z = lax.optimization_barrier(z)
        z = z - nodes.first(z)[None]  # a common shift changes no difference, and makes it exact near consensus
        weight, own = graph.weight.astype(x.dtype), graph.self_weight.astype(x.dtype)
        total = own + jnp.sum(weight, axis=1)  # 1, up to rounding
        if graph.synchronised is not None:
            total = jnp.where(graph.synchronised, 1, total)
        return mix_rows(graph, z, cheap=True) - total[:, None] * z

    def publish(
        self, x: Array, copy: Array, channel: Channel = MODEL, by: Array | None = None, over: Any = None
    ) -> Array:
        """The public copies copy + C(x - copy) of x [m, n], after the nodes have sent C(x - copy) to all neighbours.

        Args:
            x: The rows x [m, n] that the copies follow.
            copy: The copies so far, copy [m, n], the same at a node and at all its neighbours.
            channel: The channel on which messages are counted; C is the algorithm's codec.
            by: The nodes that may send, by [m] bool, while other copies stay; None: all.
            over: Of these only the nodes send whose C(x - copy) has an l2 norm above it, over [] or [m]; None: all.
        """
        x = self.with_lies(channel, x)
        wanted, at = jnp.ones((self.m,), jnp.bool_) if by is None else by, self.trace.uses.get(channel.name, 0)
        if over is not None:
            arrived = self._received(x - copy, wanted, channel, at)
            by = sent(wanted & (ops.length(arrived, "l2") > over), channel.name)  # observers see which nodes send
            self._sent(channel, x, by)
            return jnp.where(by[:, None], copy + arrived, copy)
        if by is not None:
            by = wanted = sent(by, channel.name)
        _, x = self._sent(channel, x, by)
        return transmit(self.prepared.wire, self.shared_keys(channel, at), x, wanted, onto=copy)

    def push(self, x: Array, weight: Array, channel: Channel) -> tuple[Array, Array]:
        """Sums [m, n] and [m] of what arrives when nodes distribute their values with the columns of W.

        Delayed messages are added to the sums of the round in which they arrive, so the sum over all nodes loses
        nothing.

        Args:
            x: The rows x [m, n], which do not go through the codec.
            weight: The push-sum weights weight [m], distributed in the same way.
            channel: The channel on which messages, each with both, are counted.

        Raises:
            ValueError: In a round with a `rule`, whose result has no push-sum weights.
        """
        graph = self.graph
        index, x = self._sent(channel, x)
        if self.rule is not None:
            raise ValueError(
                f"Expected a method without push-sum for the rule {self.rule.title}, whose result has no push-sum "
                "weights. Use a method that mixes, such as jdfl.RobustDSGD."
            )
        if self.lies is not None:
            self._refuse_late()
            z, aimed = self.lies.of(graph, x, channel.name, index)
            return Weighted()(graph, x, z, aimed=aimed), mix_rows(graph, weight[:, None])[:, 0]
        if graph.late is None:
            return mix_rows(graph, x), mix_rows(graph, weight[:, None])[:, 0]
        both = jnp.concatenate([x, weight[:, None]], axis=1)
        sums, self.mail[channel.name] = self.waiting(channel, Mail, both).mix(graph, both, self.k)
        return sums[:, :-1], sums[:, -1]

    def deliver(self, x: Array, channel: Channel) -> Array:
        """What arrives [m, n] when every row goes to one receiver, such as a server, in one message per node.

        Row i [n] is what its receiver decodes with the algorithm's codec. The network plays no part: nothing is
        weighted, delayed or lost. For messages to neighbours use `mix` and `publish`.

        Args:
            x: The rows x [m, n].
            channel: The channel on which they are counted.
        """
        x = self.with_lies(channel, x)
        self.trace.send(channel, 1, 1)
        return round_trip(self.prepared.wire, self.shared_keys(channel), self.leaving(channel, x, to="one"))

    def averaged(self, x: Array, channel: Channel) -> Array:
        """The mean of the rows x [m, n] at every node [m, n], by way of a coordinator: two messages per node.

        Args:
            x: The rows x [m, n].
            channel: The channel on which both messages are counted.
        """
        mean = nodes.mean(self.deliver(x, channel))
        return self.deliver(jnp.broadcast_to(mean, x.shape), channel)

    def every(self, period: int) -> Self:
        """The round, with messages only if its number is a multiple of `period`.

        Use it with `mix`, which returns x itself in the other rounds, at no cost and without a message; the other
        sending operations would still do their work, uncounted.
        """
        return self if period == 1 else replace(self, exchanging=self.k % period == 0)

    def on(self, graph: Graph) -> Self:
        """The round with other weights on the links of its graph, such as `jdfl.network.averaging(round.graph)`.

        What is sent through it counts as sent in this round. The links and everything else must stay the same.
        """
        return replace(self, context=replace(self.context, graph=graph))

    def by(self, rule: Rule) -> Self:
        """The round whose `mix` and `pull` combine rows by a robust rule instead of W; see `jdfl.robust`."""
        return replace(self, rule=rule)

    def leaving(self, channel: Channel, x: Array, by: Array | None = None, *, to: To = "neighbours") -> Array:
        """The rows x [m, n], marked as leaving the nodes on a channel.

        What a step sends passes through here, and privacy is derived from these marks.

        Args:
            channel: Where the rows are counted.
            x: The rows x [m, n] before encoding.
            by: The nodes that send, by [m] bool; None: all.
            to: The receivers of a row: all out-"neighbours", "one" receiver per row, or those that "asked".
        """
        return sent(x, channel.name)

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

    def with_lies(self, channel: Channel, x: Array) -> Array:
        """The rows x [m, n] with those that attackers send instead; ValueError for attacks that differ by receiver."""
        if self.lies is None:
            return x
        x, aimed = self.lies.of(self.graph, x, channel.name, self.trace.uses.get(channel.name, 0))
        if aimed is None:
            return x
        raise ValueError(
            f"Expected a method that mixes for the attack {self.lies.attack.title}, which sends every neighbour "
            f"another row, got one whose rows on the channel {channel.name!r} are the same for all receivers. Use "
            "another attack, such as jdfl.robust.ALIE()."
        )

    def _sent(self, channel: Channel, x: Array, by: Array | None = None) -> tuple[int, Array]:
        """Count a message x [m, n] to all out-neighbours, from all nodes or from those in `by` [m]."""
        times: Any = 1 if self.exchanging is None else self.exchanging.astype(jnp.int32)
        sender = times if by is None else times * by.astype(jnp.int32)
        heard = (self.graph.in_degree > 0).astype(jnp.int32)
        index = self.trace.send(channel, sender * self.graph.out_degree, times * heard)
        return index, self.leaving(channel, x, by)

    def _received(self, x: Array, wanted: Array, channel: Channel, index: int) -> Array:
        """What receivers decode from the rows of x [m, n] that are `wanted` [m]."""
        return transmit(self.prepared.wire, self.shared_keys(channel, index), x, wanted)

    def _arriving(self, channel: Channel, x: Array, index: int) -> tuple[Array, Aimed | None]:
        """What receivers decode from the rows x [m, n] of all nodes, and from those that attackers send instead."""
        x, aimed = (x, None) if self.lies is None else self.lies.of(self.graph, x, channel.name, index)
        z = x if exact(self.codec, x) else self._received(x, self.graph.out_degree > 0, channel, index)
        return z, aimed

    def _combined(self, own: Array, z: Array, aimed: Aimed | None = None) -> Array:
        """The rows [m, n] by the rule, or by W, of the nodes' own rows [m, n] and those that arrive, z [m, n]."""
        self._refuse_late()
        rule = self.rule or Weighted()
        result = rule(self.graph, own, z, aimed=aimed, k=self.k, losses=self.problem.values)
        if rule.minimises and self.trace.moved is not True:  # rows that are all alike are combined, too
            moved = jnp.any(result != own, axis=1) | nodes.every(jnp.all(z == nodes.first(z)[None], axis=1))
            self.trace.moved = moved if self.trace.moved is None else self.trace.moved | moved
        elif self.trace.moved is None:
            self.trace.moved = True
        return result if self.exchanging is None else jnp.where(self.exchanging, result, own)

    def _refuse_late(self) -> None:
        if self.graph.late is not None:
            raise ValueError(
                "Expected a network without delayed messages for robust rules and attacks. Leave out network.delays."
            )

    # Noise

    def noisy(
        self,
        mechanism: Mechanism,
        x: Array,
        sensitivity: Any,
        stream: Stream,
        claim: Claim | Stream,
        *,
        look: int = 0,
        following: bool = False,
    ) -> Array:
        """The rows of x [m, n] plus a mechanism's noise, drawn from a stream.

        All noise of mechanisms is added here. Every local step has its own noise.

        Args:
            mechanism: The noise.
            x: The vectors to hide, x [m, n], bounded beforehand so that neighbouring data change a row by at most
                `sensitivity`.
            sensitivity: The scale of the noise, in the mechanism's norm: a number for every node [m], or one [] for
                all.
            stream: The stream of the noise, with the root "private".
            claim: `claim(problem, looks)` returns the guarantee of the noise (see `release`). Alternatively the stream
                whose release also covers this noise: then nothing is counted.
            look: As for `release`.
            following: As for `release`.

        Raises:
            ValueError: For a stream that the round has already drawn from, and one that is not private.
        """
        known: Any = {"mechanism": marking.static(mechanism), "honest": marking.plain(mechanism, *_KNOWN)}
        self.trace.altered |= self.altered
        if isinstance(claim, Stream):
            booking = Booking(stream, turns=self.turns, **known)
            self.trace.include(booking, claim)
        else:
            booking = self.release(stream, claim, look=look, following=following, **known)
        add = jax.vmap(mechanism.add, (0, 0, 0 if jnp.ndim(sensitivity) else None))
        y = marking.noisy(
            add(self.keys(stream, self.local_step * LOOKS + look), x, sensitivity), x, sensitivity, booking
        )
        return y if self.due is None else jnp.where(self.due[:, None], y, 0)  # other nodes release nothing

    def correlated(
        self, mechanism: Mechanism, x: Array, sensitivity: Any, stream: Stream, claim: Claim, row: Array, hidden: Array
    ) -> tuple[Array, Array]:
        """The rows of x [m, n] plus noise that is correlated with earlier rounds, and the next `hidden`.

        With x_k in round k, lower triangular C and fresh noise z_k of a mechanism, others see X + C^-1 Z over all
        rounds, which reveals as much as C X + Z. The release of round k is row k of that.

        Args:
            mechanism: The noise, which is Gaussian.
            x: The vectors to hide, x [m, n], bounded beforehand.
            sensitivity: The scale of the noise, as for `noisy`. It does not include the sensitivity of the rows of C,
                so nothing is claimed unless the method's `privacy` counts it.
            stream: The stream of the noise, with the root "private".
            claim: As for `noisy`.
            row: The row of C of this round, row [p], from its positive diagonal entry backwards.
            hidden: The negative noise of the last p - 1 rounds, hidden [m, p - 1, n], the latest first; 0 where there
                were none. It must not leave the nodes.
        """
        self.trace.correlated = True
        seen = marking.bounded(row[0] * x + jnp.einsum("p,mpn->mn", row[1:], hidden, precision=ops.HIGHEST))
        noisy = self.noisy(mechanism, seen, sensitivity, stream, claim) / row[0]
        return noisy, jnp.concatenate([(x - noisy)[:, None], hidden], axis=1)[:, : hidden.shape[1]]

    def pairwise(self, stream: Stream, x: Array) -> Array:
        """Noise like x [m, n] that cancels over every link: both of its nodes draw it, with opposite signs.

        A node has the sum over its neighbours of standard normal numbers. The two nodes of a link need a secret that no
        other node knows, and the network must be undirected. It is not a release: it hides the result of `noisy` only
        from observers who do not know the secrets.

        Args:
            stream: The stream of the noise, with the root "private".
            x: Rows x [m, n] with the shape and type of the noise.
        """
        graph, key = self.graph, self.context.stream(stream)
        ids = graph.gathered(self.node)

        def added(total: Array, slot: tuple[Array, Array]) -> tuple[Array, None]:
            other, there = ids[slot[0]], slot[1]
            low, high = jnp.minimum(self.node, other), jnp.maximum(self.node, other)
            keys = jax.vmap(jax.random.fold_in)(each(key, low, self.local_step), high)
            drawn = jax.vmap(lambda one: jax.random.normal(one, x.shape[1:], x.dtype))(keys)
            sign = jnp.where(there, jnp.where(self.node < other, 1, -1), 0).astype(x.dtype)
            return total + sign[:, None] * drawn, None

        return lax.scan(added, jnp.zeros_like(x), (graph.senders.T, graph.mask.T))[0]

    def release(self, stream: Stream, claim: Claim, *, look: int = 0, following: bool = False, **known: Any) -> Booking:
        """Count a release whose noise, from a stream, the step adds itself; returns what was booked.

        Args:
            stream: The stream of the noise.
            claim: `claim(problem, looks)` returns its guarantee, `looks` being the number of releases from one sample.
            look: The number of this release among those of one sample, from 0 to 3.
            following: Whether only the step that follows an exchange makes it, and not other local steps.
            known: What else is known of it, by the fields of `jdfl.privacy.flow.Booking`.

        Raises:
            ValueError: For noise of the stream that was already drawn in this round, or that has a different guarantee.
        """
        if not 0 <= look < LOOKS:
            raise ValueError(f"Expected 0 <= look < {LOOKS}, got look = {look!r}: others share the next step's noise.")
        booking = Booking(stream, look, self.turns, each=not following, **known)
        self.trace.release(booking, claim)
        if not following:
            self.trace.released(1)
        elif self.inner:
            self.trace.once += 1
        else:
            self.trace.released(jnp.asarray(self.follows_exchange, jnp.int32))
        return booking

    @property
    def follows_exchange(self) -> Array | bool:
        """Whether the current computation [] is next to an exchange of messages.

        True in a round of exchange; of several local steps, only in the first. Gradients with noisy = "communicating"
        have noise where it is true. It may be traced by JAX.
        """
        if self.inner:
            return self.local_step == 0
        return True if self.exchanging is None else self.exchanging

    # Parts of a round

    def repeat(self, count: int, step: Callable[["Round", T], T], carry: T) -> T:
        """`carry` after `count` local steps, each with its own examples and noise.

        Args:
            count: The number of local steps, at least 1. Counts are multiplied by it.
            step: `step(here, carry)` returns the next `carry`. `here` is a round whose `local_step` counts from 0.
            carry: A tree of arrays whose shapes and types stay the same.
        """
        traces: list[StepTrace] = []

        def one(t: Array, carry: T) -> T:
            traces.append(StepTrace())  # JAX may trace this more than once
            local: Any = {"local_step": self.local_step * count + t, "local_steps": self.local_steps * count}
            local["turns"] = self.turns if count == 1 else (*self.turns, count)
            return step(replace(self, trace=traces[-1], inner=True, **local), carry)

        result = one(jnp.int32(0), carry) if count == 1 else lax.fori_loop(0, count, one, carry)
        self.trace.absorb(traces[-1], count)
        return result

    def each_of(self, due: Array, block: int | None, work: Callable[["Round"], T], otherwise: T | None = None) -> T:
        """A tree of rows [m, ...] computed for some of the nodes.

        Args:
            due: The nodes to compute, due [m] bool.
            block: How many of them are processed at a time, so that other nodes cost nothing. None: all nodes at once,
                and the rows of the others are meaningless: they have no noise, and 0 in its place.
            work: `work(here)` returns the rows of the b nodes of the round `here`; `here.of(x)` selects their rows from
                an x [m, ...].
            otherwise: Leaves [m, ...], the rows of the nodes that are not due; required with a `block`.
        """
        traces: list[StepTrace] = []

        def some(rows: Array, carry: T) -> T:
            traces.append(StepTrace())  # JAX may trace this more than once
            made = work(self._block(rows, traces[-1]))
            return jax.tree.map(lambda all, new: all.at[rows].set(new, mode="drop"), carry, made)

        if block is None:
            traces.append(StepTrace())
            result = work(replace(self, trace=traces[-1], due=due if self.due is None else self.due & due))
        else:
            result = ops.for_rows(due, min(nodes.count(self.m), block), some, otherwise)
        self.trace.absorb(traces[-1], due.astype(jnp.int32))
        return result

    def of(self, x: Array) -> Array:
        """The rows of x [m, ...] that belong to this block's nodes; all rows outside of a block.

        Within `each_of` apply it to fields of the state and to the contents of `ready`; keys, ids, gradients, codec and
        problem of `here` already belong to the block.
        """
        return x if self.rows is None else x[self.rows]

    def _block(self, rows: Array, trace: StepTrace) -> "Round":
        """The round for the nodes `rows` [b]; ids out of range are clipped."""
        ready = self.prepared
        if ready.gradients is not None:
            ready = replace(ready, gradients=ready.gradients.rows(rows))
        if ready.wire is not None:
            ready = replace(ready, wire=ready.wire.rows(rows))
        context, problem, turns = (
            replace(self.context, node=self.node[rows]),
            self.problem.nodes(rows),
            (*self.turns, None),
        )
        every = first_parts(self.problem.data), self.problem.weight
        data, weight = marking.rows((problem.data, problem.weight), every)
        problem = replace(problem, data=data, weight=weight)
        return replace(self, context=context, problem=problem, prepared=ready, trace=trace, rows=rows, turns=turns)


def in_round(algorithm: T, round: Round) -> T:
    """The algorithm as its step sees it: with the values of this round in place of schedules."""
    return schedules.at(algorithm, lambda one: one(round.k).astype(round.problem.dtype))


def exact(codec: Codec, x: Array) -> bool:
    """Whether the codec transmits vectors of the type of x [m, n] without loss."""
    return isinstance(codec, Dense) and codec.precision == x.dtype.name
