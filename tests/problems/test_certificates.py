"""Certified radii of linear classifiers are exact: nothing inside changes a prediction, something outside does."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from jdfl.problems import certified_radius
from tests.refused import all_refused

N, COUNT = 6, 40


def drawn():
    """Parameters with some zeros, features and labels."""
    draw = np.random.default_rng(0)
    w = draw.normal(size=N) * (np.arange(N) >= 3)
    return w, draw.normal(size=(COUNT, N)), draw.integers(0, 2, COUNT)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_nothing_inside_changes_a_prediction_and_something_outside_does(norm):
    w, rows, labels = drawn()
    radius = np.abs(certified_radius(w, rows, labels, norm=norm))
    some = np.random.default_rng(1).normal(size=(20_000, N))  # directions, or all corners
    corners = np.array(list(product((-1.0, 1.0), repeat=N)))
    tried = corners if norm == "linf" else some / np.linalg.norm(some, axis=1, keepdims=True)
    worst = np.sign(w) if norm == "linf" else w / np.linalg.norm(w)
    tried = np.concatenate([tried, worst[None], -worst[None]])
    for a, r in zip(rows, radius):
        before = a @ w > 0
        assert (((a + 0.9999 * r * tried) @ w > 0) == before).all()
        assert (((a + 1.0001 * r * tried) @ w > 0) != before).any()


def test_wrong_predictions_have_negative_radii_and_sparse_rows_are_taken():
    w, rows, labels = drawn()
    right = (rows @ w > 0) == labels
    for norm in ("linf", "l2"):
        np.testing.assert_array_equal(certified_radius(w, rows, labels, norm=norm) > 0, right)
    assert 0 < right.mean() < 1
    constant = certified_radius(np.zeros(N), rows, labels)
    np.testing.assert_array_equal(constant, np.where(labels == 0, np.inf, -np.inf))
    rows[:, -1] = 1  # an intercept, which is not perturbed
    found = certified_radius(w, rows, labels, intercept=True)
    np.testing.assert_allclose(np.abs(found), np.abs(rows @ w) / np.abs(w[:-1]).sum(), rtol=1e-12)
    np.testing.assert_allclose(certified_radius(w, csr_matrix(rows), labels, intercept=True), found, rtol=1e-12)


def test_what_does_not_belong_together_is_refused():
    w, rows, labels = drawn()
    all_refused(
        (lambda: certified_radius(w, rows, labels[1:]), "label"),
        (lambda: certified_radius(w, rows, labels + 2), "labels"),
        (lambda: certified_radius(w, rows, labels, norm="l1"), "norm"),
        (lambda: certified_radius(w + np.inf, rows, labels), "w"),
        (lambda: certified_radius(np.ones(2), np.array([[1.0, np.nan]]), np.ones(1)), "example 0"),
        (lambda: certified_radius(np.ones(2), np.ones(2), np.ones(1)), "features"),
    )
