"""What a reader or a generator of examples gives back. Host only."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

Features = np.ndarray | csr_matrix


@dataclass(frozen=True)
class Dataset:
    """Examples for classification, with a test set where the source has one.

    Readers and generators give it, and `jdfl.problems.load` by name; `classification` splits it between nodes. All of
    it is on the host: NumPy arrays, or CSR matrices of SciPy for text. Axes: N examples, M test examples, p features.
    """

    name: str
    features: Features  # [N, p] float32; text comes as CSR and stays so
    labels: np.ndarray  # [N] int32, 0..classes-1
    test_features: Features | None = None  # [M, p] float32, where the source has a test set
    test_labels: np.ndarray | None = None  # [M] int32
    source: str = ""  # who made it and where it can be had
    standardise: bool = False  # columns of very different scales: use mean 0, variance 1 of the training examples

    @property
    def classes(self) -> int:
        """The number of classes, which is the largest training label plus one.

        Labels count from 0, so that a class between them without any training example counts, too. Labels of the test
        set are not looked at.
        """
        return int(self.labels.max()) + 1

    @property
    def test(self) -> tuple[Any, np.ndarray] | None:
        """The features [M, p] and labels [M] of the test set; None where either is missing.

        Of a data set without one, `classification` holds a share of every class out for testing (see
        `jdfl.problems.holdout`), and all its examples are training examples here.
        """
        if self.test_features is None or self.test_labels is None:
            return None
        return self.test_features, self.test_labels
