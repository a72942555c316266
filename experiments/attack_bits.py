"""Bits of noise: how often the last bits of a release tell which of two datasets it comes from.

The attack of `jdfl.audit_bits`, applied to whole steps of D-PSGD: numbers of a release are looked up in the sets of all
values that a clean gradient plus noise can take for each of the two. `experiments.attacks` has it for exact noise.

Axes: n parameters, N runs.
"""

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

import jdfl
from experiments.attack_worlds import ALONE, Attack, Claim, claim, regression, shown
from experiments.common import Row, options, row, save, save_figure, show
from jdfl.auditing.bits import float_scores
from jdfl.problems import LinearRegression

NAME = "attack_bits"
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


def draw(made: Sequence[Row], path: str) -> None:
    """A bar per kind of noise, and a line at the half that guessing gets wrong."""
    fig = Figure(figsize=(5.0, 2.6), layout="constrained")
    axis = fig.subplots()
    axis.barh([one.case for one in made], [one.mean for one in made], color="0.6")
    axis.axvline(0.5, color="black", linestyle="--", label="guessing")
    axis.set(xlabel="share of releases attributed to the wrong world", xlim=(0, 1))
    axis.legend(frameon=False)
    save_figure(fig, path)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Print the table, write the JSON and the figure."""
    given = options(__doc__ or "", seeds=1, arguments=arguments)
    epsilon = claim(_descent(mechanism=FLOAT), _world(0), ALONE, 1).epsilon
    made = rows({FLOAT: 200, EXACT: 2_000} if given.quick else {FLOAT: 1_000, EXACT: 100_000})
    show(f"Errors of the attack, on {ENTRIES} numbers of epsilon {epsilon:.4f} by their noise", made)
    save(made, given.out, NAME)
    draw(made, str(given.out / f"{NAME}.png"))
    return made


if __name__ == "__main__":
    main(sys.argv[1:])
