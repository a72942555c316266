"""Chains of two states: stationary in every round, connected as the probabilities say, the same wherever looked at."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from jdfl.network import faults
from tests.later import Later

KEYS = Later(jax.random.split, jax.random.key(3), 4000)


def states(a, b, rounds):
    """States [k, key] of rounds."""
    found = jax.vmap(faults.state, (None, 0, None, None, None))
    return np.asarray(
        jax.jit(found, static_argnums=4)(KEYS(), jnp.asarray(rounds, jnp.int32), a, b, faults.levels(a, b))
    )


def as_likely(found, number, chance):
    return scipy.stats.binomtest(int(found), int(number), chance).pvalue > 1e-4


def test_states_follow_the_chain():
    """In one round, from one to the next, and over two, the middle one unseen."""
    for a, b in ((0.02, 0.1), (0.3, 0.7), (0.9, 0.8), (0.001, 1)):  # sticky, independent, turning, rare
        found = states(a, b, np.arange(70))
        for k in (0, 1, 31, 64, 69):
            assert as_likely(found[k].sum(), len(KEYS()), a / (a + b))
        before, after = found[:-1], found[1:]
        for state, chance in ((False, a), (True, 1 - b)):
            here = before == state
            assert as_likely(after[here].sum(), here.sum(), chance)
        two, kept, share = found[2:][before[:-1]], 1 - a - b, a / (a + b)
        assert as_likely(two.sum(), two.size, share + kept**2 * (1 - share))


def test_a_round_is_the_same_however_it_is_reached():
    a, b, levels = 0.02, 0.05, faults.levels(0.02, 0.05)
    far = 2**30 - 1
    one = np.asarray(jax.jit(faults.state, static_argnums=4)(KEYS()[:50], jnp.int32(far), a, b, levels))
    np.testing.assert_array_equal(one, states(a, b, [far, 5])[0, :50])
    np.testing.assert_array_equal(states(a, b, [7]), states(a, b, np.arange(9))[7:8])


def test_levels_reach_independence_or_the_longest_run():
    for a, b in ((1e-9, 1e-9), (0.5, 0.5), (0.02, 0.1), (1.0, 0.999)):
        levels = faults.levels(a, b)
        assert levels == 28 or abs(1 - a - b) ** (2**levels) <= 2.0**-25
        assert levels == 0 or abs(1 - a - b) ** (2 ** (levels - 1)) > 2.0**-25
