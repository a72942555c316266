"""Chains of two states: stationary in every round, connected as the probabilities say, the same wherever looked at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

from jdfl.network import chain
from tests.later import Later

KEYS = Later(jax.random.split, jax.random.key(3), 4000)
CASES = {
    "sticky": (0.02, 0.1),
    "quick": (0.4, 0.3),
    "independent": (0.3, 0.7),
    "turning": (0.9, 0.8),
    "rare": (0.001, 1),
}


def states(a, b, rounds):
    """States [k, key] of rounds."""
    levels = chain.levels(a, b)
    return np.asarray(jax.vmap(lambda k: chain.state(KEYS(), k, a, b, levels))(jnp.asarray(rounds, jnp.int32)))


@pytest.mark.parametrize("name", CASES)
def test_states_follow_the_chain(name):
    a, b = CASES[name]
    found = states(a, b, np.arange(70))
    for k in (0, 1, 31, 64, 69):
        assert scipy.stats.binomtest(int(found[k].sum()), len(KEYS()), a / (a + b)).pvalue > 1e-4
    before, after = found[:-1], found[1:]
    for state, chance in ((False, a), (True, 1 - b)):
        here = before == state
        if here.any():
            assert scipy.stats.binomtest(int(after[here].sum()), int(here.sum()), chance).pvalue > 1e-4
    two, kept = found[2:][before[:-1]], 1 - a - b  # and over two rounds, the middle one unseen
    share = a / (a + b)
    assert scipy.stats.binomtest(int(two.sum()), two.size, share + kept**2 * (1 - share)).pvalue > 1e-4


@pytest.mark.slow
def test_bad_times_have_geometric_lengths():
    a, b = 0.05, 0.25
    found = states(a, b, np.arange(400)).T.astype(int)
    edges = np.diff(found, axis=1, prepend=0)
    lengths = []
    for change in edges:
        begins = np.nonzero(change == 1)[0]
        ends = np.nonzero(change == -1)[0]
        lengths += [ends[ends > begin][0] - begin for begin in begins[1:] if (ends > begin).any()]
    lengths = np.asarray(lengths[:20_000])
    assert abs(lengths.mean() - 1 / b) < 5 * lengths.std() / np.sqrt(lengths.size) + 0.02
    seen = np.bincount(np.minimum(lengths, 12))[1:]
    expected = scipy.stats.geom.pmf(np.arange(1, 13), b)
    expected[-1] = scipy.stats.geom.sf(11, b)
    assert scipy.stats.chisquare(seen, expected * seen.sum()).pvalue > 1e-4


def test_a_round_is_the_same_however_it_is_reached():
    a, b, levels = 0.02, 0.05, chain.levels(0.02, 0.05)
    far = 2**30 - 1
    one = np.asarray(jax.jit(chain.state, static_argnums=4)(KEYS()[:50], jnp.int32(far), a, b, levels))
    np.testing.assert_array_equal(one, states(a, b, [far, 5])[0, :50])
    np.testing.assert_array_equal(states(a, b, [7]), states(a, b, np.arange(9))[7:8])


@pytest.mark.parametrize(("a", "b"), [(1e-9, 1e-9), (0.5, 0.5), (0.02, 0.1), (1.0, 0.999)])
def test_levels_reach_independence_or_the_longest_run(a, b):
    levels = chain.levels(a, b)
    assert levels == 28 or abs(1 - a - b) ** (2**levels) <= 2.0**-25
    assert levels == 0 or abs(1 - a - b) ** (2 ** (levels - 1)) > 2.0**-25
