"""FedFomo."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, Rounds, field


def loop(the: Loop) -> Rounds:
    """Node by node, as the paper prints it: differences of models, with normalised weights."""
    a, x = the.algorithm, the.start
    for _ in range(ROUNDS):
        y = x
        for _ in range(a.local_steps):
            y = y - a.lr * the.gradients(y)
        new = []
        for i in range(M):
            near = [j for j in range(M) if j == i or the.links[i, j]]
            gains = [(loss(the, i, x[i]) - loss(the, i, y[j])) / np.linalg.norm(y[j] - x[i]) for j in near]
            positive = np.maximum(gains, 0)
            weights = positive / positive.sum() if positive.any() else 0 * positive
            new.append(x[i] + sum(w * (y[j] - x[i]) for w, j in zip(weights, near)))
        x = np.stack(new)
        yield x


def loss(the: Loop, i: int, x: np.ndarray) -> float:
    """f_i(x)."""
    A, b = the.examples(i)
    return float(np.mean((A @ x - b) ** 2) / 2)


ROWS = (field(jdfl.FedFomo(lr=0.05, local_steps=2), loop, grads=2),)
