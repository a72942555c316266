"""Certified radii of linear classifiers are exact: nothing inside changes a prediction, something outside does."""

from itertools import product

import numpy as np
import pytest

from experiments.ceps_robustness import certified_radii

N, COUNT = 6, 40


def drawn():
    """Parameters with some zeros, features and labels."""
    draw = np.random.default_rng(0)
    w = draw.normal(size=N) * (np.arange(N) >= 3)
    return w, draw.normal(size=(COUNT, N)), draw.integers(0, 2, COUNT)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_nothing_inside_changes_a_prediction_and_something_outside_does(norm):
    w, rows, labels = drawn()
    radius = np.abs(certified_radii(w, rows, labels, norm))
    some = np.random.default_rng(1).normal(size=(20_000, N))  # directions, or all corners
    corners = np.array(list(product((-1.0, 1.0), repeat=N)))
    tried = corners if norm == "linf" else some / np.linalg.norm(some, axis=1, keepdims=True)
    worst = np.sign(w) if norm == "linf" else w / np.linalg.norm(w)
    tried = np.concatenate([tried, worst[None], -worst[None]])
    for a, r in zip(rows, radius):
        before = a @ w > 0
        assert (((a + 0.9999 * r * tried) @ w > 0) == before).all()
        assert (((a + 1.0001 * r * tried) @ w > 0) != before).any()


def test_wrong_predictions_have_negative_radii():
    w, rows, labels = drawn()
    right = (rows @ w > 0) == labels
    for norm in ("linf", "l2"):
        np.testing.assert_array_equal(certified_radii(w, rows, labels, norm) > 0, right)
    assert 0 < right.mean() < 1
    constant = certified_radii(np.zeros(N), rows, labels, "linf")
    np.testing.assert_array_equal(constant, np.where(labels == 0, np.inf, -np.inf))
