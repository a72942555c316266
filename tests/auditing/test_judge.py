"""Laws of the tests that an audit makes: under the null their p-values are no smaller than they say, and each fires.

Arrays are as in `jdfl.auditing.judge`: N runs, T rounds, m nodes, n numbers.
"""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import scipy

from jdfl.auditing import judge
from jdfl.auditing.judge import LEVEL, Finding, fired, judge_changes, judge_counts, judge_hits, judge_residuals

SHAPE = N, T, M, n = 60, 3, 2, 4
TIMES, LEVELS = 250, (0.5, 0.1, 0.02)
PRECISION = 1e-7
SHARE, PLACES = np.array([0.3, 0.5]), 4


def _residuals(rng: np.random.Generator, gaussian: bool, missing: float) -> list[Finding]:
    z = rng.normal(size=SHAPE) if gaussian else rng.laplace(size=SHAPE)
    live = np.broadcast_to(rng.random((N, T, M, 1)) >= missing, SHAPE)
    return judge_residuals(np.where(live, z, 0.0), live, gaussian, PRECISION)


def _hits(rng: np.random.Generator, poisson: bool, places: int = PLACES) -> list[Finding]:
    """Each of so many records by chance, or half of them."""
    draws = rng.random((places, N, T, M))
    hit = draws < SHARE if poisson else draws.argsort(axis=0) < places // 2
    share = SHARE if poisson else np.full(M, 0.5)
    return judge_hits(hit, share, rng.random(hit.shape) > 0.1, poisson)


NULL = {
    "Gaussian": lambda rng: _residuals(rng, True, 0.0),
    "Gaussian, nodes missing now and then": lambda rng: _residuals(rng, True, 0.2),
    "Laplace": lambda rng: _residuals(rng, False, 0.0),
    "Poisson": lambda rng: _hits(rng, True),
    "subset": lambda rng: _hits(rng, False),
}


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", list(NULL))
def test_p_values_are_no_smaller_than_they_say(name):
    """Of single tests, and of the smallest of a family and of all after Bonferroni's correction."""
    rng = np.random.default_rng(1)
    single, smallest = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for _ in range(TIMES):
        told, families = NULL[name](rng), defaultdict[str, list[float]](list)
        for one in told:
            assert 0 <= one.p <= 1
            families[one.family].append(one.p)
        for family, ps in families.items():
            single[family].append(ps[0])
            smallest[family].append(min(ps) * len(ps))
        smallest["all"].append(min(one.p for one in told) * len(told))
    assert len(smallest) > 1
    for ps in (*single.values(), *smallest.values()):
        for level in LEVELS:  # within four standard deviations
            assert np.mean(np.array(ps) < level) <= level + 4 * np.sqrt(level * (1 - level) / TIMES)
    for family in {"residual scale", "residual shape", "residual covariance", "residual magnitudes"} & set(single):
        assert scipy.stats.kstest(single[family], "uniform").pvalue > 1e-4  # these are exact, or nearly so


def test_the_level_is_shared_by_all_tests():
    told = [Finding("leak", "", p) for p in (1e-9, 0.9 * LEVEL / 4, 1.1 * LEVEL / 4, 0.5)]
    found = fired(told)
    assert [one.p for one in found] == [1e-9, 0.9 * LEVEL / 4]
    assert all(one.level == LEVEL / 4 for one in found)
    assert fired([]) == ()


Z = np.random.default_rng(2).normal(size=(200, 3, 2, 4))
SIGNS = np.where(np.random.default_rng(3).normal(size=Z.shape) > 0, 1, -1)
WRONG = {
    "one number bare": ("residual scale", Z * np.array([1, 0, 1, 1])),
    "uniform": ("residual shape", np.random.default_rng(4).uniform(-(3**0.5), 3**0.5, Z.shape)),
    "shared by nodes": ("residual covariance", Z[:, :, [0, 0]]),
    "shared by runs": ("residual covariance", Z[np.arange(200) // 2 * 2]),
    "sizes shared by nodes": ("residual magnitudes", np.abs(Z[:, :, [0, 0]]) * SIGNS),
    "on a grid": ("residual collisions", np.round(64 * Z) / 64),
}


def test_wrong_residuals_fire():
    for family, z in WRONG.values():
        assert family in {one.family for one in fired(judge_residuals(z, np.ones(z.shape, bool), True, PRECISION))}
    heavy, one = np.random.default_rng(5).laplace(size=Z.shape), Z[:1, :1, :1]
    assert [bool(fired(judge_residuals(heavy, heavy != 0, law, PRECISION))) for law in (False, True)] == [False, True]
    assert "residual scale" not in {told.family for told in judge_residuals(one, one != 0, True, PRECISION)}  # too few
    told = judge.judge_sums(Z * np.array([1, 0.5])[:, None], Z)  # of half the noise at the second node
    assert [one.p < LEVEL for one in told] == 3 * [False, True]
    assert judge.judge_sums(Z[:19], Z[:19]) == judge.judge_sums(Z, 0 * Z) == []


def _at(x: np.ndarray, place: Any, value: float) -> np.ndarray:
    x[place] = value
    return x


def _changes(**options: Any) -> set[str]:
    """The families that fire for a record of node 1 that moves its numbers by .25 units in all, of .25."""
    change = np.zeros((5, M, 2, n))
    change[:, 1, 0] = 0.125
    scale = np.zeros((5, M, 2, n))
    scale[:, :, 0] = 1.0
    own = np.zeros((5, M), bool)
    own[:, 1] = True
    given = {"change": change, "scale": scale, "other": scale, "own": own, "order": 2, "largest": 0.25}
    given |= {name: value({k: np.array(v) for k, v in given.items()}) for name, value in options.items()}
    told = judge_changes(**given, precision=PRECISION, single=True)
    return {one.family for one in fired(told)}


def test_changes_fire_where_they_are_too_large_or_elsewhere():
    assert _changes() == set()
    assert _changes(largest=lambda given: 0.249) == {"sensitivity"}
    assert _changes(order=lambda given: 1) == {"sensitivity"}  # .5 in the l1 norm
    assert _changes(change=lambda given: _at(given["change"], (3, 0, 0, 2), 1e-3)) == {"leak"}  # another node
    assert _changes(change=lambda given: _at(given["change"], (3, 1, 1, 2), 1e-3)) == {"leak"}  # a number without noise
    assert _changes(other=lambda given: 1.01 * given["scale"]) == {"leak"}  # the scale
    both = _changes(scale=lambda given: np.ones_like(given["scale"]), other=lambda given: np.ones_like(given["scale"]))
    assert both == {"leak"}  # two blocks with one noise, of which one moves


def test_counts_fire():
    z = np.random.default_rng(5).normal(size=(N, T, M, 2, n))
    live, one = np.ones(z.shape, bool), np.ones((N, T, M), int)

    def families(z: np.ndarray, releases: np.ndarray) -> set[str]:
        return {found.family for found in fired(judge_counts(z, live, releases))}

    same = z[..., [0, 0], :]
    assert families(same, one) == set()
    assert families(z, 2 * one) == set()
    assert families(z, one) == {"release count"}
    assert families(same, one - 1) == {"release count"}


RATE, RNG = 0.3, np.random.default_rng(6)
DRAWN = RNG.random((PLACES, 200, 4, 2))
SAMPLED = {
    "the last one": np.broadcast_to(np.arange(PLACES)[:, None, None, None] == PLACES - 1, DRAWN.shape),
    "all or none": np.broadcast_to(DRAWN[:1] < RATE, DRAWN.shape),
    "one sample for two nodes": DRAWN[..., [0, 0]] < RATE,
}


def test_wrong_samples_fire():
    share, there = np.full(2, RATE), np.ones(DRAWN.shape, bool)
    assert not fired(judge_hits(DRAWN < RATE, share, there, True))
    assert not fired(_hits(np.random.default_rng(7), False))
    for wrong in SAMPLED.values():
        assert {one.family for one in fired(judge_hits(wrong, share, there, True))} == {"sampling"}
