"""Every rule of `jdfl.robust` as a loop over nodes in NumPy, written from its paper, on lists of received rows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

Rows = Sequence[np.ndarray]


def length(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).sum()))


def coordinate_median(rule: Any, own: np.ndarray, rows: Rows, **_: Any) -> np.ndarray:
    return np.median([own, *rows], axis=0)


def trimmed_mean(rule: Any, own: np.ndarray, rows: Rows, **_: Any) -> np.ndarray:
    found = []
    for t, mine in enumerate(own):
        values = sorted(row[t] for row in rows)
        kept = values[rule.b : len(values) - rule.b] if len(values) > 2 * rule.b else []
        found.append(np.mean([mine, *kept]))
    return np.array(found)


def _scores(rule: Any, every: Rows) -> list[float]:
    near = max(1, len(every) - rule.b - 2)
    return [
        sum(sorted(length(one - other) ** 2 for j, other in enumerate(every) if j != i)[:near])
        for i, one in enumerate(every)
    ]


def _best(rule: Any, every: Rows) -> list[int]:
    """By score, then by distance to the first."""
    score = _scores(rule, every)
    return sorted(range(len(every)), key=lambda i: (round(score[i], 12), length(every[i] - every[0])))


def krum(rule: Any, own: np.ndarray, rows: Rows, **_: Any) -> np.ndarray:
    every = [own, *rows]
    return every[_best(rule, every)[0]]


def multi_krum(rule: Any, own: np.ndarray, rows: Rows, **_: Any) -> np.ndarray:
    every = [own, *rows]
    count = max(1, len(every) - rule.b if rule.average is None else min(rule.average, len(every)))
    return np.mean([every[i] for i in _best(rule, every)[:count]], axis=0)


def geometric_median(rule: Any, own: np.ndarray, rows: Rows, **_: Any) -> np.ndarray:
    every = [own, *rows]
    points = np.array(every) - np.median(every, axis=0)

    def total(v: np.ndarray) -> float:
        return sum(length(row - v) for row in points)

    found, before = points.mean(axis=0), None
    while before is None or not np.allclose(found, before, rtol=0, atol=1e-14 * np.abs(points).max()):
        far, before = np.maximum(1e-300, np.sqrt(((points - found) ** 2).sum(axis=1))), found
        share = far.min() / far
        found = share @ points / share.sum()
    corner = min(points, key=total)  # the median of two rows may be anywhere between them
    return np.median(every, axis=0) + (corner if total(corner) < total(found) * (1 - 1e-12) else found)


def _clip(z: np.ndarray, tau: float) -> np.ndarray:
    return z if length(z) <= tau else z * tau / length(z)


def _moved(own: np.ndarray, rows: Rows, weights: Sequence[float], tau: float) -> np.ndarray:
    return own + sum((w * _clip(row - own, tau) for w, row in zip(weights, rows)), np.zeros_like(own))


def clipped_gossip(
    rule: Any, own: np.ndarray, rows: Rows, weights: Sequence[float], most: float, **_: Any
) -> np.ndarray:
    if rule.tau is not None:
        return _moved(own, rows, weights, rule.tau)
    delta = sum(sorted(weights, reverse=True)[: rule.b])
    if delta == 0:
        return _moved(own, rows, weights, np.inf)
    largest = most if rule.reach == "at-least" else delta
    held, squares = 1 - sum(weights), 0.0  # of the node itself, the nearest
    for j in np.argsort([length(row - own) for row in rows], kind="stable"):
        if rule.reach == "at-least" and held > 1 - largest - 1e-9:
            break
        held += weights[j]
        if rule.reach == "at-most" and held > 1 - delta + 1e-9:
            break
        squares += weights[j] * length(rows[j] - own) ** 2
    return _moved(own, rows, weights, np.sqrt(squares / largest))


def cs_plus(rule: Any, own: np.ndarray, rows: Rows, weights: Sequence[float], **_: Any) -> np.ndarray:
    most = sum(weights) - 2 * sum(sorted(weights, reverse=True)[: rule.b])
    held, tau = 0.0, 0.0
    for j in np.argsort([length(row - own) for row in rows], kind="stable"):
        held += weights[j]
        if held > most + 1e-9:
            break
        tau = length(rows[j] - own)
    return _moved(own, rows, weights, tau)


def nna(rule: Any, own: np.ndarray, rows: Rows, **_: Any) -> np.ndarray:
    near = sorted([own, *rows], key=lambda row: length(row - own))
    return np.mean(near[: max(1, len(near) - rule.b)], axis=0)


def ubar(rule: Any, own: np.ndarray, rows: Rows, loss: Callable[[np.ndarray], float], **_: Any) -> np.ndarray:
    near = sorted(rows, key=lambda row: length(row - own))[: max(1, int(rule.rho * len(rows) + 1e-9))]
    worse = near if rule.fallback == "nearest" else sorted(near, key=loss)
    good = [row for row in near if loss(row) <= loss(own)] or worse[:1]
    return rule.alpha * own + (1 - rule.alpha) * np.mean(good, axis=0) if good else own


def balance(rule: Any, own: np.ndarray, rows: Rows, k: int, **_: Any) -> np.ndarray:
    most = rule.gamma * np.exp(-rule.kappa * k / rule.horizon) * length(own)
    good = [row for row in rows if length(row - own) <= most]
    return rule.alpha * own + (1 - rule.alpha) * np.mean(good, axis=0) if good else own


def weighted(rule: Any, own: np.ndarray, rows: Rows, weights: Sequence[float], **_: Any) -> np.ndarray:
    return (1 - sum(weights)) * own + sum((w * row for w, row in zip(weights, rows)), np.zeros_like(own))


_ALL = [balance, clipped_gossip, coordinate_median, cs_plus, geometric_median, krum, multi_krum, nna, trimmed_mean]
LOOPS: dict[str, Callable[..., np.ndarray]] = {one.__name__.replace("_", "-"): one for one in (*_ALL, ubar, weighted)}


def combined(
    rule: Any, W: np.ndarray, x: np.ndarray, *, sent: Any = None, k: int = 0, loss: Any = None, received: Any = None
) -> np.ndarray:
    """The rows [m, n] of a rule for mixing weights W [m, m], whose other nonzeros are the links, and own rows x [m, n].

    Row j of `sent` arrives from node j, or received(i, j) at node i; a row of node i has the loss loss(i, row).
    """
    rows = x if sent is None else sent
    received = received or (lambda i, j: rows[j])
    found = []
    heavy = [np.sort(row)[::-1][: rule.b].sum() for row in W * (1 - np.eye(len(W)))]
    for i, own in enumerate(x):
        links = [j for j in np.flatnonzero(W[i]) if j != i and np.isfinite(received(i, j)).all()]
        given = {"weights": W[i, links].tolist(), "k": k, "most": max(heavy), "loss": loss and partial(loss, i)}
        found.append(LOOPS[rule.kind](rule, own, [received(i, j) for j in links], **given))
    return np.stack(found)
