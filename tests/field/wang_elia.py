"""Wang-Elia."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, Rounds, field


def loop(the: Loop) -> Rounds:
    """The recursion in x alone, without the integral."""
    lr, K = the.algorithm.lr, the.algorithm.gain * (np.eye(M) - the.W)
    before = the.start
    x = before - K @ before - lr * the.gradients(before)
    yield x
    for _ in range(ROUNDS - 1):
        change = lr * (the.gradients(x) - the.gradients(before))
        x, before = 2 * x - K @ x - (before - K @ before + K @ K @ before) - change, x
        yield x


ROWS = (
    field(
        jdfl.WangElia(lr=0.05, gain=0.6),
        loop,
        channels=("model", "integral"),
        reaches=jdfl.WangElia(lr=0.1, gain=1.0),
        rounds=450,
    ),
)
