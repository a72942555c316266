"""The robustness of linear classifiers against perturbed features, exactly. On the host, in float64.

The prediction <a, w> > 0 of an example a changes for no perturbation of a norm below |<a, w>| / ||w||_*, and for some
perturbation of every larger norm. ||.||_* is the dual norm: ||w||_1 for perturbations bounded in l_inf, and ||w||_2 for
those bounded in l2.

Axes: N examples, n parameters and features.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import aligned, labels_of
from jdfl.problems.dataset import Features

_DUAL = {"linf": 1, "l2": 2}


@checked
def certified_radius(
    w: ArrayLike,
    features: Features,
    labels: ArrayLike,
    *,
    norm: Literal["linf", "l2"] = "linf",
    intercept: bool = False,
) -> np.ndarray:
    """The certified radius of every example for a linear classifier: how far its features may move at least.

    It is exact: no perturbation of a smaller norm changes the prediction, and some perturbation of every larger norm
    does. The share of examples whose radius is above r is the accuracy that is certified at r. It says nothing about
    privacy, and noise in training does not enter it.

    Args:
        w: Parameters w [n] of a logistic or linear regression; a score <a, w> above 0 means class 1.
        features: Features [N, n] of the examples, an array or a sparse matrix.
        labels: Their labels [N] in {0, 1}.
        norm: The norm of perturbations, "linf" or "l2".
        intercept: Whether the last feature is a constant, which is not perturbed.

    Returns the radii [N], negative for examples that are classified wrongly. They are infinite where no perturbation
    has an effect, because all parameters but the intercept are zero.

    Raises:
        ValueError: For shapes that do not belong together, labels other than 0 and 1, and parameters or features
            that are not finite.
    """
    if len(getattr(features, "shape", ())) != 2:
        shape = getattr(features, "shape", None)
        raise ValueError(f"Expected features [N, n], an array or a sparse matrix, got {type(features)}, shape {shape}.")
    given = aligned("w", w, labels_of(features, axis=1), "the columns of features")
    checks.finite("Give one parameter per feature.", w=given)
    weights = np.asarray(given, float)
    labels = aligned("labels", labels, labels_of(features), "features")
    checks.shape((features.shape[-1],), "Give one parameter per feature, and features [N, n].", w=weights)
    target = np.asarray(labels)
    checks.shape((features.shape[0],), "Give one label per example.", labels=target)
    if not np.isin(target, (0, 1)).all():
        raise ValueError(f"Expected labels 0 and 1, got {np.setdiff1d(target, (0, 1))[:3].tolist()} among them.")
    margin = np.asarray(features @ weights, float)
    if not np.isfinite(margin).all():
        place = int(np.argmin(np.isfinite(margin)))
        raise ValueError(f"Expected finite features, got an infinite one or NaN in example {place}.")
    reach = float(np.linalg.norm(weights[:-1] if intercept else weights, _DUAL[norm]))
    radius = np.abs(margin) / reach if reach > 0 else np.full(margin.shape, np.inf)
    return np.where((margin > 0) == (target == 1), radius, -radius)
