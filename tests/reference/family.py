"""The family's plain members as loops over nodes, written from their papers.

W[k] is round k's mixing matrix [m, m], `gradient(i, x)` node i's, everything starts at zero; every function returns the
parameters after each round [rounds, m, n].
"""

from collections.abc import Callable, Sequence

import numpy as np

from tests.reference.gpsp import keep_largest

Gradient = Callable[[int, np.ndarray], np.ndarray]


def mixed(W: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Every node's weighted sum of what it hears."""
    return np.stack([sum(W[i, j] * x[j] for j in range(len(x))) for i in range(len(x))])


def dpsgd(
    gradient: Gradient,
    W: Sequence[np.ndarray],
    n: int,
    *,
    lr: float,
    period: int = 1,
    local_steps: int = 1,
    adapt_first: bool = False,
    s: int | None = None,
) -> np.ndarray:
    """Lian et al. (2017), Algorithm 1, with messages every `period` rounds.

    Wang et al. (2019) make local steps; IHT keeps the `s` largest entries.
    """
    m = len(W[0])
    x, course = np.zeros((m, n)), []
    for k, weights in enumerate(W):
        matrix = weights if k % period == 0 else np.eye(m)
        y = x.copy()
        for i in range(m):
            for _ in range(local_steps):
                y[i] = y[i] - lr * gradient(i, y[i])
        x = mixed(matrix, y) if adapt_first else mixed(matrix, x) + y - x
        x = x if s is None else np.stack([keep_largest(row, s) for row in x])
        course.append(x)
    return np.stack(course)


def dfedsam(
    gradient: Gradient,
    W: Sequence[np.ndarray],
    n: int,
    *,
    lr: float,
    rho: float,
    local_steps: int,
    gossip_steps: int = 1,
) -> np.ndarray:
    """Shi et al. (2023), Algorithm 1."""
    m = len(W[0])
    x, course = np.zeros((m, n)), []
    for weights in W:
        y = x.copy()
        for i in range(m):
            for _ in range(local_steps):
                g = gradient(i, y[i])
                norm = np.linalg.norm(g)
                ahead = y[i] + (rho * g / norm if norm > 0 else 0)
                y[i] = y[i] - lr * gradient(i, ahead)
        for _ in range(gossip_steps):
            y = mixed(weights, y)
        x = y
        course.append(x)
    return np.stack(course)


def fedavg(
    gradient: Gradient,
    m: int,
    n: int,
    chosen: Sequence[Sequence[int]],
    *,
    lr: float,
    local_steps: int,
    share: np.ndarray | None = None,
) -> np.ndarray:
    """McMahan et al. (2017), Algorithm 1; `chosen[k]` are round k's clients, `share` [m] their weights."""
    x, course = np.zeros(n), []
    share = np.ones(m) if share is None else share
    for clients in chosen:
        learnt = []
        for i in clients:
            y = x.copy()
            for _ in range(local_steps):
                y = y - lr * gradient(i, y)
            learnt.append(y)
        weight = np.array([share[i] for i in clients])
        x = sum(w * y for w, y in zip(weight / weight.sum(), learnt))
        course.append(np.tile(x, (m, 1)))
    return np.stack(course)
