"""Means over trials with confidence intervals, and differences between methods that are paired by trial.

All intervals are Student's, for independent trials whose values are about normal: mean +- t sd / sqrt(T), with T - 1
degrees of freedom. Where k methods are compared, each paired difference has an interval of confidence
1 - (1 - level) / c (Bonferroni), so that all intervals that are shown hold together with probability `level`. With a
reference that was named beforehand c is k - 1, the number of differences from it. The method with the best mean is
chosen by looking at the same trials, which makes it look better than it is; c is then k (k - 1) / 2, the number of all
pairs, among which these differences are whatever is chosen. A method is the best only where all of its intervals
exclude zero. The probability that one is called the best while another one is at least as good is then at most
(1 - level) / 2: for that, an interval of the differences from the truly best method would have to miss zero on one
side.

Axes: T trials, k methods.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

LEVEL = 0.95
ALIKE = 1e-6  # relative difference up to which two values are the same: rounding in float32


def half_width(values: np.ndarray, level: float = LEVEL) -> float:
    """Half the length of the confidence interval of a mean; NaN for fewer than two values, or with one not finite."""
    size = len(values)
    if size < 2 or not np.isfinite(values).all():
        return float("nan")
    return float(stdtrit(size - 1, (1 + level) / 2) * np.std(values, ddof=1) / np.sqrt(size))


def half_widths(values: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """`half_width` of the values [k, T] of every row, without those that are NaN; returns [k]."""
    missing = np.isnan(values)
    size = values.shape[1] - missing.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(missing, 0.0, values).sum(axis=1) / size
        spread = np.sqrt((np.where(missing, 0.0, values - mean[:, None]) ** 2).sum(axis=1) / (size - 1))
        half = stdtrit(size - 1, (1 + level) / 2) * spread / np.sqrt(size)
    return np.where((size > 1) & np.isfinite(half), half, np.nan)


def differences(
    values: pd.DataFrame,
    sign: int,
    reference: str | None = None,
    level: float = LEVEL,
    apart: Sequence[str] = (),
) -> pd.DataFrame:
    """Paired differences of all methods from one of them, with simultaneous confidence intervals.

    Those in `apart` are never the reference, and have no difference.
    """
    values = values.drop(columns=list(apart))
    columns = ["reference", "difference", "low", "high", "trials", "verdict"]
    whole = [str(name) for name in values.columns if len(values) and np.isfinite(values[name]).all()]
    named = reference is not None
    if reference is None:
        reference = min(whole, key=lambda name: sign * float(values[name].mean()), default=None)
    if reference is None:
        return pd.DataFrame(columns=columns).rename_axis("label")
    others = [str(name) for name in values.columns if name != reference]
    comparisons = max(1, len(others)) * (1 if named else (len(others) + 1) / 2)
    each = 1 - (1 - level) / comparisons
    rows: dict[str, list[object]] = {}
    for label in others:
        pairs = values[[label, reference]].to_numpy(float)
        pairs = pairs[np.isfinite(pairs).all(axis=1)]
        gaps = pairs[:, 0] - pairs[:, 1]
        mean = float(gaps.mean()) if len(gaps) else float("nan")
        half = half_width(gaps, each)
        same = len(gaps) > 0 and np.ptp(gaps) == 0 == mean
        far = abs(mean) > max(half, ALIKE * float(np.abs(pairs).max(initial=0.0)))
        verdict = "not distinguishable" if same or not far else "better" if sign * mean < 0 else "worse"
        rows[label] = [reference, mean, mean - half, mean + half, len(gaps), verdict]
    rows |= {label: [reference, np.nan, np.nan, np.nan, 0, "not comparable"] for label in apart}
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("label")


def leaders(values: pd.DataFrame, sign: int) -> list[str]:
    """The method with the best mean, first, and all that cannot be distinguished from it.

    Methods without a value in some trial are left out; with a single trial there are no intervals, and no leader.
    """
    whole: Sequence[str] = [str(name) for name in values.columns if len(values) and np.isfinite(values[name]).all()]
    if len(values) < 2 or not whole:
        return []
    found = differences(values[list(whole)], sign)
    (best,) = set(whole) - set(found.index)
    return [best, *(str(label) for label in found.index[found["verdict"] == "not distinguishable"])]
