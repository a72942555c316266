"""GPSP, the one-bit decoder of Zhou, Luo, Xiu and Li (IEEE TSP 2022), as a plain float64 loop.

minimise ||A x + y - e||^2 + eta ||x||^2   with ||x||_0 <= s and at most k positive entries of y,   A = diag(c) Phi
"""

import numpy as np


def keep_largest(x: np.ndarray, s: int) -> np.ndarray:
    """Zero all but the s entries largest in magnitude, the lower index first among equals."""
    kept = np.argsort(-np.abs(x), kind="stable")[:s]
    out = np.zeros_like(x)
    out[kept] = x[kept]
    return out


def working_sparsity(n: int, d: int, s: int) -> int:
    """How many entries the decoder works with before it cuts back to s."""
    ratio = s / n
    if d >= 2.1 * n:
        return s
    if 0.005 <= ratio <= 0.01:
        return min(n, int(np.ceil(1.2 * s)))
    if 0.01 < ratio < 0.1:
        return min(n, int(np.ceil((1 + min(1.0, d / n)) * s)))
    return s


def keep_flips(y: np.ndarray, flips: int) -> np.ndarray:
    """Keep the negative entries and the `flips` largest positive ones."""
    positive = np.maximum(y, 0)
    return np.minimum(y, 0) + (keep_largest(positive, flips) if flips else 0)


def gpsp(
    phi: np.ndarray,
    c: np.ndarray,
    s: int,
    *,
    flips: int = 0,
    margin: float = 0.01,
    eta: float = 1e-4,
    step: float = 0.6,
    cap: int = 20,
    halvings: int = 10,
    tolerance: float = 0.1,
    start: np.ndarray | None = None,
    return_iterations: bool = False,
):
    """The unit vector x [n] with sign(phi x) ~ c; phi [d, n], c [d] of +-1; `start` [n] is near it, unless zero."""
    d, n = phi.shape
    work = working_sparsity(n, d, s)
    A = c[:, None] * phi
    x, y = np.zeros(n, phi.dtype), np.zeros(d, phi.dtype)

    def objective(x, y):
        v = A @ x + y - margin
        return v @ v + eta * (x @ x)

    T = np.array([], int)
    if start is not None and start.any():
        x = keep_largest(start, work)
        x *= 2 * margin / np.linalg.norm(x)
        y = keep_flips(margin - A @ x, flips)
        T = np.sort(np.argsort(-np.abs(start), kind="stable")[:work])
    best = objective(x, y)
    iteration = 0
    while iteration < cap:
        iteration += 1
        v = A @ x + y - margin
        g = A.T @ v + eta * x
        a = step / d
        for _ in range(halvings):
            xt, yt = keep_largest(x - a * g, work), keep_flips(y - a * v, flips)
            value = objective(xt, yt)
            if value < best:
                break
            a /= 2
        else:
            break
        before = best
        x, y, best = xt, yt, value
        T_new = np.sort(np.flatnonzero(x))
        repeated = np.array_equal(T_new, T)
        T = T_new
        if repeated:
            rows = y == 0
            At = A[np.ix_(rows, T)]
            z = np.linalg.solve(At.T @ At + eta * np.eye(len(T)), margin * At.sum(0))
            xn = np.zeros(n, phi.dtype)
            xn[T] = z
            yn = np.where(rows, 0, keep_flips(margin - A @ xn, flips))
            value = objective(xn, yn)
            if value < best:
                x, y, best = xn, yn, value
            if best > (1 - tolerance) * before:
                break
    x = keep_largest(x, s)
    norm = np.linalg.norm(x)
    x = x / norm if norm > 0 else x
    return (x, iteration) if return_iterations else x
