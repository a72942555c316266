"""Trials: what a run learns, over which network and with which key; several of them as one batch of equal shapes.

Axes: t trials, m nodes, q examples per node (padded with weight 0), d slots of the table of in-neighbours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.engine import loop
from jdfl.engine.compiling import Spent
from jdfl.engine.metrics import Metric
from jdfl.engine.stepping import Setting, nameless, paired
from jdfl.network import Graph, Network, pad
from jdfl.problems import Problem
from jdfl.problems.ragged import alike
from jdfl.store.files import read_arrays, write_arrays
from jdfl.store.jobs import Jobs, name_of

MOST_DATA = 2**30  # bytes of problems and networks that are stacked at a time


class Trial(NamedTuple):
    """One draw of everything that is random: the data, the network, and the key of the algorithm's own randomness."""

    key: Any  # a seed, a typed key, or a RunKey
    problem: Problem
    network: Network


def paired_trials(trials: Sequence[Trial]) -> list[Trial]:
    """The trials with networks whose nodes are `paired` with the problem's, each pair once."""
    made: dict[tuple[int, int], Network] = {}
    for trial in trials:
        pair = id(trial.problem), id(trial.network)
        made[pair] = made[pair] if pair in made else paired(trial.problem, trial.network)
    return [trial._replace(network=made[id(trial.problem), id(trial.network)]) for trial in trials]


def executed(
    settings: Sequence[Setting],
    trials: Sequence[Trial],
    points: Sequence[Mapping[str, float]],
    *,
    steps: int,
    every: int,
    metrics: tuple[Metric, ...],
    batch: int,
    width: int,
) -> list[Any]:
    """Every run from its start to its end: parameters [m, n], counters, the record of the start, and the other records.

    Trials whose problems and networks have the same shapes are lanes of one compiled program. For that, examples are
    padded to the largest number that a node has in any trial, and tables of in-neighbours to the largest in-degree.
    What all trials share is not copied.
    """
    if settings[0].program.algorithm.asynchronous:
        from jdfl.engine import waves  # which imports all asynchronous methods

        return waves.entire_run(settings, steps, every, metrics, batch)
    found: list[Any] = [None] * len(settings)
    for places, fields in _stacks(trials):
        some = [min(i, len(points) - 1) for i in range(width)]  # points beyond the last one are idle
        lanes = [[i * len(trials) + place for i in some] for place in places]  # [t][p]
        ends = [[steps if i < len(points) else 0 for i in range(width)] for _ in places]
        if not fields:  # the trials differ in their keys alone
            lanes, ends = ([[row[i] for i in range(width) for row in table]] for table in (lanes, ends))
        rows = [[settings[lane] for lane in row] for row in lanes]
        first = replace(rows[0][0], **dict.fromkeys(fields))
        dtype, values = settings[0].problem.dtype, dict[str, Any]()
        for path in points[0]:
            values[path] = jnp.asarray([[points[lane // len(trials)][path] for lane in row] for row in lanes], dtype)
        plans = [[setting.program.plan for setting in row] for row in rows]
        if jax.tree.leaves(plans[0][0]):  # what the algorithms planned for themselves
            values["plan"] = _stacked(plans)
        keys = _stacked([[setting.keys for setting in row] for row in rows])
        records = -(-steps // every)
        how = jnp.asarray(ends, jnp.int32), every, records, metrics, min(batch, width * len(trials))
        params, *rest = jax.block_until_ready(loop.lanes(first, fields, keys, values, *how))
        host = jax.device_get(rest)
        for t, row in enumerate(lanes):
            for p, lane in enumerate(row):
                if ends[t][p]:
                    found[lane] = (params[t, p], *jax.tree.map(lambda leaf: leaf[t, p], host))  # noqa: B023
    return found


def _stacked(rows: Sequence[Sequence[Any]]) -> Any:
    """Trees in rows [t][p] as one tree with leading axes [t, p]."""
    return _stack([_stack(row) for row in rows])


@jax.jit
def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


def _stacks(trials: Sequence[Trial]) -> list[tuple[list[int], dict[str, Any]]]:
    """The trials in as few batches as shapes and `MOST_DATA` allow, as places of trials and their stacked fields."""
    differ = [name for name in ("problem", "network") if len({id(getattr(one, name)) for one in trials}) > 1]
    if not differ:
        return [(list(range(len(trials))), {})]
    drawn = [{name: nameless(getattr(one, name)) for name in differ} for one in _of_equal_shapes(trials)]
    groups: dict[Any, list[int]] = {}
    for place, one in enumerate(drawn):
        leaves, structure = jax.tree.flatten(one)
        shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        groups.setdefault((structure, shapes), []).append(place)
    found: list[tuple[list[int], dict[str, Any]]] = []
    for places in groups.values():
        size = _size(drawn[places[0]], len(places))
        for first in range(0, len(places), size):
            some = places[first : first + size]
            found.append((some, _stack([drawn[place] for place in some])))
    return found


def _size(drawn: Any, trials: int) -> int:
    """The largest divisor of the number of trials whose arrays stay below `MOST_DATA`; at least 1."""
    one = sum(jnp.asarray(leaf).nbytes for leaf in jax.tree.leaves(drawn))
    return max(size for size in range(1, trials + 1) if trials % size == 0 and (size == 1 or size * one <= MOST_DATA))


def _of_equal_shapes(trials: Sequence[Trial]) -> list[Trial]:
    """The trials with padded examples and padded tables."""
    problems = {id(one.problem): one.problem for one in trials}
    networks = {id(one.network): one.network for one in trials}
    problems = dict(zip(problems, _of_equal_examples(list(problems.values()))))
    parts = jax.tree.leaves(list(networks.values()), is_leaf=_is_graph)
    graphs = [part for part in parts if isinstance(part, Graph)]
    if len({(graph.senders.shape, graph.format, graph.buckets is None) for graph in graphs}) > 1:
        d = max(graph.senders.shape[1] for graph in graphs)
        formats = {graph.format for graph in graphs}
        format = formats.pop() if len(formats) == 1 and "buckets" not in formats else "padded"

        def wide(part: Any) -> Any:
            return replace(pad(part, d), format=format, buckets=None) if isinstance(part, Graph) else part

        networks = {name: jax.tree.map(wide, network, is_leaf=_is_graph) for name, network in networks.items()}
    return [Trial(one.key, problems[id(one.problem)], networks[id(one.network)]) for one in trials]


def _of_equal_examples(problems: list[Problem]) -> list[Problem]:
    """The problems with data and tests of nodes of equal shapes."""
    if any(problem.blocks is not None for problem in problems):
        problems = alike(problems)
    q = max(problem.weight.shape[1] for problem in problems)
    problems = [_with_examples(problem, q) for problem in problems]
    tests: list[Any] = [problem.own_test for problem in problems]
    if any(test is None for test in tests):
        return problems
    return [replace(problem, own_test=test) for problem, test in zip(problems, _of_equal_examples(tests))]


def _with_examples(problem: Problem, q: int) -> Problem:
    """The problem padded to q examples per node, with weight 0; unchanged where rows have another layout."""
    shape = problem.weight.shape
    if shape[1] == q or any(np.shape(leaf)[:2] != shape for leaf in jax.tree.leaves(problem.data)):
        return problem

    def longer(leaf: Any) -> Array:
        return jnp.pad(leaf, [(0, 0), (0, q - shape[1]), *[(0, 0)] * (leaf.ndim - 2)])

    return replace(problem, data=jax.tree.map(longer, problem.data), weight=longer(problem.weight))


def _is_graph(part: Any) -> bool:
    return isinstance(part, Graph)


Outcome = tuple[Any, loop.RunState, loop.Record, loop.Record]  # as `executed` gives it


def kept_or_made(
    jobs: Jobs | None, about: Callable[[], Any], make: Callable[[], tuple[Sequence[Outcome], Spent]]
) -> tuple[Sequence[Outcome], Spent]:
    """What `make` returns, or what it has returned before where that is kept."""
    if jobs is None:
        return make()
    made: list[tuple[Sequence[Outcome], Spent]] = []

    def keep(folder: Path) -> None:
        made[:] = [make()]
        _write(folder, *made[0])

    place = jobs.done(name_of(about()), keep)
    return made[0] if made else _read(place)


def _write(folder: Path, made: Sequence[Outcome], spent: Spent) -> None:
    """Write the outcomes, whose arrays are named by their places, but for the sums, which the records have."""
    nothing: Any = None
    rows = [(params, replace(carry, counts=nothing), *records) for params, carry, *records in made]
    leaves = jax.tree.leaves_with_path(jax.device_get(rows))
    arrays = {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}
    write_arrays(folder / "outcomes.npz", arrays, {"runs": len(made), "spent": spent._asdict()})


def _read(folder: Path) -> tuple[list[Outcome], Spent]:
    arrays, about = read_arrays(folder / "outcomes.npz")
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *path, last = name.split("/")
        inner = tree
        for one in path:
            inner = inner.setdefault(one, {})
        inner[last] = array
    return [_outcome(tree[str(i)]) for i in range(about["runs"])], Spent(**about["spent"])


def _outcome(tree: dict[str, Any]) -> Outcome:
    carry: Any = {"state": None, "counts": None, **tree["1"]}
    carry["clock"] = tuple(carry.get("clock", {}).values()) or None
    first, rest = (loop.Record(one["rounds"], one.get("metrics", {}), one["counts"]) for one in (tree["2"], tree["3"]))
    return jnp.asarray(tree["0"]), loop.RunState(**carry), first, rest
