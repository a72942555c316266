"""Messages with Laplace noise by a public schedule: what DPDO and CPGT share.

Axes: m nodes, n parameters, T rounds.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.gradients import Gradients
from jdfl.base import Round
from jdfl.privacy import NO_NOISE, Guarantee, Laplace
from jdfl.problems import Problem
from jdfl.streams import Stream


def check_gradients(method: str, gradients: Gradients, problem: Problem, place: str) -> None:
    """ValueError for gradients out of range, and for noise of their own beside that of messages, set at `place`."""
    gradients.check(problem)
    if gradients.mechanism is not None:
        raise ValueError(
            f"Expected gradients without noise for {method}, which adds it to messages, got mechanism = "
            f"{gradients.mechanism!r}. Give {place} instead."
        )


def at(schedule: Array, k: Array) -> Array:
    """Row k of a schedule [T, ...]; the last one from there on."""
    return schedule[jnp.minimum(k, schedule.shape[0] - 1)]


def noisy(x: Array, scales: Array | None, round: Round, stream: Stream) -> Array:
    """The rows of x [m, n] with Laplace noise of `stream` and of this round's scale, of scales [T].

    Without scales they are as they were.
    """
    if scales is None:
        return x
    return jax.vmap(Laplace(at(scales, round.k)).add, (0, 0, None))(round.keys(stream), x, 1.0)


def upwards(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The numbers x [...] in a narrower type, none of them smaller; infinite beyond its range."""
    with np.errstate(over="ignore"):
        found = x.astype(dtype)
    return np.where(found.astype(float) < x, np.nextafter(found, dtype.type(np.inf)), found)


def unclaimed(gradients: Gradients) -> Guarantee:
    """What may be said of noisy messages where nothing bounds them, or nothing is known of their noise."""
    if gradients.clip is None:
        reason = "gradients are not clipped, so nothing bounds what a node's data change in a message"
        return replace(NO_NOISE, observer="all messages", reason=reason, remedy='Use Gradients(clip=..., per="batch").')
    reason = "no schedule of noise has been made for these rounds"
    return replace(NO_NOISE, observer="all messages", reason=reason, remedy="Call plan with the number of rounds.")


def faint(noise: np.ndarray, change: np.ndarray, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """A warning where noise [..., T] of messages that depend on data, change [..., T] > 0, is below their rounding."""
    lost = np.flatnonzero(np.any((change > 0) & (noise < np.finfo(dtype).eps), axis=tuple(range(noise.ndim - 1))))
    if not lost.size:
        return ()
    return (
        f"from round {lost[0]} on the noise is below what {dtype.name} rounds of numbers around 1, and rounding itself "
        "may tell of the data; make fewer rounds, or noise that fades more slowly",
    )
