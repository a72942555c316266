"""The constants of the papers' theorems, against cases that can be computed by hand."""

import math

import jax.numpy as jnp
import numpy as np
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


def test_doadps_gamma_is_that_of_its_theorem():
    rows = {(one.case, one.column): one.mean for one in theory.doadp()}
    turns = 2 * math.pi * np.arange(20) / 20
    eigenvalues = (1 + 2 * sum(np.cos(offset * turns) for offset in (1, 2, 3))) / 7  # of the circulant network
    rho, phi = 1 - np.abs(eigenvalues[1:]).max(), np.abs(1 - eigenvalues).max()
    for p, share in theory.PAIRS:
        below = 16 * rho + rho**2 + 4 * phi**2 + 2 * rho * phi**2 - 8 * rho * p * share
        assert rows[f"DO-ADP p={p:g} k/d={share:g}", "gamma"] == pytest.approx(rho * p * share / below, rel=1e-5)
        assert rows[f"DO-ADP p={p:g} k/d={share:g}", "T of Theorem 1"] == pytest.approx((100 / p) ** 2, rel=1e-6)
