"""Distributed dual averaging as a plain loop over nodes, with the nodes' activity and the noise as arguments."""

from collections.abc import Callable

import numpy as np

from tests.reference.family import mixed


def dp_dda(
    gradient: Callable[[int, np.ndarray], np.ndarray],
    W: np.ndarray,
    start: np.ndarray,
    active: np.ndarray,
    noise: np.ndarray,
    *,
    lr: float,
    p: float,
    mu: float | None = None,
    adapt_first: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The duals and parameters [rounds, m, n] after every round.

    `W` [rounds, m, m] are the mixing matrices, `active` [rounds, m] says who is, `noise` [rounds, m, n] is what every
    node's gradient would be given.
    """
    x, z, total = start.copy(), np.zeros_like(start), 0.0
    zs, xs = [], []
    for t in range(len(active)):
        a = 1.0 if mu is None else t + 1.0
        c = lr / np.sqrt(t + 1) if mu is None else lr / (t + 1)
        total += a
        added = np.zeros_like(z)
        for i in range(len(x)):
            if active[t, i]:
                added[i] = a / p * (gradient(i, x[i]) + noise[t, i] - (mu or 0.0) * x[i])
        z = mixed(W[t], z + added) if adapt_first else mixed(W[t], z) + added
        for i in range(len(x)):  # where <z, x> + total mu / 2 |x|^2 + |x - start|^2 / (2 c) has no slope
            x[i] = (start[i] / c - z[i]) / (1 / c + total * (mu or 0.0))
        zs.append(z.copy())
        xs.append(x.copy())
    return np.stack(zs), np.stack(xs)
