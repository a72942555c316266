"""The result of a reader or a generator of examples. Host only."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from jdfl.base.names import aligned, labels_of, unlabelled

Features = np.ndarray | csr_matrix


@dataclass(frozen=True)
class Dataset:
    """Examples for classification, with a test set if the source has one.

    Readers, generators and `jdfl.problems.load` return it; `classification` splits it over the nodes. Everything is on
    the host: NumPy arrays, or CSR matrices of SciPy for text. Axes: N examples, M test examples, p features.
    """

    name: str
    features: Features  # [N, p] float32; CSR for text
    labels: np.ndarray  # [N] int32, 0..classes-1
    test_features: Features | None = None  # [M, p] float32, if the source has a test set
    test_labels: np.ndarray | None = None  # [M] int32
    source: str = ""  # who published it, and where
    standardise: bool = False  # columns of very different scales: use mean 0, variance 1 of the training examples

    def __post_init__(self) -> None:
        """Labels and columns in the order of the features, as arrays without labels of their own."""
        headings = labels_of(self.features, axis=1)
        rows = aligned("test_features", self.test_features, headings, "features", axis=1)
        parts = {
            "labels": aligned("labels", self.labels, labels_of(self.features), "features"),
            "test_labels": aligned("test_labels", self.test_labels, labels_of(rows), "test_features"),
            "features": self.features,
            "test_features": rows,
        }
        for name, value in parts.items():
            object.__setattr__(self, name, unlabelled(value))

    @property
    def classes(self) -> int:
        """The number of classes, which is the largest training label plus one.

        Labels start at 0; a class without training examples below the largest label counts as well. Labels of the test
        set are ignored.
        """
        return int(self.labels.max()) + 1

    @property
    def test(self) -> tuple[Any, np.ndarray] | None:
        """The features [M, p] and labels [M] of the test set; None if either is missing.

        Without a test set all examples are training examples here, and `classification` holds out a share of every
        class for testing (see `jdfl.problems.holdout`).
        """
        if self.test_features is None or self.test_labels is None:
            return None
        return self.test_features, self.test_labels
