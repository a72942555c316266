"""Record pools for the attacks of `experiments.leakage`, softmax regression on them, and observers' views.

Axes: N records of a pool, p features, c classes, m nodes, q records per node, n = p c parameters, S rows per node that
leave it.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jdfl
from jdfl.base import struct
from jdfl.network import Network
from jdfl.observers import Observer
from jdfl.observers.observe import Observed
from jdfl.problems.logistic import SoftmaxRegression

DELTA = 1e-5


@struct.dataclass
class Labelled(SoftmaxRegression):
    """Softmax regression whose labels are class probabilities [m, q, c], which can be fitted like features."""

    def loss(self, w: Array, example: Any) -> Array:
        """The cross-entropy [] of one example (a [p], b [c])."""
        z = self.products(w, example[0])
        return jax.nn.logsumexp(z) - jnp.vdot(example[1], z)

    def slopes(self, w: Array, data: Any) -> Array:
        """The classes' probabilities minus the example's own label [q, c]."""
        return jax.nn.softmax(self.products(w, data[0]), axis=1) - data[1]


@dataclass(frozen=True)
class Pool:
    """Real records, from which nodes get theirs."""

    features: np.ndarray  # [N, p] float32
    labels: np.ndarray  # [N, c] float32, one of each row 1
    image: bool  # whether features are pixels in [0, 1]

    @staticmethod
    def problem(features: Any, labels: Any) -> Labelled:
        """Softmax regression, without a regulariser, on records [m, q, p] with labels [m, q, c]."""
        m, q = features.shape[:2]
        weight, curvature = jnp.ones((m, q), features.dtype), jnp.ones((m,), features.dtype)
        return Labelled((features, labels), weight, curvature, penalty=0.0, classes=labels.shape[-1])

    def held(self, records: Any) -> Labelled:
        """The problem of nodes with these records [m, q]."""
        return self.problem(jnp.asarray(self.features)[records], jnp.asarray(self.labels)[records])


def pool(name: str) -> Pool:
    """The records of digits, 1,797 images of 64 pixels, or of breast_cancer, 569 of two classes, standardised."""
    found = jdfl.problems.load(name)
    features = np.asarray(found.features, np.float32)
    if found.standardise:  # by public statistics
        features = (features - features.mean(axis=0)) / features.std(axis=0)
    return Pool(features, np.eye(found.classes, dtype=np.float32)[found.labels], name == "digits")


def budgeted(algorithm: Any, problem: Any, network: Network, steps: int, epsilon: float | None) -> Any:
    """The method with the noise for this epsilon at DELTA; None: with zero noise, the same program."""
    if epsilon is None:
        silent = replace(algorithm.gradients, mechanism=jdfl.Gaussian(0.0))
        return replace(algorithm, gradients=silent)
    return jdfl.calibrate(algorithm, problem, network, steps=steps, epsilon=epsilon, delta=DELTA)


def watched(algorithm: Any, problem: Any, network: Network, steps: int) -> Observed:
    """The observed form of a private run."""
    return Observed.of(algorithm, problem, network, steps=steps, key=0, delta=DELTA)


def view(run: Observed, observer: Observer) -> tuple[np.ndarray, np.ndarray]:
    """The rows that an observer sees, a mask [S, m] with the final parameters as the last, and the nodes it knows [m].

    Raises ValueError for an observer that only sees sums of rows.
    """
    mask, known = np.zeros((len(run.spread.places) + 1, run.spread.m), bool), np.zeros(run.spread.m, bool)
    for place, weights in observer.rows(run.spread):
        if np.count_nonzero(weights) != 1:
            raise ValueError(f"Expected an observer of single messages, got {observer!r}. Leave out sums.")
        mask[-1 if place == run.spread.final else place] |= weights != 0
    known[list(observer.known(run.spread.m))] = True
    return mask, known
