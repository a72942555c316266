"""ATG, with two variables for every link."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field


def loop(the: Loop) -> Rounds:
    """The updates as printed: z[i, j] [2, n] for every link."""
    how, x, z = the.algorithm, the.start, np.zeros((M, M, 2, N))
    z[:, :, 0] = how.penalty * the.links[:, :, None] * x[:, None]
    for _ in range(ROUNDS):
        both, g = [], the.gradients(x)
        for i in range(M):
            both.append((np.stack([x[i], g[i]]) + z[i].sum(axis=0)) / (1 + how.penalty * the.links[i].sum()))
        y, s = np.stack(both, axis=1)
        x, old = x + how.gamma * (y - x) - how.gamma * how.delta * s, z.copy()
        for i, j in np.argwhere(the.links):
            new = -old[j, i] + 2 * how.penalty * both[j]
            z[i, j] = (1 - how.relaxation) * old[i, j] + how.relaxation * new
        yield x


ROWS = (
    field(jdfl.ATG(relaxation=0.7), loop, channels=("model", "tracker"), swept="delta", reaches=jdfl.ATG(), rounds=600),
)
