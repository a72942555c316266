"""Push-DIGing and ADD-OPT on a directed network."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, N, Rounds, directed, field


def loop(the: Loop) -> Rounds:
    """Node by node, with sums over the in-neighbours as they are printed."""
    P, lr, first = the.W, the.algorithm.lr, type(the.algorithm) is jdfl.PushDIGing
    u, a, x = the.start, np.ones(M), the.start
    y = [the.gradient(i, x[i]) for i in range(M)]
    for _ in range(ROUNDS):
        sent = [u[j] - lr * y[j] if first else u[j] for j in range(M)]
        u = [sum(P[i, j] * sent[j] for j in range(M)) - (0 if first else lr * y[i]) for i in range(M)]
        a = [sum(P[i, j] * a[j] for j in range(M)) for i in range(M)]
        new = np.stack([u[i] / a[i] for i in range(M)])
        change = [the.gradient(i, new[i]) - the.gradient(i, x[i]) for i in range(M)]
        y = [sum(P[i, j] * y[j] for j in range(M)) + change[i] for i in range(M)]
        x = new
        yield x


_BITS = {"model": 32 * (N + 1), "tracker": 32 * N}
_GIVEN = {"channels": tuple(_BITS), "bits": _BITS, "first": 1, "on": directed, "rounds": 1000}
_DIGING, _ADD = jdfl.PushDIGing(lr=0.05), jdfl.ADDOPT(lr=0.05)
ROWS = (field(_DIGING, loop, reaches=_DIGING, **_GIVEN), field(_ADD, loop, reaches=_ADD, **_GIVEN))
