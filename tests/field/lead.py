"""LEAD, with its COMM procedure: H_w is W H, which every node keeps up to date with what it receives."""

import numpy as np

import jdfl
from tests.field.beer import TOP, TOP_BITS, top
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """Algorithm 1."""
    lr, gamma, alpha, W = the.algorithm.lr, the.algorithm.gamma, the.algorithm.alpha, the.W
    H, D = the.start, np.zeros_like(the.start)
    Hw = W @ H
    X = the.start - lr * the.gradients(the.start)
    for _ in range(ROUNDS):
        G = the.gradients(X)
        Y = X - lr * G - lr * D
        Q = top(Y - H)
        Yhat, Yw = H + Q, Hw + W @ Q
        H, Hw = (1 - alpha) * H + alpha * Yhat, (1 - alpha) * Hw + alpha * Yw
        D = D + gamma / (2 * lr) * (Yhat - Yw)
        X = X - lr * G - lr * D
        yield X


_UNBIASED = jdfl.RandomK(share=0.5, scaled=True)  # omega = 1
ROWS = (
    field(
        jdfl.LEAD(lr=0.05, gamma=0.6, alpha=0.4, codec=TOP),
        loop,
        bits=TOP_BITS,
        first=1,
        reaches=jdfl.LEAD(lr=0.2, gamma=0.5, alpha=0.4, codec=_UNBIASED),
        rounds=500,
        same=((jdfl.LEAD(lr=0.05, alpha=0.3, codec=jdfl.Dense()), jdfl.NIDS(lr=0.05)),),
    ),
)
