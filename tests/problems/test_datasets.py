"""Data sets by name, the split into training and test, and the problems made of them."""

import bz2
import lzma
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, issparse

from jdfl import problems
from jdfl.problems import Dataset, classification, data_folder, epsilon_like, holdout, load, realsim_like
from jdfl.problems.datasets import locate
from tests.refused import each_refused, refused


def test_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("JDFL_DATA", raising=False)
    with refused(FileNotFoundError, "JDFL_DATA"):
        data_folder()
    monkeypatch.setenv("JDFL_DATA", str(tmp_path / "none"))
    with refused(FileNotFoundError, "none"):
        data_folder()
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    with refused("'a9a'", name="a9b"):
        load("a9b")
    with refused(FileNotFoundError, "qsar_oral_toxicity.zip"):
        load("qsar")
    (tmp_path / "qsar_oral_toxicity.csv").write_text("0;" * 1024 + "negative\n\n" + "1;" * 1024 + "positive\n")
    np.testing.assert_array_equal(load("qsar", verify=False).features[:, -1], [0, 1])


def test_bundled_sets():
    cancer = load("breast_cancer")
    assert (cancer.features.shape, cancer.labels.sum(), cancer.standardise) == ((569, 30), 357, True)
    digits, odd = load("digits"), load("digits", binary=True)
    assert (digits.features.shape, digits.features.min(), digits.features.max()) == ((1797, 64), 0, 1)
    assert (digits.classes, odd.classes) == (10, 2)
    np.testing.assert_array_equal(odd.labels, np.isin(digits.labels, [1, 3, 5, 7, 9]))


def test_libsvm_names_take_any_form_and_text_stays_sparse(tmp_path, monkeypatch):
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    (tmp_path / "libsvm").mkdir()
    text = b"-1 1:1 5:1\n+1 2:1\n"
    for ending, pack in (("", bytes), (".bz2", bz2.compress)):
        files = [tmp_path / "libsvm" / f"{name}{ending}" for name in ("a9a", "a9a.t")]
        for file in files:
            file.write_bytes(pack(text))
        dataset = load("a9a", verify=False)
        assert dataset.features.shape == dataset.test_features.shape == (2, 123)
        assert dataset.features.dtype == np.float32
        np.testing.assert_array_equal(dataset.test_labels, [0, 1])
        for file in files:
            file.unlink()
    (tmp_path / "real-sim.bz2").write_bytes(bz2.compress(text))
    dataset = load("real-sim")
    assert (issparse(dataset.features), dataset.features.shape) == (True, (2, 20_958))
    assert locate("real-sim") == tmp_path / "real-sim.bz2"


def test_epsilon_is_read_whole_where_it_is_there_and_its_first_rows_otherwise(tmp_path, monkeypatch):
    monkeypatch.setenv("JDFL_DATA", str(tmp_path))
    (tmp_path / "libsvm").mkdir()
    first, whole = tmp_path / "libsvm" / "epsilon_first100.xz", tmp_path / "libsvm" / "epsilon_normalized.bz2"
    first.write_bytes(lzma.compress(b"-1 1:1\n1 2:1\n"))
    with refused(FileNotFoundError, "epsilon_first100.t"):
        load("epsilon")
    (tmp_path / "libsvm" / "epsilon_first100.t").write_bytes(b"1 1:1\n-1 2:1\n1 2000:1\n")
    piece = load("epsilon")
    assert (piece.name, locate("epsilon")) == ("epsilon (first 100 rows)", first)
    assert (piece.features.shape, piece.test_features.shape) == ((2, 2000), (3, 2000))
    np.testing.assert_array_equal(piece.test_labels, [1, 0, 1])
    whole.write_bytes(bz2.compress(b"1 1:.6 2:.8\n-1 2000:1\n-1 1:1\n"))
    with refused(FileNotFoundError, "epsilon_normalized.t"):  # never the piece's test rows
        load("epsilon")
    (tmp_path / "libsvm" / "epsilon_normalized.t.bz2").write_bytes(bz2.compress(b"-1 2:1\n1 3:1\n"))
    assert (load("epsilon").name, locate("epsilon")) == ("epsilon", whole)


@given(st.integers(0, 2**31), st.sampled_from([0.1, 0.25, 0.5]), st.integers(2, 40))
def test_holdout_keeps_duplicates_together(seed, fraction, distinct):
    rng = np.random.default_rng(seed)
    features = rng.integers(0, distinct, (120, 1)).astype(np.float32)
    features[:40] = np.arange(100, 140)[:, None]  # some rows occur once
    labels = rng.integers(0, 2, 120)
    held = holdout(features, labels, fraction, seed=seed)
    np.testing.assert_array_equal(holdout(csr_matrix(features), labels, fraction, seed=seed), held)
    assert not set(features[held, 0]) & set(features[~held, 0])
    assert 0 < held.sum() < 120
    assert held.sum() <= np.ceil(fraction * 120) + 1


def test_holdout_is_stratified_and_seeded():
    features, labels = np.arange(300.0)[:, None], np.repeat([0, 1, 2], [30, 90, 180])
    held = holdout(features, labels, 0.2, seed=1)
    np.testing.assert_array_equal(np.bincount(labels[held]), [6, 18, 36])
    np.testing.assert_array_equal(held, holdout(features, labels, 0.2, seed=1))
    assert not np.array_equal(held, holdout(features, labels, 0.2, seed=2))
    each_refused(holdout, {"fraction": -0.1}, {"fraction": 1.0}, features=features, labels=labels)
    with refused("both sides"):
        holdout(np.ones((10, 2)), np.arange(10) % 2, 0.2)


def test_classification_uses_every_example_once():
    dataset = replace(load("breast_cancer"), standardise=False)
    for partition in ("iid", "dirichlet", "shards"):
        problem = classification(dataset, 5, partition=partition, intercept=True, seed=3)
        assert isinstance(problem, problems.LogisticRegression)
        assert (problem.m, problem.n) == (5, 31)
        real = np.asarray(problem.weight) > 0
        rows = np.concatenate([np.asarray(problem.data[0])[real], np.asarray(problem.test[0])])[:, :-1]
        labels = np.concatenate([np.asarray(problem.data[1])[real], np.asarray(problem.test[1])])
        order, expected = np.lexsort(rows.T), np.lexsort(dataset.features.T)
        np.testing.assert_array_equal(rows[order], dataset.features[expected])
        np.testing.assert_array_equal(labels[order], dataset.labels[expected])
        assert abs(len(problem.test[1]) / 569 - 0.2) < 0.01


def test_standardising_looks_at_training_examples_alone_and_options_are_taken():
    problem = classification("breast_cancer", 5, seed=3)
    rows = np.asarray(problem.data[0])[np.asarray(problem.weight) > 0]
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(rows.var(axis=0), 1, rtol=1e-4)
    assert np.abs(np.asarray(problem.test[0]).mean(axis=0)).max() > 0.01
    small = Dataset("small", np.eye(6, dtype=np.float32), np.arange(6) % 2, np.ones((1, 6), np.float32), np.ones(1))
    np.testing.assert_array_equal(classification(small, 6).test[0], np.ones((1, 6)))
    assert classification("breast_cancer", 3, test_fraction=0).test is None
    digits = classification("digits", 4, penalty=0.5)
    assert (digits.n, digits.classes, float(digits.penalty)) == (640, 10, 0.5)
    assert isinstance(classification("digits", 4, binary=True), problems.LogisticRegression)
    with refused("7"):
        classification(small, 7)


FACTS = {
    "qsar": (8992, 1024, 741, None),
    "a9a": (32561, 123, 7841, 16281),
    "phishing": (11055, 68, 6157, None),
    "news20": (15933, 20958, 4790, None),
}


@pytest.mark.rotated(4)
@pytest.mark.parametrize("name", FACTS)
def test_real_data(data_dir, name):
    n_examples, p, positive, n_test = FACTS[name]
    dataset = load(name)
    assert (dataset.features.shape, dataset.labels.sum(), dataset.classes) == ((n_examples, p), positive, 2)
    assert (None if dataset.test_labels is None else len(dataset.test_labels)) == n_test
    assert dataset.source.startswith(("https://", "D. Ballabio", "20 newsgroups"))
    assert issparse(dataset.features) == (name == "news20")


def test_rows_are_tf_idf_of_length_one():
    data = realsim_like(3000, 400, seed=5)
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


def test_words_tell_the_classes_apart():
    data = realsim_like(4000, 200, seed=2)
    means = [np.asarray(data.features[data.labels == c].mean(axis=0)).ravel() for c in (0, 1)]
    assert np.linalg.norm(means[1] - means[0]) > 0.05


def test_the_seed_decides_and_it_becomes_a_problem():
    first, again, other = realsim_like(200, 50), realsim_like(200, 50), realsim_like(200, 50, seed=1)
    assert (first.features != again.features).nnz == 0
    np.testing.assert_array_equal(first.labels, again.labels)
    assert (first.features != other.features).nnz
    problems.check_problem(classification(first, 6))
    first, again, other = epsilon_like(200, 30), epsilon_like(200, 30), epsilon_like(200, 30, seed=1)
    np.testing.assert_array_equal(first.features, again.features)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert np.abs(first.features - other.features).max() > 0.1


def test_refusals_of_generated_sets():
    given = {"n_examples": 100, "n_features": 20}
    each_refused(realsim_like, {"n_features": 0}, {"n_examples": 1}, {"seed": -1}, **given)
    each_refused(epsilon_like, {"n_examples": 1}, {"n_features": 6}, **given)


def test_epsilon_like_rows_have_length_one_classes_of_one_size_and_a_common_factor():
    for n_examples in (4097, 2):  # blocks of 4,096 rows
        data = epsilon_like(n_examples, 50, seed=3)
        assert data.features.shape == (n_examples, 50)
        assert (data.features.dtype, data.labels.dtype) == (np.float32, np.int32)
        np.testing.assert_allclose(np.linalg.norm(data.features.astype(float), axis=1), 1, rtol=1e-6)
        assert data.labels.sum() == n_examples // 2
        assert len({row.tobytes() for row in data.features}) == n_examples
    X = epsilon_like(8000, 400, seed=1).features
    c = X @ np.linalg.eigh(X.T.astype(float) @ X)[1][:, -1]  # along the common factor, which has its share and mean
    ratio = c / np.sqrt(1 - c**2)
    assert np.mean(ratio**2) == pytest.approx(0.55 / 0.45, rel=0.05)
    assert abs(np.mean(ratio)) == pytest.approx(0.6 * np.sqrt(0.55 / 0.45), abs=0.05)
