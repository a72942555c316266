"""Linear rates: the factor by which a curve of a run falls in every round, with an interval, or why there is none."""

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.engine.result import Result

_RECORDS = 12  # fewest in the window of a fit
_DECADE = float(np.log(10))
_TAILS = (2, 3, 4, 6, 8, 12, 16)  # parts of a curve whose last one may be flat
_BENT = 0.05  # relative change of the slope between the halves of a window that makes it no line


@dataclass(frozen=True)
class Rate:
    """A fitted linear rate of convergence.

    `factor` is what the curve is multiplied by in every round; squared quantities, such as `suboptimality`, fall by the
    square of the factor by which distances fall. `interval` covers it with at least the probability `confidence`.
    `window` has the first and the last round of the fit. `floor` is the level at which the curve levels off after the
    window, None where it still falls at its end; with a floor, the rate is that of the transient before it.
    """

    factor: float
    interval: tuple[float, float]
    window: tuple[int, int]
    floor: float | None
    confidence: float

    def __str__(self) -> str:
        """The rate in words."""
        low, high = self.interval
        text = (
            f"{self.factor:.6g} per round ({100 * self.confidence:g} % interval {low:.6g} to {high:.6g}), "
            f"fitted to rounds {self.window[0]} to {self.window[1]}"
        )
        return text if self.floor is None else f"{text}; the curve levels off at {self.floor:.2g}"


@checked
def linear_rate(
    run: Result | pd.DataFrame, metric: str = "suboptimality", *, floor: float = 0.0, confidence: float = 0.95
) -> Rate:
    """The factor per round by which a metric of a run falls, where it falls geometrically.

    The window of the fit is chosen from the curve. It ends a hundred times above the level at which the curve levels
    off (ten times, where that leaves too little), and begins after the transient, where half of the fall, in
    logarithms, is done. In it the logarithm is fitted by least squares. The interval is the wider one of the slope's,
    whose residuals may be correlated (Newey and West, 1987), and of the difference between the slopes of both halves.

    Args:
        run: A result, or a table with the columns `round` and `metric`.
        metric: Name of a column that is positive and goes to zero, such as "suboptimality", "gradient_norm",
            "consensus_error" or "distance_to_optimum".
        floor: Values at or below it are left out, at least 0; `jdfl.problems.suboptimality_floor` gives the one of
            rounding.
        confidence: Probability that the interval covers the factor, in (0, 1).

    Raises ValueError for a curve that falls by less than one decade before it reaches its noise floor or ends, that has
    fewer than 12 records in the window, that is sublinear, or is still in its transient.
    """
    checks.not_negative(floor=floor)
    checks.fraction(confidence=confidence)
    if confidence == 1:
        checks.refuse("confidence in (0, 1)", "confidence", confidence)
    if not isinstance(run, Result | pd.DataFrame):
        checks.refuse("a result, or a table with the columns `round` and `metric`", "run", run)
    history = run.history if isinstance(run, Result) else run
    columns = [str(column) for column in history.columns]
    if "round" not in columns:
        raise ValueError(f"Expected run to have a column `round`, got {', '.join(columns)}. Give a result's history.")
    checks.one_of(columns, metric=metric)
    rounds, values = (history[name].to_numpy(float) for name in ("round", metric))
    if not (np.isfinite(values).all() and (np.diff(rounds) > 0).all()):
        raise ValueError(f"Expected finite values of {metric!r} in rounds that grow, got others. Did the run diverge?")
    first = int(np.argmax(values))  # a consensus error begins at zero
    rounds, values = rounds[first:], values[first:]
    kept = int(np.argmax(values <= floor)) if (values <= floor).any() else len(values)
    reached = kept < len(values)
    x, y = rounds[:kept], np.log(values[:kept])
    if len(x) < _RECORDS:
        _refuse(metric, f"has {len(x)} records above floor = {floor:g}, fewer than {_RECORDS}. Record more")
    level = _level(x, y)
    end = _end(y, level)
    if end < 2 or y[0] - y[:end].min() < _DECADE:
        why = "reached its noise floor" if level is not None or reached else "ended"
        _refuse(metric, f"falls by less than one decade before it {why}: there is too little to fit")
    half = y[0] - 0.5 * (y[0] - y[:end].min())
    begin = int(np.argmax(y[:end] <= half))
    x, y = x[begin:end], y[begin:end]
    if len(x) < _RECORDS:
        _refuse(metric, f"has {len(x)} records where a line would be fitted, fewer than {_RECORDS}. Record more")
    slope, width = _fitted(x, y, confidence)
    middle = len(x) // 2
    (early, w1), (late, w2) = (_fitted(x[part], y[part], confidence) for part in (slice(middle), slice(middle, None)))
    bent, doubt = late - early, 2 * float(np.hypot(w1, w2))
    if abs(bent) > _BENT * abs(slope) + doubt:
        if bent > 0:
            _refuse(metric, "is sublinear: its logarithm falls ever more slowly. Fit a power of the round")
        _refuse(metric, "falls ever faster: it is still in its transient. Run more rounds")
    width = max(width, abs(bent))
    if slope + width >= 0:
        _refuse(metric, "does not fall clearly: its interval holds 1. Record more rounds")
    interval = float(np.exp(slope - width)), float(np.exp(slope + width))
    shown = None if level is None else float(np.exp(level))
    return Rate(float(np.exp(slope)), interval, (int(x[0]), int(x[-1])), shown, confidence)


def _level(x: np.ndarray, y: np.ndarray) -> float | None:
    """The level of the longest last part of the curve that is flat; None where there is none."""
    for parts in _TAILS:
        size = len(y) // parts
        if size < _RECORDS // 2:
            return None
        tail, at = y[-size:], x[-size:]
        slope = _slope(at, tail)
        deviation = float(np.std(tail - slope * at, ddof=2))
        fall = abs(slope) * (at[-1] - at[0])
        if fall <= max(3 * deviation, 0.02) and fall <= 0.05 * max(y[0] - float(np.median(tail)), 1.0):
            return float(np.median(tail))
    return None


def _end(y: np.ndarray, level: float | None) -> int:
    """How many records come before the curve is close to its level."""
    if level is None:
        return len(y)
    for decades in (2, 1):
        below = y <= level + decades * _DECADE
        end = int(np.argmax(below)) if below.any() else len(y)
        if end >= 2 * _RECORDS and y[0] - y[:end].min() >= _DECADE:
            break
    return end


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    centred = x - x.mean()
    return float(centred @ y / (centred @ centred))


def _fitted(x: np.ndarray, y: np.ndarray, confidence: float) -> tuple[float, float]:
    """The slope of a line through y over x, and half the width of its interval, for correlated residuals."""
    slope, centred, n = _slope(x, y), x - x.mean(), len(x)
    terms = centred * (y - y.mean() - slope * centred)
    variance = float(terms @ terms)
    lags = int(np.ceil(1.3 * np.sqrt(n)))
    for lag in range(1, min(lags, n - 1) + 1):
        variance += 2 * (1 - lag / (lags + 1)) * float(terms[lag:] @ terms[:-lag])
    error = np.sqrt(max(variance, 0.0) * n / (n - 2)) / float(centred @ centred)
    return slope, float(stdtrit(n - 2, 0.5 + confidence / 2) * error)


def _refuse(metric: str, why: str) -> NoReturn:
    raise ValueError(f"Expected a curve that falls geometrically, got metric = {metric!r}, which {why}.")
