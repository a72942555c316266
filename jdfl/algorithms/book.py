"""What a step of an algorithm does, written down while JAX traces it: messages, gradients, and releases with noise.

Counts, ledgers and statements about privacy follow from a `Book`; what fills it is `jdfl.algorithms.round`.

Axes: m nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import jax.numpy as jnp

from jdfl.algorithms.moment import Info, counts
from jdfl.base.streams import Stream
from jdfl.privacy import Guarantee
from jdfl.problems import Problem

Told = Callable[[Problem, int], Guarantee]  # of a problem and the number of looks at a sample


@dataclass(frozen=True)
class Channel:
    """A kind of message: its name in tables of counts, and the stream that both its ends draw from (for codecs)."""

    name: str
    stream: Stream | None = None  # None: nothing is drawn


MODEL = Channel("model", Stream("message.model", "shared"))
TRACKER = Channel("tracker", Stream("message.tracker", "shared"))


@dataclass
class Book:
    """What a step does, written down while it is traced; numbers are whole, of every node alike or arrays [m]."""

    grads: Any = 0  # gradients that a node evaluates
    releases: Any = 0  # noisy functions of its data that others may come to see
    once: int = 0  # releases of the first of several local steps alone
    sent: dict[str, Any] = field(default_factory=dict)  # messages that leave a node, by channel
    combined: dict[str, Any] = field(default_factory=dict)  # how often a node combines what it hears, by channel
    uses: dict[str, int] = field(default_factory=dict)  # how often the step sends, by channel
    noises: dict[Stream, tuple[Told, frozenset[int]]] = field(default_factory=dict)  # what noise guarantees, its looks
    parts: dict[Stream, Stream] = field(default_factory=dict)  # noise within the releases of another stream's
    loose: set[Stream] = field(default_factory=set)  # parts of a release that nodes do not make as often as these
    inside: set[Stream] = field(default_factory=set)  # what is drawn in inner parts of the step
    correlated: bool = False  # whether releases hold data of the rounds before, by rows that nothing here looks at

    def send(self, channel: Channel, sent: Any, combined: Any) -> int:
        """Count a message on a channel; returns how often the step has sent on it before."""
        name = channel.name
        self.sent[name] = self.sent.get(name, 0) + sent
        self.combined[name] = self.combined.get(name, 0) + combined
        self.uses[name] = self.uses.get(name, 0) + 1
        return self.uses[name] - 1

    def release(self, stream: Stream, told: Told, look: int) -> None:
        """Write down noise of a stream.

        Args:
            stream: what it is drawn from.
            told: what it guarantees.
            look: which of several releases of one sample it is, from 0.

        Raises ValueError where the step has drawn the same noise before, or noise of this stream that guarantees
        something else.
        """
        before, looks = self.noises.get(stream, (told, frozenset[int]()))
        if look in looks or stream in self.parts:
            raise ValueError(_twice(stream))
        if before != told:
            raise ValueError(
                f"Expected all noise of the stream {stream.name!r} to guarantee the same, got two mechanisms or clips "
                "in one step. Give the second noise a jdfl.Stream of its own."
            )
        self.noises[stream] = told, looks | {look}

    def include(self, stream: Stream, whole: Stream) -> None:
        """Write down noise of a stream that is accounted for in the releases of `whole`.

        Raises ValueError where the step has drawn the same noise before.
        """
        if stream in self.noises or stream in self.parts:
            raise ValueError(_twice(stream))
        self.parts[stream] = whole

    def absorb(self, inner: "Book", times: Any) -> None:
        """Add an inner part of the step, which nodes do `times` times (a number, or [m]).

        Raises ValueError where the step has drawn the same noise outside of it.
        """
        self.grads = self.grads + inner.grads * times
        self.releases = self.releases + inner.releases * times + inner.once
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
        self.noises |= inner.noises
        self.parts |= inner.parts
        self.loose |= inner.uncovered()
        self.correlated |= inner.correlated
        self.inside |= {*inner.noises, *inner.parts}

    def uncovered(self) -> set[Stream]:
        """The noise that is said to be within releases which the same part of the step does not make."""
        return self.loose | {
            part
            for part, whole in self.parts.items()
            if whole not in self.noises or (whole in self.inside) != (part in self.inside)
        }

    def info(self, m: int, channels: tuple[Channel, ...]) -> Info:
        """The counts; several messages of one round on different channels are combined once.

        Raises ValueError for messages on a channel that is not among the `channels` of the algorithm: their bytes would
        be missing in all counts.
        """
        names = [one.name for one in channels]
        if others := [name for name in self.sent if name not in names]:
            raise ValueError(
                f"Expected messages on the channels {names}, got some on {others}. Name every channel that the step "
                "uses in the `channels` of the algorithm."
            )
        combined = reduce(jnp.maximum, self.combined.values()) if self.combined else 0
        sent = {one.name: self.sent.get(one.name, 0) for one in channels}
        return counts(m, sent, grads=self.grads, releases=self.releases, communications=combined)


def _twice(stream: Stream) -> str:
    return (
        f"Expected fresh noise for every release, got the stream {stream.name!r} twice in one round: the difference of "
        "two releases with one noise has none. Give the second one another stream, or gradients another `look`."
    )
