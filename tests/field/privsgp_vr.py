"""PrivSGP-VR on a directed network."""

from typing import Any

import jax
import numpy as np

import jdfl
from jdfl.algorithms.gradients import NOISE
from jdfl.base.streams import declared
from tests.field.row import ROUNDS, Loop, M, N, Rounds, directed, field


def loop(the: Loop) -> Rounds:
    """Node by node, with the points at which every example was last seen instead of its gradients."""
    P, a = the.W, the.algorithm
    u, w, z = list(the.start), np.ones(M), the.start
    J = len(the.examples(0)[1])
    seen = [[z[i]] * J for i in range(M)]
    for k in range(ROUNDS):
        keys, noises = (the.moment(k).keys(stream) for stream in (declared()["privsgp-vr.example"], NOISE))
        half = []
        for i in range(M):
            q = int(jax.random.randint(keys[i], (1,), 0, J)[0])
            every = [of(the, i, j, seen[i][j]) for j in range(J)]
            h = of(the, i, q, z[i]) - every[q] + np.mean(every, axis=0)
            seen[i][q] = z[i]
            h = h * min(1, float(a.gradients.clip) / np.linalg.norm(h))
            with jax.enable_x64(True):
                h = np.asarray(a.gradients.mechanism.add(noises[i], h, 2 * a.gradients.clip))
            half.append(u[i] - a.lr * h)
        u = [sum(P[i, j] * half[j] for j in range(M)) for i in range(M)]
        w = P @ w
        z = np.stack([u[i] / w[i] for i in range(M)])
        yield z


def of(the: Loop, i: int, q: int, x: np.ndarray) -> np.ndarray:
    """The gradient [n] of one example of node i at x [n]."""
    A, b = the.examples(i)
    return (A[q] @ x - b[q]) * A[q]


def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """One example in every round, after all eight at the start, which are not released."""
    every = np.full(len(adjacency), rounds)
    sent = {"model": rounds * (adjacency != 0).sum(axis=0)}
    return {"sent": sent, "communications": every, "grads": every + 8, "releases": every}


_NOISY = jdfl.PrivSGPVR(lr=0.02, gradients=jdfl.Gradients(batch=1, clip=4.0, per="batch", mechanism=jdfl.Gaussian(0.5)))
_WHOLE = jdfl.PrivSGPVR(lr=0.05, gradients=jdfl.Gradients())
ROWS = (
    field(_NOISY, loop, bits=32 * (N + 1), count=count, on=directed, claimed=True, same=((_WHOLE, jdfl.SGP(lr=0.05)),)),
)
