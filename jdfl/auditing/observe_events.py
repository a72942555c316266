"""Many runs of an asynchronous method at once, observed at the ends of periods; as `jdfl.auditing.observe` for rounds.

What happens when is the same in all runs, and the attacker knows it: no guarantee rests on random clocks. The runs are
side by side, as seeds are.

Axes: N runs, b of them side by side, m nodes, n parameters, p directions, R moments, T points.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.book import Info
from jdfl.auditing.observe import features_of, some, started
from jdfl.base.streams import Keys
from jdfl.engine.stepping import Setting
from jdfl.engine.waves import Waves
from jdfl.events.event import counted
from jdfl.events.execution import Given, execute, heights_of, merged
from jdfl.events.faults import links, with_times
from jdfl.events.method import HAPPENED
from jdfl.events.plan import planned


def observe(
    setting: Setting, directions: Array, node: Array, keys: Keys, *, steps: int, batch: int, looks: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Features [N, R, 3 c p] of runs, and how often the node released something [N]; as for rounds."""
    ends = np.linspace(0, steps, (looks or steps) + 1).round().astype(int)
    graph, found = links(_times(setting)), list[np.ndarray]()
    releases = list[np.ndarray]()
    for first in range(0, len(keys.run), batch):
        rows = np.arange(first, first + batch) % len(keys.run)  # a last batch of another size would be compiled again

        def look(here: Setting, tables: Any) -> np.ndarray:
            return np.asarray(_features(here, tables, directions, graph, node))

        seen, number = _played(setting, some(keys, rows), int(node), ends, look)
        found.append(np.stack(seen, axis=1))
        releases.append(number)
    return np.concatenate(found)[: len(keys.run)], np.concatenate(releases)[: len(keys.run)]


def pilot(setting: Setting, node: Array, keys: Keys, *, steps: int, points: int) -> tuple[Array, Array]:
    """The node's parameters: their mean [n] over all periods of the runs, and at `points` moments of each [N, T, n]."""

    def look(here: Setting, tables: Any) -> np.ndarray:
        return np.asarray(_params(here, tables))[:, int(node)]

    seen, _ = _played(setting, keys, int(node), np.arange(steps + 1), look)
    path = np.stack(seen, axis=1)
    kept = np.linspace(0, steps, points).astype(int)
    return jnp.asarray(path[:, 1:].mean(axis=(0, 1))), jnp.asarray(path[:, kept])


def _times(setting: Setting) -> Any:
    return with_times(setting.network, setting.algorithm.algorithm.title)


def _played(
    setting: Setting, keys: Keys, node: int, ends: Sequence[int] | np.ndarray, look: Callable[[Setting, Any], Any]
) -> tuple[list[Any], np.ndarray]:
    """What is seen of runs [b] after numbers of periods `ends`, from 0, and the releases of a node [b]."""
    method: Any = setting.algorithm.algorithm
    waves, count = Waves(int(ends[-1])), len(keys.run)
    program, _, _ = waves.start(setting, ())  # what happens when, and the sizes of tables
    setting = replace(setting, algorithm=replace(setting.algorithm, plan=program.plan))
    here, tables, info = _begun(setting, keys)
    tables = {name: table for name, table in tables.items() if name != HAPPENED}
    seen, before = [look(here, tables)], 0
    below: Any = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tables)
    heights = heights_of(tables, setting.problem.m)
    roots: Any = _at_round(keys)
    given = Given(here.problem, here.algorithm.prepared, roots, links(_times(setting)).weight)
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
def _begun(setting: Setting, keys: Keys) -> tuple[Setting, Any, Info]:
    """The prepared setting, and states and counts of runs [b] before their first event."""
    here, _, _ = started(setting, some(keys, 0))
    state, info = jax.vmap(lambda own: started(setting, own)[1:])(keys)
    return here, state, info


@jax.jit
def _params(here: Setting, tables: Any) -> Array:
    return jax.vmap(here.algorithm.params)(tables)


@jax.jit
def _features(here: Setting, tables: Any, directions: Array, graph: Any, node: Array) -> Array:
    return jax.vmap(partial(features_of, here.algorithm, graph=graph, directions=directions, node=node))(tables)
