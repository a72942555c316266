"""The laws that methods build on: how much of any vector arrives at least, and whether it does so on average."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.codecs import round_trip

N, S, DRAWS = 49, 3, 1500
SMALL = 2.0**-25  # what float16 rounds to zero


def spread(first: float, rest: float) -> np.ndarray:
    return np.array([first, *[rest] * (N - 1)])


ONE, EQUAL, SQUARE = spread(1, 0), np.ones(N), np.eye(7).ravel()
HALVES = np.array([1.5] * 18 + [0.5] * 31)  # l2 levels of 7: as far from every level as can be
UNEVEN = spread(1, 1 / (2 * (1 + np.sqrt(1 + 48 / 4))))  # the worst for two levels of the largest
LOST = 1 - (2 / (1 + 7 / 3) - (7 / 3) / (1 + 7 / 3) ** 2)  # QSGD with 3 levels, divided by 1 + 7 / 3; variance 4 / 3


@dataclass
class Law:
    """A codec, its largest mean error E ||C(x) - x||^2 / ||x||^2, the vector that has it, the most in one draw."""

    codec: Any
    error: float
    worst: np.ndarray
    most: float = 0.0  # 0: nothing is drawn


LAWS = {
    "dense": Law(jdfl.Dense(), 0.0, ONE),
    "dense float16": Law(jdfl.Dense("float16"), 48 / (2**22 + 48), spread(2.0**-14, SMALL)),
    "dense bfloat16": Law(jdfl.Dense("bfloat16"), 2.0**-16, EQUAL * (1 + 2.0**-8)),
    "sparse": Law(jdfl.Sparse(), 1 - 3 / N, EQUAL),
    "sparse, leaves": Law(jdfl.Sparse(share=0.1, leaves=(40, 9)), 1 - 4 / 40, np.repeat([1, 0], (40, 9))),
    "sparse int8": Law(jdfl.Sparse(s=N, value="int8"), 48 / (254**2 + 48), spread(254, 1)),
    "sparse int4": Law(jdfl.Sparse(s=N, value="int4"), 48 / (14**2 + 48), spread(14, 1)),
    "random-k": Law(jdfl.RandomK(k=10), 1 - 10 / N, EQUAL, 1.0),
    "random-k scaled": Law(jdfl.RandomK(k=10, scaled=True), 3.9, EQUAL, 3.9**2),
    "random-k most, scaled": Law(jdfl.RandomK(k=40, scaled=True), 9 / 40, EQUAL, 1.0),
    "qsgd": Law(jdfl.QSGD(levels=3), 4 / 3, EQUAL, N / 9),
    "qsgd, fine": Law(jdfl.QSGD(levels=7), 0.25, HALVES, 1.0),
    "qsgd scaled": Law(jdfl.QSGD(levels=3, scaled=True), LOST, EQUAL, 2 + N / 9),
    "qsgd max": Law(jdfl.QSGD(levels=2, norm="max"), (np.sqrt(13) - 1) / 2, UNEVEN, 12.0),
    "qsgd max scaled": Law(jdfl.QSGD(levels=2, norm="max", scaled=True), 1 - 2 / (np.sqrt(13) + 1), UNEVEN, 12.0),
    "sign": Law(jdfl.Sign(), 1 - 1 / N, ONE),
    "low-rank": Law(jdfl.LowRank(rank=2), 1 - 2 / 7, SQUARE, 1.0),
    "low-rank, flat": Law(jdfl.LowRank(height=3), 1 - 1 / 3, np.eye(3, 17).ravel()[:N], 1.0),
}
laws = pytest.mark.parametrize("name", LAWS)
_round_trip = jax.jit(round_trip)


def vectors(law: Law) -> np.ndarray:
    """The worst one first, then equal, lonely, Gaussian entries, matrices of low rank, and tails of all weights."""
    draw = np.random.default_rng(7)
    tails = [np.sign(g) * np.abs(g) ** power for power in (0.3, 1, 5) for g in draw.standard_normal((3, N))]
    rank_one = np.outer(draw.standard_normal(7), draw.standard_normal(7)).ravel()
    chosen = [law.worst, EQUAL, ONE, SQUARE, HALVES, UNEVEN, rank_one, spread(14, 1), spread(254, 1), *tails]
    return np.asarray(chosen, np.float32)


@cache
def arrivals(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Vectors [v, n], and what arrives of them, DRAWS times or once if nothing is drawn: [v, draws, n] float64."""
    law = LAWS[name]
    x, draws = vectors(law), DRAWS if law.most else 1
    ready = law.codec.prepare(jax.random.key(1), jnp.arange(4, dtype=jnp.int32), N, S, jnp.float32)
    keys = jax.random.split(jax.random.key(2), len(x) * draws)
    arrived = _round_trip(ready, keys, jnp.repeat(jnp.asarray(x), draws, axis=0))
    return x, np.asarray(arrived, np.float64).reshape(len(x), draws, N)


def deviation(samples: np.ndarray, most: np.ndarray | float) -> np.ndarray:
    """How far the mean over axis 1 of samples within a range of `most` is from the expectation, but for 1 in 10^9.

    The empirical Bernstein bound (A. Maurer, M. Pontil, 2009), on both sides.
    """
    log, draws = np.log(4e9), samples.shape[1]
    if draws == 1:
        return np.zeros_like(samples[:, 0])
    return np.sqrt(2 * samples.var(axis=1, ddof=1) * log / draws) + 7 * np.asarray(most) * log / (3 * (draws - 1))


@laws
def test_no_vector_loses_more_than_the_law_allows_and_the_worst_one_loses_that(name):
    law = LAWS[name]
    law.codec.check(N, 4, S)
    found = law.codec.contraction(N, S)
    assert (found is None) == (law.error >= 1)
    assert found is None or found == pytest.approx(1 - law.error, rel=1e-4)
    x, arrived = arrivals(name)
    exact = x[:, None].astype(np.float64)
    errors = np.sum((arrived - exact) ** 2, axis=2) / np.sum(exact**2, axis=2)
    if law.most:
        assert errors.max() <= law.most * (1 + 1e-5)
    mean, doubt = errors.mean(axis=1), deviation(errors, law.most)
    assert (mean <= law.error * (1 + 1e-4) + doubt).all()
    assert mean[0] >= 0.98 * law.error - doubt[0]


def step(codec: Any, x: np.ndarray) -> np.ndarray:
    """The range of what may arrive of every entry of the vectors x [v, n]."""
    if isinstance(codec, jdfl.RandomK):
        return np.abs(x) * N / codec.k
    if isinstance(codec, jdfl.QSGD):
        size = np.abs(x).max(axis=1) if codec.norm == "max" else np.linalg.norm(x, axis=1)
        return np.repeat(size[:, None] / codec.levels, N, axis=1)
    return np.zeros_like(x)


UNBIASED = ("dense", "random-k scaled", "random-k most, scaled", "qsgd", "qsgd, fine", "qsgd max")


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_codecs_are_right_on_average(name):
    x, arrived = arrivals(name)
    most = step(LAWS[name].codec, x.astype(np.float64))
    assert (np.ptp(arrived, axis=1) <= most * (1 + 1e-4)).all()
    rounding = 1e-5 * np.abs(x).max(axis=1, keepdims=True)
    assert (np.abs(arrived.mean(axis=1) - x) <= deviation(arrived, most) + rounding).all()


def test_the_others_are_not_and_qsgd_divides_by_the_published_constant():
    assert {name for name, law in LAWS.items() if law.codec.unbiased} == set(UNBIASED)
    assert not jdfl.OneBit(d=5).unbiased
    assert jdfl.OneBit(d=5).contraction(N, S) is None  # what arrives may be worse than nothing
    for name in ("sparse", "sign", "random-k", "low-rank"):
        x, arrived = arrivals(name)
        assert (np.abs(arrived.mean(axis=1) - x) > deviation(arrived, 0.0) + 0.01 * np.abs(x).max()).any()
    for levels, n in ((1, 1000), (4, 1000), (127, 1000), (3, 4), (1, 1)):
        omega = min(n / levels**2, np.sqrt(n) / levels)
        assert jdfl.QSGD(levels).omega(n) == pytest.approx(omega)
        assert jdfl.QSGD(levels).variance(n) <= omega
        assert jdfl.QSGD(levels, scaled=True).contraction(n, n) >= 1 / (1 + omega)
        largest = jdfl.QSGD(levels, scaled=True, norm="max")
        assert largest.contraction(n, n) == pytest.approx(1 / (1 + largest.omega(n)))
