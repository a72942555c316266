"""DiNNO."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """Every node by itself, with the gradient of its augmented Lagrangian as a sum over its neighbours."""
    lr, rho, x, p = the.algorithm.lr, the.algorithm.penalty, the.start, 0 * the.start
    for _ in range(ROUNDS):
        new = []
        for i, x_i in enumerate(x):
            neighbours = np.flatnonzero(the.links[i])
            p[i] = p[i] + rho * sum(x_i - x[j] for j in neighbours)
            y = x_i
            for _ in range(the.algorithm.local_steps):
                y = y - lr * (the.gradient(i, y) + p[i] + sum(2 * rho * (y - (x_i + x[j]) / 2) for j in neighbours))
            new.append(y)
        x = np.stack(new)
        yield x


ROWS = (field(jdfl.DiNNO(local_steps=3), loop, grads=3, reaches=jdfl.DiNNO(), rounds=600),)
