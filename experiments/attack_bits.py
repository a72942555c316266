"""Bits of noise: how often the last bits of a release tell which of two datasets it comes from.

The attack of `jdfl.audit_bits`, applied to whole steps of D-PSGD: numbers of a release are looked up in the sets of all
values that a clean gradient plus noise can take for each of the two. `experiments.attacks` has it for exact noise.

Axes: n parameters, N runs.
"""

from functools import cache
from typing import Any

import jax
import numpy as np

import jdfl
from experiments.attack_worlds import ALONE, Attack, Claim, claim, regression, shown
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl.auditing.bits import float_scores
from jdfl.problems import LinearRegression

ENTRIES, MULTIPLIER = 12, 50.0
EXACT, FLOAT = jdfl.ExactGaussian(MULTIPLIER), jdfl.Gaussian(MULTIPLIER)


def _descent(**fields: Any) -> Any:
    return jdfl.DPSGD(lr=1.0, gradients=jdfl.Gradients(clip=1.0, **fields))


def _world(world: int) -> LinearRegression:
    return regression(world, n=ENTRIES)


def _released(ready: Any, state: Any, _: Any) -> jax.Array:
    """Node 0's noisy gradient [n]: the parameters were zero, and the step size is 1."""
    return -ready.params(state)[0]


@cache
def _clean(world: int) -> float:
    """The entries of the clean gradient in a world, which are all equal."""
    return float(shown(_descent(), _world(world), ALONE, 1, 1, 0, _released)[0, 0])


def scores(world: int, runs: int, seed: int, mechanism: Any = EXACT) -> np.ndarray:
    """How many numbers of a release are only in the set of the second world, plus their sum [N]."""
    seen = shown(_descent(mechanism=mechanism), _world(world), ALONE, 1, runs, seed, _released).astype(np.float32)
    scale = MULTIPLIER * _descent(mechanism=mechanism).gradients.sensitivities(_world(world))[0]
    return float_scores(seen, _clean(0), _clean(1), scale)


def bits() -> Attack:
    """The attack on exact noise."""

    def claimed() -> Claim:
        return claim(_descent(mechanism=EXACT), _world(0), ALONE, 1)

    return Attack("epsilon holds for an observer of every bit", claimed, scores, runs=100_000)


def rows(runs: dict[Any, int]) -> list[Row]:
    """The share of releases, of both worlds, for which the sign of the score names the wrong one."""
    made = []
    for mechanism, count in runs.items():
        zero, other = (scores(world, count, world, mechanism) for world in (0, 1))
        wrong = [float((zero > 0).mean()), float((other <= 0).mean())]
        made.append(row(f"{type(mechanism).__name__}, {count:,} releases", "share of errors", None, wrong))
    return made


@experiment(seeds=1)
def main(chosen: Options) -> Made:
    """A thousand releases of float noise and a hundred thousand of exact noise, or fewer with `--quick`."""
    epsilon = claim(_descent(mechanism=FLOAT), _world(0), ALONE, 1).epsilon
    made = rows({FLOAT: 200, EXACT: 2_000} if chosen.quick else {FLOAT: 1_000, EXACT: 100_000})
    title = f"Errors of the attack, on {ENTRIES} numbers of epsilon {epsilon:.4f} by their noise"
    return Made({title: made}, bars(made, ["share of errors"], "share of releases attributed to the wrong world"))
