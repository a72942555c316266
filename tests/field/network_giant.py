"""Network-GIANT and Network-DANE."""

from dataclasses import replace
from typing import Any

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field

STEPS = 12  # of conjugate gradients: the Hessians have at most nine different eigenvalues


def minimum(the: Loop, i: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The z [n] that minimises f_i(z) - <g_i(x) - y, z> + mu ||z - x||^2 / 2, from its normal equations."""
    A, b = the.examples(i)
    right = A.T @ b / len(b) + the.gradient(i, x) - y + the.algorithm.mu * x
    return np.linalg.solve(A.T @ A / len(b) + the.algorithm.mu * np.eye(N), right)


def newton(the: Loop, i: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where a Newton step with the tracked gradient y leads from x [n]."""
    A, b = the.examples(i)
    return x - np.linalg.inv(A.T @ A / len(b) + the.algorithm.mu * np.eye(N)) @ y


def loop(the: Loop) -> Rounds:
    """Gradient tracking with a subproblem that is solved exactly."""
    own = minimum if isinstance(the.algorithm, jdfl.NetworkDANE) else newton
    W, lr, x = the.W, the.algorithm.lr, the.start
    y = g = the.gradients(x)
    for _ in range(ROUNDS):
        half = np.stack([own(the, i, x[i], y[i]) for i in range(M)])
        x = W @ (x + lr * (half - x))
        new = the.gradients(x)
        y, g = W @ y + new - g, new
        yield x


_GIVEN: dict[str, Any] = {"channels": ("model", "tracker"), "rounds": 400}
_GIANT = jdfl.NetworkGIANT(lr=0.3, mu=0.5, products=STEPS)
_DANE = jdfl.NetworkDANE(lr=0.3, mu=0.5, products=STEPS, newton_steps=2)
ROWS = (
    field(_GIANT, loop, grads=1 + STEPS, first=1 + STEPS, reaches=jdfl.NetworkGIANT(lr=0.1, mu=0.0), **_GIVEN),
    field(
        _DANE,
        loop,
        grads=2 + 2 * STEPS,
        first=2 + 2 * STEPS,
        reaches=_DANE,
        same=((replace(_DANE, newton_steps=1), _GIANT),),
        **_GIVEN,
    ),
)
