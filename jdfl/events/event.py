"""What one event computes with, and what it does: gradients of nodes, messages, noise.

Everything but arithmetic goes through an `Event`, as it goes through a `Round` in a step. What is done is noted while
JAX traces a handler; counts, ledgers and privacy statements are derived from these notes.

Axes: m nodes, E events, b events that are computed together, C columns of rows, d slots of the table of in-neighbours,
n parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.round import MODEL, Channel, Prepared, Round, RoundContext, StepTrace, exact
from jdfl.base import checks, marking, struct
from jdfl.base.marking import sent
from jdfl.base.streams import Keys, Stream, each
from jdfl.codecs import transmit
from jdfl.events.timeline import Events
from jdfl.network import Graph
from jdfl.problems import Problem
from jdfl.problems.ragged import first_parts

_BLOCK = 2**17  # events that are counted at a time; one for every node, if there are more nodes


@struct.dataclass
class Instant(RoundContext):
    """Events of several nodes: `node` [b] are their actors, and keys follow from how many of a kind each has had."""

    count: Array | None = None  # int32 [b] the number of the event among those of its actor and kind
    kind: int = 0  # the place of the kind among the method's
    lane: Array | None = None  # int32 [b] the run of several, whose keys are `roots` [L]; None: there is one run

    @classmethod
    def of(cls, keys: Keys, node: Array, count: Array, kind: int = 0, lane: Array | None = None) -> "Instant":
        """Events of nodes [b], with counts [b] among those of a kind, in a run with these keys; they have no links.

        With `lane` [b] the runs to which they belong, whose keys have a leading axis.
        """
        nobody, nothing = jnp.zeros((len(node), 1), jnp.int32), jnp.zeros((len(node), 1), jnp.float32)
        graph = Graph(nobody, nobody > 0, nothing, nothing[:, 0] + 1, nobody[:, 0])
        return cls(jnp.int32(0), keys.run, graph, node, keys, count, kind, lane)

    def stream(self, stream: Stream) -> Array:
        """The key [] of a stream; ValueError for several runs at once, which have one each."""
        if self.lane is not None:
            raise ValueError(
                f"Expected a key for every node of the stream {stream.name!r} in runs side by side, got one for all. "
                "Use batch = 1."
            )
        return super().stream(stream)

    def keys(self, stream: Stream, index: Array | int = 0) -> Array:
        """A stream's key for every event [b]; `index` [] distinguishes several draws of one event."""
        assert self.count is not None
        fold = jax.random.fold_in
        if self.lane is None:
            own = each(fold(self.stream(stream), self.kind), self.node, index)  # counts of two kinds are the same
        else:
            roots = getattr(self.roots, stream.root)
            first = jax.vmap(lambda root: fold(fold(stream.of(root), self.kind), index))(roots)
            own = jax.vmap(fold)(first[self.lane], self.node)
        return jax.vmap(fold)(own, self.count)


class Note(NamedTuple):
    """Something that a node does in an event of a kind."""

    what: str  # "grads", "releases", "communications", or "sent_" and a channel
    by: int | None  # the column with the node's row, without which it does not happen; None: the actor
    where: int | None  # the column of another row without which it does not happen; None: there is none
    times: int = 1
    links: bool = False  # whether it happens once per out-neighbour


@dataclass
class Notes:
    """What events of a kind do, noted while a handler is traced."""

    found: list[Note] = field(default_factory=list)
    traces: dict[tuple[int | None, int], tuple[int | None, StepTrace]] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)  # how often a channel was used

    def all(self) -> list[Note]:
        """All that was noted; of gradients, what was recorded in the rounds of `Event.at`."""
        numbers = ("grads", "releases")
        made = [
            Note(what, by, where, getattr(trace, what))
            for (by, _), (where, trace) in self.traces.items()
            for what in numbers
        ]
        if any(isinstance(note.times, Array) for note in made):
            raise ValueError(
                "Expected gradients of all rows of an event, got those of some. Use no each_of, but fewer events."
            )
        return [*self.found, *(note for note in made if note.times)]

    def into(self, trace: StepTrace) -> None:
        """Add noises and uses of channels to the record of a step."""
        if len(self.traces) > 1 and any(one.turns for _, own in self.traces.values() for one in own.booked):
            raise ValueError(
                "Expected one round of an event that repeats local steps with noise, got several rounds, which would "
                "share it. Give every local step a turn: event.at(turn=t)."
            )
        for _, own in self.traces.values():
            for stream, (claim, looks) in own.noises.items():
                before = trace.noises.get(stream, (claim, looks))
                if before[0] != claim:
                    raise ValueError(
                        f"Expected all noise of the stream {stream.name!r} to give the same guarantee, got two "
                        "mechanisms or clips. Draw the second noise from another jdfl.Stream."
                    )
                trace.noises[stream] = claim, before[1] | looks
            trace.booked += own.booked
            trace.parts |= own.parts
            trace.loose |= own.uncovered()
            trace.correlated |= own.correlated
            trace.altered |= own.altered
            if own.sent:
                raise ValueError(
                    "Expected messages of an event through its send, post or publish, got one on "
                    f"{', '.join(own.sent)} through the round of event.at, which has no links."
                )
        for name, times in self.uses.items():
            trace.uses[name] = trace.uses.get(name, 0) + times


@dataclass(frozen=True)
class Neighbours:
    """The rows of a table that belong to the in-neighbours of the actors, with the weights of their links."""

    table: Any  # a tree with leaves [rows, ...]
    row: Array  # int32 [b, d]; 0 where there is none
    present: Array  # [b, d] bool
    weight: Array  # [b, d] of the actors' links, 0 where there is no link

    def mixed(self, own: Array) -> Array:
        """x_i + sum_j w_ij (x_j - x_i) [b, n] over the links whose row is there, x_i being the `own` [b, n]."""
        return own + self.pulled(own)

    def pulled(self, own: Array) -> Array:
        """sum_j w_ij (x_j - x_i) [b, n] over the links whose row is there, x_i being the `own` [b, n]."""
        weight = jnp.where(self.present, self.weight, 0).astype(own.dtype)

        def one(k: Array, total: Array) -> Array:
            return total + weight[:, k, None] * (self.table[self.row[:, k]] - own)

        return lax.fori_loop(0, self.row.shape[1], one, jnp.zeros_like(own))


@dataclass(frozen=True)
class Event:
    """Events of one kind that are computed together, as a handler sees them.

    `data` [b] are whole numbers that the timeline has given each of them.
    """

    problem: Problem
    prepared: Prepared
    instant: Instant
    row: Array  # int32 [b, C] the rows of its touches; 0 where there is none
    present: Array  # [b, C] bool whether there is one
    data: Array  # int32 [b]
    notes: Notes = field(default_factory=Notes)
    altered: bool = False  # whether a handler has made it, or one that it was made from

    def __post_init__(self) -> None:
        if not marking.ours(3):  # after `__init__`
            object.__setattr__(self, "altered", True)

    def node(self, column: int | None) -> Array:
        """The nodes [b] of a column with rows of nodes, or the actors."""
        if column is None:
            return self.instant.node
        lane = self.instant.lane
        return self.row[:, column] if lane is None else self.row[:, column] - lane * self.problem.m

    def there(self, column: int) -> Array:
        """Whether events have a row in a column [b, 1], such as that of a partner."""
        return self.present[:, column, None]

    def at(self, column: int | None = None, turn: int = 0) -> Round:
        """The round in which the nodes of a column evaluate gradients, with draws of its own; None: the actors.

        A `turn` distinguishes several evaluations of one node, such as local steps. Raises ValueError for a column and
        turn that the handler has used before: their noise would be the same.
        """
        checks.integer(0, turn=turn)
        checks.integer(0, self.row.shape[1] - 1, column=0 if column is None else column)
        if (column, turn) in self.notes.traces:
            raise ValueError(
                f"Expected a turn of its own for every round of an event, got turn = {turn} twice for column {column}:"
                " both would have the same noise. Count the local steps."
            )
        trace = StepTrace()
        self.notes.traces[column, turn] = column, trace
        node = self.node(column)
        ready = replace(self.prepared, gradients=self.prepared.gradients.rows(node))
        place = turn * (self.row.shape[1] + 1) + (0 if column is None else column + 1)
        given: Any = {"context": self.instant, "problem": self.problem.nodes(node), "prepared": ready}
        data, weight = marking.rows(
            (given["problem"].data, given["problem"].weight), (first_parts(self.problem.data), self.problem.weight)
        )
        given["problem"] = replace(given["problem"], data=data, weight=weight)
        return Round(**given, trace=trace, rows=node, local_step=place, altered=self.altered)

    def send(self, x: Array, to: int, channel: Channel = MODEL, *, by: int | None = None) -> Array:
        """What the nodes of a column `to` receive of the rows x [b, n], and combine with their own at once.

        Where its row is missing nothing is sent. Messages are counted on the `channel`. The senders are the nodes of
        the column `by`; None: the actors.
        """
        self.notes.found.append(Note("communications", to, by))
        return self.post(x, to, channel, by=by)

    def post(self, x: Array, where: int, channel: Channel = MODEL, *, by: int | None = None) -> Array:
        """What arrives later of the rows x [b, n] that are sent now; the receiver calls `combine` then.

        Nothing is sent without a row in the column `where`, such as that of a slot; `channel` and `by` are as for
        `send`.
        """
        self.notes.found.append(Note(f"sent_{channel.name}", by, where))
        return self._coded(x, channel, by, self.present[:, where])

    def publish(self, x: Array, channel: Channel = MODEL, *, onto: Array | None = None) -> Array:
        """What all out-neighbours of the actors receive of the rows x [b, n]: one message each on the `channel`.

        With rows `onto` [b, n] that both ends know, x - onto is sent, and what is decoded is added to them.
        """
        self.notes.found.append(Note(f"sent_{channel.name}", None, None, links=True))
        return self._coded(x, channel, None, self.present[:, 0], onto)

    def combine(self, column: int | None = None) -> None:
        """Count that nodes combine what they have received: those of a column, or the actors."""
        self.notes.found.append(Note("communications", column, column))

    def _coded(self, x: Array, channel: Channel, by: int | None, wanted: Array, onto: Array | None = None) -> Array:
        use = self.notes.uses.get(channel.name, 0)
        self.notes.uses[channel.name] = use + 1
        x, wire = sent(x, channel.name), self.prepared.wire
        if exact(wire.codec, x):
            return x
        assert channel.stream is not None
        return transmit(wire.rows(self.node(by)), self.instant.keys(channel.stream, use), x, wanted, onto=onto)


def counted(
    events: Events, notes: Sequence[Sequence[Note]], names: Sequence[str], out_degree: np.ndarray
) -> dict[str, np.ndarray]:
    """How often every node does something in events: by its name, numbers [m] int64."""
    found = {name: np.zeros(len(out_degree), np.int64) for name in names}
    for _, block in events.blocks(max(_BLOCK, len(out_degree))):
        for some, _, node in _doings(block, notes):
            wanted = [note for note in some if note.what in found]
            number = np.bincount(node, minlength=len(out_degree)) if wanted else node
            for note in wanted:
                found[note.what] += number * (note.times * out_degree if note.links else note.times)
    return found


def within(events: Events, notes: Sequence[Sequence[Note]], left: np.ndarray) -> int:
    """How many of the events happen before the first with which a node would release more than it has left."""
    for start, block in events.blocks(max(_BLOCK, len(left))):
        over = _first_over(block, notes, left)
        if over < len(block):
            return start + over
        left = left - counted(block, notes, ["releases"], np.zeros(len(left), np.int64))["releases"]
    return len(events)


def _first_over(events: Events, notes: Sequence[Sequence[Note]], left: np.ndarray) -> int:
    """The place of the first event with which a node would release more than it has left [m]; their number: none."""
    doings = [
        (place, node, np.full(len(node), note.times))
        for some, place, node in _doings(events, notes)
        for note in some
        if note.what == "releases"
    ]
    if not doings:
        return len(events)
    place, node, times = (np.concatenate(columns) for columns in zip(*doings))
    order = np.lexsort((place, node))
    place, node, times = place[order], node[order], times[order]
    total = np.cumsum(times)
    first = np.flatnonzero(np.diff(node, prepend=-1))
    before = np.repeat(total[first] - times[first], np.diff(first, append=len(node)))
    over = total - before > left[node]
    return int(place[over].min(initial=len(events)))


def _doings(events: Events, notes: Sequence[Sequence[Note]]) -> Iterator[tuple[list[Note], np.ndarray, np.ndarray]]:
    """Everything that is done: notes of the same nodes, and the places of events [k] and the nodes [k]."""
    for kind, some in enumerate(notes):
        alike = dict[tuple[int | None, int | None, bool], list[Note]]()
        for note in some:
            alike.setdefault((note.by, note.where, note.what.startswith("sent_")), []).append(note)
        here = np.flatnonzero(events.kind == kind)
        for (by, where, message), group in alike.items():
            place = here
            for column in (by, where):
                if column is not None:
                    row = events.rows[place, column]
                    place = place[row != -1 if message else row >= 0]  # what is lost is sent
            if by is None:
                node = events.actor[place]
            else:
                row = events.rows[place, by]
                node = np.where(row < 0, -2 - row, row)
            yield group, place, node
