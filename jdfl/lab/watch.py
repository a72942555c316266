"""The nodes in the course of a run, as tables of its folder: all of them, or MOST that are close to each other.

    nodes.csv    round, node, distance (to the mean of the shared parameters), value (f_i at the node's parameters),
                 communications and releases so far; a row per node and moment, which is a return from the device
    links.csv    round, node, `hears`: the node received from the node in `hears` in the round of the moment; only if
                 the links differ from the previous moment; one row with node -1 if no node received anything
    split.csv    the data partition: node, examples, and, if these have classes, class_0, class_1, ...
    epsilon.csv  round, most_releases (of a node), epsilon (of the worst node) at a few moments; written at the end of a
                 run with a guarantee, for sound accounting

Values and classes are exact functions of the local data: no guarantee covers nodes.csv and split.csv.

Axes: m nodes, n parameters.
"""

import itertools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from jdfl.engine.accountant import account
from jdfl.engine.callbacks import Callback
from jdfl.engine.metrics import average, classifies, label_shares
from jdfl.engine.result import Result, Snapshot
from jdfl.engine.spending import records_of
from jdfl.engine.start import Start
from jdfl.lab.files import append, write
from jdfl.network import Graph
from jdfl.privacy import Accounting
from jdfl.problems import Problem

FILES = ("nodes.csv", "links.csv", "split.csv", "epsilon.csv")
MOST = 256  # nodes
MOMENTS = 60  # at least, in a run with enough rounds
_CHUNK = 50  # maximum number of rounds between two returns
_MANY = 2**16  # nodes, above which the links of a changing network are recorded once
_LARGE = 2**24  # parameters of all nodes, above which distance and value are left out


def returns(steps: int) -> int:
    """Rounds between two returns from the device, few enough for MOMENTS moments."""
    return max(1, min(_CHUNK, steps // MOMENTS))


def nearby(graph: Graph, most: int = MOST) -> np.ndarray:
    """Ids of at most `most` nodes, those that are reached first from node 0 along the links; all, if they are few.

    Args:
        graph: The graph of one round. If node 0 reaches too few, the nodes with the lowest ids are added.
        most: The maximum number of nodes, at least 1.

    Returns:
        The ids [most or m], ascending.
    """
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
    """The number of examples of every node, and of every class if there are classes.

    Args:
        problem: The problem; classes are counted if it has a test set and scores of examples.
        shown: The ids [s] of the nodes.

    Returns:
        A row per node with the columns node, examples and, where there are classes, class_0, class_1 and so on.
    """
    counts = np.asarray(records_of(problem))[shown]
    table = pd.DataFrame({"node": shown, "examples": counts})
    if problem.test is not None and classifies(problem):
        classes = max(2, getattr(problem, "classes", 2))
        shares = np.asarray(label_shares(problem, classes))[shown]
        for label in range(classes):
            table[f"class_{label}"] = np.rint(shares[:, label] * counts).astype(int)
    return table


class Watch(Callback):
    """Appends to the tables in the folder of a run, and computes epsilon at the end.

    If a run is resumed, the nodes stay the same. Rows of rounds that are made again are dropped, and so are those of
    the round where it resumes, unless an uninterrupted run has a moment there.

    Args:
        folder: The folder of the run.
        problem: The problem of the run.
        delta: As for `jdfl.account`.
        accounting: As for `jdfl.account`.
    """

    def __init__(
        self, folder: Path, problem: Problem, *, delta: float | None = None, accounting: Accounting = "sound"
    ) -> None:
        self._folder, self._problem, self._delta, self._accounting = folder, problem, delta, accounting
        self._before: int | None = None
        self._shown: np.ndarray | None = None
        self._links: np.ndarray | None = None
        self._graph: Graph | None = None
        self._failed = False

    def begin(self, start: Start) -> None:
        """Note the round where the run resumes."""
        self._before = None if start.before is None else start.before.rounds

    def __call__(self, now: Snapshot) -> None:
        """Append the current values of the nodes; a file that cannot be written gives a warning, not an error."""
        if self._failed:
            return
        if self._graph is None or self._problem.m <= _MANY:
            self._graph = now.graph()
        try:
            self._begin(self._graph, now.chunk)
            append(self._folder / "nodes.csv", self._nodes(now))
            self._follow(now.rounds, self._graph)
        except OSError as error:
            self._failed = True
            warnings.warn(f"Could not write what nodes do to {self._folder}: {error}. The run goes on.", stacklevel=2)

    def end(self, result: Result) -> None:
        """Write epsilon at some moments, if a guarantee is claimed and the accounting is sound."""
        if self._shown is None and self._before is not None:  # nothing was left to do
            for name in ("nodes.csv", "links.csv"):
                _cut_off(self._folder / name, self._before)
        noisy = result.guarantee.event is not None
        if self._failed or not noisy or not result.guarantee.claimed or self._accounting != "sound":
            return
        rows: list[dict[str, Any]] = []
        told: dict[bytes, float] = {}
        for k, released in sorted(({result.rounds: result.releases} | result.moments).items()):
            most, known = int(released.max()), released.tobytes()
            if known not in told:
                told[known] = account(replace(result, releases=released), delta=self._delta).epsilon if most else 0.0
            rows.append({"round": k, "most_releases": most, "epsilon": told[known]})
        try:
            write(self._folder / "epsilon.csv", pd.DataFrame(rows))
        except OSError as error:
            warnings.warn(f"Could not write epsilon.csv to {self._folder}: {error}.", stacklevel=2)

    def _begin(self, graph: Graph, chunk: int) -> None:
        if self._shown is not None:
            return
        split = self._folder / "split.csv"
        if self._before is None or not split.is_file():
            for name in ("nodes.csv", "links.csv", "epsilon.csv"):
                (self._folder / name).unlink(missing_ok=True)
            self._shown = nearby(graph)
            write(split, split_of(self._problem, self._shown))
            return
        last = self._before - (self._before % chunk > 0)
        for name in ("nodes.csv", "links.csv"):
            _cut_off(self._folder / name, last)
        self._links = _last_links(self._folder / "links.csv")
        self._shown = pd.read_csv(split)["node"].to_numpy(int)  # a network that changes has others near node 0 by now

    def _nodes(self, snapshot: Snapshot) -> pd.DataFrame:
        shown = self._shown
        table = pd.DataFrame({"round": snapshot.rounds, "node": shown})
        if self._problem.m * self._problem.n <= _LARGE:
            distance, value = _states(snapshot.params(), self._problem)
            table["distance"], table["value"] = np.asarray(distance)[shown], np.asarray(value)[shown]
        table["communications"] = snapshot.communications()[shown]
        table["releases"] = snapshot.releases()[shown]
        return table

    def _follow(self, rounds: int, graph: Graph) -> None:
        links = links_of(graph, self._shown)
        if self._links is not None and (self._problem.m > _MANY or np.array_equal(links, self._links)):
            return
        self._links = links
        rows = links if len(links) else np.array([[-1, -1]])
        append(self._folder / "links.csv", pd.DataFrame({"round": rounds, "node": rows[:, 0], "hears": rows[:, 1]}))


def _last_links(file: Path) -> np.ndarray | None:
    """The last links of a table, as `links_of` gives them."""
    if not file.is_file():
        return None
    table = pd.read_csv(file)
    last = table.loc[table["round"] == table["round"].max(), ["node", "hears"]].to_numpy(int)
    return last[last[:, 0] >= 0]


def _cut_off(file: Path, rounds: int) -> None:
    """Keep the header of a table and its complete rows up to a round; remove the file if there are none."""
    head, *rows = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.is_file() else [""]
    whole = (row for row in rows if row.endswith("\n") and row.count(",") == head.count(","))
    kept = [row for row in whole if int(row.partition(",")[0]) <= rounds]
    if not kept:
        file.unlink(missing_ok=True)
    elif len(kept) < len(rows):
        write(file, "".join([head, *kept]))


def links_of(graph: Graph, shown: Any) -> np.ndarray:
    """Pairs (node, in-neighbour) [links, 2] among the nodes that are shown.

    Args:
        graph: The graph of one round; if it synchronises all nodes, all pairs are links.
        shown: The ids [s] of the nodes.
    """
    if graph.synchronised is not None and bool(graph.synchronised):
        ids = np.asarray(shown)
        pairs = np.stack(np.meshgrid(ids, ids, indexing="ij"), axis=-1).reshape(-1, 2)
        return pairs[pairs[:, 0] != pairs[:, 1]]
    senders, mask = np.asarray(graph.senders[shown]), np.asarray(graph.mask[shown])
    pairs = np.stack([np.broadcast_to(np.asarray(shown)[:, None], senders.shape), senders], axis=-1)[mask]
    return pairs[np.isin(pairs[:, 1], shown)]


@jax.jit
def _states(w: Array, problem: Problem) -> tuple[Array, Array]:
    """Distance of every node to the mean of the shared parameters [m], and f_i(w_i) [m]."""
    shared = w[:, : problem.n_shared]
    return jnp.linalg.norm(shared - average(shared)[None], axis=1), problem.values(w)
