"""SimpleGT."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, field


def loop(the: Loop) -> np.ndarray:
    """The two lines of decent-bench."""
    W, lr, x = the.W, the.algorithm.lr, the.start
    before = x
    xs = []
    for _ in range(ROUNDS):
        moved = x - lr * the.gradients(x)
        x, before = moved - before + W @ x, moved
        xs.append(x)
    return np.stack(xs)


ROWS = (field(jdfl.SimpleGT(lr=0.05), loop, reaches=jdfl.SimpleGT(lr=0.3), rounds=400),)
