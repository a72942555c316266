"""DPDO and CPGT as loops over nodes, written from their formulas, with the noise as an argument.

W is a mixing matrix [m, m], `gradient(i, x)` node i's, laplace standard Laplace numbers of all rounds [rounds, m, n] or
None for no noise. Everything starts at zero; every function returns the parameters after each round [rounds, m, n].
"""

from collections.abc import Sequence

import numpy as np

from tests.reference.compressed import Compress, Copies, Gradient


def shortened(g: np.ndarray, longest: float | None) -> np.ndarray:
    """The vector, no longer in l2 than it may be: also its projection onto a ball about zero."""
    length = np.sqrt((g**2).sum())
    return g if longest is None or length <= longest else longest / length * g


def dpdo(
    gradient: Gradient,
    W: Sequence[np.ndarray],
    n: int,
    laplace: np.ndarray | None,
    *,
    c: float,
    q: float,
    p: float,
    radius: float | None,
    clip: float | None,
    epsilon: float | None,
) -> np.ndarray:
    """Huang, Mitra, Vaidya (2015), with the noise's constant of `jdfl.algorithms.dpdo`; W[t] is that of round t."""
    m, x, course = len(W[0]), np.zeros((len(W[0]), n)), []
    for t, weights in enumerate(W):
        sent = x.copy()
        if laplace is not None and clip is not None and epsilon is not None:
            sent = x + 2 * clip * np.sqrt(n) * c / (epsilon * (p - q)) * p**t * laplace[t]
        for i in range(m):
            z = sum((weights[i, j] * sent[j] for j in range(m)), np.zeros(n))
            x[i] = shortened(z - c * q**t * shortened(gradient(i, z), clip), radius)
        course.append(x.copy())
    return np.stack(course)


def cpgt(
    gradient: Gradient,
    W: np.ndarray,
    n: int,
    laplace: tuple[np.ndarray, np.ndarray],
    compress: Compress,
    *,
    lr: float,
    gamma: float,
    noise: tuple[float, float],
    decay: float,
    clip: float | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Xie et al. (2023) in the order of `jdfl.algorithms.cpgt`; also y and the last gradients after each round."""
    m = len(W)
    x, x_copies, y_copies = np.zeros((m, n)), Copies(W, n), Copies(W, n)
    g = np.stack([shortened(gradient(i, x[i]), clip) for i in range(m)])
    y, course = g.copy(), []
    for k in range(len(laplace[0])):
        for copies, own, drawn, scale in ((x_copies, x, laplace[0], noise[0]), (y_copies, y, laplace[1], noise[1])):
            shown = [own[i] + scale * decay**k * drawn[k, i] for i in range(m)]
            for i, q in enumerate([compress(shown[i] - copies.own(i)) for i in range(m)]):
                copies.receive(i, q)
        x = np.stack([x[i] + gamma * x_copies.pull(i) - lr * y[i] for i in range(m)])
        for i in range(m):
            new = shortened(gradient(i, x[i]), clip)
            y[i] = y[i] + gamma * y_copies.pull(i) + new - g[i]
            g[i] = new
        course.append((x, y.copy(), g.copy()))
    parts = (np.stack(part) for part in zip(*course))
    return next(parts), next(parts), next(parts)
