"""Synthetic datasets that imitate ones which cannot be distributed. Host only; equal seeds give equal data."""

from typing import Annotated, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.settings import MOST, Bound, Count
from jdfl.problems.partition import generator
from jdfl.problems.readers import Dataset

Examples: TypeAlias = Annotated[int, Bound(f"[2, {MOST}]")]
# Of realsim_like: the mean number of words of a text, the deviation of its logarithm, the exponent and the offset of
# the law of words, the share of words that differ between the classes and by how much, and shares of labels.
_WORDS, _SPREAD, _EXPONENT, _OFFSET, _TILTED, _TILT = 53.6, 0.75, 1.05, 30.0, 0.35, 1.6
_POSITIVE, _WRONG = 0.3075, 0.01
# Of epsilon_like: the common factor's share of the squared length, its mean over its root mean square, the minor
# factors' share and number, the variance of each over that of the one before, and the strength of the labels.
_COMMON, _MEAN, _MINOR, _FACTORS, _FADING, _SIGNAL = 0.55, 0.6, 0.03, 5, 0.85, 6.0
_ROWS = 4096  # drawn at a time


@checked
def realsim_like(n_examples: Examples = 72_309, n_features: Count = 20_958, *, seed: int = 0) -> Dataset:
    """A stand-in for LIBSVM's real-sim: two classes of texts as sparse tf-idf rows of length 1 (CSR, float32).

    Word j of a text of class c = +-1 is drawn with probability proportional to (j + 30)^-1.05 e^(c t_j / 2), a
    Zipf-Mandelbrot law; t_j ~ N(0, 1.6^2) for 35 % of the words, else 0. Texts have a log-normal number of words, at
    least one and 53.6 on average. An entry is (1 + ln tf) ln((1 + N) / df), tf the word's count in the text, df the
    number of texts that have it; then rows get length 1 and columns a random order. 30.75 % of the labels are 1, and
    1 % are wrong. With real-sim's size, the default, there are about 51 nonzeros per row, and a linear SVM reaches 97 %
    on a held-out fifth.

    Args:
        n_examples: Number of texts, at least 2.
        n_features: Size of the vocabulary.

    Raises ValueError for arguments out of range.
    """
    n_positive, wrong = round(_POSITIVE * n_examples), round(_WRONG * n_examples / 2)
    rng = generator(seed)
    frequency = (np.arange(1, n_features + 1) + _OFFSET) ** -_EXPONENT
    t = _TILT * rng.standard_normal(n_features) * (rng.random(n_features) < _TILTED)
    text_class = np.zeros(n_examples, np.int32)
    text_class[rng.permutation(n_examples)[:n_positive]] = 1
    logarithm = np.log(_WORDS) - _SPREAD**2 / 2 + _SPREAD * rng.standard_normal(n_examples)
    length = np.maximum(1, np.rint(np.exp(logarithm))).astype(np.int64)

    text = np.repeat(np.arange(n_examples), length)
    word = np.empty(len(text), np.int64)
    for c in (0, 1):
        here = text_class[text] == c
        cumulative = np.cumsum(frequency * np.exp((c - 0.5) * t))
        word[here] = np.searchsorted(cumulative, rng.random(np.count_nonzero(here)) * cumulative[-1], side="right")
    key, tf = np.unique(text * n_features + np.minimum(word, n_features - 1), return_counts=True)
    row, word = np.divmod(key, n_features)

    value = (1 + np.log(tf)) * np.log((1 + n_examples) / np.bincount(word, minlength=n_features))[word]
    value /= np.sqrt(np.bincount(row, value**2, n_examples))[row]
    column = rng.permutation(n_features)[word]
    features = csr_matrix((value.astype(np.float32), (row, column)), shape=(n_examples, n_features))
    features.sort_indices()

    labels = text_class.copy()
    for c in (0, 1):
        labels[rng.permutation(np.flatnonzero(text_class == c))[:wrong]] = 1 - c
    return Dataset("realsim_like", features, labels, source="drawn at random in the likeness of LIBSVM's real-sim")


@checked
def epsilon_like(n_examples: Examples = 40_000, n_features: int = 2_000, *, seed: int = 0) -> Dataset:
    """A stand-in for LIBSVM's epsilon: dense rows of length 1 with one strong common factor (float32).

    Before it is scaled to length 1 a row is c u_0 + sum_k z_k u_k + e with random orthonormal directions u_0, ..., u_5
    and everything normal. E c^2 = 0.55 and E c = 0.6 sqrt(0.55); z_1, ..., z_5 have variances that sum up to 0.03, each
    0.85 of the previous one; the entries of e have variance 0.42 / n_features, so that the expected squared length is
    1.

    The label is 1 where 6 (a + b) / sqrt(2) + logistic noise is above its median, so both classes have the same
    size, the first one more if n_examples is odd. a is a unit normal direction among the minor factors,
    the same share of each, and b the unit normal coordinate of e along one more direction. So the labels hardly depend
    on the directions in which rows are similar. A linear classifier that knows these directions reaches 90 %, and a
    linear SVM with 32,000 rows 88 %. Logistic regression with 100 rows reaches 61 to 69 %, depending on its penalty;
    with 100 rows of the original it reaches 58 to 64 % (with a standard error of 0.05).

    The numbers follow the first 100 training and 100 test rows of the original. There the leading six of 200 squared
    singular values have 0.384, 0.015, 0.014, 0.011, 0.010 and 0.009 of their sum, here 0.39, 0.015, 0.013, 0.012, 0.010
    and 0.009; inner products of two rows have mean 0.13 and deviation 0.36, here 0.15 and 0.36. The original is more
    skewed: a tenth of the products is below -0.32 and a tenth above 0.68, here below -0.34 and above 0.62.

    The original has 400,000 rows, 3.2 GB; the default is a tenth, which already fixes the optimum well.

    Args:
        n_examples: Number of rows, at least 2.
        n_features: Numbers of a row, at least 7.

    Raises ValueError for arguments out of range.
    """
    checks.integer(_FACTORS + 2, MOST, "There is one direction for every factor and one more.", n_features=n_features)
    rng = generator(seed)
    u = np.linalg.qr(rng.standard_normal((n_features, _FACTORS + 2)))[0].T.astype(np.float32)  # the last: the label's
    share = _FADING ** np.arange(_FACTORS)
    deviation = np.sqrt([_COMMON * (1 - _MEAN**2), *(_MINOR * share / share.sum())])
    unit = rng.standard_normal((n_examples, _FACTORS + 1))
    score = _SIGNAL / np.sqrt(2) * unit[:, 1:].sum(axis=1) / np.sqrt(_FACTORS) + rng.logistic(size=n_examples)
    coordinates = (unit * deviation).astype(np.float32)
    coordinates[:, 0] += _MEAN * np.sqrt(_COMMON)

    features = np.empty((n_examples, n_features), np.float32)
    for begin in range(0, n_examples, _ROWS):
        here = slice(begin, begin + _ROWS)
        rows = features[here]
        rng.standard_normal(out=rows, dtype=np.float32)
        score[here] += _SIGNAL / np.sqrt(2) * (rows @ u[-1])
        rows *= np.float32(np.sqrt((1 - _COMMON - _MINOR) / n_features))
        rows += coordinates[here] @ u[:-1]
        rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]

    labels = np.zeros(n_examples, np.int32)
    labels[np.argsort(score, kind="stable")[(n_examples + 1) // 2 :]] = 1
    return Dataset("epsilon_like", features, labels, source="drawn at random in the likeness of LIBSVM's epsilon")
