"""What a linear view of noisy releases reveals about each node: exact for fixed data, by linear algebra.

A view is A g + B z, with the data g of all releases and nodes, and unit noises z unknown to the observer. A change d of
the data of node u makes it a Gaussian shift, whose squared size in units of the noise is d^T M d with
M = A_u^T (B B^T)^+ A_u [P, P]; it is infinite where A_u shows something that B does not cover.

A. Bellet, E. Cyffers, D. Frey, R. Gaudel, D. Lerévérend, F. Taiani: Unified Privacy Guarantees for Decentralized
Learning via Matrix Factorization, 2025.

Axes: m nodes, P releases per node, R rows of a view.
"""

import math

import numpy as np
import scipy.linalg

_RANK = 1e-11  # of the largest singular value: smaller directions are taken for rounding errors
_CLEAR = 1e-4  # smallest pivot of rows that are clearly independent
_ROUNDS, _ENOUGH = 300, 1e-4  # of the search for the worst changes, and the gap at which it stops


def flat(rows: np.ndarray, unknown: np.ndarray) -> np.ndarray:
    """The columns [R, N] of rows [R, P, m] that belong to unknown nodes [m]."""
    return rows[:, :, unknown].reshape(len(rows), rows.shape[1] * int(unknown.sum()))


def blocks(rows: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """What a view reveals about each node, M [m, P, P]; infinite where something is shown without noise."""
    count, releases, m = rows.shape
    white = whitened(rows.reshape(count, releases * m), noise).reshape(-1, releases, m)
    with np.errstate(invalid="ignore"):
        return np.einsum("rpu,rtu->upt", white, white, optimize=True)


def whitened(data: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """A view's data [R, D] in coordinates in which its noise [R, N] is white; infinite where data has no noise."""
    length = np.linalg.norm(noise, axis=1)
    bare = length <= _RANK * np.max(length, initial=0.0)
    shown = np.any(np.abs(data[bare]) > _RANK * np.max(np.abs(data), initial=0.0), axis=0)
    noise, data = (one[~bare] / length[~bare, None] for one in (noise, data))
    found = _whitened(data, noise) if len(noise) else np.zeros((1, data.shape[1]))
    found[:, shown] = np.inf
    return found


def _whitened(data: np.ndarray, noise: np.ndarray) -> np.ndarray:
    try:  # by far the fastest way, where rows are clearly independent
        low = scipy.linalg.cholesky(noise @ noise.T, lower=True, check_finite=False)
        if np.min(np.diag(low)) > _CLEAR:
            return scipy.linalg.solve_triangular(low, data, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        pass
    r = scipy.linalg.qr(noise.T, mode="r", check_finite=False)[0][: len(noise)]
    _, size, axes = scipy.linalg.svd(r)
    axes = axes[: len(size)]
    kept = axes[size > _RANK * size[0]]
    rest = data - kept.T @ (kept @ data)
    found = (kept @ data) / size[size > _RANK * size[0], None]
    found[:, np.linalg.norm(rest, axis=0) > 1e-7 * np.linalg.norm(data, axis=0)] = np.inf
    return found


def largest(M: np.ndarray) -> np.ndarray:
    """Upper bounds [m] on the sums of M_ts <d_t, d_s> over vectors of norm at most one, for M [m, P, P] >= 0.

    The bound is the sum of M where no entry is negative. Elsewhere a search finds the worst vectors. From them follows
    an upper bound sum y with diag(y) >= M (the dual of this semidefinite program); the smallest of it, the sum of |M|,
    and P times the largest eigenvalue is used.
    """
    found = np.full(len(M), np.inf)
    finite = np.isfinite(M).all(axis=(1, 2))
    found[finite] = _bounds(M[finite])
    return found


def _bounds(M: np.ndarray) -> np.ndarray:
    """`largest` for finite entries."""
    found = np.abs(M).sum(axis=(1, 2))
    signed = np.flatnonzero(M.min(axis=(1, 2)) < -1e-12 * np.abs(M).max(axis=(1, 2)))
    if signed.size:
        found[signed] = np.minimum(found[signed], _signed(M[signed]))
    return found


def _signed(M: np.ndarray) -> np.ndarray:
    """Upper bounds [m] by the dual, for M [m, P, P] with negative entries."""
    count = M.shape[1]
    value, vector = np.linalg.eigh(M)
    most = count * value[:, -1]
    d = vector[:, :, -min(count, math.isqrt(2 * count) + 2) :] * np.sqrt(np.maximum(value[:, None, -1:], 0.0))
    d = d / np.maximum(np.linalg.norm(d, axis=2, keepdims=True), 1e-300)
    own = np.einsum("mtt->mt", M)
    for step in range(_ROUNDS):
        for t in range(count):
            pulled = np.einsum("ms,msk->mk", M[:, t], d) - own[:, t, None] * d[:, t]
            size = np.linalg.norm(pulled, axis=1, keepdims=True)
            d[:, t] = np.where(size > 0, pulled / np.maximum(size, 1e-300), d[:, t])
        if step % 10 < 9:
            continue
        y = np.linalg.norm(M @ d - own[:, :, None] * d, axis=2) + own
        missing = np.maximum(0.0, np.linalg.eigvalsh(M - y[:, :, None] * np.eye(count))[:, -1])
        most = np.minimum(most, y.sum(axis=1) + count * missing)
        if np.all(count * missing <= _ENOUGH * most):
            break
    return most


def spans(rows: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether rows [R, N] span all rows of `wanted` [k, N]."""
    size = np.linalg.norm(wanted, axis=1)
    if not np.any(size > 0):
        return True
    basis = whitened(rows, rows)  # orthonormal: in coordinates in which they are white
    rest = wanted - (wanted @ basis.T) @ basis
    return bool(np.all(np.linalg.norm(rest, axis=1) <= 1e-7 * size))
