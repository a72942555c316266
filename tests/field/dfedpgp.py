"""DFedPGP on a directed network, with half of the parameters shared."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, N, Rounds, directed, field


def loop(the: Loop) -> Rounds:
    """Node by node, in the order of the paper: personal steps, shared steps, push, and the correction."""
    P, a, d = the.W, the.algorithm, the.problem.n_shared
    u, v, w = list(the.start[:, :d]), list(the.start[:, d:]), np.ones(M)
    z = list(u)
    for _ in range(ROUNDS):
        for i in range(M):
            for _ in range(a.personal_steps if d < N else 0):
                v[i] = v[i] - a.lr_local * the.gradient(i, np.append(z[i], v[i]))[d:]
            for _ in range(a.local_steps):
                u[i] = u[i] - a.lr * the.gradient(i, np.append(z[i], v[i]))[:d]
                z[i] = u[i] / w[i]
        u = [sum(P[i, j] * u[j] for j in range(M)) for i in range(M)]
        w = P @ w
        z = [u[i] / w[i] for i in range(M)]
        yield [np.append(z[i], v[i]) for i in range(M)]


_HALF = jdfl.DFedPGP(lr=0.05, lr_local=0.03, local_steps=2, personal_steps=3)
_ALL = jdfl.DFedPGP(lr=0.05)
ROWS = (
    field(_HALF, loop, shared=N // 2, bits=32 * (N // 2 + 1), grads=5, on=directed, same=((_ALL, jdfl.SGP(lr=0.05)),)),
)
