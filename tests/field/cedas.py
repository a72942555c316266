"""CEDAS with falling step sizes."""

import numpy as np

import jdfl
from tests.field.beer import TOP, TOP_BITS, top
from tests.field.lead import _UNBIASED
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """The nodes keep W H, as in LEAD."""
    gamma, alpha, W = the.algorithm.gamma, the.algorithm.alpha, the.W
    X = H = the.start
    Hw, D = W @ H, np.zeros_like(X)
    for k in range(ROUNDS):
        moved = X - the.algorithm.lr / (1 + the.algorithm.decay * k) * the.gradients(X)
        Q = top(moved - D - H)
        Yhat, Yw = H + Q, Hw + W @ Q
        H, Hw = (1 - alpha) * H + alpha * Yhat, (1 - alpha) * Hw + alpha * Yw
        D = D + gamma / 2 * (Yhat - Yw)
        X = moved - D
        yield X


ROWS = (
    field(
        jdfl.CEDAS(lr=0.05, gamma=0.6, alpha=0.4, decay=0.1, codec=TOP),
        loop,
        bits=TOP_BITS,
        reaches=jdfl.CEDAS(lr=0.2, gamma=0.5, alpha=0.4, codec=_UNBIASED),
        rounds=500,
        same=((jdfl.CEDAS(lr=0.05, codec=jdfl.Dense()), jdfl.ExactDiffusion(lr=0.05)),),
    ),
)
