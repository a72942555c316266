"""QG-DSGDm and QG-Adam."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field


def sgd(the: Loop) -> Rounds:
    """Every node's momentum in turn."""
    a, x = the.algorithm, the.start
    hat = [np.zeros(x.shape[1]) for _ in x]
    for _ in range(ROUNDS):
        half = []
        for i, row in enumerate(x):
            g = the.gradient(i, row)
            h = a.beta * hat[i] + g
            half.append(row - a.lr * (g + a.beta * h) if a.nesterov else row - a.lr * h)
        before, x = x, the.W @ np.stack(half)
        hat = [a.mu * old + (1 - a.mu) / a.lr * step for old, step in zip(hat, before - x)]
        yield x


def adam(the: Loop) -> Rounds:
    """Every node's moments in turn."""
    a, x = the.algorithm, the.start
    first, second = np.zeros_like(x), np.zeros_like(x)
    for k in range(1, ROUNDS + 1):
        half = x.copy()
        for i, row in enumerate(x):
            g = the.gradient(i, row)
            h, v = a.beta1 * first[i] + g, a.beta2 * second[i] + (1 - a.beta2) * g**2
            half[i] -= a.lr / (1 - a.beta1**k) * h / (np.sqrt(v) / np.sqrt(1 - a.beta2**k) + a.eps)
        new = the.W @ half
        for i, moved in enumerate(x - new):
            d = moved / (np.sqrt(moved @ moved) + a.eps)
            first[i] = a.beta1 * first[i] + (1 - a.beta1) * d
            second[i] = a.beta2 * second[i] + (1 - a.beta2) * d**2
        x = new
        yield x


ROWS = (
    field(jdfl.QGDSGDm(lr=0.02, beta=0.8, mu=0.7), sgd, more=(jdfl.QGDSGDm(lr=0.02, nesterov=True),)),
    field(jdfl.QGAdam(), adam, exact={"eps": 1.0}),
)
