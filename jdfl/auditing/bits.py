"""`jdfl.audit_bits`: what the floating-point bits of a noisy release reveal beyond the accounted epsilon.

A mechanism must hide the difference between any two vectors at most its sensitivity apart. It is given two such vectors
many times, and its releases are distinguished by the numbers that only one of the vectors could have produced:

- Floating-point noise has at most 2^23 values, and a sum is rounded to a grid that depends on its terms. The set of
  all values that a clean number can produce with such noise can be enumerated, and a released number is looked up in
  the sets of both vectors (I. Mironov, "On significance of the least significant bits for differential privacy", 2012).
- Noise on a grid is an integer number of steps. The frequency of each value is counted in many draws of noise alone,
  and releases minus each vector are compared with these counts, which exposes noise that skips some grid values.

Axes: n numbers of a release, k of them in which the two vectors differ, N releases.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm, check_parts
from jdfl.algorithms.program import Program
from jdfl.auditing.attack import Attack, Verdict, attack, check_level
from jdfl.auditing.probe import noisy_guarantee, owner
from jdfl.base import checks
from jdfl.base.keys import typed_key
from jdfl.base.streams import Stream
from jdfl.privacy import ExactGaussian, Gaussian, epsilon
from jdfl.privacy.exact import spread
from jdfl.privacy.mechanisms import event_of
from jdfl.problems import Problem

_RELEASES, _COUNTED = Stream("audit.bits of releases", "private"), Stream("audit.bits of noise", "private")
_VALUES = 2**23  # of a uniform number in float32
_DIFFER, _DRAWS = 12, 2**21  # numbers in which the vectors differ; draws of noise that are counted
_CERTAIN = 10.0  # score of a number that only one vector could have produced, relative to that of the noise


@dataclass(frozen=True, kw_only=True)
class BitAudit(Verdict, Attack):
    """How well two vectors were distinguished by the bits of their releases.

    `epsilon_lower` is a bound at `confidence`, for a single release, as is the accounted epsilon. The command exits
    with 0 where the result is outside the claim.
    """

    mechanism: str
    runs: int  # releases of both vectors together
    covered: bool  # whether the mechanism claims it against an observer of the bits

    @property
    def shown(self) -> bool:
        """Whether the bound is above the accounted epsilon, whether or not bits are covered by the claim."""
        return self.epsilon_lower > self.epsilon_accounted

    @property
    def violated(self) -> bool:
        """Whether the bound is above an epsilon that is claimed against an observer of the bits."""
        return self.covered and self.shown

    def as_dict(self) -> dict[str, Any]:
        """As for all audits, with `shown`."""
        return super().as_dict() | {"shown": self.shown}

    def statement(self) -> str:
        """The audit in words, as Markdown list items; first VIOLATED, OUTSIDE THE CLAIM or not refuted."""
        verdict = "VIOLATED" if self.violated else "OUTSIDE THE CLAIM" if self.shown else "not refuted"
        void = "" if self.covered else ", which is void against an observer of the bits; ExactGaussian's is not"
        return (
            f"- audit of bits: {verdict}: the bits of one release of {self.mechanism} show {self._shown}, against an "
            f"accounted {self._account}{void}\n"
            f"- AUC {self.auc:.4g}; {self.runs} releases; {self.seconds:.1f} s\n"
        )


def audit_bits(
    algorithm: Algorithm,
    problem: Problem,
    *,
    runs: int = 2000,
    node: int = 0,
    delta: float = 1e-5,
    key: int | Array = 0,
    confidence: float = 0.95,
) -> BitAudit:
    """Attack the bits of what a mechanism of gradients or updates releases, `Gaussian` or `ExactGaussian`.

    `Gaussian` claims nothing against an observer of the bits: for it the audit measures what this exclusion amounts to,
    and refutes nothing. Anything shown for `ExactGaussian` beyond the epsilon of one release refutes it.

    The mechanism, sensitivity and event of the `algorithm` at a `node` are used, and the sizes of the `problem`'s data.
    There are `runs` releases of both vectors together, at least 100. `delta` in (0, 1), `key` and `confidence` are as
    for `jdfl.audit`. Raises ValueError for other mechanisms and for invalid settings.
    """
    began = time.perf_counter()
    checks.integer(100, remedy="Half of them are of each vector, and half of these are used for testing.", runs=runs)
    checks.integer(0, problem.m - 1, "It is one of the problem's nodes.", node=node)
    check_level(confidence)
    checks.fraction("It is the delta of both epsilons.", delta=delta)
    check_parts(algorithm, problem)
    noisy_guarantee(Program(algorithm), problem)
    part: Any = getattr(algorithm, owner(algorithm) or "", None)
    mechanism: Any = getattr(part, "mechanism", None)
    if type(mechanism) not in (Gaussian, ExactGaussian) or problem.dtype != jnp.float32:
        raise ValueError(
            f"Expected Gaussian or ExactGaussian noise of gradients or updates in float32, got "
            f"{type(mechanism).__name__} in {jnp.dtype(problem.dtype).name}. The values of other noise are not known."
        )
    n, seed, exact = problem.n, typed_key(key), isinstance(mechanism, ExactGaussian)
    sensitivity = jnp.broadcast_to(jnp.asarray(part.sensitivities(problem), jnp.float32), (problem.m,))[node]
    weights = np.linspace(*((0.5, 1.5) if exact else (1.0, 1.0)), min(n, _DIFFER))  # covers all parts of a grid
    apart = float(sensitivity) * (1 - 2.0**-20) * weights / np.linalg.norm(weights)  # 2^-20: for rounding
    first, second = (np.asarray(share * apart, np.float32) for share in (-1 / 3, 2 / 3))
    keys = jax.random.split(_RELEASES.of(seed), 2 * (runs // 2)).reshape(2, -1)
    seen = [np.asarray(_released(mechanism, own, x, sensitivity, n=n)) for own, x in zip(keys, (first, second))]
    if exact:
        step = float(sensitivity) * mechanism.scale(n) / spread(mechanism.levels(n))
        draws = jax.random.split(_COUNTED.of(seed), -(-_DRAWS // n))
        noise = np.asarray(_released(mechanism, draws, jnp.zeros((n,), jnp.float32), sensitivity, n=n))
        scores = [grid_scores(one, noise.ravel(), first, second, step) for one in seen]
    else:
        scores = [float_scores(one, first[0], second[0], mechanism.multiplier * sensitivity) for one in seen]
    event = event_of(mechanism, n)
    return BitAudit(
        **vars(attack(*(one[:, None] for one in scores), delta=delta, confidence=confidence)),
        algorithm=type(algorithm).__name__,
        mechanism=type(mechanism).__name__,
        runs=2 * (runs // 2),
        confidence=float(confidence),
        delta=float(delta),
        epsilon_accounted=epsilon(event, 1, delta),
        covered=isinstance(mechanism, ExactGaussian),
        seconds=time.perf_counter() - began,
    )


@partial(jax.jit, static_argnames=("n",))
def _released(mechanism: Any, keys: Array, first: Array, sensitivity: Array, *, n: int) -> Array:
    """The first k numbers of releases [N, k] of a vector of n numbers, which starts with the numbers `first` [k]."""
    x = jnp.zeros((n,), jnp.float32).at[: len(first)].set(first)
    return lax.map(lambda key: mechanism.add(key, x, sensitivity)[: len(first)], keys)


@jax.jit
def reachable(clean: Array | float, deviation: Array | float) -> Array:
    """All float32 values that `jax.random.normal` makes of a `clean` number [] at a standard deviation []; [2^23]."""
    bits = lax.iota(jnp.uint32, _VALUES) | jnp.uint32(0x3F800000)
    lowest = jnp.nextafter(jnp.float32(-1), jnp.float32(0))
    uniform = (lax.bitcast_convert_type(bits, jnp.float32) - 1.0) * (1.0 - lowest) + lowest
    return clean + deviation * (jnp.float32(np.sqrt(2)) * lax.erf_inv(jnp.maximum(lowest, uniform)))


def float_scores(seen: np.ndarray, first: float, second: float, deviation: Any) -> np.ndarray:
    """How many more numbers of a release could come from the second vector than from the first, by their bits [N].

    A score by the size of the noise is added, to decide where the bits do not.
    """

    def inside(clean: float) -> np.ndarray:
        values = np.sort(np.asarray(reachable(jnp.float32(clean), jnp.float32(deviation))))
        place = np.minimum(np.searchsorted(values, seen), len(values) - 1)
        return (values[place] == seen).sum(axis=1)

    shown = seen.sum(axis=1, dtype=float) / (float(deviation) * seen.shape[1])
    return _CERTAIN * (inside(second) - inside(first)) + np.sign(second - first) * shown


def grid_scores(seen: np.ndarray, noise: np.ndarray, first: np.ndarray, second: np.ndarray, step: float) -> np.ndarray:
    """The log-likelihood ratio of releases [N], second vector against first, by counted noise.

    Numbers off the grid by the offset of one of the vectors are assigned to that vector.
    """
    counted = np.rint(noise / step).astype(np.int64)
    low = int(counted.min())
    often = np.bincount(counted - low)

    def likely(clean: np.ndarray) -> np.ndarray:
        away = (seen.astype(float) - clean.astype(float)) / step
        place = np.rint(seen / step).astype(np.int64) - np.rint(clean / step).astype(np.int64) - low
        there = (place >= 0) & (place < len(often))
        chance = np.log(np.where(there, often[np.clip(place, 0, len(often) - 1)], 0) + 0.5)
        return (chance - _CERTAIN * np.abs(away - np.rint(away))).sum(axis=1)

    return likely(second) - likely(first)
