"""GUT."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, Rounds, field


def loop(the: Loop) -> Rounds:
    """Node by node, with the update d of the paper and its correction for the place of the neighbours."""
    W, lr, mu = the.W, the.algorithm.lr, the.algorithm.mu
    x = before = the.start
    y, last = np.zeros_like(x), np.zeros_like(x)
    for _ in range(ROUNDS):
        d, new = np.zeros_like(x), np.zeros_like(x)
        for i in range(M):
            d[i] = the.gradient(i, x[i]) - sum(W[i, j] * (x[j] - x[i]) for j in range(M)) / lr
            seen = sum(W[i, j] * (y[j] - (before[j] - before[i]) / lr) for j in range(M))
            new[i] = d[i] + mu * (seen - last[i])
        before, last, y = x, d, new
        x = x - lr * y
        yield x


ROWS = (field(jdfl.GUT(lr=0.05, mu=0.4), loop, same=((jdfl.GUT(lr=0.05, mu=0.0), jdfl.DPSGD(lr=0.05)),)),)
