"""The record of what a step does, made while JAX traces it: messages, gradients and noisy releases.

Counts, ledgers and privacy statements are derived from a `Book`; `Round` fills it.

Axes: m nodes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.extend.core import get_opaque_trace_state

from jdfl.base import checks, marking, struct
from jdfl.base.streams import Stream
from jdfl.privacy import Guarantee
from jdfl.privacy.flow import Booking
from jdfl.problems import Problem

Claim = Callable[[Problem, int], Guarantee]  # guarantee of noise, given the problem and the number of looks at a sample


@dataclass(frozen=True)
class Channel:
    """A kind of message: its name in count tables, and the stream that sender and receiver both draw from (codecs)."""

    name: str
    stream: Stream | None = None  # None: no random numbers


MODEL = Channel("model", Stream("message.model", "shared"))
TRACKER = Channel("tracker", Stream("message.tracker", "shared"))


@struct.dataclass
class Info:
    """The counts of one round, per node; the host multiplies them by bits.

    They are derived from what a step does through its `Round`; algorithms count nothing themselves. The runner adds
    them up between records, and the totals as exact whole numbers on the host.
    """

    sent: dict[str, Array]  # int32 [m] messages that the node sent, by channel
    grads: Array  # int32 [m] gradients of its own loss that the node evaluated
    releases: Array  # int32 [m] noisy functions of its data that others may see
    communications: Array  # int32 [m] 1 where the node received what it combines
    combined: Array  # int32 [m] the same, 0 where a robust rule has left its row as it was


def counts(
    m: int,
    sent: Mapping[str, Array | int],
    *,
    grads: Array | int = 0,
    releases: Array | int = 0,
    communications: Array | int = 0,
    combined: Array | int | None = None,
) -> Info:
    """An Info of m nodes from numbers that all nodes share, or arrays [m].

    Args:
        m: The number of nodes.
        sent: Messages that a node sent, by channel, each a number or sent [m].
        grads: Gradients of its own loss that a node evaluated, a number or grads [m].
        releases: Noisy functions of its data that others may see, a number or releases [m].
        communications: 1 where a node received what it combines, a number or communications [m].
        combined: The same, 0 where a robust rule has left its row as it was, or combined [m]; None: nowhere.
    """

    def each(count: Array | int) -> Array:
        return jnp.broadcast_to(jnp.asarray(count, jnp.int32), (m,))

    numbers = grads, releases, communications, communications if combined is None else combined
    return Info({channel: each(count) for channel, count in sent.items()}, *map(each, numbers))


@dataclass
class Book:
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
        """Anything of the book, which counts for nothing once a step has looked for itself."""
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

    def absorb(self, inner: "Book", times: Any) -> None:
        """Add an inner part of the step that nodes execute `times` times (a number, or [m]).

        Raises ValueError where the step has drawn the same noise outside that part.
        """
        self.grads = self.grads + inner.grads * times
        self._releases = self._releases + inner._releases * times + inner.once
        for mine, theirs, each in (
            (self.sent, inner.sent, times),
            (self.combined, inner.combined, times),
            (self.uses, inner.uses, 1),
        ):
            for name, number in theirs.items():
                mine[name] = mine.get(name, 0) + number * each
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
    ) -> Info:
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
        sent: dict[str, Any] = {}
        for name in names:
            number = self.sent.get(name, 0)
            if group is None:
                sent[name] = number
                continue
            for g, part in enumerate(parts(name, sizes[name])):
                sent[part] = sent.get(part, 0) + _of_group(number, group, g)
        some = combined if self.moved is None else jnp.where(self.moved, combined, 0)
        return counts(m, sent, grads=self.grads, releases=self.releases, communications=combined, combined=some)


def parts(channel: str, sizes: tuple[int, ...]) -> list[str]:
    """The names under which the messages of groups are counted: the `channel`, with their `sizes` if these differ."""
    return [channel if len(set(sizes)) == 1 else f"{channel} of {bits} bits" for bits in sizes]


def _of_group(sent: Any, group: Array, g: int) -> Any:
    """The messages of one group: a column, or those of the nodes that belong to it."""
    return sent[:, g] if jnp.ndim(sent) == 2 else jnp.where(group == g, sent, 0)


def _twice(stream: Stream) -> str:
    return (
        f"Expected fresh noise for every release, got the stream {stream.name!r} twice in one round: the difference of "
        "two releases with the same noise contains none. Give the second release another stream or another `look`."
    )
