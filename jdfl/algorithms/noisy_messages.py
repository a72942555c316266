"""Messages with Laplace noise by a public schedule: what DPDO and CPGT share.

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
    """ValueError for noise of gradients beside that of messages, which is set at `place`."""
    if gradients.mechanism is not None:
        raise ValueError(
            f"Expected gradients without noise for {method}, which adds it to messages, got mechanism = "
            f"{gradients.mechanism!r}. Give {place} instead."
        )


def at(schedule: Array, k: Array) -> Array:
    """Row k of a schedule [T, ...]; the last one from there on."""
    return schedule[jnp.minimum(k, schedule.shape[0] - 1)]


def upwards(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The numbers x [...] in a narrower type, none of them smaller; infinite beyond its range."""
    with np.errstate(over="ignore"):
        found = x.astype(dtype)
    return np.where(found.astype(float) < x, np.nextafter(found, dtype.type(np.inf)), found)


def unclaimed(gradients: Gradients) -> Guarantee:
    """What may be said of noisy messages where nothing bounds them."""
    reason = "gradients are not clipped, so nothing bounds what a node's data change in a message"
    return replace(NO_NOISE, observer="all messages", reason=reason, remedy='Use Gradients(clip=..., per="batch").')


def faint(noise: np.ndarray, change: np.ndarray, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """A warning where noise [..., T] of messages that depend on data, change [..., T] > 0, is below their rounding."""
    lost = np.flatnonzero(np.any((change > 0) & (noise < np.finfo(dtype).eps), axis=tuple(range(noise.ndim - 1))))
    if not lost.size:
        return ()
    return (
        f"from round {lost[0]} on the noise is below what {dtype.name} rounds of numbers around 1, and rounding itself "
        "may tell of the data; make fewer rounds, or noise that fades more slowly",
    )
