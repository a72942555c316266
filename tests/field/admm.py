"""ADMM, with a variable for every link and proximal operators that are solved exactly."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field


def loop(the: Loop) -> Rounds:
    """The updates as printed: z[i, j] [n] for every link."""
    rho, alpha = the.algorithm.penalty, the.algorithm.relaxation
    x, z = the.start.copy(), rho * the.links[:, :, None] * the.start[:, None, :]
    for _ in range(ROUNDS):
        for i in range(M):
            weight, (A, b) = rho * the.links[i].sum(), the.examples(i)
            x[i] = np.linalg.solve(A.T @ A / len(b) + weight * np.eye(N), A.T @ b / len(b) + z[i].sum(axis=0))
        old = z.copy()
        for i, j in np.argwhere(the.links):
            z[i, j] = (1 - alpha) * old[i, j] - alpha * (old[j, i] - 2 * rho * x[j])
        yield x


_EXACTLY = jdfl.ADMM(penalty=2.0, relaxation=0.7, lr=0.25, inner=40)
_USUAL = jdfl.ADMM(penalty=1.0, relaxation=0.5, inner=3)
ROWS = (
    field(
        _EXACTLY,
        loop,
        grads=40,
        swept="penalty",
        reaches=jdfl.ADMM(relaxation=0.6),
        rounds=300,
        same=((_USUAL, jdfl.DADMM(penalty=0.5, inner=3)),),
    ),
)
