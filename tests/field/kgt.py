"""K-GT."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, Rounds, field


def loop(the: Loop) -> Rounds:
    """Algorithm 1, node by node."""
    W, of, K = the.W, the.algorithm, the.algorithm.local_steps
    x, first = the.start, the.gradients(the.start)
    c = first.mean(axis=0) - first if of.start == "mean" else 0 * first
    for _ in range(ROUNDS):
        z = np.zeros_like(x)
        for i in range(M):
            y = x[i]
            for _ in range(K):
                g = the.gradient(i, y)
                y = y - of.lr * (g + c[i])
                z[i] += (g + c[i]) / K
        x = W @ (x - K * of.outer * of.lr * z)
        c = c - z + W @ z
        yield x


ROWS = (
    field(
        jdfl.KGT(lr=0.02, outer=0.8, local_steps=3),
        loop,
        channels=("model", "tracker"),
        grads=3,
        more=(jdfl.KGT(lr=0.02, outer=0.8, local_steps=3, start="mean"),),
        reaches=jdfl.KGT(lr=0.05, outer=0.5),
        rounds=450,
        same=((jdfl.KGT(lr=0.1, outer=0.5, local_steps=1), jdfl.DSGT(lr=0.05)),),
    ),
)
