"""Messages with Laplace noise on a public schedule: the common part of DPDO and CPGT.

Axes: m nodes, n parameters, T rounds.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.gradients import Gradients
from jdfl.privacy import NO_NOISE, Guarantee


def check_gradients(method: str, gradients: Gradients, place: str) -> None:
    """Raise ValueError for noise on gradients as well as on messages, whose noise is set at `place`."""
    if gradients.mechanism is not None:
        raise ValueError(
            f"Expected gradients without noise for {method}, which adds it to messages, got mechanism = "
            f"{gradients.mechanism!r}. Give {place} instead."
        )


def at(schedule: Array, k: Array) -> Array:
    """Row k of a schedule [T, ...]; the last row beyond its end."""
    return schedule[jnp.minimum(k, schedule.shape[0] - 1)]


def upwards(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The numbers x [...] rounded up to a narrower type; infinite beyond its range."""
    with np.errstate(over="ignore"):
        found = x.astype(dtype)
    return np.where(found.astype(float) < x, np.nextafter(found, dtype.type(np.inf)), found)


def unclaimed(gradients: Gradients) -> Guarantee:
    """The guarantee of noisy messages where nothing bounds them."""
    reason = "gradients are not clipped, so nothing bounds what a node's data change in a message"
    return replace(NO_NOISE, observer="all messages", reason=reason, remedy='Use Gradients(clip=..., per="batch").')


def faint(noise: np.ndarray, change: np.ndarray, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """A warning where the noise [..., T] of messages with change [..., T] > 0 is below their rounding."""
    lost = np.flatnonzero(np.any((change > 0) & (noise < np.finfo(dtype).eps), axis=tuple(range(noise.ndim - 1))))
    if not lost.size:
        return ()
    return (
        f"from round {lost[0]} on the noise is below the rounding of {dtype.name} for numbers around 1, and rounding "
        "itself may reveal data; run fewer rounds, or use noise that decays more slowly",
    )
