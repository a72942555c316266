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
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import struct
from jdfl.algorithms.updates import Updates
from jdfl.auditing.judge import Finding, fired, judge_changes, judge_counts, judge_hits, judge_residuals
from jdfl.auditing.observe import round_at, started, visible
from jdfl.base import Algorithm
from jdfl.network.graph import Network
from jdfl.privacy import Gaussian, Guarantee, Laplace
from jdfl.problems import Problem

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


@jax.custom_batching.custom_vmap
def _placed(units: Array, x: Array, scale: Array) -> Array:
    return x + scale * units[0]


@_placed.def_vmap
def _rows(size: int, batched: Any, units: Array, x: Array, scale: Array) -> tuple[Array, bool]:
    x, scale = (a if there else jnp.broadcast_to(a, (size, *a.shape)) for a, there in zip((x, scale), batched[1:]))
    return x + scale[:, None] * units, True


@struct.dataclass
class _Units:
    """So many units [m, n] of the scale in place of noise."""

    multiplier: Any
    units: Array
    l1: bool = struct.field(pytree_node=False, default=False)
    norm: ClassVar[str] = "l2"

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] of a node moved by its units."""
        return _placed(self.units, x, jnp.asarray(self.multiplier * sensitivity, x.dtype))


@struct.dataclass
class _UnitsL1(_Units):
    """The same for a sensitivity in the l1 norm."""

    norm: ClassVar[str] = "l1"


def _owner(algorithm: Any) -> str | None:
    """The field that holds the mechanism; None where there is none."""
    fields = getattr(type(algorithm), "__dataclass_fields__", {})
    for name in ("updates", "gradients"):
        if name in fields and getattr(getattr(algorithm, name), "mechanism", None) is not None:
            return name
    return None


def _moved(algorithm: Any, owner: str, units: Array) -> Any:
    """The algorithm with so many units [m, n] of the scale instead of noise."""
    part = getattr(algorithm, owner)
    kind = _Units if part.mechanism.norm == "l2" else _UnitsL1
    return replace(algorithm, **{owner: replace(part, mechanism=kind(part.mechanism.multiplier, units))})


def _refused(algorithm: Any, problem: Problem, steps: int) -> str:
    """Why such an algorithm cannot be probed; empty if it may be."""
    owner = _owner(algorithm)
    if owner is None:
        return "its noise is not added by a mechanism of gradients or updates"
    part = getattr(algorithm, owner)
    if type(part.mechanism) not in (Gaussian, Laplace):
        return f"the scale of a {type(part.mechanism).__name__} is not known"
    if isinstance(part, Updates) or type(part.mechanism) is not Gaussian or part.norm != "l2" or part.per != "example":
        return "only Gaussian noise on gradients whose examples are clipped in the l2 norm is"
    if part.batch is not None and part.sampling != "poisson":
        return f"samples by {part.sampling!r} are not"
    if _NUMBERS // (problem.m * problem.n * steps) < _FEWEST:
        return f"{problem.m} nodes, {problem.n} parameters and {steps} rounds are more than is kept"
    return ""


@partial(jax.jit, static_argnames=("steps",))
def _residuals(
    made: tuple[Any, Any, Any, Any], problem: Problem, network: Network, public: Array, keys: Array, *, steps: int
) -> Any:
    """Residuals and scales [N, T, m, k], error of linearity and largest number [N, T], and releases [N, T, m].

    `made` are the algorithm and those with no, one, and different units.
    """

    def one(key: Array) -> Any:
        every = [started(each, problem, network, public, key) for each in made]
        pattern = _spread(made[3])

        def step(state: Any, k: Array) -> Any:
            round = round_at(network, key, k, problem.m)
            news = [each[0].step(state, problem, round) for each in every]
            noisy, bare, up, odd = (visible(each[0], new) for each, (new, _) in zip(every, news))
            scale = up - bare
            scale = jnp.where(jnp.abs(scale) > 1e-3 * jnp.max(jnp.abs(scale)), scale, 0.0)
            units = jnp.tile(pattern, (1, scale.shape[1] // problem.n))
            error = jnp.max(jnp.abs(odd - bare - scale * units)) / jnp.maximum(jnp.max(jnp.abs(scale)), 1e-30)
            z = jnp.where(scale != 0, (noisy - bare) / jnp.where(scale != 0, scale, 1), 0.0)
            return news[0][0], (z, scale, error, jnp.max(jnp.abs(noisy)), news[0][1].releases)

        return jax.lax.scan(step, every[0][1], jnp.arange(steps, dtype=jnp.int32))[1]

    return jax.lax.map(one, keys)


def _spread(algorithm: Any) -> Array:
    return getattr(algorithm, _owner(algorithm) or "").mechanism.units


@partial(jax.jit, static_argnames=("steps",))
def _states(algorithm: Any, problem: Problem, network: Network, public: Array, keys: Array, *, steps: int) -> Any:
    """The states before every round, leaves [N, T, ...]."""

    def one(key: Array) -> Any:
        made, start, _ = started(algorithm, problem, network, public, key)

        def step(state: Any, k: Array) -> tuple[Any, Any]:
            return made.step(state, problem, round_at(network, key, k, problem.m))[0], state

        return jax.lax.scan(step, start, jnp.arange(steps, dtype=jnp.int32))[1]

    return jax.lax.map(one, keys)


@jax.jit
def _changes(
    bare: Any, unit: Any, problem: Problem, network: Network, public: Array, keys: Array, states: Any,
    where: Array, pairs: Any, places: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """What a record moves and the noise's scale [r, m, k]: rows of `where` [r, 4] are run, round, pair, places.

    `places` [p, m, q] bool are the records that become those of the pair, leaves of `pairs` [pairs, 2, ...].
    """

    def one(row: Array) -> tuple[Array, Array]:
        key, state = keys[row[0]], jax.tree.map(lambda leaf: leaf[row[0], row[1]], states)
        round, place = round_at(network, key, row[1], problem.m), places[row[3]]

        def shown(algorithm: Any, world: int) -> Array:
            def put(leaf: Array, new: Array) -> Array:
                there = place.reshape(*place.shape, *[1] * (leaf.ndim - 2))
                return jnp.where(there, new[row[2], world].astype(leaf.dtype), leaf)

            other = replace(problem, data=jax.tree.map(put, problem.data, pairs))
            made = started(algorithm, other, network, public, key)[0]
            return visible(made, made.step(state, other, round)[0])

        first = shown(bare, 0)
        return shown(bare, 1) - first, shown(unit, 0) - first

    return jax.lax.map(one, where)


def probe(
    algorithm: Algorithm, problem: Problem, network: Network, guarantee: Guarantee, pairs: list[Any],
    public: Array, key: Array, *, steps: int,
) -> Probe:  # fmt: skip
    """All tests of `steps` rounds, with `pairs` of examples as the records that are replaced."""
    reason = _refused(algorithm, problem, steps)
    if reason:
        return Probe(reason=reason)
    owner, shape = _owner(algorithm) or "", (problem.m, problem.n)
    runs = min(_RUNS, _NUMBERS // (problem.m * problem.n * steps))
    spread = jax.random.normal(jax.random.fold_in(key, 0), shape, problem.dtype)
    bare, unit, odd = (_moved(algorithm, owner, u) for u in (jnp.zeros_like(spread), jnp.ones_like(spread), spread))
    fixed, keys = (problem, network, public), jax.random.split(jax.random.fold_in(key, 1), runs)
    found = _residuals((algorithm, bare, unit, odd), *fixed, keys, steps=steps)
    z, scale, error, top, releases = (np.asarray(x, np.float64) for x in found)
    live = scale != 0
    if not live.any() or not error.max() <= _TOLERANCE:
        return Probe(reason="what others see is not each node's own noise, number by number")
    if releases.max() > 1:
        return Probe(reason="a round has several releases of one node")
    precision = 2.0**-23 * float(top.max()) / float(np.abs(scale[live]).min())
    if not precision <= _PRECISION:
        return Probe(reason="the noise is too small beside the parameters to be read back")
    mechanism: Any = getattr(algorithm, owner).mechanism
    gaussian, blocks = isinstance(mechanism, Gaussian), z.shape[-1] // problem.n
    told = judge_counts(z, live, releases, problem.n)
    parts, there = z.reshape(*z.shape[:-1], blocks, -1), live.reshape(*live.shape[:-1], blocks, -1)
    first = np.argmax(there, axis=-2)[..., None, :]
    z, live = np.take_along_axis(parts, first, axis=-2)[..., 0, :], there.any(axis=-2)
    told += judge_residuals(z, live, gaussian, precision)
    states = _states(algorithm, *fixed, keys, steps=steps)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[_pair(pair) for pair in pairs])
    played = (bare, unit, *fixed, keys, states)
    where, places, node = _replaced(problem, guarantee, runs, steps, len(pairs))
    moves = _changes(*played, where, stacked, places)
    change, size = (np.asarray(x, np.float64) for x in moves)
    largest = 1 / float(mechanism.multiplier)
    told += judge_changes(change, size, node, 2 if gaussian else 1, largest, precision)
    if guarantee.sampling is not None:
        told += _sampled(problem, guarantee, runs, steps, played, stacked)
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
    problem: Problem, guarantee: Guarantee, runs: int, steps: int, played: tuple[Any, ...], pairs: Any
) -> list[Finding]:
    """The family "sampling": all nodes have a record replaced at once, since none moves another."""
    assert guarantee.sampling is not None
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
    return judge_hits(hit, guarantee.sampling.batch / sizes, there, guarantee.sampling.kind == "poisson")
