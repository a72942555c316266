"""Many runs of an algorithm at once, observed through what one node shows, after rounds or at the ends of periods.

What is observed after the start and after every round is `algorithm.visible(state)`, an array [m, k] with k a multiple
of n, where the algorithm has such a method, and otherwise its parameters. Three of its rows are recorded, as inner
products with the directions in which the two worlds differ: the node's own, the weighted sum of it and its
in-neighbours, and the plain mean of its in-neighbours. A linear score can thus subtract what came from others.

A run with a key is bit for bit the one that `jdfl.run` makes with it, except for constants that `prepare` draws
(periods, the matrices of codecs): they are public, and the same in all runs. For asynchronous methods, what happens
when is the same in all runs, and the attacker knows it: no guarantee rests on random clocks.

Axes: N runs, b of them side by side, m nodes, n parameters, c = k / n blocks, p directions, R = looks + 1 moments, T
points.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.program import Program
from jdfl.algorithms.round import StepCounts
from jdfl.arrays import ops
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from jdfl.engine.stepping import Setting
from jdfl.engine.waves import Waves
from jdfl.events.event import counted
from jdfl.events.execution import Given, execute, heights_of, merged
from jdfl.events.faults import links, with_times
from jdfl.events.method import HAPPENED
from jdfl.events.plan import planned
from jdfl.network.graph import Graph
from jdfl.store.jobs import Jobs, name_of

_PARTS, _FILE = 10, "features.npz"  # of the runs of a world, and what a part is kept in


def watched(program: Program) -> Program:
    """The algorithm with a state that keeps the messages themselves, where possible: those of noisy push-sum."""
    if getattr(program.algorithm, "dpps", None) is None:
        return program
    return stepping.with_field(program, "dpps.watch", True)


def check_visible(setting: Setting) -> None:
    """Refuse what an algorithm shows unless it is [m, k] with k a multiple of n."""

    def look(setting: Setting) -> Array:
        begun, state, _ = started(setting, setting.keys)
        return begun.program.visible(state)

    shape, (m, n) = jax.eval_shape(look, setting).shape, (setting.problem.m, setting.problem.n)
    if len(shape) != 2 or shape[0] != m or shape[1] % n:
        raise ValueError(
            f"Expected {type(setting.program.algorithm).__name__}.visible(state) of shape (m, k) with m = {m} and k "
            f"a multiple of n = {n}, got {shape}. Stack what a node shows as blocks of n numbers."
        )


@partial(jax.jit, static_argnames=("steps", "batch", "looks"))
def observe(
    setting: Setting,
    directions: Array,
    node: Array,
    keys: Keys,
    *,
    steps: int,
    batch: int,
    looks: int | None = None,
) -> tuple[Array, Array]:
    """Features [N, R, 3 c p] of runs, and how often the node released something [N].

    Observed are the beginnings of intervals of rounds, whose lengths differ by at most one round, and the end.
    """
    stretches = steps if looks is None else looks

    def one(own: Keys) -> tuple[Array, Array]:
        begun, state, info = started(setting, own)

        def look(state: Any, graph: Graph) -> Array:
            return _features_of(begun.program, state, graph=graph, directions=directions, node=node)

        def step(k: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
            state, info = stepping.step(begun, carry[0], stepping.sample_round(begun, k))
            return state, carry[1] + info.releases[node]

        def stretch(carry: tuple[Any, Array], ends: Array) -> tuple[tuple[Any, Array], Array]:
            seen = look(carry[0], stepping.sample_round(begun, ends[0]).graph)
            if stretches == steps:
                return step(ends[0], carry), seen
            return lax.fori_loop(ends[0], ends[1], step, carry), seen

        ends = jnp.asarray(np.linspace(0, steps, stretches + 1).round(), jnp.int32)
        pairs = jnp.stack([ends[:-1], ends[1:]], axis=1)
        (state, releases), seen = lax.scan(stretch, (state, info.releases[node]), pairs)
        last = look(state, stepping.sample_round(begun, jnp.int32(steps - 1)).graph)
        return jnp.concatenate([seen, last[None]]), releases

    count = keys.run.shape[0]
    batches = -(-count // batch)
    size = -(-count // batches)  # a last batch of another size would be compiled separately
    rows = jnp.arange(batches * size, dtype=jnp.int32).reshape(batches, size) % count

    def lone(own: Keys) -> tuple[Array, Array]:  # without vmap, its loops keep their own lengths
        return some(one(some(own, 0)), None)

    features, releases = lax.map(jax.vmap(one) if size > 1 else lone, some(keys, rows))
    return features.reshape(-1, *features.shape[2:])[:count], releases.reshape(-1)[:count]


def _features_of(program: Program, state: Any, *, graph: Graph, directions: Array, node: Array) -> Array:
    """What is recorded of one moment [3 c p]: projections of the rows that a node's neighbours see."""
    shown = program.visible(state)
    blocks = shown.reshape(shown.shape[0], -1, directions.shape[1])
    rows = jnp.einsum("mcn,pn->mcp", blocks, directions, precision=ops.HIGHEST).reshape(shown.shape[0], -1)
    # The node's own, W times rows there, and the mean over its in-neighbours (0 for none).
    own, heard = rows[node], rows[graph.senders[node]]
    mixed = graph.self_weight[node].astype(rows.dtype) * own + graph.weight[node].astype(rows.dtype) @ heard
    if graph.synchronised is not None:
        mixed = jnp.where(graph.synchronised, jnp.mean(rows, axis=0), mixed)
    mask = graph.mask[node].astype(rows.dtype)
    return jnp.concatenate([own, mixed, mask @ heard / jnp.maximum(jnp.sum(mask), 1.0)])


def in_parts(make: Callable[[Keys], Any], keys: Keys, batch: int, jobs: Jobs, name: str) -> list[np.ndarray]:
    """What `make` returns for all keys, with the same bits, in parts that are kept one by one."""
    count = len(keys.run)
    batches = -(-count // batch)
    rows = -(-batches // _PARTS) * -(-count // batches)  # whole batches of one size

    def save(first: int, folder: Path) -> None:
        features, releases = make(some(keys, np.arange(first, first + rows) % count))
        np.savez(folder / _FILE, features=np.asarray(features), releases=np.asarray(releases))

    parts: list[tuple[np.ndarray, np.ndarray]] = []
    for first in range(0, count, rows):
        place = jobs.done(name_of(name, first, rows), partial(save, first))
        with np.load(place / _FILE, allow_pickle=False) as file:
            parts.append((file["features"], file["releases"]))
    return [np.concatenate(one)[:count] for one in zip(*parts)]


def some(tree: Any, rows: Any) -> Any:
    """These rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@partial(jax.jit, static_argnames=("steps", "points"))
def pilot(setting: Setting, node: Array, keys: Keys, *, steps: int, points: int) -> tuple[Array, Array]:
    """The node's parameters: their mean [n] over all rounds of the runs, and at `points` moments of each run [N, T, n].

    The moments are the start and the ends of intervals of equal length.
    """

    def one(own: Keys) -> tuple[Array, Array]:
        begun, state, _ = started(setting, own)
        params = begun.program.params

        def step(carry: tuple[Any, Array, Array], k: Array) -> tuple[tuple[Any, Array, Array], None]:
            state, total, kept = carry
            state, _ = stepping.step(begun, state, stepping.sample_round(begun, k))
            w = params(state)[node]
            return (state, total + w, kept.at[1 + k * (points - 1) // steps].set(w)), None

        w = params(state)[node]
        start = state, jnp.zeros_like(w), jnp.broadcast_to(w, (points, *w.shape))
        (_, total, kept), _ = lax.scan(step, start, jnp.arange(steps, dtype=jnp.int32))
        return total / steps, kept

    means, kept = lax.map(one, keys)
    return jnp.mean(means, axis=0), kept


def started(setting: Setting, own: Keys) -> tuple[Setting, Any, StepCounts]:
    """The setting of the run with its `own` keys, the state before round 0, and the cost of initialisation."""
    run = replace(setting, keys=own)
    prepared = setting.program.prepare(setting.problem, stepping.initial_round(setting))
    state, info = prepared.init(setting.problem, stepping.initial_round(run))
    return replace(run, program=prepared), state, info


def observe_events(
    setting: Setting, directions: Array, node: Array, keys: Keys, *, steps: int, batch: int, looks: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """As `observe`, for an asynchronous method, with periods in place of rounds."""
    ends = np.linspace(0, steps, (looks or steps) + 1).round().astype(int)
    graph, count = links(_times(setting)), len(keys.run)
    found, releases = list[np.ndarray](), list[np.ndarray]()
    size = -(-count // -(-count // batch))
    for first in range(0, count, size):
        rows = np.arange(first, first + size) % count  # a last batch of another size would be compiled again

        def look(here: Setting, tables: Any) -> np.ndarray:
            return np.asarray(_features(here, tables, directions, graph, node))

        seen, number = _played(setting, some(keys, rows), int(node), ends, look)
        found.append(np.stack(seen, axis=1))
        releases.append(number)
    return np.concatenate(found)[:count], np.concatenate(releases)[:count]


def pilot_events(setting: Setting, node: Array, keys: Keys, *, steps: int, points: int) -> tuple[Array, Array]:
    """As `pilot`, for an asynchronous method."""

    def look(here: Setting, tables: Any) -> np.ndarray:
        return np.asarray(_params(here, tables))[:, int(node)]

    seen, _ = _played(setting, keys, int(node), np.arange(steps + 1), look)
    path = np.stack(seen, axis=1)
    kept = np.linspace(0, steps, points).astype(int)
    return jnp.asarray(path[:, 1:].mean(axis=(0, 1))), jnp.asarray(path[:, kept])


def _times(setting: Setting) -> Any:
    return with_times(setting.network, setting.program.algorithm.title)


def _played(
    setting: Setting, keys: Keys, node: int, ends: Sequence[int] | np.ndarray, look: Callable[[Setting, Any], Any]
) -> tuple[list[Any], np.ndarray]:
    """What is seen of runs [b] after numbers of periods `ends`, from 0, and the releases of a node [b]."""
    method: Any = setting.program.algorithm
    waves, count = Waves(int(ends[-1])), len(keys.run)
    program, _, _ = waves.start(setting, ())  # what happens when, and the sizes of tables
    setting = replace(setting, program=replace(setting.program, plan=program.plan))
    here, tables, info = _begun(setting, keys)
    tables = {name: table for name, table in tables.items() if name != HAPPENED}
    seen, before = [look(here, tables)], 0
    below: Any = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tables)
    heights = heights_of(tables, setting.problem.m)
    roots: Any = _at_round(keys)
    given = Given(here.problem, here.program.prepared, roots, links(_times(setting)).weight)
    for end in ends[1:]:
        after = waves.events.until(float(end) * float(method.period))
        events, lane = merged([waves.events[before:after]] * count, method.kinds, heights)
        below, before = execute(method, below, given, planned(events, method.kinds), events, lane), after
        seen.append(look(here, jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), below)))
    made = counted(waves.events[:before], waves.notes, ["releases"], np.zeros(setting.problem.m, np.int64))
    return seen, np.asarray(info.releases)[:, node] + made["releases"][node]


@jax.jit
def _at_round(keys: Keys) -> Keys:
    return jax.vmap(lambda own: own.at_round(0))(keys)


@jax.jit
def _begun(setting: Setting, keys: Keys) -> tuple[Setting, Any, StepCounts]:
    """The prepared setting, and states and counts of runs [b] before their first event."""
    here, _, _ = started(setting, some(keys, 0))
    state, info = jax.vmap(lambda own: started(setting, own)[1:])(keys)
    return here, state, info


@jax.jit
def _params(here: Setting, tables: Any) -> Array:
    return jax.vmap(here.program.params)(tables)


@jax.jit
def _features(here: Setting, tables: Any, directions: Array, graph: Any, node: Array) -> Array:
    return jax.vmap(partial(_features_of, here.program, graph=graph, directions=directions, node=node))(tables)
