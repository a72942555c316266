"""The stand-ins for real-sim and epsilon: their laws at small sizes, and what is measured at larger ones."""

import tracemalloc

import jax
import numpy as np
import pytest

from jdfl.problems import check_problem, classification, epsilon_like, holdout, load, realsim_like
from tests.refused import each_refused


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
    wrong = {"n_examples": 1, "n_features": 0, "words": 0.0, "spread": -1.0, "tilted": 1.5, "positive": 1.0}
    each_refused(realsim_like, *({name: value} for name, value in wrong.items()), **given)
    each_refused(realsim_like, {"positive": 0.001}, {"label_noise": 0.9}, **given)
    wrong = {"n_examples": 1, "n_features": 6, "factors": 0, "common": -0.1, "mean": 1.1, "signal": float("nan")}
    each_refused(epsilon_like, *({name: value} for name, value in wrong.items()), **given)
    each_refused(epsilon_like, {"common": 0.9, "minor": 0.1}, **given)


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
    from sklearn.svm import LinearSVC

    accuracy = LinearSVC().fit(X[~held], y[~held]).score(X[held], y[held])
    assert accuracy == pytest.approx(0.97, abs=0.005)
    problem = classification("realsim_like", 32)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(problem.data)) < 100e6


def test_epsilon_like_rows_have_length_one_and_classes_one_size():
    for n_examples in (4097, 2):  # blocks of 4,096 rows
        data = epsilon_like(n_examples, 50, seed=3)
        assert (data.name, data.features.shape) == ("epsilon_like", (n_examples, 50))
        assert (data.features.dtype, data.labels.dtype) == (np.float32, np.int32)
        np.testing.assert_allclose(np.linalg.norm(data.features.astype(float), axis=1), 1, rtol=1e-6)
        assert data.labels.sum() == n_examples // 2
        assert len({row.tobytes() for row in data.features}) == n_examples


def leading(features, count):
    """Eigenvalues of the rows' second moment, the largest first, and the eigenvectors of `count` of them [count, p]."""
    values, vectors = np.linalg.eigh(features.T.astype(float) @ features / len(features))
    return values[::-1], vectors[:, ::-1][:, :count].T


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("common", "mean"), [(0.55, 0.6), (0.3, 0.0)], ids=["default", "centred"])
def test_the_common_factor_has_its_share_and_mean(common, mean):
    X = epsilon_like(8000, 400, common=common, mean=mean, minor=0.0, seed=1).features
    c = X @ leading(X, 1)[1][0]
    ratio = c / np.sqrt(1 - c**2)  # of the factor and the length of the rest, which is close to constant
    assert np.mean(ratio**2) == pytest.approx(common / (1 - common), rel=0.05)
    assert abs(np.mean(ratio)) == pytest.approx(mean * np.sqrt(common / (1 - common)), abs=0.05)
    assert np.mean(((ratio - ratio.mean()) / ratio.std()) ** 4) == pytest.approx(3, abs=0.3)


def test_minor_factors_fade_and_the_rest_is_isotropic():
    p, N, minor = 400, 20_000, 0.1
    X = epsilon_like(N, p, common=0.0, mean=0.0, minor=minor, factors=3, seed=1).features
    values, directions = leading(X, 3)
    z = X @ directions.T
    variance = np.mean(z**2 / (1 - np.sum(z**2, axis=1, keepdims=True)), axis=0) * (1 - minor)  # before the scaling
    variance = variance - (1 - minor) / p  # of the rest along the same directions
    assert variance.sum() == pytest.approx(minor, rel=0.03)
    np.testing.assert_allclose(variance[1:] / variance[:-1], 0.85, rtol=0.04)
    edge = np.sqrt(p / N)  # the spectrum of so many isotropic rows ends at (1 +- edge)^2
    assert values[3] / values[-1] == pytest.approx(((1 + edge) / (1 - edge)) ** 2, rel=0.05)


@pytest.mark.slow
def test_a_linear_classifier_learns_the_labels_and_the_common_factor_tells_nothing():
    few = {"n_features": 100, "minor": 0.4, "seed": 2}  # factors that the rest hides less than by default
    data = epsilon_like(20_000, **few)
    X, y = data.features, data.labels
    train, test = slice(0, 10_000), slice(10_000, None)
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(C=1e4, max_iter=1000).fit(X[train], y[train])
    assert found.score(X[test], y[test]) == pytest.approx(0.9, abs=0.015)
    assert abs(np.corrcoef(X @ leading(X, 1)[1][0], y)[0, 1]) < 4 / np.sqrt(20_000)
    labels = epsilon_like(20_000, signal=0.0, **few).labels
    guess = LogisticRegression(C=1e4, max_iter=1000).fit(X[train], labels[train])
    assert guess.score(X[test], labels[test]) == pytest.approx(0.5, abs=0.02)


def test_the_labels_follow_minor_factors_and_one_direction_more():
    data = epsilon_like(40_000, 30, minor=0.3, seed=4)
    X, y = data.features, data.labels
    _, directions = leading(X, 6)
    from sklearn.linear_model import LogisticRegression

    w = LogisticRegression(C=1e4, max_iter=1000).fit(X, y).coef_[0]
    deviation = np.sqrt(0.15 / 30)  # of the rest, along any direction
    weight = directions @ w
    outside = np.linalg.norm(w - weight @ directions) * deviation
    variance = 0.3 * 0.85 ** np.arange(5) / np.sum(0.85 ** np.arange(5)) + deviation**2
    inside = np.linalg.norm(weight[1:] * np.sqrt(variance))
    assert outside / inside == pytest.approx(1, rel=0.1)
    assert abs(weight[0]) * np.sqrt(0.55) < 0.1 * inside


def test_epsilon_like_needs_little_more_memory_than_its_rows():
    tracemalloc.start()
    try:
        data = epsilon_like(20_000, 300)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert data.features.nbytes < peak < 1.4 * data.features.nbytes


def likeness(X):
    """Of 200 rows: the leading shares of the squared singular values, mean and deviation of inner products."""
    gram = X @ X.T
    inner, share = gram[np.triu_indices(len(X), 1)], np.linalg.eigvalsh(gram)[::-1] / np.trace(gram)
    return np.array([*share[:6], inner.mean(), inner.std()])


@pytest.mark.slow
def test_epsilon_like_resembles_the_first_rows_of_epsilon(data_dir):
    real = load("epsilon")
    X = epsilon_like(4000, seed=5).features
    found = np.stack([likeness(X[k : k + 200]) for k in range(0, 4000, 200)])
    away = likeness(np.concatenate([real.features[:100], real.test_features[:100]])) - found.mean(axis=0)
    assert (np.abs(away) < 4 * found.std(axis=0)).all()
    assert (np.abs(away[:6]) < 0.1 * found.mean(axis=0)[:6]).all()
