"""SimpleGT."""

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """The two lines of decent-bench."""
    W, lr, x = the.W, the.algorithm.lr, the.start
    before = x
    for _ in range(ROUNDS):
        moved = x - lr * the.gradients(x)
        x, before = moved - before + W @ x, moved
        yield x


ROWS = (field(jdfl.SimpleGT(lr=0.05), loop, reaches=jdfl.SimpleGT(lr=0.3), rounds=400),)
