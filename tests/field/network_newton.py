"""Network Newton."""

from typing import Any

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field

STEPS, K = 12, 2


def loop(the: Loop) -> Rounds:
    """The stacked vectors [m n] and matrices [m n, m n] of the paper, and its series for the inverse."""
    one, alpha, x = np.eye(M * N), the.algorithm.alpha, the.start.ravel()
    Z = np.kron(the.W, np.eye(N))
    G = np.zeros_like(one)
    for i in range(M):
        A, b = the.examples(i)
        G[i * N : (i + 1) * N, i * N : (i + 1) * N] = A.T @ A / len(b)
    Zd = np.diag(np.diag(Z))
    D, B = alpha * G + 2 * (one - Zd), one - 2 * Zd + Z
    root = np.linalg.cholesky(np.linalg.inv(D))  # D^-1 = root root'
    series = sum(np.linalg.matrix_power(root.T @ B @ root, k) for k in range(the.algorithm.K + 1))
    for _ in range(ROUNDS):
        u = (one - Z) @ x + alpha * the.gradients(x.reshape(M, N)).ravel()
        x = x - the.algorithm.lr * root @ series @ root.T @ u
        yield x.reshape(M, N)


def counted(_: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """A message of x and K of directions; a gradient and K + 1 systems."""
    sent = rounds * (adjacency != 0).sum(axis=0)
    return {
        "sent": {"model": sent, "direction": K * sent},
        "communications": np.full(M, K * rounds),
        "grads": np.full(M, rounds * (1 + (K + 1) * STEPS)),
        "releases": np.zeros(M, int),
    }


ROWS = (
    field(
        jdfl.NetworkNewton(lr=0.8, alpha=0.3, K=K, products=STEPS), loop, channels=("model", "direction"), count=counted
    ),
)
