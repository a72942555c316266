"""How long things take: distributions of times, and times that were measured.

Axes: m nodes, K times of each.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import checks, struct
from jdfl.base.arguments import checked, settings
from jdfl.base.names import NodeNames, labels_of, names_of
from jdfl.base.settings import NotNegative, Positive


class Times(ABC):
    """A distribution of times, or of factors of times: a dataclass of settings that can be sampled."""

    @abstractmethod
    def draw(self, key: Array) -> Array:
        """One positive float32 number [] drawn with a key []."""

    def of_node(self, key: Array, node: Array, count: Array) -> Array:
        """The time [] number `count` [] of a node []: one that is drawn with a key [], unless it is known."""
        return self.draw(key)

    def check(self, name: str) -> None:
        """Check the settings; `name` says what the times are. Raises ValueError for settings out of range."""
        settings(self, f"{name}.")


@struct.dataclass
class FixedTime(Times):
    """A constant time, in seconds."""

    seconds: NotNegative = 1.0
    """The time, from 0, in seconds."""

    def draw(self, key: Array) -> Array:
        """The constant time [], whatever the key []."""
        return jnp.float32(self.seconds)


@struct.dataclass
class ExponentialTime(Times):
    """Exponentially distributed times: mean and standard deviation are equal."""

    mean: Positive = 1.0
    """Mean, above 0, in seconds."""

    def draw(self, key: Array) -> Array:
        """One time [] drawn with a key []."""
        return self.mean * jax.random.exponential(key, (), jnp.float32)


@struct.dataclass
class LogNormalTime(Times):
    """Log-normal times: the median times exp(N(0, sigma^2))."""

    median: Positive = 1.0
    """Median, above 0, in seconds."""
    sigma: Positive = 1.0
    """Standard deviation of the logarithm, above 0."""

    def draw(self, key: Array) -> Array:
        """One time [] drawn with a key []."""
        return self.median * jnp.exp(self.sigma * jax.random.normal(key, (), jnp.float32))


@struct.dataclass
class ParetoTime(Times):
    """Pareto (heavy-tailed) times: P(T > t) = (least / t)^shape for t >= least; the mean is infinite for shape <= 1."""

    least: Positive = 1.0
    """Shortest time, above 0, in seconds."""
    shape: Positive = 2.0
    """Tail exponent, above 0; smaller means heavier."""

    def draw(self, key: Array) -> Array:
        """One time [] drawn with a key []."""
        return self.least * jnp.exp(jax.random.exponential(key, (), jnp.float32) / self.shape)


@struct.dataclass
class TimeTrace(Times):
    """Times that were measured: those of node i's gradients, one after another. `time_trace` builds it."""

    seconds: Any = struct.field(per_node=True)  # [m, K], on the host: float32 would not have the decimals given
    names: NodeNames = struct.field(pytree_node=False, default=NodeNames())  # of the rows
    cycle: bool = struct.field(pytree_node=False, default=False)
    """Whether the first time follows the last one."""

    def draw(self, key: Array) -> Array:
        """There is nothing to draw: ValueError."""
        raise ValueError(
            "Expected times that can be drawn, got a TimeTrace, which has those of gradients only. Use it as compute, "
            "and with methods whose nodes compute one gradient after another."
        )

    def of_node(self, key: Array, node: Array, count: Array) -> Array:
        """The time [] number `count` [] of a node []; after the last one the first follows."""
        return jnp.asarray(self.seconds, jnp.float32)[node, count % self.seconds.shape[1]]

    def check(self, name: str) -> None:
        """Refuse it as anything but compute times, by the `name` of what the times are; raises ValueError."""
        if name != "compute":
            raise ValueError(f"Expected a distribution for {name}, got a TimeTrace, which is for compute. Use others.")


@checked
def time_trace(
    seconds: Array | np.ndarray | Sequence[Sequence[float]] | Mapping[Any, Sequence[float]], *, cycle: bool = False
) -> TimeTrace:
    """Times of gradients that were measured, for `timed(compute=...)`.

    In round k a node takes time number k; in asynchronous methods its gradients take one after another.

    Args:
        seconds ([m, K]): The times of every node, above 0, in seconds, in the order of the nodes; a dict or a DataFrame
            has the names of nodes as keys or index, and the times in the order of its columns.
        cycle: Whether the first time follows the last one; otherwise a run that needs more is refused.

    Raises:
        ValueError: For times that are not positive and finite, and for another shape.
    """
    labels, names = labels_of(seconds), NodeNames()
    if labels is not None and type(labels).__name__ != "RangeIndex":
        names = NodeNames(names_of("seconds", labels))
    rows: Any = list(seconds.values()) if isinstance(seconds, Mapping) else seconds
    if np.ndim(rows) != 2 or 0 in np.shape(rows):
        raise ValueError(f"Expected seconds of the shape (m, K), got {np.shape(rows)}. Give a row for every node.")
    checks.positive(seconds=rows)
    return TimeTrace(floats(rows), names, cycle)


def floats(given: Any) -> np.ndarray:
    """A copy on the host that has the decimals that were given: float32 stays, all else is float64."""
    return np.array(given, np.float32 if getattr(given, "dtype", None) == np.float32 else np.float64)
