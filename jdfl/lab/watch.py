"""The nodes in the course of a run: all of them, or MOST that are close to each other.

Tables of the journal, and of CSV files in the folder of a finished run:

    nodes    round, node, distance (to the mean of the shared parameters), value (f_i at the node's parameters),
             communications and releases so far; a row per node and moment, which is a return from the device
    links    round, node, `hears`: the node received from the node in `hears` in the round of the moment; only if the
             links differ from the previous moment; one row with node -1 if no node received anything
    split    the data partition: node, examples, and, if these have classes, class_0, class_1, ...
    timeline the first events of some nodes, of an asynchronous method: time (simulated seconds), node, kind (its place
             among the method's) and `every`, the events of all nodes until this time; see `jdfl.lab.first_events`
    messages sent and arrives (simulated seconds), node, to: what these nodes send each other
    releases round, most_releases (of a node) at a few moments of a run with a guarantee, for sound accounting: what the
             curve of epsilon on a page is made of, when the page is made

Values and classes are exact functions of the local data: no guarantee covers nodes and split.

Axes: m nodes, n parameters.
"""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from jdfl.engine.callbacks import Callback
from jdfl.engine.checkpoints import Checkpoints
from jdfl.engine.metrics import average, classifies, label_shares
from jdfl.engine.records import JOURNAL, rows_of
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.spending import records_of
from jdfl.engine.start import Plan
from jdfl.events import AsyncMethod
from jdfl.lab import first_events
from jdfl.network import Graph
from jdfl.privacy import Accounting
from jdfl.problems import Problem
from jdfl.store import journal

TABLES = ("nodes", "links", "split", "timeline", "messages")  # of the journal
MOST = 256  # nodes
MOMENTS = 60  # at least, in a run with enough rounds
_CHUNK = 50  # maximum number of rounds between two returns
_MANY = 2**16  # nodes, above which the links of a changing network are recorded once
_LARGE = 2**24  # parameters of all nodes, above which distance and value are left out


def returns(steps: int) -> int:
    """Rounds between two returns from the device, few enough for MOMENTS moments."""
    return max(1, min(_CHUNK, steps // MOMENTS))


def nearby(graph: Graph, most: int = MOST) -> np.ndarray:
    """Ids of at most `most` nodes, those that are reached first from node 0 along the links; all, if they are few."""
    if graph.m <= most:
        return np.arange(graph.m)
    senders, mask = np.asarray(graph.senders), np.asarray(graph.mask)
    found = dict.fromkeys([0])
    queue = [0]
    for node in queue:
        new = [int(other) for other in senders[node][mask[node]] if int(other) not in found][: most - len(found)]
        found.update(dict.fromkeys(new))
        queue += new
    rest = (node for node in range(graph.m) if node not in found)
    return np.sort(np.fromiter([*found, *itertools.islice(rest, most - len(found))], int))


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
        self._lanes: first_events.Lanes | None = None

    def begin(self, plan: Plan) -> None:
        """Look at what was recorded before the round where the run resumes, or at the first events of some nodes."""
        place = None if plan.before is None else plan.before.place
        if place is None or plan.before is None:
            self._lanes = _first_events(plan)
            return
        before = journal.read(self._store.folder / JOURNAL, place)
        if not before.rows("timeline").size:
            self._lanes = _first_events(plan)
        self._go_on(before.rows("split"), before.rows("links"))

    def _go_on(self, split: np.ndarray, links: np.ndarray) -> None:
        """Take the nodes and the last links of what was recorded before."""
        if split.size:  # a network that changes has others near node 0 by now
            self._shown = split["node"]
        if links.size:
            last = links[links["round"] == links["round"][-1]]
            self._links = np.stack([last["node"], last["hears"]], axis=1)[last["node"] >= 0]

    def __call__(self, now: Snapshot) -> None:
        """Record the current values of the nodes."""
        if self._graph is None or self._problem.m <= _MANY:
            self._graph = now.graph()
        if self._shown is None:
            self._shown = nearby(self._graph)
            self._store.record("split", rows_of(split_of(self._problem, self._shown)), now)
        nodes = rows_of(self._nodes(now, self._shown))
        if self._lanes is not None:
            self._store.record("timeline", rows_of(self._lanes.events), now)
            self._store.record("messages", rows_of(self._lanes.messages), now)
            self._lanes = None
        self._store.record("nodes", nodes, now)
        self._follow(now, self._graph, self._shown)

    def _nodes(self, now: Snapshot, shown: np.ndarray) -> pd.DataFrame:
        table = pd.DataFrame({"round": now.rounds, "node": shown})
        if self._problem.m * self._problem.n <= _LARGE:
            distance, value = _states(now.params(), self._problem)
            table["distance"], table["value"] = np.asarray(distance)[shown], np.asarray(value)[shown]
        table["communications"] = now.communications()[shown]
        table["releases"] = now.releases()[shown]
        return table

    def _follow(self, now: Snapshot, graph: Graph, shown: np.ndarray) -> None:
        links = links_of(graph, shown)
        if self._links is not None and (self._problem.m > _MANY or np.array_equal(links, self._links)):
            return
        self._links = links
        rows = links if len(links) else np.array([[-1, -1]])
        table = pd.DataFrame({"round": now.rounds, "node": rows[:, 0], "hears": rows[:, 1]})
        self._store.record("links", rows_of(table), now)


def _first_events(plan: Plan) -> first_events.Lanes | None:
    """The first events of some nodes; None for a method with rounds."""
    method = plan.program.algorithm
    if isinstance(method, AsyncMethod):
        return first_events.of_run(method, plan.problem, plan.network, plan.key.public)
    return None


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
