"""DIGing and Aug-DGM."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, field


def loop(the: Loop) -> np.ndarray:
    """Both orders, with W x as a product of matrices."""
    W, lr, x = the.W, the.algorithm.lr, the.start
    y = g = the.gradients(x)
    xs = []
    for _ in range(ROUNDS):
        atc = the.algorithm.order == "adapt-then-combine"
        x = W @ (x - lr * y) if atc else W @ x - lr * y
        new = the.gradients(x)
        y = W @ (y + new - g) if atc else W @ y + new - g
        g = new
        xs.append(x)
    return np.stack(xs)


_GIVEN = {"channels": ("model", "tracker"), "first": 1}
_ATC = jdfl.DIGing(lr=0.05, order="adapt-then-combine")
ROWS = (
    field(jdfl.DIGing(lr=0.05), loop, reaches=jdfl.DIGing(lr=0.05), **_GIVEN),
    field(_ATC, loop, label="Aug-DGM", reaches=_ATC, **_GIVEN),
)
