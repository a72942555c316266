"""Direct measurement of noise, sensitivity and sampling: a round is repeated from one state with the same keys.

With the mechanism's noise replaced by zero, and by one unit of its stated scale, what others see gives

- the residuals (noisy - bare) / (unit - bare), the standard noise itself;
- with one record replaced, the change in units of the noise's scale: it is at most 1 / multiplier, and only at the
  record's node, and nothing may change where no noise is added;
- how often the replaced record is used at all.

This holds where noise enters linearly and appears at its own node and entry, which is checked in every round by moving
each entry by a different amount. Where messages are mixed before they show, rounds are repeated without links. Where
several releases of a round add up, their noise is compared with fresh noise. Otherwise nothing is probed, and the
reason is stated.

Axes: N runs, T rounds, m nodes, n parameters, k numbers that a node shows, r replaced records, K places of records.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.program import Program
from jdfl.algorithms.updates import Updates
from jdfl.auditing.judge import (
    Finding,
    fired,
    judge_changes,
    judge_counts,
    judge_hits,
    judge_residuals,
    judge_sums,
    spread,
)
from jdfl.auditing.observe import some, started
from jdfl.base import struct
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from jdfl.engine.spending import guarantee_of
from jdfl.engine.stepping import Setting
from jdfl.events.method import AsyncMethod
from jdfl.network.links import between
from jdfl.privacy import Gaussian, Guarantee, Laplace
from jdfl.privacy.accounting import scheduled
from jdfl.privacy.mechanisms import is_exact
from jdfl.problems import Problem

_RUNS, _NUMBERS = 500, 2**22  # runs; limit on the numbers that all of them show, and on half those of replaced records
_FEWEST = 8  # runs below which nothing is probed
_MOST, _PLACES, _COUNTED = 2048, 16, 100  # replaced records; places and runs in which hits are counted
_TOLERANCE, _PRECISION = 1e-2, 1e-3  # for linearity, and for residuals in float32


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The measurements on repeated rounds."""

    findings: tuple[Finding, ...] = ()  # tests of repeated rounds that failed, the clearest first
    tests: int = 0  # number of tests
    not_probed: str = ""  # why there were none


@jax.custom_batching.custom_vmap
def _placed(units: Array, x: Array, scale: Array) -> Array:
    return x + scale * units[0]


@_placed.def_vmap
def _rows(size: int, batched: Any, units: Array, x: Array, scale: Array) -> tuple[Array, bool]:
    x, scale = (a if there else jnp.broadcast_to(a, (size, *a.shape)) for a, there in zip((x, scale), batched[1:]))
    return x + scale[:, None] * units, True


@struct.dataclass
class _Units:
    """A mechanism that adds a number of units [m, n] of the scale in place of noise."""

    multiplier: Any
    units: Array
    norm: str = struct.field(pytree_node=False)

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] of a node moved by its units: mechanisms do not know their node, but vmap does."""
        return _placed(self.units, x, jnp.asarray(self.multiplier * sensitivity, x.dtype))


@struct.dataclass
class _Fresh:
    """The noise of a mechanism's event, Gaussian and from a key that depends on what it is added to as well."""

    multiplier: Any
    norm: str = struct.field(pytree_node=False)

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] with noise."""
        bits = jnp.sum(jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32), dtype=jnp.uint32)
        drawn = jax.random.normal(jax.random.fold_in(key, bits), x.shape, x.dtype)
        return x + jnp.asarray(self.multiplier * sensitivity, x.dtype) * drawn


def owner(algorithm: Any) -> str | None:
    """The field, "updates" or "gradients", that holds the mechanism; None where there is none."""
    known = [field.name for field in fields(algorithm)] if is_dataclass(algorithm) else []  # excludes properties
    noisy = (name for name in ("updates", "gradients") if name in known)
    return next((name for name in noisy if getattr(getattr(algorithm, name), "mechanism", None) is not None), None)


def noisy_guarantee(program: Program, problem: Problem) -> Guarantee:
    """The algorithm's guarantee; ValueError where it has no noise."""
    guarantee = guarantee_of(program, problem)
    if guarantee.event is None:
        raise ValueError(
            f"Expected an algorithm with noise to audit, got none: {guarantee.reason}. {guarantee.remedy}".rstrip()
        )
    return guarantee


def refusal(program: Program) -> str:
    """Why the algorithm's noise cannot be replaced; empty if it can."""
    if isinstance(program.algorithm, AsyncMethod):
        return "it has no rounds that could be repeated"
    if (name := owner(program.algorithm)) is None:
        return "its noise is not added by a mechanism of gradients or updates"
    part = getattr(program.algorithm, name)
    if isinstance(part, Updates) and part.trust == "central":
        return "each node adds only a share of the noise, and others see means"
    return ""


def most_runs(problem: Problem, steps: int) -> int:
    """The number of runs to probe: 0 where they are too large to be stored."""
    runs = min(_RUNS, _NUMBERS // (problem.m * problem.n * steps))
    return runs if runs >= _FEWEST else 0


def _scale(bare: Array, up: Array) -> Array:
    """The change [m, k] caused by one unit, without rounding."""
    scale = up - bare
    return jnp.where(jnp.abs(scale) > 1e-3 * jnp.max(jnp.abs(scale)), scale, 0.0)


def amount_of(program: Program, n: int) -> float:
    """The noise of a method, in units of the sensitivity: by its mechanism, or by the event of an unknown one."""
    mechanism: Any = getattr(program.algorithm, owner(program.algorithm) or "").mechanism
    if is_exact(mechanism):
        return mechanism.scale(n)
    return float(mechanism.multiplier if type(mechanism) in (Gaussian, Laplace) else mechanism.event().noise_multiplier)


def repeated(
    begun: Setting, amount: Any, units: Array | None, state: Any, k: Array, *, linkless: bool = False
) -> Array:
    """What others see [m, k] after round k [] from `state`, with `units` [m, n] of the noise's `amount` in its place.

    Without `units` noise is fresh. `linkless` is a round without links.
    """
    algorithm, name = begun.program, owner(begun.program.algorithm)
    mechanism: Any = getattr(algorithm.algorithm, name or "").mechanism
    other: Any = _Fresh(amount, mechanism.norm) if units is None else _Units(amount, units, mechanism.norm)
    made = replace(begun, program=stepping.with_field(algorithm, f"{name}.mechanism", other))
    return made.program.visible(_after(made, state, k, linkless))


def _after(begun: Setting, state: Any, k: Array, linkless: bool) -> Any:
    context = stepping.sample_round(begun, k)
    if linkless:
        nobody = jnp.zeros((begun.problem.m,), jnp.bool_)
        context = replace(context, graph=between(context.graph, nobody))
    return stepping.step(begun, state, context)[0]


@partial(jax.jit, static_argnames=("steps", "linkless"))
def _residuals(setting: Setting, amount: float, odd: Array, keys: Keys, *, steps: int, linkless: bool = False) -> Any:
    """What repeated rounds show, and the states before them, leaves [N, T, ...]."""
    units = jnp.stack([jnp.zeros_like(odd), jnp.ones_like(odd), odd])

    def one(own: Keys) -> Any:
        begun, start, _ = started(setting, own)

        def step(state: Any, k: Array) -> Any:
            new, info = stepping.step(begun, state, stepping.sample_round(begun, k))
            noisy = begun.program.visible(_after(begun, state, k, linkless) if linkless else new)
            # A map compiles the round once.
            bare, up, moves = jax.lax.map(lambda u: repeated(begun, amount, u, state, k, linkless=linkless), units)
            scale = _scale(bare, up)
            wanted = scale * jnp.tile(odd, (1, scale.shape[1] // odd.shape[1]))
            error = jnp.max(jnp.abs(moves - bare - wanted)) / jnp.maximum(jnp.max(jnp.abs(scale)), 1e-30)
            z = jnp.where(scale != 0, (noisy - bare) / jnp.where(scale != 0, scale, 1), 0.0)
            return new, ((z, scale, error, jnp.max(jnp.abs(noisy)), info.releases), state)

        return jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.int32))[1]

    return jax.lax.map(one, keys)


@partial(jax.jit, static_argnames=("steps",))
def _against_fresh(setting: Setting, amount: float, keys: Keys, *, steps: int) -> tuple[Array, Array]:
    """What noise adds in rounds without links [N, T, m, k], and what fresh noise adds in its place."""

    def one(own: Keys) -> Any:
        begun, start, _ = started(setting, own)

        def step(state: Any, k: Array) -> Any:
            none = jnp.zeros((setting.problem.m, setting.problem.n), setting.problem.dtype)
            bare = repeated(begun, amount, none, state, k, linkless=True)
            noisy = begun.program.visible(_after(begun, state, k, True))
            fresh = repeated(begun, amount, None, state, k, linkless=True)
            return _after(begun, state, k, False), (noisy - bare, fresh - bare)

        return jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.int32))[1]

    return jax.lax.map(one, keys)


@partial(jax.jit, static_argnames=("linkless",))
def _changes(
    setting: Setting,
    amount: float,
    keys: Keys,
    states: Any,
    where: Array,
    pairs: Any,
    places: Array,
    *,
    linkless: bool = False,
) -> tuple[Array, Array, Array]:
    """The change caused by a record, and the noise's scale in both worlds [r, m, k]."""
    problem = setting.problem
    none = jnp.zeros((problem.m, problem.n), problem.dtype)
    cases = jnp.asarray([0, 0, 1, 1]), jnp.stack([none, none + 1, none, none + 1])  # of worlds and units

    def one(row: Array) -> tuple[Array, Array, Array]:
        own, state, place = some(keys, row[0]), some(states, (row[0], row[1])), places[row[3]]

        def shown(case: tuple[Array, Array]) -> Array:
            def put(leaf: Array, new: Array) -> Array:
                there = place.reshape(*place.shape, *[1] * (leaf.ndim - 2))
                return jnp.where(there, new[row[2], case[0]].astype(leaf.dtype), leaf)

            other = replace(problem, data=jax.tree.map(put, problem.data, pairs))
            begun, _, _ = started(replace(setting, problem=other), own)  # what is prepared depends on data
            return repeated(begun, amount, case[1], state, row[1], linkless=linkless)

        first, one_up, second, other_up = jax.lax.map(shown, cases)
        return second - first, _scale(first, one_up), _scale(second, other_up)

    return jax.lax.map(one, where)


def probe(
    setting: Setting, guarantee: Guarantee, pairs: list[Any], keys: Keys, *, steps: int, linkless: bool = False
) -> Probe:
    """All tests of repeated rounds, as `jdfl.audit` reports them."""
    problem, event, runs = setting.problem, guarantee.event, len(keys.run)
    reason = refusal(setting.program)
    if not reason and scheduled(event) is not None:
        reason = "a record's effect in a round involves more than that round's noise, which follows a schedule"
    if not reason and not runs:
        reason = f"{problem.m} nodes, {problem.n} parameters and {steps} rounds are too many to store"
    if reason or event is None:
        return Probe(not_probed=reason)
    amount = amount_of(setting.program, problem.n)
    odd = jnp.asarray(np.random.default_rng(0).normal(size=(problem.m, problem.n)), problem.dtype)
    found, states = _residuals(setting, amount, odd, keys, steps=steps, linkless=linkless)
    z, scale, error, top, releases = (np.asarray(x, np.float64) for x in found)
    z, scale = (_blocks(x, problem.n) for x in (z, scale))  # [N, T, m, blocks, n]
    live, single = scale != 0, releases.max() <= 1
    apart = live.any() and error.max() <= _TOLERANCE
    if not apart and not linkless:
        return probe(setting, guarantee, pairs, keys, steps=steps, linkless=True)
    if not apart or (not single and not np.array_equal(live.any(axis=-1).sum(axis=-1), releases)):
        if single or event.kind != "gaussian":
            return Probe(not_probed="what others see is not each node's own noise, entry by entry")
        noisy, fresh = (np.asarray(x, np.float64) for x in _against_fresh(setting, amount, keys, steps=steps))
        tests = judge_sums(noisy, fresh)
        why = "" if tests else "a node makes several releases in a round, which cannot be separated"
        return Probe(findings=fired(tests), tests=len(tests), not_probed=why)
    precision = 2.0**-23 * float(top.max()) / float(np.abs(scale[live]).min())
    if not precision <= _PRECISION:
        return Probe(not_probed="the noise is too small relative to the parameters to be recovered")
    gaussian = event.kind == "gaussian"
    tests = judge_counts(z, live, releases)
    if single:  # the first of several blocks with the same noise
        first = np.argmax(live, axis=-2)[..., None, :]
        z, live = (np.take_along_axis(x, first, axis=-2) for x in (z, live))
    z, live = (np.moveaxis(x, 3, 2).reshape(runs, -1, problem.m, problem.n) for x in (z, live))
    tests += judge_residuals(z, live, gaussian, precision)
    examples = [example for pair in pairs for example in pair]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves).reshape(-1, 2, *np.shape(leaves[0])), *examples)
    where, places, own = _replaced(problem, guarantee, runs, steps, len(pairs))
    alone, sampling, counted = len(where), guarantee.sampling, 0
    chosen = np.zeros((0, *places.shape[1:]), bool)
    if sampling is not None:
        chosen = _everywhere(problem)
        counted = min(runs, _COUNTED, 2 * _NUMBERS // (len(chosen) * steps * problem.m * problem.n))
        rows = np.array([(n, k, 0, p) for p in range(len(chosen)) for n in range(counted) for k in range(steps)])
        where = np.concatenate([where, rows + np.array([0, 0, 0, len(places)])])
        places, own = np.concatenate([places, chosen]), np.concatenate([own, np.ones((len(rows), problem.m), bool)])
    cases = jnp.asarray(where, jnp.int32), stacked, jnp.asarray(places)
    moves = _changes(setting, amount, keys, states, *cases, linkless=linkless)
    change, size, other = (_blocks(np.asarray(x, np.float64), problem.n) for x in moves)
    # Against other observers noise counts that rounds without links do not have.
    own_noise = event.noise_multiplier if guarantee.observer == "all messages" else amount
    order, largest = 2 if gaussian else 1, 1 / own_noise
    tests += judge_changes(change, size, other, own, order, largest, precision, single)
    if sampling is not None:
        shape = len(chosen), counted, steps, problem.m
        by, noisy = (np.abs(x[alone:]).max(axis=(-2, -1)).reshape(shape) for x in (change, size))
        seen = (noisy > 0) & np.any(chosen, axis=-1)[:, None, None]
        share, poisson = sampling.batch / np.asarray(problem.sizes), sampling.kind == "poisson"
        tests += judge_hits(by > 1e-3 * by.max(), share, seen, poisson)
    return Probe(findings=fired(tests), tests=len(tests))


def _blocks(x: np.ndarray, n: int) -> np.ndarray:
    return x.reshape(*x.shape[:-1], -1, n)


def _replaced(
    problem: Problem, guarantee: Guarantee, runs: int, steps: int, pairs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The replacements [r, 4], their places [p, m, q], and the node of each [r, m] bool."""
    weight, most = np.asarray(problem.weight) > 0, min(_MOST, 2 * _NUMBERS // (problem.m * problem.n))
    if guarantee.unit == "node":
        places = weight[None] & np.eye(problem.m, dtype=bool)[:, :, None]
    else:
        nodes, records = np.nonzero(weight)
        chosen = spread(len(nodes), max(1, most // pairs))
        places = np.zeros((len(chosen), *weight.shape), bool)
        places[np.arange(len(chosen)), nodes[chosen], records[chosen]] = True
    count = len(places)
    rounds = steps if count * steps * pairs <= most else 1
    rows = [(p, pair, k) for p in range(count) for pair in range(pairs) for k in range(rounds)]
    where = np.array([(i % runs, k if rounds > 1 else i % steps, pair, p) for i, (p, pair, k) in enumerate(rows)])
    return where, places, np.any(places, axis=2)[where[:, 3]]


def _everywhere(problem: Problem) -> np.ndarray:
    """Places of one record at every node at once [K, m, q], since records of different nodes do not interact."""
    chosen = spread(int(problem.weight.shape[1]), _PLACES)
    places = np.zeros((len(chosen), *problem.weight.shape), bool)
    places[np.arange(len(chosen)), :, chosen] = np.asarray(problem.weight)[:, chosen].T > 0
    return places
