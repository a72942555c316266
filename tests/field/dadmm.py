"""DADMM, with minimisers that are solved exactly, and DLM."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, N, Rounds, field


def dadmm(the: Loop) -> Rounds:
    """The paper's order: the dual variables follow the x of the same round."""
    c, x, a = the.algorithm.penalty, the.start, 0 * the.start
    d = the.links.sum(axis=1)
    for _ in range(ROUNDS):
        right = c * (d[:, None] * x + the.links @ x) - a
        new = []
        for i in range(len(x)):
            A, b = the.examples(i)
            new.append(np.linalg.solve(A.T @ A / len(b) + 2 * c * d[i] * np.eye(N), A.T @ b / len(b) + right[i]))
        x = np.stack(new)
        a = a + c * (d[:, None] * x - the.links @ x)
        yield x


def dlm(the: Loop) -> Rounds:
    """With matrices over all nodes."""
    c, rho, x, a = the.algorithm.penalty, the.algorithm.rho, the.start, 0 * the.start
    D = np.diag(the.links.sum(axis=1))
    L, inverse = D - the.links, np.linalg.inv(2 * c * D + rho * np.eye(len(D)))
    for _ in range(ROUNDS):
        x = x - inverse @ (the.gradients(x) + c * L @ x + a)
        a = a + c * L @ x
        yield x


_ONE_STEP = jdfl.DADMM(penalty=0.3, lr=0.2, inner=1)
ROWS = (
    field(
        jdfl.DADMM(penalty=1.0, lr=0.25, inner=40), dadmm, grads=40, swept="penalty", reaches=jdfl.DADMM(), rounds=300
    ),
    field(
        jdfl.DLM(),
        dlm,
        swept="rho",
        reaches=jdfl.DLM(),
        rounds=600,
        same=((_ONE_STEP, jdfl.DLM(penalty=0.3, rho=5.0)),),
    ),
)
