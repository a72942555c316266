"""Noise, sensitivity and sampling measured, instead of attacked: a round is repeated from one state with the same keys.

With the mechanism's noise replaced by zero, and by one unit of what it says that its scale is, what others see gives

- the residuals (noisy - bare) / (unit - bare), the standard noise itself;
- with one record replaced, the change in units of the noise's scale: it is at most 1 / multiplier, of the record's node
  alone, and nothing may change where no noise is added;
- how often the replaced record is looked at at all.

This holds where noise enters linearly and shows at its own node and number, which is checked in every round by moving
every number by an amount of its own. What it does not hold for is not probed, and the reason is told.

Axes: N runs, T rounds, m nodes, n parameters, k numbers that a node shows, r replaced records, K places of records.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import stepping
from jdfl.auditing.judge import Finding, fired, judge_changes, judge_counts, judge_hits, judge_residuals
from jdfl.auditing.observe import some, started, visible
from jdfl.auditing.units import moved, refused
from jdfl.privacy import Guarantee, Sampling
from jdfl.problems import Problem
from jdfl.stepping import Setting
from jdfl.streams import Keys

_RUNS, _NUMBERS = 100, 2**22  # runs, and most numbers that all of them show
_FEWEST = 8  # runs below which nothing is probed
_MOST, _PLACES = 2048, 16  # records that are replaced, and places whose hits are counted
_TOLERANCE, _PRECISION = 1e-2, 1e-3  # of linearity, and of residuals in float32


@dataclass(frozen=True)
class Probe:
    """What was measured: the tests that failed, of how many, or why there are none."""

    findings: tuple[Finding, ...] = ()
    tests: int = 0
    reason: str = ""  # why nothing was probed


def most_runs(problem: Problem, steps: int) -> int:
    """How many runs of so many rounds are probed: 0 where they are too large to be kept."""
    runs = min(_RUNS, _NUMBERS // (problem.m * problem.n * steps))
    return runs if runs >= _FEWEST else 0


@partial(jax.jit, static_argnames=("steps",))
def _residuals(setting: Setting, others: tuple[Any, Any, Any], units: Array, keys: Keys, *, steps: int) -> Any:
    """Residuals and scales [N, T, m, k], error of linearity and largest number [N, T], and releases [N, T, m].

    `others` are the algorithm with no units in place of noise, with one, and with `units` [m, n].
    """

    def one(own: Keys) -> Any:
        begun = [started(replace(setting, algorithm=each), own) for each in (setting.algorithm, *others)]

        def step(state: Any, k: Array) -> Any:
            news = [stepping.step(each, state, stepping.drawn(each, k)) for each, _, _ in begun]
            noisy, bare, up, odd = (visible(each.algorithm, new) for (each, _, _), (new, _) in zip(begun, news))
            scale = up - bare
            scale = jnp.where(jnp.abs(scale) > 1e-3 * jnp.max(jnp.abs(scale)), scale, 0.0)
            wanted = scale * jnp.tile(units, (1, scale.shape[1] // units.shape[1]))
            error = jnp.max(jnp.abs(odd - bare - wanted)) / jnp.maximum(jnp.max(jnp.abs(scale)), 1e-30)
            z = jnp.where(scale != 0, (noisy - bare) / jnp.where(scale != 0, scale, 1), 0.0)
            return news[0][0], (z, scale, error, jnp.max(jnp.abs(noisy)), news[0][1].releases)

        return jax.lax.scan(step, begun[0][1], jnp.arange(steps, dtype=jnp.int32))[1]

    return jax.lax.map(one, keys)


@partial(jax.jit, static_argnames=("steps",))
def _states(setting: Setting, keys: Keys, *, steps: int) -> Any:
    """The states before every round, leaves [N, T, ...]."""

    def one(own: Keys) -> Any:
        begun, start, _ = started(setting, own)

        def step(state: Any, k: Array) -> tuple[Any, Any]:
            return stepping.step(begun, state, stepping.drawn(begun, k))[0], state

        return jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.int32))[1]

    return jax.lax.map(one, keys)


@jax.jit
def _changes(
    setting: Setting, bare: Any, unit: Any, keys: Keys, states: Any, where: Array, pairs: Any, places: Array
) -> tuple[Array, Array]:
    """What a record moves and the noise's scale [r, m, k]: rows of `where` [r, 4] are run, round, pair, places.

    `places` [p, m, q] bool are the records that become those of the pair, leaves of `pairs` [pairs, 2, ...].
    """

    def one(row: Array) -> tuple[Array, Array]:
        own, state, place = some(keys, row[0]), some(states, (row[0], row[1])), places[row[3]]

        def shown(algorithm: Any, world: int) -> Array:
            def put(leaf: Array, new: Array) -> Array:
                there = place.reshape(*place.shape, *[1] * (leaf.ndim - 2))
                return jnp.where(there, new[row[2], world].astype(leaf.dtype), leaf)

            other = replace(setting.problem, data=jax.tree.map(put, setting.problem.data, pairs))
            begun, _, _ = started(replace(setting, algorithm=algorithm, problem=other), own)
            return visible(begun.algorithm, stepping.step(begun, state, stepping.drawn(begun, row[1]))[0])

        first = shown(bare, 0)
        return shown(bare, 1) - first, shown(unit, 0) - first

    return jax.lax.map(one, where)


def probe(setting: Setting, guarantee: Guarantee, pairs: list[Any], keys: Keys, *, steps: int) -> Probe:
    """All tests of `steps` rounds of the runs with these keys [N], as many as `most_runs` says.

    `pairs` of examples are the records that are replaced.
    """
    problem, event, runs = setting.problem, guarantee.event, len(keys.run)
    reason = refused(setting.algorithm)
    if not reason and not runs:
        reason = f"{problem.m} nodes, {problem.n} parameters and {steps} rounds are more than is kept"
    if reason or event is None:
        return Probe(reason=reason)
    spread = np.random.default_rng(0).normal(size=(problem.m, problem.n))
    units = jnp.asarray(spread, problem.dtype)
    bare, unit, odd = (moved(setting.algorithm, u) for u in (jnp.zeros_like(units), jnp.ones_like(units), units))
    found = _residuals(setting, (bare, unit, odd), units, keys, steps=steps)
    z, scale, error, top, releases = (np.asarray(x, np.float64) for x in found)
    live = scale != 0
    if not live.any() or not error.max() <= _TOLERANCE:
        return Probe(reason="what others see is not each node's own noise, number by number")
    if releases.max() > 1:
        return Probe(reason="a round has several releases of one node")
    precision = 2.0**-23 * float(top.max()) / float(np.abs(scale[live]).min())
    if not precision <= _PRECISION:
        return Probe(reason="the noise is too small beside the parameters to be read back")
    gaussian, blocks = event.kind == "gaussian", z.shape[-1] // problem.n
    told = judge_counts(z, live, releases, problem.n)
    parts, there = z.reshape(*z.shape[:-1], blocks, -1), live.reshape(*live.shape[:-1], blocks, -1)
    first = np.argmax(there, axis=-2)[..., None, :]
    z, live = np.take_along_axis(parts, first, axis=-2)[..., 0, :], there.any(axis=-2)
    told += judge_residuals(z, live, gaussian, precision)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[_pair(pair) for pair in pairs])
    played = (setting, bare, unit, keys, _states(setting, keys, steps=steps))
    where, places, node = _replaced(problem, guarantee, runs, steps, len(pairs))
    change, size = (np.asarray(x, np.float64) for x in _changes(*played, where, stacked, places))
    largest = 1 / event.noise_multiplier
    told += judge_changes(change, size, node, 2 if gaussian else 1, largest, precision)
    if guarantee.sampling is not None:
        told += _sampled(problem, guarantee.sampling, runs, steps, played, stacked)
    return Probe(fired(told), len(told))


def _pair(pair: Any) -> Any:
    """Both examples, leaves [2, ...]."""
    return jax.tree.map(lambda a, b: jnp.stack([jnp.asarray(a), jnp.asarray(b)]), pair[0], pair[1])


def _replaced(
    problem: Problem, guarantee: Guarantee, runs: int, steps: int, pairs: int
) -> tuple[Array, Array, np.ndarray]:
    """Where records are replaced [r, 4], the places [p, m, q], and the node of each [r]."""
    weight = np.asarray(problem.weight) > 0
    if guarantee.unit == "node":
        places = weight[None] & np.eye(problem.m, dtype=bool)[:, :, None]
    else:
        nodes, records = np.nonzero(weight)
        some = np.unique(np.linspace(0, len(nodes) - 1, min(len(nodes), _MOST)).round().astype(int))
        places = np.zeros((len(some), *weight.shape), bool)
        places[np.arange(len(some)), nodes[some], records[some]] = True
    count = len(places)
    rounds = steps if count * steps * pairs <= _MOST else 1
    rows = [(p, pair, k) for p in range(count) for pair in range(pairs) for k in range(rounds)]
    where = [(i % runs, k if rounds > 1 else i % steps, pair, p) for i, (p, pair, k) in enumerate(rows)]
    found = np.asarray(where, np.int32)
    return jnp.asarray(found), jnp.asarray(places), places.any(axis=2).argmax(axis=1)[found[:, 3]]


def _sampled(
    problem: Problem, sampling: Sampling, runs: int, steps: int, played: tuple[Any, ...], pairs: Any
) -> list[Finding]:
    """The family "sampling": all nodes have a record replaced at once, since none moves another."""
    sizes = np.asarray(problem.sizes)
    largest = int(sizes.max())
    chosen = np.unique(np.linspace(0, largest - 1, min(largest, _PLACES)).round().astype(int))
    there = np.asarray(problem.weight)[:, chosen].T > 0  # [K, m]
    places = np.zeros((len(chosen), *problem.weight.shape), bool)
    places[np.arange(len(chosen)), :, chosen] = there
    rows = np.array([(n, k, 0, p) for p in range(len(chosen)) for n in range(runs) for k in range(steps)], np.int32)
    change, _ = _changes(*played, jnp.asarray(rows), pairs, jnp.asarray(places))
    moved = np.abs(np.asarray(change)).max(axis=-1).reshape(len(chosen), runs, steps, problem.m)
    hit = moved > 1e-3 * moved.max()
    return judge_hits(hit, sampling.batch / sizes, there, sampling.kind == "poisson")
