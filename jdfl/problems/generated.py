"""Synthetic datasets that imitate ones which cannot be distributed. Host only; equal seeds give equal data."""

from typing import Annotated, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.settings import MOST, Bound, Count
from jdfl.problems.partition import generator
from jdfl.problems.readers import Dataset

_ROWS = 4096  # drawn at a time
_FADING = 0.85  # variance of a minor factor over that of the one before


Examples: TypeAlias = Annotated[int, Bound(f"[2, {MOST}]")]
Share: TypeAlias = Annotated[float, Bound("[0, 1]")]
Real: TypeAlias = Annotated[float, Bound("[0, inf)")]


@checked
def realsim_like(
    n_examples: Examples = 72_309,
    n_features: Count = 20_958,
    *,
    words: Annotated[float, Bound(f"(0, {MOST}]")] = 53.6,
    spread: Annotated[float, Bound("[0, 10]")] = 0.75,
    exponent: Annotated[float, Bound("[0, 100]")] = 1.05,
    offset: Annotated[float, Bound(f"[0, {MOST}]")] = 30.0,
    tilted: Share = 0.35,
    tilt: Annotated[float, Bound("[0, 100]")] = 1.6,
    positive: Share = 0.3075,
    label_noise: Share = 0.01,
    seed: int = 0,
) -> Dataset:
    """A stand-in for LIBSVM's real-sim: two classes of texts as sparse tf-idf rows of length 1 (CSR, float32).

    Word j of a text of class c = +-1 is drawn with probability proportional to (j + offset)^-exponent e^(c t_j / 2), a
    Zipf-Mandelbrot law; t_j ~ N(0, tilt^2) for a share `tilted` of the words, else 0. Texts have a log-normal number of
    words, at least one. An entry is (1 + ln tf) ln((1 + N) / df), tf the word's count in the text, df the number of
    texts that have it; then rows get length 1 and columns a random order. The defaults have real-sim's size, about 51
    nonzeros per row, and a linear SVM reaches 97 % on a held-out fifth.

    Args:
        n_examples: Number of texts, at least 2.
        n_features: Size of the vocabulary.
        words: Mean > 0 of a text's number of words.
        spread: Standard deviation of the logarithm of that number, 0 to 10.
        exponent: Exponent of the law of word frequencies, 0 to 100.
        offset: Offset >= 0 in that law.
        tilted: Share of the words that differ in frequency between the classes, 0 to 1.
        tilt: Standard deviation of the logarithm of that difference, 0 to 100.
        positive: Share of the labels that are 1, exactly.
        label_noise: Share of the labels that are wrong, half of them in each class.
        seed: Seed of the dataset.

    Raises ValueError for arguments out of range.
    """
    n_positive, wrong = round(positive * n_examples), round(label_noise * n_examples / 2)
    if not 0 < n_positive < n_examples:
        raise ValueError(f"Expected texts of both classes, got positive = {positive}: {n_positive} of {n_examples}.")
    if wrong > min(n_positive, n_examples - n_positive):
        raise ValueError(f"Expected label_noise that leaves right labels, got label_noise = {label_noise}.")

    rng = generator(seed)
    frequency = (np.arange(1, n_features + 1) + offset) ** -exponent
    t = tilt * rng.standard_normal(n_features) * (rng.random(n_features) < tilted)
    text_class = np.zeros(n_examples, np.int32)
    text_class[rng.permutation(n_examples)[:n_positive]] = 1
    logarithm = np.log(words) - spread**2 / 2 + spread * rng.standard_normal(n_examples)
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
def epsilon_like(
    n_examples: Examples = 40_000,
    n_features: int = 2_000,
    *,
    common: Real = 0.55,
    mean: Share = 0.6,
    minor: Real = 0.03,
    factors: Count = 5,
    signal: Real = 6.0,
    seed: int = 0,
) -> Dataset:
    """A stand-in for LIBSVM's epsilon: dense rows of length 1 with one strong common factor (float32).

    Before it is scaled to length 1 a row is c u_0 + sum_k z_k u_k + e with random orthonormal directions u_0, u_1, ...
    and everything normal. c has E c^2 = common and E c = mean sqrt(common); z_1, ..., z_factors have variances that sum
    up to `minor`, each 0.85 of the previous one; the entries of e have variance (1 - common - minor) / n_features, so
    that an expected squared length of 1 is shared out as common : minor : rest.

    The label is 1 where signal (a + b) / sqrt(2) + logistic noise is above its median, so both classes have the same
    size, the first one more if n_examples is odd. a is a unit normal direction among the minor factors,
    the same share of each, and b the unit normal coordinate of e along one more direction. So the labels hardly depend
    on the directions in which rows are similar. With the defaults a linear classifier that knows these directions
    reaches 90 %, and a linear SVM with 32,000 rows 88 %. Logistic regression with 100 rows reaches 61 to 69 %,
    depending on its penalty; with 100 rows of the original it reaches 58 to 64 % (with a standard error of 0.05).

    The defaults follow the first 100 training and 100 test rows of the original. There the leading six of 200 squared
    singular values have 0.384, 0.015, 0.014, 0.011, 0.010 and 0.009 of their sum, here 0.39, 0.015, 0.013, 0.012, 0.010
    and 0.009; inner products of two rows have mean 0.13 and deviation 0.36, here 0.15 and 0.36. The original is more
    skewed: a tenth of the products is below -0.32 and a tenth above 0.68, here below -0.34 and above 0.62.

    The original has 400,000 rows, 3.2 GB; `epsilon_like(400_000)` makes as many. The default is a tenth, since a
    problem holds its rows twice for a moment, on the host and on the device, and 20 rows per feature already fix the
    optimum well.

    Args:
        n_examples: Number of rows, at least 2.
        n_features: Numbers of a row, at least factors + 2.
        common: Share of the expected squared length in the common factor, >= 0.
        mean: Mean of the common factor over its root mean square, 0 to 1.
        minor: Share of the expected squared length in the minor factors, >= 0 and below 1 - common.
        factors: Number of minor factors, at least 1.
        signal: Strength >= 0 of the dependence of the label on the row.
        seed: Seed of the dataset.

    Raises ValueError for arguments out of range.
    """
    each = "There is one direction for every factor and one more."
    checks.whole(factors + 2, MOST, each, n_features=n_features)
    if common + minor >= 1:
        raise ValueError(
            f"Expected common + minor < 1, shares of the variance, got common = {common} and minor = {minor}."
        )

    rng = generator(seed)
    u = np.linalg.qr(rng.standard_normal((n_features, factors + 2)))[0].T.astype(np.float32)  # the last: the label's
    share = _FADING ** np.arange(factors)
    deviation = np.sqrt([common * (1 - mean**2), *(minor * share / share.sum())])
    unit = rng.standard_normal((n_examples, factors + 1))
    score = signal / np.sqrt(2) * unit[:, 1:].sum(axis=1) / np.sqrt(factors) + rng.logistic(size=n_examples)
    coordinates = (unit * deviation).astype(np.float32)
    coordinates[:, 0] += mean * np.sqrt(common)

    features = np.empty((n_examples, n_features), np.float32)
    for begin in range(0, n_examples, _ROWS):
        here = slice(begin, begin + _ROWS)
        rows = features[here]
        rng.standard_normal(out=rows, dtype=np.float32)
        score[here] += signal / np.sqrt(2) * (rows @ u[-1])
        rows *= np.float32(np.sqrt((1 - common - minor) / n_features))
        rows += coordinates[here] @ u[:-1]
        rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]

    labels = np.zeros(n_examples, np.int32)
    labels[np.argsort(score, kind="stable")[(n_examples + 1) // 2 :]] = 1
    return Dataset("epsilon_like", features, labels, source="drawn at random in the likeness of LIBSVM's epsilon")
