"""The stand-in for real-sim: its laws at a small size, and what a linear SVM makes of it at full size."""

import jax
import numpy as np
import pytest
from sklearn.svm import LinearSVC

from jdfl.problems import check_problem, classification, holdout, realsim_like


def test_rows_are_tf_idf_of_length_one():
    data = realsim_like(3000, 400, words=20.0, seed=5)
    X, y = data.features, data.labels
    assert (data.name, X.shape, X.dtype, y.dtype) == ("realsim_like", (3000, 400), np.float32, np.int32)
    assert X.has_canonical_format
    assert np.diff(X.indptr).min() >= 1
    assert (X.data > 0).all()
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)
    assert y.sum() == round(0.3075 * 3000)
    idf = np.log(3001 / np.bincount(X.indices, minlength=400))
    once = np.diff(X.indptr) == 1
    np.testing.assert_allclose(X[once].data, 1, rtol=1e-6)
    row = X[int(np.argmax(np.diff(X.indptr)))]
    factor = row.data / idf[row.indices]
    tf = np.exp(factor / factor.min() - 1)  # the row's rarest words occur once
    np.testing.assert_allclose(tf, np.rint(tf), atol=1e-3)


def test_words_follow_the_zipf_mandelbrot_law():
    N, p, words, spread = 20_000, 300, 15.0, 0.75
    data = realsim_like(N, p, words=words, spread=spread, exponent=1.2, offset=10.0, tilted=0.0, seed=1)
    frequency = (np.arange(1, p + 1) + 10.0) ** -1.2
    frequency /= frequency.sum()
    normal = np.random.default_rng(0).normal(size=4000)
    length = np.maximum(1, np.rint(words * np.exp(spread * normal - spread**2 / 2)))
    expected = 1 - np.mean((1 - frequency[:, None]) ** length, axis=1)  # the share of texts that have a word
    have = np.bincount(data.features.indices, minlength=p) / N
    assert not (np.diff(have) <= 0).all()  # columns come in a random order
    np.testing.assert_allclose(np.sort(have)[::-1][:50], expected[:50], rtol=0.08)
    assert data.features.nnz / N == pytest.approx(expected.sum(), rel=0.04)


def test_tilted_words_tell_the_classes_apart_and_wrong_labels_do_not():
    def gap(**options):
        data = realsim_like(4000, 200, words=30.0, positive=0.5, seed=2, **options)
        means = [np.asarray(data.features[data.labels == c].mean(axis=0)).ravel() for c in (0, 1)]
        return np.linalg.norm(means[1] - means[0])

    none, clean, noisy = gap(tilted=0.0), gap(label_noise=0.0), gap(label_noise=0.25)
    assert none < 0.05 < clean
    assert noisy == pytest.approx(clean / 2, rel=0.2)


def test_the_seed_decides():
    first, again, other = realsim_like(200, 50), realsim_like(200, 50), realsim_like(200, 50, seed=1)
    assert (first.features != again.features).nnz == 0
    np.testing.assert_array_equal(first.labels, again.labels)
    assert (first.features != other.features).nnz


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_examples": 1}, "n_examples = 1"),
        ({"n_features": 0}, "n_features = 0"),
        ({"words": 0.0}, "words = 0.0"),
        ({"spread": -1.0}, "spread = -1.0"),
        ({"tilted": 1.5}, "tilted = 1.5"),
        ({"positive": 0.001}, r"positive = 0\.001: 0 of 100"),
        ({"positive": 1.0}, "positive = 1.0"),
        ({"label_noise": 0.9}, "label_noise = 0.9"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        realsim_like(**{"n_examples": 100, "n_features": 20, **options})


def test_it_becomes_a_problem():
    data = realsim_like(300, 40, words=8.0)
    problem = classification(data, 6)
    check_problem(problem)
    assert (problem.m, problem.n, problem.name) == (6, 40, "realsim_like")
    total = int((problem.weight > 0).sum()) + len(problem.test[1])
    assert total == 300


@pytest.mark.slow
def test_full_size():
    data = realsim_like()
    X, y = data.features, data.labels
    lengths = np.diff(X.indptr)
    assert X.shape == (72_309, 20_958)
    assert lengths.mean() == pytest.approx(51, abs=0.3)
    assert 600 < lengths.max() < 1200
    assert y.mean() == pytest.approx(0.3075, abs=1e-5)
    held = holdout(X, y, 0.2)
    accuracy = LinearSVC().fit(X[~held], y[~held]).score(X[held], y[held])
    assert accuracy == pytest.approx(0.97, abs=0.005)
    problem = classification("realsim_like", 32)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(problem.data)) < 100e6
