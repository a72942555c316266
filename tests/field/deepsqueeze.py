"""DeepSqueeze."""

import numpy as np

import jdfl
from tests.field.beer import TOP, TOP_BITS, top
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """One node after the other; what was owed and was not sent is owed still."""
    lr, gamma, W, x = the.algorithm.lr, the.algorithm.gamma, the.W, the.start
    error = np.zeros_like(x)
    for _ in range(ROUNDS):
        half = x - lr * the.gradients(x)
        sent = top(half + error)
        error = half + error - sent
        x = np.stack([half[i] + gamma * (W[i] @ sent - sent[i]) for i in range(len(x))])
        yield x


_PARENT = jdfl.DPSGD(lr=0.05, order="adapt-then-combine")
ROWS = (
    field(
        jdfl.DeepSqueeze(lr=0.05, gamma=0.2, codec=TOP),
        loop,
        bits=TOP_BITS,
        same=((jdfl.DeepSqueeze(lr=0.05, gamma=1.0, codec=jdfl.Dense()), _PARENT),),
    ),
)
