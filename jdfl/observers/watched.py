"""A method's rounds with inputs in place of noisy releases, recording what leaves the nodes and where gradients are
taken.

Axes: m nodes, c columns, which stand for coordinates of parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.gradients import Gradients, Ready
from jdfl.algorithms.round import MODEL, Channel, Claim, Round, RoundContext, To
from jdfl.base import struct
from jdfl.base.streams import Stream
from jdfl.privacy import GaussianEvent, Mechanism
from jdfl.problems import Problem

T = TypeVar("T")


class NoMapError(ValueError):
    """The method has no affine map; the message says why."""


@struct.dataclass
class Shape(Problem):
    """A problem of the same nodes with a number of columns, whose losses are zero: gradients are supplied as inputs."""

    width: int = struct.field(pytree_node=False, default=1)

    @property
    def n(self) -> int:
        """The number of columns."""
        return self.width

    def loss(self, w: Array, example: Any) -> Array:
        """Zero."""
        return jnp.zeros((), w.dtype)


@struct.dataclass
class Given(Gradients):
    """Zero gradients plus those of a regulariser slope / 2 ||w||^2, with noise supplied as inputs."""

    slope: float = 0.0
    scale: Any = None  # [m] the sensitivities of the problem's own data

    def prepare(self, problem: Problem, context: RoundContext) -> Ready:
        """Nothing."""
        return Ready()

    def sensitivities(self, problem: Problem) -> Array:
        """The sensitivities for the problem's own data [m]."""
        return self.scale

    def _counted_gradient(self, w: Array, round: Any, part: slice | None) -> tuple[Array, Array]:
        round.trace.grads = round.trace.grads + 1
        at = w if round.due is None else jnp.where(round.due[:, None], w, 0.0)
        round.log.points.append((len(round.log.inputs), at))
        rest = (self.slope * w)[:, slice(None) if part is None else part]
        return jnp.zeros_like(rest), rest


@dataclass
class _Sent:
    """The rows of all nodes that leave them at one place of the program."""

    x: Array  # [m, c]
    by: Array  # [m] bool senders
    to: To  # recipients


@dataclass
class Log:
    """What a part of a program has done."""

    sent: list[_Sent] = field(default_factory=list)
    released: list[Array] = field(default_factory=list)  # [m, c] each
    inputs: list[float | None] = field(default_factory=list)  # multipliers of releases; None: pairwise noise
    points: list[tuple[int, Array]] = field(default_factory=list)  # inputs, and where their gradients are taken [m, c]
    factors: list[Array] = field(default_factory=list)  # [p] each, how noise of the releases so far is correlated
    bare: list[Array] = field(default_factory=list)  # [m, c] values that noise would be added to, with zero gradients


@dataclass(frozen=True, kw_only=True)
class Recorded(Round):
    """A round that records messages and releases; it works on all nodes at once, and unrolls local steps."""

    log: Log
    due: Array | None = None  # [m] bool the only nodes that work; None: all

    def noisy(self, *given: Any, **counted: Any) -> Array:
        """Record the released value."""
        self.log.released.append(super().noisy(*given, **counted))
        return self.log.released[-1]

    def pairwise(self, stream: Stream, x: Array) -> Array:
        """Noise that cancels over links, recorded per link."""
        graph, slot = self.graph, jnp.arange(self.graph.mask.shape[1])
        masks = [graph.mask & (slot == one)[None] for one in range(len(slot))]
        contexts = [replace(self.context, graph=replace(graph, mask=mask)) for mask in masks]
        links = [super(Recorded, replace(self, context=context)).pairwise(stream, x) for context in contexts]
        self.log.released.extend(links)
        return sum(links, jnp.zeros_like(x))

    def leaving(self, channel: Channel, x: Array, by: Array | None = None, *, to: To = "neighbours") -> Array:
        """Record the rows."""
        if to == "asked":
            raise NoMapError("its nodes request only some neighbours' messages at a time")
        on = jnp.ones((self.m,), jnp.bool_)
        for some in (by, self.due, self.exchanging):
            on = on if some is None else on & some
        self.log.sent.append(_Sent(x, on, to))
        return x

    def mix(self, x: Array, channel: Channel | None = MODEL) -> Array:
        """W x, in exchange rounds."""
        if self.exchanging is None or channel is None:
            return super().mix(x, channel)
        x = self.leaving(channel, x)
        return jnp.where(self.exchanging, replace(self, exchanging=None, log=Log()).mix(x, channel), x)

    def repeat(self, count: int, step: Callable[[Any, T], T], carry: T) -> T:
        """The steps, one after another."""
        for t in range(count):
            local = {"local_step": self.local_step * count + t, "local_steps": self.local_steps * count}
            carry = step(replace(self, inner=True, trace=type(self.trace)(), **local), carry)
        return carry

    def each_of(self, due: Array, block: int | None, work: Callable[[Any], T], otherwise: T | None = None) -> T:
        """The work of all nodes; only the results of the due nodes are kept."""
        made = work(self._of(due))
        if block is None or otherwise is None:
            return made
        return _where(due, made, otherwise)

    def _of(self, due: Array) -> Self:
        return replace(self, due=due if self.due is None else self.due & due, trace=type(self.trace)())


@dataclass(frozen=True, kw_only=True)
class Watched(Recorded):
    """A round whose releases are inputs in units of their sensitivities, and whose messages are recorded.

    Noise that cancels over links is an input of its own.
    """

    given: Array | None  # [inputs, m, c] releases and pairwise noise; None: zeros

    def noisy(
        self,
        mechanism: Mechanism,
        x: Array,
        sensitivity: Any,
        stream: Stream,
        claim: Claim | Stream,
        **counted: Any,
    ) -> Array:
        """The given input in place of x and its noise."""
        event = mechanism.event()
        if isinstance(claim, Stream) or not isinstance(event, GaussianEvent):
            raise NoMapError(f"its noise of the stream {stream.name!r} is not Gaussian, or a part of another release")
        self.log.bare.append(x)
        scale = jnp.broadcast_to(jnp.asarray(sensitivity, x.dtype), (x.shape[0],))
        return scale[:, None] * self._input(x, event.noise_multiplier)

    def correlated(
        self, mechanism: Mechanism, x: Array, sensitivity: Any, stream: Stream, claim: Claim, row: Array, hidden: Array
    ) -> tuple[Array, Array]:
        """The given input in place of x and its noise, whose correlation is recorded."""
        self.log.factors.append(row)
        return self.noisy(mechanism, x, sensitivity, stream, claim), hidden

    def pairwise(self, stream: Stream, x: Array) -> Array:
        """The given input in place of noise that cancels over links."""
        return self._input(x, None)

    def _input(self, x: Array, multiplier: float | None) -> Array:
        self.log.inputs.append(multiplier)
        return jnp.zeros_like(x) if self.given is None else self.given[len(self.log.inputs) - 1]


def _where(due: Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(due.reshape(-1, *[1] * (a.ndim - 1)), a, b), one, other)
