"""The stand-ins for real-sim and epsilon: their laws at small sizes, and what is measured at larger ones."""

import numpy as np
import pytest

from jdfl.problems import check_problem, classification, epsilon_like, realsim_like
from tests.refused import each_refused


def test_rows_are_tf_idf_of_length_one():
    data = realsim_like(3000, 400, words=20.0, seed=5)
    X, y = data.features, data.labels
    assert (data.name, X.shape, X.dtype, y.dtype) == ("realsim_like", (3000, 400), np.float32, np.int32)
    assert (X.has_canonical_format, np.diff(X.indptr).min() >= 1, X.data.min() > 0) == (True, True, True)
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)
    assert y.sum() == round(0.3075 * 3000)
    idf = np.log(3001 / np.bincount(X.indices, minlength=400))
    once = np.diff(X.indptr) == 1
    np.testing.assert_allclose(X[once].data, 1, rtol=1e-6)
    row = X[int(np.argmax(np.diff(X.indptr)))]
    factor = row.data / idf[row.indices]
    tf = np.exp(factor / factor.min() - 1)  # the row's rarest words occur once
    np.testing.assert_allclose(tf, np.rint(tf), atol=1e-3)


def test_tilted_words_tell_the_classes_apart_and_wrong_labels_do_not():
    def gap(**options):
        data = realsim_like(4000, 200, words=30.0, positive=0.5, seed=2, **options)
        means = [np.asarray(data.features[data.labels == c].mean(axis=0)).ravel() for c in (0, 1)]
        return np.linalg.norm(means[1] - means[0])

    none, clean, noisy = gap(tilted=0.0), gap(label_noise=0.0), gap(label_noise=0.25)
    assert none < 0.05 < clean
    assert noisy == pytest.approx(clean / 2, rel=0.2)


def test_the_seed_decides_and_it_becomes_a_problem():
    first, again, other = realsim_like(200, 50), realsim_like(200, 50), realsim_like(200, 50, seed=1)
    assert (first.features != again.features).nnz == 0
    np.testing.assert_array_equal(first.labels, again.labels)
    assert (first.features != other.features).nnz
    problem = classification(first, 6)
    check_problem(problem)
    assert (problem.m, problem.n, problem.name) == (6, 50, "realsim_like")
    first, again, other = epsilon_like(200, 30), epsilon_like(200, 30), epsilon_like(200, 30, seed=1)
    np.testing.assert_array_equal(first.features, again.features)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert np.abs(first.features - other.features).max() > 0.1


def test_refusals():
    given = {"n_examples": 100, "n_features": 20}
    each_refused(realsim_like, {"n_features": 0}, {"words": 0.0}, {"positive": 0.001}, {"label_noise": 0.9}, **given)
    wrong = ({"factors": 0}, {"common": -0.1}, {"mean": 1.1}, {"signal": float("nan")}, {"common": 0.9, "minor": 0.1})
    each_refused(epsilon_like, {"n_examples": 1}, *wrong, **given)


def test_epsilon_like_rows_have_length_one_classes_of_one_size_and_a_common_factor():
    for n_examples in (4097, 2):  # blocks of 4,096 rows
        data = epsilon_like(n_examples, 50, seed=3)
        assert data.features.shape == (n_examples, 50)
        assert (data.features.dtype, data.labels.dtype) == (np.float32, np.int32)
        np.testing.assert_allclose(np.linalg.norm(data.features.astype(float), axis=1), 1, rtol=1e-6)
        assert data.labels.sum() == n_examples // 2
        assert len({row.tobytes() for row in data.features}) == n_examples
    X = epsilon_like(8000, 400, common=0.55, mean=0.6, minor=0.0, seed=1).features
    c = X @ np.linalg.eigh(X.T.astype(float) @ X)[1][:, -1]  # along the common factor, which has its share and mean
    ratio = c / np.sqrt(1 - c**2)
    assert np.mean(ratio**2) == pytest.approx(0.55 / 0.45, rel=0.05)
    assert abs(np.mean(ratio)) == pytest.approx(0.6 * np.sqrt(0.55 / 0.45), abs=0.05)
