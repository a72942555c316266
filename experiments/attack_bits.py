"""The attack on the last bits of noise, of `experiments.attacks`; `python -m experiments.attack_bits` counts errors.

Noise that is drawn in floating point has at most 2^23 values, and a sum is rounded to a grid that depends on what is
added: what a clean value and any noise at all can make of one another is a set of numbers that can be listed. Whoever
holds the numbers of a release against the sets of two worlds tells which of the two it was (I. Mironov, "On
significance of the least significant bits for differential privacy", 2012).

Axes: n parameters, N runs.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jdfl
from experiments.attack_worlds import ALONE, Attack, Claim, claim, regression, shown
from jdfl.problems import LinearRegression

ENTRIES, MULTIPLIER = 12, 50.0
EXACT, FLOAT = jdfl.ExactGaussian(MULTIPLIER), jdfl.Gaussian(MULTIPLIER)
_VALUES = 2**23  # of a uniform number in float32


def _descent(**fields: Any) -> Any:
    return jdfl.DPSGD(lr=1.0, gradients=jdfl.Gradients(clip=1.0, **fields))


def _world(world: int) -> LinearRegression:
    return regression(world, n=ENTRIES)


def _released(ready: Any, state: Any, _: Any) -> jax.Array:
    """Node 0's noisy gradient [n]: the parameters were zero, and a step is as long as the gradient."""
    return -ready.params(state)[0]


@jax.jit
def _reachable(clean: jax.Array, scale: jax.Array) -> jax.Array:
    """All that `jax.random.normal` in float32 can make of a value []."""
    bits = lax.iota(jnp.uint32, _VALUES) | jnp.uint32(0x3F800000)
    lowest = jnp.nextafter(jnp.float32(-1), jnp.float32(0))
    uniform = (lax.bitcast_convert_type(bits, jnp.float32) - 1.0) * (1.0 - lowest) + lowest
    return clean + scale * (jnp.float32(np.sqrt(2)) * lax.erf_inv(jnp.maximum(lowest, uniform)))


@cache
def _reached(world: int, mechanism: Any) -> np.ndarray:
    """Those of the clean gradient's entries in a world, all of which are the same, in order."""
    clean = shown(_descent(), _world(world), ALONE, 1, 1, 0, _released)[0, 0]
    scale = MULTIPLIER * _descent(mechanism=mechanism).gradients.sensitivities(_world(world))[0]
    return np.sort(np.asarray(_reachable(jnp.float32(clean), scale)))


def scores(world: int, runs: int, seed: int, mechanism: Any = EXACT) -> np.ndarray:
    """How many numbers of a release are in the set of the second world and not of the first, and their sum [N]."""
    seen = shown(_descent(mechanism=mechanism), _world(world), ALONE, 1, runs, seed, _released).astype(np.float32)

    def inside(world: int) -> np.ndarray:
        values = _reached(world, mechanism)
        place = np.minimum(np.searchsorted(values, seen), len(values) - 1)
        return (values[place] == seen).sum(axis=1)

    return 10.0 * (inside(1) - inside(0)) + seen.sum(axis=1) / (MULTIPLIER * ENTRIES)


def bits() -> Attack:
    """The attack on exact noise."""

    def claimed() -> Claim:
        return claim(_descent(mechanism=EXACT), _world(0), ALONE, 1)

    return Attack("epsilon holds for an observer of every bit", claimed, scores, runs=100_000)


def main() -> None:
    """How often the sign of the score names the wrong world, for both kinds of noise."""
    epsilon = claim(_descent(mechanism=FLOAT), _world(0), ALONE, 1).epsilon
    print(f"releases of {ENTRIES} numbers, epsilon {epsilon:.4f} by their noise")
    for mechanism, runs in ((FLOAT, 1000), (EXACT, 100_000)):
        zero, other = (scores(world, runs, world, mechanism) for world in (0, 1))
        wrong = int((zero > 0).sum() + (other <= 0).sum())
        print(f"{type(mechanism).__name__}: {wrong:,} errors in {2 * runs:,} releases")


if __name__ == "__main__":
    main()
