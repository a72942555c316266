"""Noise and sensitivity measured, instead of attacked: one round is repeated from the same state with the same keys.

With the mechanism's noise replaced by zero, and by one unit of what it says that its scale is, what others see gives

- the residuals (noisy - bare) / (unit - bare), which are the standard noise itself where noise enters linearly and a
  coordinate moves no other one;
- with one record replaced, the change in units of the noise's scale: its norm is at most 1 / multiplier, of the
  record's node alone, and where no noise is added nothing may change.

Every family of tests has a name and a p-value; all are held to one level, divided by the number of tests
(C. Bonferroni, 1936). Only algorithms with a mechanism in `gradients`, `updates` or of their own, whose view is affine in the noise.

Axes: N runs, T rounds, m nodes, n numbers that a node shows, r replaced records.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.stats import chi2, kstest, laplace, norm

from jdfl import struct
from jdfl.auditing import observe
from jdfl.base import Algorithm
from jdfl.network.graph import Network
from jdfl.privacy import Gaussian, Laplace
from jdfl.problems import Problem

LEVEL = 1e-6  # of one test, before it is divided
_SLACK = 1e-3  # relative, of sensitivities in float32


@struct.dataclass
class _GaussianUnits(Gaussian):
    """So many units of the scale in place of Gaussian noise."""

    units: Any = 0.0

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] moved by `units` of the noise's scale."""
        return x + jnp.asarray(self.units * self.multiplier * sensitivity, x.dtype)


@struct.dataclass
class _LaplaceUnits(Laplace):
    """So many units of the scale in place of Laplace noise."""

    units: Any = 0.0

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] moved by `units` of the noise's scale."""
        return x + jnp.asarray(self.units * self.multiplier * sensitivity, x.dtype)


@dataclass(frozen=True)
class Finding:
    """One test: its family, what was measured, and how likely that is if all is sound (0 for what cannot be)."""

    family: str
    told: str
    p: float


def _owner(algorithm: Any) -> str | None:
    """The field that holds the mechanism; "" for the algorithm itself, None where there is none."""
    for name in ("updates", "gradients"):
        part = getattr(algorithm, name, None)
        fields = getattr(type(algorithm), "__dataclass_fields__", {})
        if name in fields and getattr(part, "mechanism", None) is not None:
            return name
    return "" if getattr(algorithm, "mechanism", None) is not None else None


def moved(algorithm: Any, units: float) -> Any:
    """The algorithm with so many units of the scale instead of noise; None where its mechanism is not known."""
    owner = _owner(algorithm)
    if owner is None:
        return None
    part = getattr(algorithm, owner) if owner else algorithm
    kind = {Gaussian: _GaussianUnits, Laplace: _LaplaceUnits}.get(type(part.mechanism))
    if kind is None:
        return None
    changed = replace(part, mechanism=kind(part.mechanism.multiplier, units=jnp.float32(units)))
    return replace(algorithm, **{owner: changed}) if owner else changed


@partial(jax.jit, static_argnames=("steps",))
def residuals(
    algorithm: Any, bare: Any, unit: Any, problem: Problem, network: Network, public: Array, keys: Array, *, steps: int
) -> tuple[Array, Array]:
    """Residuals [N, T, m, n] of runs with these keys [N], and the scales [N, T, m, n] they are measured in."""

    def one(key: Array) -> tuple[Array, Array]:
        made, state, _ = observe._start(algorithm, problem, network, public, key)
        others = [observe._start(other, problem, network, public, key)[0] for other in (bare, unit)]

        def step(state: Any, k: Array) -> tuple[Any, tuple[Array, Array]]:
            round = observe._round(network, key, k, problem.m)
            new, _ = made.step(state, problem, round)
            still, up = (observe.visible(a, a.step(state, problem, round)[0]) for a in others)
            scale = up - still
            noise = observe.visible(made, new) - still
            return new, (jnp.where(scale != 0, noise / jnp.where(scale != 0, scale, 1), 0.0), scale)

        return jax.lax.scan(step, state, jnp.arange(steps, dtype=jnp.int32))[1]

    return jax.lax.map(one, keys)


@partial(jax.jit, static_argnames=("steps",))
def changes(
    algorithm: Any, bare: Any, unit: Any, problem: Problem, network: Network, public: Array, key: Array, node: Array,
    place: Array, example: Any, *, steps: int,
) -> tuple[Array, Array]:  # fmt: skip
    """How far a record of `node` [r] at `place` [r] moves what others see [r, T, m, n], and the noise's scale alike."""
    made, start, _ = observe._start(algorithm, problem, network, public, key)

    def states(state: Any, k: Array) -> tuple[Any, Any]:
        return made.step(state, problem, observe._round(network, key, k, problem.m))[0], state

    before = jax.lax.scan(states, start, jnp.arange(steps, dtype=jnp.int32))[1]

    def one(where: tuple[Array, Array]) -> tuple[Array, Array]:
        data = jax.tree.map(lambda leaf, new: leaf.at[where].set(new), problem.data, example)
        other = replace(problem, data=data)
        pair = [observe._start(bare, each, network, public, key)[0] for each in (problem, other)]
        up = observe._start(unit, problem, network, public, key)[0]

        def step(k: Array, state: Any) -> tuple[Array, Array]:
            round = observe._round(network, key, k, problem.m)
            seen = [observe.visible(a, a.step(state, p, round)[0]) for a, p in zip(pair, (problem, other))]
            return seen[1] - seen[0], observe.visible(up, up.step(state, problem, round)[0]) - seen[0]

        return jax.lax.map(lambda each: step(*each), (jnp.arange(steps, dtype=jnp.int32), before))

    return jax.lax.map(one, (node, place))


def judge_residuals(z: np.ndarray, scale: np.ndarray, kind: str) -> list[Finding]:
    """The tests of the family "residual" on z [N, T, m, n] measured in `scale`."""
    law = norm if kind == "gaussian" else laplace
    spread = 1.0 if kind == "gaussian" else 2.0
    N, T, m, n = z.shape
    told: list[Finding] = []
    for t in range(T):
        for i in range(m):
            cells = z[:, t, i][scale[:, t, i] != 0]
            if len(cells) >= 20:
                told.append(_variance(f"round {t}, node {i}", cells, spread, law))
    for j in range(n):
        cells = z[..., j][scale[..., j] != 0]
        if len(cells) >= 20:
            told.append(_variance(f"number {j}", cells, spread, law))
    live = z[scale != 0]
    told.append(Finding("residual shape", "Kolmogorov-Smirnov", float(kstest(live, law.cdf).pvalue)))
    flat = z.reshape(N, T * m, n) / np.sqrt(spread)
    alive = (scale != 0).reshape(N, T * m, n)
    for name, values in (("residual covariance", flat), ("residual squares", (flat**2 - 1) / np.sqrt(2.0))):
        if kind != "gaussian" and name == "residual squares":
            continue
        for a in range(T * m):
            for b in range(a):
                both = alive[:, a] & alive[:, b]
                x, y = values[:, a][both], values[:, b][both]
                if len(x) >= 200:
                    size = float(np.sum(x * y) / np.sqrt(np.sum(x * x) * np.sum(y * y) + 1e-300) * np.sqrt(len(x)))
                    told.append(
                        Finding(name, f"(round, node) {divmod(a, m)} and {divmod(b, m)}", float(2 * norm.sf(abs(size))))
                    )
    return told


def _variance(where: str, cells: np.ndarray, spread: float, law: Any) -> Finding:
    total, count = float(np.sum(cells**2)) / spread, len(cells)
    if law is norm:
        p = 2 * min(chi2.cdf(total, count), chi2.sf(total, count))
    else:  # sum of |z| is Gamma(count)
        total = 2 * float(np.sum(np.abs(cells)))
        p = 2 * min(chi2.cdf(total, 2 * count), chi2.sf(total, 2 * count))
    return Finding("residual scale", where, float(min(1.0, p)))


def judge_changes(change: np.ndarray, scale: np.ndarray, node: np.ndarray, order: int, largest: float) -> list[Finding]:
    """The families "sensitivity" and "leak": changes [r, T, m, n] of a record of node [r], at most `largest` units."""
    live = scale != 0
    units = np.where(live, change / np.where(live, scale, 1), 0.0)
    size = np.linalg.norm(units, ord=order, axis=-1)  # [r, T, m]
    own = np.arange(size.shape[2])[None] == node[:, None]
    worst = float(size.max(axis=1)[own].max())
    stray = float(np.abs(change).max(axis=(1, 3))[~own].max(initial=0.0))
    bare = float(np.abs(np.where(live, 0.0, change)).max())
    top = float(np.abs(change).max())
    return [
        Finding("sensitivity", f"{worst:.4g} of {largest:.4g} units", float(worst <= largest * (1 + _SLACK))),
        Finding("leak", f"another node moves by {stray:.3g}", float(stray <= 1e-5 * top)),
        Finding("leak", f"a number without noise moves by {bare:.3g}", float(bare <= 1e-5 * top)),
    ]


def fired(told: list[Finding], level: float = LEVEL) -> tuple[Finding, ...]:
    """Those of the findings that a sound setting shows with chance `level` at most, all together."""
    return tuple(sorted((one for one in told if one.p < level / max(1, len(told))), key=lambda one: one.p))


def probe(
    algorithm: Algorithm, problem: Problem, network: Network, public: Array, key: Array, example: Any,
    *, steps: int, runs: int, multiplier: float,
) -> list[Finding]:  # fmt: skip
    """All findings; none where the algorithm's mechanism is not one of the known."""
    bare, unit = moved(algorithm, 0.0), moved(algorithm, 1.0)
    if bare is None:
        return []
    fixed = (algorithm, bare, unit, problem, network, public)
    z, scale = residuals(*fixed, jax.random.split(key, runs), steps=steps)
    part: Any = getattr(algorithm, _owner(algorithm) or "", algorithm)
    kind = "gaussian" if isinstance(part.mechanism, Gaussian) else "laplace"
    told = judge_residuals(np.asarray(z, np.float64), np.asarray(scale), kind)
    node, place = (np.asarray(x) for x in np.nonzero(np.asarray(problem.weight) > 0))
    moves = changes(*fixed, key, jnp.asarray(node), jnp.asarray(place), example, steps=steps)
    order = 2 if kind == "gaussian" else 1
    return told + judge_changes(*(np.asarray(x, np.float64) for x in moves), node, order, 1 / multiplier)
