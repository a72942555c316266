"""Momentum tracking and DSGT-HB."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field


def tracked(the: Loop) -> Rounds:
    """With the corrections c of the paper in the place of trackers."""
    W, lr, beta, x = the.W, the.algorithm.lr, the.algorithm.beta, the.start
    u, c = np.zeros_like(x), np.zeros_like(x)
    for _ in range(ROUNDS):
        u = beta * u + the.gradients(x)
        x = W @ x - lr * (u - c)
        c = W @ (c - u) + u
        yield x


def heavy(the: Loop) -> Rounds:
    """With the momentum as a sum over all trackers so far."""
    W, lr, beta, x = the.W, the.algorithm.lr, the.algorithm.beta, the.start
    g = the.gradients(x)
    ys = [g]
    for k in range(ROUNDS):
        factors = [beta**k] + [(1 - beta) * beta ** (k - j) for j in range(1, k + 1)]
        x = W @ (x - lr * np.tensordot(factors, np.stack(ys), 1))
        new = the.gradients(x)
        ys.append(W @ (ys[-1] + new - g))
        g = new
        yield x


_GIVEN = {"channels": ("model", "tracker"), "first": 1}
_MT, _HB = jdfl.MomentumTracking, jdfl.DSGTHB
ROWS = (
    field(_MT(lr=0.02, beta=0.7), tracked, reaches=_MT(lr=0.02, beta=0.7), rounds=450, **_GIVEN),
    field(_HB(lr=0.05), heavy, reaches=_HB(lr=0.1), rounds=450, **_GIVEN),
)
