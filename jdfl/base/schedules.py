"""Step sizes that depend on the round: functions of its number, such as the schedules of optax.

A dataclass of settings keeps a function given as `lr` as a `jdfl.base.struct.StepSizeSchedule`. `at` puts a number in
its place: the value of a round where a step is traced, and the largest value where settings are checked.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import checks
from jdfl.base.struct import StepSizeSchedule

T = TypeVar("T")
_AT_ONCE = 2**20  # rounds
_ROUNDING = 1e-5  # of the largest value
_REMEDY = (
    "Give a schedule of optax, such as optax.cosine_decay_schedule(0.1, 300), or a function of the round k that JAX "
    "can trace, with jnp.where in place of if, such as lambda k: jnp.where(k < 100, 0.1, 0.05)."
)


def values(schedule: StepSizeSchedule, steps: int, name: str = "lr") -> np.ndarray:
    """The values of a schedule in the first rounds [steps], on the host; ValueError unless finite and not negative."""
    checks.integer(1, steps=steps)
    try:
        hash(schedule.function)
        like = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), jnp.int32))
    except Exception as error:  # whatever the function does
        said = f"{type(error).__name__}: {checks.message(error).partition(chr(10))[0]}"
        raise ValueError(f"Expected {name}(k) to be a number in every round k, got {said}. {_REMEDY}") from error
    if like.shape or like.dtype.kind not in "fiu":
        checks.refuse("one number in every round", f"{name}(k)", like, _REMEDY)
    rounds = [jnp.arange(first, min(steps, first + _AT_ONCE)) for first in range(0, steps, _AT_ONCE)]
    found = np.concatenate([np.asarray(jax.jit(jax.vmap(schedule))(some), float) for some in rounds])
    for k in np.flatnonzero(~((found >= 0) & np.isfinite(found)))[:1]:
        checks.refuse("a finite number >= 0 in every round", f"{name}({k})", float(found[k]), _REMEDY)
    return found


class Largest(float):
    """The largest value of a schedule."""


def schedules(tree: Any) -> list[StepSizeSchedule]:
    """All schedules in a tree."""
    return [one for one in jax.tree.leaves(tree, is_leaf=_is_schedule) if _is_schedule(one)]


def at(tree: T, value: Callable[[StepSizeSchedule], Any]) -> T:
    """The tree with a value in place of every schedule; the same tree where there is none."""
    if not schedules(tree):
        return tree
    return jax.tree.map(lambda one: value(one) if _is_schedule(one) else one, tree, is_leaf=_is_schedule)


def largest(tree: T, steps: int) -> T:
    """The tree with the largest value in the first rounds in place of every schedule; ValueError for invalid ones."""
    return at(tree, lambda one: Largest(values(one, steps).max()))


def bounds(value: Any, steps: int) -> Array | None:
    """Upper bounds [steps] of a schedule, which devices may round otherwise, in the first rounds; None for a number.

    Claims whose sensitivity depends on a step size read them in a plan, since a step has the values alone.
    """
    if not _is_schedule(value):
        return None
    found = values(value, steps)
    return jnp.asarray(found + _ROUNDING * found.max())


def _is_schedule(value: Any) -> bool:
    return isinstance(value, StepSizeSchedule)
