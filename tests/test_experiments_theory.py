"""The constants of the papers' theorems, against cases that can be computed by hand."""

import jax.numpy as jnp
import pytest

from experiments import theory_constants as theory


def test_the_chance_that_all_pairs_talk():
    assert theory.pairs_bound(2, 2, 1) == 1.0  # both take their only neighbour
    assert theory.pairs_bound(3, 2, 1) == pytest.approx(0.5**6)
    assert theory.pairs_bound(32, 16.5, 20) == pytest.approx(1.0, abs=0.002)  # the paper's example
    B = theory.rounds_for_pairs(32, 16.5)
    assert theory.pairs_bound(32, 16.5, B) >= 0.99 > theory.pairs_bound(32, 16.5, B - 1)


def test_the_largest_curvature_of_a_quadratic_is_its_eigenvalue():
    A = jnp.diag(jnp.array([1.0, -7.0, 3.0]))
    assert theory.largest_curvature(lambda w: 0.5 * w @ A @ w, jnp.ones(3), 0, 60) == pytest.approx(7.0, rel=1e-4)
