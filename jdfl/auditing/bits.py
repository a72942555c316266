"""`jdfl.audit_bits`: what the bits of a noisy release tell, beside what its noise is accounted for.

A mechanism hides any two vectors that are no further apart than its sensitivity. It is given two such vectors many
times, and what it releases is told apart by what numbers alone could have come from either of them:

- Floating-point noise has at most 2^23 values, and a sum is rounded to a grid that depends on what is added. What a
  clean number and all noise can make of one another is a set that can be listed, and a released number is looked for in
  that of either vector (I. Mironov, "On significance of the least significant bits for differential privacy", 2012).
- Noise on a grid is a whole number of steps. How often each comes is counted in many draws of noise alone, and what is
  released, less either vector, is held against these counts: noise that leaves out numbers between its own shows.

Axes: n numbers of a release, k of them in which the two vectors differ, N releases.
"""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import Program
from jdfl.auditing.attack import attack
from jdfl.auditing.claim import check_level, noisy_guarantee
from jdfl.auditing.probe import owner
from jdfl.auditing.verdicts import BitAudit
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
_CERTAIN = 10.0  # what a number that only one vector could have become weighs, in units of what noise shows


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

    `Gaussian` claims nothing against an observer of the bits: for it the audit says what that exclusion is worth, and
    refutes nothing. What it shows of `ExactGaussian` beyond the epsilon of one release refutes it.

    Args:
        algorithm: What is attacked; of it the mechanism, its sensitivity and what it counts a release as.
        problem: The data, of which only sizes matter.
        runs: Releases of both vectors together, at least 100.
        node: Whose sensitivity it is.
        delta: Of the epsilons that are compared, in (0, 1).
        key: Of all randomness: a whole number or a JAX key.
        confidence: With which the bound holds, in (0, 1).

    Raises ValueError for other mechanisms and for settings that make no sense.
    """
    began = time.perf_counter()
    checks.whole(100, remedy="Half of them are of either vector, and half of these are judged by.", runs=runs)
    checks.whole(0, problem.m - 1, "It is one of the problem's nodes.", node=node)
    check_level(confidence)
    checks.fraction("It is that of both epsilons.", delta=delta)
    noisy_guarantee(Program(algorithm), problem)
    part: Any = getattr(algorithm, owner(algorithm) or "", None)
    mechanism: Any = getattr(part, "mechanism", None)
    if type(mechanism) not in (Gaussian, ExactGaussian) or problem.dtype != jnp.float32:
        raise ValueError(
            f"Expected Gaussian or ExactGaussian noise of gradients or updates in float32, got "
            f"{type(mechanism).__name__} in {jnp.dtype(problem.dtype).name}. What other noise may become is not known."
        )
    n, seed, exact = problem.n, typed_key(key), isinstance(mechanism, ExactGaussian)
    sensitivity = jnp.broadcast_to(jnp.asarray(part.sensitivities(problem), jnp.float32), (problem.m,))[node]
    weights = np.linspace(*((0.5, 1.5) if exact else (1.0, 1.0)), min(n, _DIFFER))  # all parts of a grid are met
    apart = float(sensitivity) * (1 - 2.0**-20) * weights / np.linalg.norm(weights)  # 2^-20: of rounding
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
    """The first k numbers of releases [N, k] of a vector of n numbers, of which these are the `first` ones [k]."""
    x = jnp.zeros((n,), jnp.float32).at[: len(first)].set(first)
    return lax.map(lambda key: mechanism.add(key, x, sensitivity)[: len(first)], keys)


@jax.jit
def reachable(clean: Array | float, deviation: Array | float) -> Array:
    """All that `jax.random.normal` in float32 can make of a number `clean` [], at a standard deviation []; [2^23]."""
    bits = lax.iota(jnp.uint32, _VALUES) | jnp.uint32(0x3F800000)
    lowest = jnp.nextafter(jnp.float32(-1), jnp.float32(0))
    uniform = (lax.bitcast_convert_type(bits, jnp.float32) - 1.0) * (1.0 - lowest) + lowest
    return clean + deviation * (jnp.float32(np.sqrt(2)) * lax.erf_inv(jnp.maximum(lowest, uniform)))


def float_scores(seen: np.ndarray, first: float, second: float, deviation: Any) -> np.ndarray:
    """How many more numbers of a release floating-point noise can make of the second vector than of the first [N].

    What the noise itself shows is added, to tell apart what the bits do not.

    Args:
        seen: Numbers of releases, seen [N, k] float32.
        first: What all k numbers of the first vector are.
        second: What those of the second one are.
        deviation: The noise's standard deviation [].
    """

    def inside(clean: float) -> np.ndarray:
        values = np.sort(np.asarray(reachable(jnp.float32(clean), jnp.float32(deviation))))
        place = np.minimum(np.searchsorted(values, seen), len(values) - 1)
        return (values[place] == seen).sum(axis=1)

    shown = seen.sum(axis=1, dtype=float) / (float(deviation) * seen.shape[1])
    return _CERTAIN * (inside(second) - inside(first)) + np.sign(second - first) * shown


def grid_scores(seen: np.ndarray, noise: np.ndarray, first: np.ndarray, second: np.ndarray, step: float) -> np.ndarray:
    """By how much likelier releases [N] are of the second vector than of the first, by counted noise.

    Numbers that are off the grid by as much as one of the vectors are that vector's.

    Args:
        seen: Numbers of releases, seen [N, k], which should be multiples of the step.
        noise: Draws of noise alone, multiples of the step.
        first: The numbers of the first vector, first [k].
        second: Those of the second one, second [k].
        step: That of the grid.
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
