"""The nodes in the course of a run: all of them, or MOST that are close to each other.

Tables of the journal, and of CSV files in the folder of a finished run:

    nodes    round, node, distance (to the mean of the shared parameters), value (f_i at the node's parameters),
             communications and releases so far; a row per node and moment, which is a return from the device
    links    round, node, `hears`: the node received from the node in `hears` in the round of the moment; only if the
             links differ from the previous moment; one row with node -1 if no node received anything
    split    the data partition: node, examples, and, if these have classes, class_0, class_1, ...
    timeline the first events of some nodes, of an asynchronous method: time (simulated seconds), node, kind (its place
             among the method's) and `every`, the events of all nodes until this time
    messages sent and arrives (simulated seconds), node, to: what these nodes send each other
    releases round, most_releases (of a node) at a few moments of a run with a guarantee, for sound accounting: what the
             curve of epsilon on a page is made of, when the page is made

Values and classes are exact functions of the local data: no guarantee covers nodes and split.

Times and partners of asynchronous methods are drawn before a run computes anything, and a longer run begins like a
shorter one. So a timeline is drawn for the seconds that it shows, whatever the length of the run.

Axes: m nodes, n parameters, E events, k shown nodes.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from jdfl.algorithms.program import Program
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys, Stream
from jdfl.engine.callbacks import Callback
from jdfl.engine.checkpoints import Checkpoints
from jdfl.engine.metrics import average, classifies, label_shares
from jdfl.engine.records import JOURNAL, rows_of
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.spending import records_of
from jdfl.engine.start import Plan
from jdfl.events import AsyncMethod, Events
from jdfl.events.faults import links, with_times
from jdfl.events.timeline import NOTHING, by_column, hears, sent_in
from jdfl.events.times import drawn
from jdfl.network import Graph, Network, Timed, TimeTrace, in_run
from jdfl.privacy import Accounting
from jdfl.problems import Problem
from jdfl.store import journal

TABLES = ("nodes", "links", "split", "timeline", "messages")  # of the journal
MOST = 256  # nodes of the tables
MOMENTS = 60  # at least, in a run with enough rounds
_CHUNK = 50  # maximum number of rounds between two returns
_MANY = 2**16  # nodes, above which the links of a changing network are recorded once
_LARGE = 2**24  # parameters of all nodes, above which distance and value are left out
NODES = 10  # of a timeline, at most
PER_NODE = 10  # events of a timeline, on average
_NEAR = 2  # neighbours of a node that are shown with it
_LENGTH = Stream("timeline.length", "network")
_SAMPLE = 64  # times that the length is guessed from
_MOST = 2**19  # events of all nodes that are drawn, approximately
_DOUBLINGS = 8  # of the seconds, where nodes act less often than guessed


def returns(steps: int) -> int:
    """Rounds between two returns from the device, few enough for MOMENTS moments."""
    return max(1, min(_CHUNK, steps // MOMENTS))


def nearby(graph: Graph, most: int = MOST) -> np.ndarray:
    """Ids of at most `most` nodes, those that are reached first from node 0 along the links; all, if they are few."""
    if graph.m <= most:
        return np.arange(graph.m)
    found = _reached([0], np.asarray(graph.senders), np.asarray(graph.mask), most)
    rest = (node for node in range(graph.m) if node not in found)
    return np.sort(np.fromiter([*found, *itertools.islice(rest, most - len(found))], int))


def _reached(
    first: Sequence[int], senders: np.ndarray, mask: np.ndarray, most: int, each: int | None = None
) -> dict[int, None]:
    """At most `most` nodes in the order in which links from the `first` ones reach them, `each` at a node."""
    found = dict.fromkeys(first)
    queue = list(found)
    for node in queue:
        new = [int(other) for other in senders[node][mask[node]] if int(other) not in found]
        new = new[:each][: most - len(found)]
        found.update(dict.fromkeys(new))
        queue += new
    return found


def split_of(problem: Problem, shown: np.ndarray) -> pd.DataFrame:
    """The number of examples of every node, and of every class if there are classes."""
    counts = np.asarray(records_of(problem))[shown]
    table = pd.DataFrame({"node": shown, "examples": counts})
    if problem.test is not None and classifies(problem):
        classes = max(2, getattr(problem, "classes", 2))
        shares = np.asarray(label_shares(problem, classes))[shown]
        for label in range(classes):
            table[f"class_{label}"] = np.rint(shares[:, label] * counts).astype(int)
    return table


class Watch(Callback):
    """Records what nodes do in the journal of a run: the tables above, except for releases.

    If a run is resumed, the nodes stay the same.

    Args:
        store: The store of the run, which has to be called after this: what is recorded here belongs to its checkpoint.
        problem: The problem of the run.
    """

    def __init__(self, store: Checkpoints, problem: Problem) -> None:
        self._store, self._problem = store, problem
        self._shown: np.ndarray | None = None
        self._links: np.ndarray | None = None
        self._graph: Graph | None = None
        self._lanes: Lanes | None = None

    def begin(self, plan: Plan) -> None:
        """Look at what was recorded before the round where the run resumes, or at the first events of some nodes."""
        place, recorded, method = None if plan.before is None else plan.before.place, False, plan.program.algorithm
        if place is not None:
            before = journal.read(self._store.folder / JOURNAL, place)
            events, split, links = (before.rows(name) for name in ("timeline", "split", "links"))
            recorded = bool(events.size)
            if split.size:  # a network that changes has others near node 0 by now
                self._shown = split["node"]
            if links.size:
                last = links[links["round"] == links["round"][-1]]
                self._links = np.stack([last["node"], last["hears"]], axis=1)[last["node"] >= 0]
        if isinstance(method, AsyncMethod) and not recorded:
            self._lanes = of_run(method, plan.problem, plan.network, plan.key.public)

    def __call__(self, now: Snapshot) -> None:
        """Record the current values of the nodes, and the links where they are others than before."""
        m, n = self._problem.m, self._problem.n
        if self._graph is None or m <= _MANY:
            self._graph = now.graph()
        if self._shown is None:
            self._shown = nearby(self._graph)
            self._record("split", split_of(self._problem, self._shown), now)
        if self._lanes is not None:
            self._record("timeline", self._lanes.events, now)
            self._record("messages", self._lanes.messages, now)
            self._lanes = None
        nodes = pd.DataFrame({"round": now.rounds, "node": self._shown})
        if m * n <= _LARGE:
            distance, value = _states(now.params(), self._problem)
            nodes["distance"], nodes["value"] = np.asarray(distance)[self._shown], np.asarray(value)[self._shown]
        nodes["communications"] = now.communications()[self._shown]
        nodes["releases"] = now.releases()[self._shown]
        self._record("nodes", nodes, now)
        links = links_of(self._graph, self._shown)
        if self._links is None or (m <= _MANY and not np.array_equal(links, self._links)):
            self._links = links
            rows = links if len(links) else np.array([[-1, -1]])
            self._record("links", pd.DataFrame({"round": now.rounds, "node": rows[:, 0], "hears": rows[:, 1]}), now)

    def _record(self, name: str, table: pd.DataFrame, now: Snapshot) -> None:
        self._store.record(name, rows_of(table), now)


def releases(result: Result, *, accounting: Accounting = "sound") -> pd.DataFrame:
    """The most releases of a node at some moments of a run: a row per moment; none without a sound guarantee."""
    if result.guarantee.event is None or not result.guarantee.claimed or accounting != "sound":
        return pd.DataFrame()
    known = sorted(({result.rounds: result.releases} | result.moments).items())
    return pd.DataFrame({"round": [k for k, _ in known], "most_releases": [int(one.max()) for _, one in known]})


def links_of(graph: Graph, shown: Any) -> np.ndarray:
    """Pairs (node, in-neighbour) [links, 2] among the nodes that are shown."""
    if graph.synchronised is not None and bool(graph.synchronised):
        ids = np.asarray(shown)
        pairs = np.stack(np.meshgrid(ids, ids, indexing="ij"), axis=-1).reshape(-1, 2)
        return pairs[pairs[:, 0] != pairs[:, 1]]
    senders, mask = jax.device_get(_rows((graph.senders, graph.mask), shown))
    pairs = np.stack([np.broadcast_to(np.asarray(shown)[:, None], senders.shape), senders], axis=-1)[mask]
    return pairs[np.isin(pairs[:, 1], shown)]


@jax.jit
def _rows(arrays: tuple[Array, Array], shown: Array) -> Any:
    return jax.tree.map(lambda x: x[shown], arrays)


@jax.jit
def _states(w: Array, problem: Problem) -> tuple[Array, Array]:
    """Distance of every node to the mean of the shared parameters [m], and f_i(w_i) [m]."""
    shared = w[:, : problem.n_shared]
    return jnp.linalg.norm(shared - average(shared)[None], axis=1), problem.values(w)


@dataclass(frozen=True)
class Lanes:
    """Some nodes of an asynchronous run, with their first events."""

    title: str  # of the method
    kinds: tuple[str, ...]  # names of the kinds of events
    m: int  # nodes of the network
    events: pd.DataFrame  # by time: time in seconds, node, kind, and `every`, the events of all nodes until this time
    messages: pd.DataFrame  # sent and arrives in seconds, node, to; equal times: the two nodes of one event

    @property
    def nodes(self) -> list[int]:
        """The nodes that take part in what is shown, the one with the fewest events first."""
        ids = [self.events["node"], self.messages["node"], self.messages["to"]]
        found = np.unique(np.concatenate([one.to_numpy(int) for one in ids]))
        own = self.events["node"].value_counts().reindex(found, fill_value=0).to_numpy()
        return found[np.argsort(own, kind="stable")].tolist()

    @property
    def caption(self) -> str:
        """What is shown, in words."""
        nodes, shown = len(self.nodes), len(self.events)
        if not shown:
            return f"{self.title}: none of the chosen nodes acts before the end of the run."
        every, end = int(self.events["every"].iloc[-1]), float(self.events["time"].iloc[-1])
        sentences = [
            f"{self.title}, the first {end:.4g} simulated seconds: {shown:,} events of {nodes:,} of the {self.m:,} "
            f"nodes; all nodes together have {every:,}. A lane is a node, and those with more events are above."
        ]
        at_once = self.messages["sent"] == self.messages["arrives"]
        if at_once.any():
            sentences.append("A bow joins the two nodes of one event, with a dot at the partner.")
        if not at_once.all():
            sentences.append("A straight line leads from the event that sends something to the first that uses it.")
        if len(at_once) and nodes < self.m:
            sentences.append("Lines to other nodes are left out.")
        return " ".join(sentences)

    def until(self, seconds: float) -> "Lanes":
        """What happens until a time in seconds, `seconds` included."""
        events, messages = self.events, self.messages
        return replace(
            self, events=events[events["time"] <= seconds], messages=messages[messages["arrives"] <= seconds]
        )


def of_run(method: AsyncMethod, problem: Problem, network: Network, key: int | Array) -> Lanes:
    """The first events of some nodes in a run of any length, PER_NODE times as many events as there are nodes."""
    keys = Keys.of(typed_key(key))
    timed = with_times(in_run(network, keys.network, Program(method).round_bits(problem)), method.title)
    seconds = _guessed(timed, keys.network) * min(PER_NODE, max(1.0, _MOST / timed.m))
    longest = min(seconds * 2**_DOUBLINGS, _measured(timed))
    while True:
        seconds = min(seconds, longest)
        events = method.events(timed, keys.network, seconds)
        node = places_of(method, events)
        shown = _chosen(timed, node)
        own = np.flatnonzero(np.isin(node, shown))
        if len(own) >= PER_NODE * len(shown) or len(events) > _MOST // 2 or seconds >= longest:
            break
        seconds *= 2
    last = own[: PER_NODE * len(shown)][-1:]
    events = events[: events.until(float(events.time[last].sum()))]
    own = own[own < len(events)]
    every = np.searchsorted(events.time, events.time[own], side="right")
    columns = {"time": events.time[own], "node": node[own], "kind": events.kind[own], "every": every}
    found = exchanges(method, events, node, own)
    good = np.flatnonzero(np.isin(found.giver, shown) & np.isin(found.taker, shown))
    start, giver, end, taker = (one[good] for one in found)
    sent = {"sent": events.time[start], "node": giver, "arrives": events.time[end], "to": taker}
    messages = pd.DataFrame(sent).sort_values(["arrives", "sent", "node", "to"], ignore_index=True)
    return Lanes(method.title, tuple(kind.name for kind in method.kinds), timed.m, pd.DataFrame(columns), messages)


def _guessed(network: Timed, key: Array) -> float:
    """About the seconds between two events of a node in the middle."""
    numbers = np.arange(_SAMPLE, dtype=np.int32)
    own = _LENGTH.of(key)
    computing, travelling = (
        float(np.median(drawn(times, own, numbers, numbers))) for times in (network.compute, network.latency)
    )
    slow, fixed = (float(np.median(np.asarray(one))) for one in (network.slow(), sent_in(network)))
    return computing * slow + travelling + fixed


def _measured(network: Timed) -> float:
    """The seconds for which there are times: fewer than any node has where they were measured, or else infinite."""
    times = network.compute
    if not isinstance(times, TimeTrace) or times.cycle:
        return np.inf
    whole = np.asarray(times.seconds, np.float64).sum(axis=1) * np.asarray(network.slow(), np.float64)
    return float(whole.min()) * (1 - 1e-9)


def _chosen(network: Timed, node: np.ndarray) -> np.ndarray:
    """The nodes that are shown, where events are at nodes [E]: some that act often and seldom, and their neighbours."""
    count = np.bincount(node, minlength=network.m)
    acting = np.flatnonzero(count)
    ranked = acting[np.argsort(count[acting], kind="stable")]
    first = ranked[[0, -1, len(ranked) // 3, 2 * len(ranked) // 3]].tolist() if len(ranked) else [0]
    found = _reached(first, *hears(links(network)), NODES, _NEAR)
    for one in range(min(network.m, NODES)):  # few nodes are all shown, whatever their links
        if len(found) < min(network.m, NODES):
            found[one] = None
    return np.array(list(found))


class Exchanges(NamedTuple):
    """What nodes send each other: from the event that sends to the one that uses it, or within one event."""

    start: np.ndarray  # int64 [L] the place of the event that sends
    giver: np.ndarray  # int64 [L] the node that sends
    end: np.ndarray  # int64 [L] the place of the event that uses it; that of `start` for the two nodes of one event
    taker: np.ndarray  # int64 [L] the node that receives


def places_of(method: AsyncMethod, events: Events) -> np.ndarray:
    """The node [E] int64 at which every event happens: its actor, or the receiver where it only takes a message."""
    node = events.actor.astype(np.int64)
    for number, kind in enumerate(method.kinds):
        message = [touch.table in method.message_tables for touch in kind.touches]
        writes = ["w" in touch.mode for touch in kind.touches]
        if any(message) and any(writes) and not any(np.logical_and(message, writes)):
            here = events.kind == number
            node[here] = events.rows[here, writes.index(True)]
    return node


def exchanges(method: AsyncMethod, events: Events, node: np.ndarray, own: np.ndarray) -> Exchanges:
    """What some events do together with a partner, or are the first at their node to use of another node's event."""
    found = [*_meetings(method, events, node, own), *_handed(method, events, node, own)]
    none = np.zeros(0, np.int64)
    return Exchanges(*(np.concatenate([none, *(one[i] for one in found)]) for i in range(4)))


def _meetings(method: AsyncMethod, events: Events, node: np.ndarray, own: np.ndarray) -> Iterator[Exchanges]:
    """Of events that touch the rows of two nodes in one table."""
    for number, kind in enumerate(method.kinds):
        here = own[events.kind[own] == number]
        for c, touch in enumerate(kind.touches):
            nodes = touch.table not in (NOTHING, *method.message_tables) and not touch.many
            if nodes and any(touch.table == other.table for other in kind.touches[:c]):
                place = here[events.rows[here, c] >= 0]
                yield Exchanges(place, node[place], place, events.rows[place, c].astype(np.int64))


def _handed(method: AsyncMethod, events: Events, node: np.ndarray, own: np.ndarray) -> Iterator[Exchanges]:
    """Of events that read what another node has written last: messages, rows of in-neighbours, or a row passed on."""
    walking = {kind.touches[0].table for kind in method.kinds if any(one.table == NOTHING for one in kind.touches)}
    many = {touch.table for kind in method.kinds for touch in kind.touches if touch.many}
    far = np.int64(len(events) + 1)
    for table in sorted({*method.message_tables, *walking, *many}):
        writes = np.sort(_touched(method, events, table, "w", np.arange(len(events))))  # by row, then by place
        reads = _touched(method, events, table, "r", own)
        before = np.searchsorted(writes, reads) - 1
        reads, before = reads[before >= 0], before[before >= 0]
        same = writes[before] // far == reads // far
        start, end = writes[before[same]] % far, reads[same] % far
        order = np.lexsort((end, node[end], start))
        start, end = start[order], end[order]
        taker = node[end]
        new = (np.diff(start, prepend=-1) != 0) | (np.diff(taker, prepend=-1) != 0)  # the first use at every node
        new &= node[start] != taker
        yield Exchanges(start[new], node[start[new]], end[new], taker[new])


def _touched(method: AsyncMethod, events: Events, table: str, mode: str, places: np.ndarray) -> np.ndarray:
    """The rows of a table that events at some places write or read: row times (E + 1), plus the place [k]."""
    found = [np.zeros(0, np.int64)]
    for number, kind in enumerate(method.kinds):
        here = places[events.kind[places] == number]
        for c, touch in enumerate(by_column(kind, events.rows.shape[1])):
            if touch.table == table and mode in touch.mode:
                there = here[events.rows[here, c] >= 0]
                found.append(events.rows[there, c] * np.int64(len(events) + 1) + there)
    return np.concatenate(found)
