"""DIGing and Aug-DGM."""

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """Both orders, with W x as a product of matrices."""
    W, lr, x = the.W, the.algorithm.lr, the.start
    y = g = the.gradients(x)
    for _ in range(ROUNDS):
        atc = the.algorithm.order == "adapt-then-combine"
        x = W @ (x - lr * y) if atc else W @ x - lr * y
        new = the.gradients(x)
        y = W @ (y + new - g) if atc else W @ y + new - g
        g = new
        yield x


_GIVEN = {"channels": ("model", "tracker"), "first": 1}
_ATC = jdfl.DIGing(lr=0.05, order="adapt-then-combine")
ROWS = (
    field(jdfl.DIGing(lr=0.05), loop, reaches=jdfl.DIGing(lr=0.05), **_GIVEN),
    field(_ATC, loop, label="Aug-DGM", reaches=_ATC, **_GIVEN),
)
