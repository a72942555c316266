"""NGC."""

from typing import Any

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """With all cross gradients c[i, j] = g_i(x_j)."""
    a, W, x = the.algorithm, the.W, the.start
    m, v = len(x), np.zeros_like(x)
    for _ in range(ROUNDS):
        c = {(i, j): the.gradient(i, x[j]) for i in range(m) for j in range(m) if W[i, j]}
        for i in range(m):
            near = [j for j in range(m) if W[i, j]]
            models, data = sum(W[i, j] * c[i, j] for j in near), sum(W[i, j] * c[j, i] for j in near)
            v[i] = a.momentum * v[i] + (1 - a.alpha) * models + a.alpha * data
        x = (1 - a.gamma) * x + a.gamma * W @ x - a.lr * v
        yield x


def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """A gradient for the node and every neighbour; models and gradients go over every link."""
    near, every = (adjacency != 0).sum(axis=0), np.full(len(adjacency), rounds)
    sent = {"model": rounds * near, "cross gradient": rounds * near}
    return {"sent": sent, "communications": every, "grads": rounds * (1 + near), "releases": 0 * every}


_NGC = jdfl.NGC(lr=0.05, alpha=0.7, momentum=0.5, gamma=0.8)
ROWS = (field(_NGC, loop, channels=("model", "cross gradient"), count=count, more=(jdfl.NGC(lr=0.02),)),)
