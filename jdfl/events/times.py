"""Times on the host: drawn ones, and known ones as whole numbers of a common unit, without rounding errors.

A drawn time follows from a node and the number of its event, whatever the schedule. A known time is the shortest
decimal that its float stands for: 0.1 is one tenth. Whole numbers below 2^53 are kept in float64, which adds them
exactly; larger ones are Python's.

Axes: m nodes, K times of each, k nodes of them, E events.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import lcm
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.network import FixedTime, Timed, Times, TimeTrace
from jdfl.network.links import Sizes

_WHOLE = 2.0**53  # float64 has all whole numbers up to it
_MOST = 10**300  # units until the last second; beyond it times are added as floats


def sample_times(times: Times, key: Array, node: np.ndarray, count: np.ndarray, size: int = 1) -> np.ndarray:
    """Times [k, size] float64 of nodes [k]: those with the numbers count [k], count + 1, ..."""
    found = np.empty((len(node), size))
    if isinstance(times, FixedTime):
        found[:] = float(str(np.asarray(times.seconds)))
    else:
        _fill(found, partial(_sample_times, times, key, size=size), node, count)
    return found


def shares(key: Array, node: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Numbers [k] in [0, 1), one for every node [k] and count [k]."""
    found = np.empty(len(node), np.float32)
    _fill(found, partial(_share, key), node, count)
    return found


def _fill(
    found: np.ndarray, draw: Callable[[Array, Array], Array], node: np.ndarray, count: np.ndarray, block: int = 2**16
) -> None:
    """Put draws for nodes [k] and counts [k] into `found` [k, ...], in blocks of powers of two, for few programs."""
    for start in range(0, len(node), block):
        some = node[start : start + block], count[start : start + block]
        size = 1 << max(6, (len(some[0]) - 1).bit_length())
        drawn = draw(*(jax.device_put(np.resize(one, size).astype(np.int32)) for one in some))
        found[start : start + block] = np.asarray(drawn)[: len(some[0])]


@partial(jax.jit, static_argnames=("size",))
def _sample_times(times: Times, key: Array, node: Array, count: Array, *, size: int) -> Array:
    def of(node: Array, count: Array) -> Array:
        return times.of_node(jax.random.fold_in(jax.random.fold_in(key, node), count), node, count)

    counts = count[:, None] + jnp.arange(size, dtype=jnp.int32)[None]
    return jax.vmap(jax.vmap(of, (None, 0)))(node, counts)


@jax.jit
def _share(key: Array, node: Array, count: Array) -> Array:
    def of(node: Array, count: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, node), count), (), jnp.float32)

    return jax.vmap(of)(node, count)


def decimal(value: Any) -> Fraction:
    """The shortest decimal that a float stands for."""
    return Fraction(str(np.asarray(value)[()]))


def decimals(values: Any) -> tuple[np.ndarray, int]:
    """Whole numbers of the shape of `values`, and their common unit: values = numbers / unit."""
    given = np.asarray(values)
    given = given if np.issubdtype(given.dtype, np.floating) else given.astype(float)
    for power in range(16):
        unit = 10.0**power
        number = np.rint(given.astype(float) * unit)
        if (np.abs(number) < _WHOLE).all() and ((number / unit).astype(given.dtype) == given).all():
            return number.astype(np.int64).astype(object), 10**power
    exact = [decimal(one) for one in given.ravel()]
    unit = lcm(*(one.denominator for one in exact))
    numbers = np.array([one.numerator * (unit // one.denominator) for one in exact], object)
    return numbers.reshape(given.shape), unit


def units(second: np.ndarray, unit: int, kind: np.dtype[Any]) -> np.ndarray:
    """Whole seconds [k] as multiples of a unit, of the dtype `kind`; infinite ones stay."""
    if kind.kind != "O":
        return second * unit
    return np.array([int(one) * unit if np.isfinite(one) else one for one in second], object)


@dataclass(frozen=True)
class Exact:
    """The times of nodes, in units of 1 / `unit` seconds."""

    unit: int
    compute: np.ndarray  # [m, K] or [1, K]: of what a node computes before an event, one after another, from the first
    travel: np.ndarray  # [m] or [1]: of a message
    last: Any  # the last time, included

    def waits(self, node: np.ndarray, first: int, size: int) -> np.ndarray:
        """What nodes [k] compute, and their messages: numbers first, first + 1, ... [k, size]."""
        number = (first + np.arange(size)) % self.compute.shape[1]
        return _of(self.compute, node)[:, number] + _of(self.travel, node)[:, None]

    def of(self, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first thing that nodes [L, K] compute and their messages, each [L, K]."""
        return _of(self.compute[:, 0], node), _of(self.travel, node)

    def seconds(self, number: np.ndarray) -> np.ndarray:
        """Multiples of the unit in seconds: the nearest floats."""
        return (number / self.unit).astype(float)

    def arrivals(self, time: np.ndarray, sender: np.ndarray) -> np.ndarray:
        """When messages arrive that nodes [E] send at times [E], in seconds."""
        if self.compute.dtype.kind == "O":
            return time + self.seconds(_of(self.travel, sender))
        return self.seconds(np.rint(time * self.unit) + _of(self.travel, sender))


def _of(table: np.ndarray, node: np.ndarray) -> np.ndarray:
    return table[node] if len(table) > 1 else np.broadcast_to(table[:1], (*node.shape, *table.shape[1:]))


def known(network: Timed, seconds: float, *, gradients: int = 1, messages: bool = True) -> Exact | None:
    """The times of a network in a run until a time, if all of them are known; None: some are random."""
    times, late, slow = network.compute, network.latency, network.slowness
    measured = isinstance(times, TimeTrace)
    if not isinstance(times, FixedTime | TimeTrace) or not (slow is None or isinstance(slow, np.ndarray)):
        return None
    if messages and not isinstance(late, FixedTime):
        return None
    compute, first = decimals(times.seconds if measured else [[times.seconds]])
    factor, second = decimals([1] if slow is None else slow)
    compute = gradients * compute * factor[:, None]
    travel, third = np.zeros(1, object), 1
    if messages:
        assert isinstance(late, FixedTime)
        sizes = network.bits.bits if isinstance(network.bits, Sizes) else (network.bits,)
        each = Fraction(0) if np.isinf(network.bandwidth) else 1 / decimal(network.bandwidth)  # seconds of a bit
        whole = {size: decimal(late.seconds) + int(size) * each for size in set(sizes)}
        third = lcm(*(one.denominator for one in whole.values()))
        travel = np.array([int(whole[size] * third) for size in sizes], object)
    end = decimal(seconds)
    unit = lcm(first * second, third)
    compute, travel, last = compute * (unit // (first * second)), travel * (unit // third), int(end * unit)
    largest = last + int(compute.max()) + int(travel.max())
    if largest >= _MOST or unit >= _MOST:
        return None
    if max(largest, unit) >= _WHOLE:
        return Exact(unit, compute, travel, last)
    return Exact(unit, compute.astype(float), travel.astype(float), float(last))
