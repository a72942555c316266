"""The nodes in the course of a run: the first MOST of them.

Tables of the journal, and of CSV files in the folder of a finished run:

    nodes    round, node, distance (to the mean of the shared parameters), value (f_i at the node's parameters),
             communications and releases so far; a row per node and moment, which is a return from the device
    links    round, node, `hears`: the node received from the node in `hears` in the round of the moment; only if the
             links differ from the previous moment; one row with node -1 if no node received anything
    split    the data partition: node, examples, and, if these have classes, class_0, class_1, ...
    timeline the first events of the first nodes, of an asynchronous method: time (simulated seconds), node, and kind
             (its place among the method's)
    releases round, most_releases (of a node) at a few moments of a run with a guarantee, for sound accounting: what the
             curve of epsilon on a page is made of, when the page is made

Values and classes are exact functions of the local data: no guarantee covers nodes and split.

Times and partners of asynchronous methods are drawn before a run computes anything, and a longer run begins like a
shorter one. So a timeline is drawn for the seconds that it shows, whatever the length of the run.

Axes: m nodes, n parameters, E events.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from jdfl.algorithms.program import Program
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys, Stream
from jdfl.engine.callbacks import Callback
from jdfl.engine.metrics import average, classifies, label_shares
from jdfl.engine.result import Snapshot
from jdfl.engine.spending import records_of
from jdfl.engine.start import Plan
from jdfl.events import AsyncMethod, Events
from jdfl.events.faults import with_times
from jdfl.events.timeline import sent_in
from jdfl.events.times import sample_times
from jdfl.network import Graph, Network, Timed, TimeTrace, in_run
from jdfl.problems import Problem
from jdfl.results.checkpoints import JOURNAL, Checkpoints, rows_of
from jdfl.store import journal

MOST = 256  # nodes of the tables
MOMENTS = 60  # at least, in a run with enough rounds
_CHUNK = 50  # maximum number of rounds between two returns
_MANY = 2**16  # nodes, above which the links of a changing network are recorded once
_LARGE = 2**24  # parameters of all nodes, above which distance and value are left out
NODES = 10  # of a timeline
PER_NODE = 10  # events of a timeline, on average
_LENGTH = Stream("timeline.length", "network")
_SAMPLE = 64  # times that the length is guessed from
_MOST = 2**19  # events of all nodes that are drawn, approximately
_DOUBLINGS = 8  # of the seconds, where nodes act less often than guessed


def returns(steps: int) -> int:
    """Rounds between two returns from the device, few enough for MOMENTS moments."""
    return max(1, min(_CHUNK, steps // MOMENTS))


def _split_of(problem: Problem, shown: np.ndarray) -> pd.DataFrame:
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

    The `store` has to be called after this: what is recorded here belongs to its checkpoint.
    """

    def __init__(self, store: Checkpoints, problem: Problem) -> None:
        self._store, self._problem = store, problem
        self._shown = np.arange(min(problem.m, MOST))
        self._first: dict[str, pd.DataFrame] = {}  # tables that are recorded once, with the first moment
        self._links: np.ndarray | None = None
        self._graph: Graph | None = None

    def on_start(self, plan: Plan) -> None:
        """Look at what was recorded before the round where the run resumes, or at the first events of some nodes."""
        place, method = None if plan.before is None else plan.before.place, plan.program.algorithm
        before = None if place is None else journal.read(self._store.folder / JOURNAL, place)
        if before is None or not before.rows("split").size:
            self._first["split"] = _split_of(self._problem, self._shown)
        if isinstance(method, AsyncMethod) and (before is None or not before.rows("timeline").size):
            self._first["timeline"] = _first_events(method, plan.problem, plan.network, plan.key.public)
        if before is not None and (links := before.rows("links")).size:
            last = links[links["round"] == links["round"][-1]]
            self._links = np.stack([last["node"], last["hears"]], axis=1)[last["node"] >= 0]

    def on_chunk(self, now: Snapshot) -> None:
        """Record the current values of the nodes, and the links where they are others than before."""
        m, n = self._problem.m, self._problem.n
        if self._graph is None or m <= _MANY:
            self._graph = now.graph()
        for name in list(self._first):
            self._record(name, self._first.pop(name), now)
        nodes = pd.DataFrame({"round": now.rounds, "node": self._shown})
        if m * n <= _LARGE:
            distance, value = _states(now.params(), self._problem)
            nodes["distance"], nodes["value"] = np.asarray(distance)[self._shown], np.asarray(value)[self._shown]
        nodes["communications"] = now.communications()[self._shown]
        nodes["releases"] = now.releases()[self._shown]
        self._record("nodes", nodes, now)
        links = _links_of(self._graph, self._shown)
        if self._links is None or (m <= _MANY and not np.array_equal(links, self._links)):
            self._links = links
            rows = links if len(links) else np.array([[-1, -1]])
            self._record("links", pd.DataFrame({"round": now.rounds, "node": rows[:, 0], "hears": rows[:, 1]}), now)

    def _record(self, name: str, table: pd.DataFrame, now: Snapshot) -> None:
        self._store.record(name, rows_of(table), now)


def _links_of(graph: Graph, shown: Any) -> np.ndarray:
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


def _first_events(method: AsyncMethod, problem: Problem, network: Network, key: int | Array) -> pd.DataFrame:
    """The first events of the first NODES nodes in a run of any length, about PER_NODE for each of these nodes."""
    keys = Keys.of(typed_key(key))
    timed = with_times(in_run(network, keys.network, Program(method).round_bits(problem)), method.title)
    seconds = _guessed(timed, keys.network) * min(PER_NODE, max(1.0, _MOST / timed.m))
    longest, enough = min(seconds * 2**_DOUBLINGS, _measured(timed)), PER_NODE * min(NODES, timed.m)
    while True:
        seconds = min(seconds, longest)
        events = method.events(timed, keys.network, seconds)
        node = _places(method, events)
        own = np.flatnonzero(node < NODES)[:enough]
        if len(own) >= enough or len(events) > _MOST // 2 or seconds >= longest:
            return pd.DataFrame({"time": events.time[own], "node": node[own], "kind": events.kind[own]})
        seconds *= 2


def _guessed(network: Timed, key: Array) -> float:
    """About the seconds between two events of a node in the middle."""
    numbers = np.arange(_SAMPLE, dtype=np.int32)
    own = _LENGTH.of(key)
    computing, travelling = (
        float(np.median(sample_times(times, own, numbers, numbers))) for times in (network.compute, network.latency)
    )
    slow, fixed = (float(np.median(np.asarray(one))) for one in (network.slow(), sent_in(network)))
    return computing * slow + travelling + fixed


def _measured(network: Timed) -> float:
    """The seconds for which there are times: fewer than any node has where they were measured, or else infinite."""
    times = network.compute
    if not isinstance(times, TimeTrace) or times.cycle:
        return np.inf
    measured = np.asarray(times.seconds, np.float64).sum(axis=1) * np.asarray(network.slow(), np.float64)
    return float(measured.min()) * (1 - 1e-9)


def _places(method: AsyncMethod, events: Events) -> np.ndarray:
    """The node [E] int64 at which every event happens: its actor, or the receiver where it only takes a message."""
    node = events.actor.astype(np.int64)
    for number, kind in enumerate(method.kinds):
        message = [touch.table in method.message_tables for touch in kind.touches]
        writes = ["w" in touch.mode for touch in kind.touches]
        if any(message) and any(writes) and not any(np.logical_and(message, writes)):
            here = events.kind == number
            node[here] = events.rows[here, writes.index(True)]
    return node
