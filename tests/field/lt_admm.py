"""LT-ADMM, with a variable for every link."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, Rounds, field


def linked(the: Loop) -> np.ndarray:
    """The variables z[i, j] [n] of all links at the start, z_ij = x_i or rho x_i."""
    factor = 1 if the.algorithm.start == "parameters" else the.algorithm.penalty
    return factor * the.links[:, :, None] * the.start[:, None, :]


def loop(the: Loop) -> Rounds:
    """The updates as printed: z[i, j] [n] for every link."""
    how, x, z = the.algorithm, the.start, linked(the)
    for _ in range(ROUNDS):
        y = x
        for _ in range(how.local_steps):
            pulls = [how.penalty * the.links[i].sum() * x[i] - z[i].sum(axis=0) for i in range(M)]
            y = y - how.lr * the.gradients(y) - how.beta * np.stack(pulls)
        x, old = y, z.copy()
        for i, j in np.argwhere(the.links):
            z[i, j] = (1 - how.relaxation) * old[i, j] - how.relaxation * (old[j, i] - 2 * how.penalty * x[j])
        yield x


_ONE_STEP = jdfl.LTADMM(lr=0.05, beta=0.05, penalty=0.6, local_steps=1, start="consensus")
ROWS = (
    field(
        jdfl.LTADMM(lr=0.05, relaxation=0.7, local_steps=3),
        loop,
        grads=3,
        more=(jdfl.LTADMM(lr=0.05, relaxation=0.7, local_steps=3, start="consensus"),),
        exact={"start": "consensus"},  # in which parameters at the solution stay there
        reaches=jdfl.LTADMM(),
        rounds=600,
        same=((_ONE_STEP, jdfl.DiNNO(lr=0.05, penalty=0.3, local_steps=1)),),
    ),
)
