"""DESTRESS."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.base.streams import each
from tests.field.row import ROUNDS, Loop, M, Rounds, field
from tests.field.variance_reduced import Q, drawn, of, prepared, uniform


def polynomial(W: np.ndarray, degree: int, accelerated: bool) -> np.ndarray:
    """The mixing matrix [m, m] of several exchanges, from the eigenvalues of W."""
    values, vectors = np.linalg.eigh(W)
    largest = np.sort(np.abs(values))[-2]
    T = np.polynomial.chebyshev.Chebyshev.basis(degree)
    new = T(values / largest) / T(1 / largest) if accelerated else values**degree
    return vectors * new @ vectors.T


def awake(algorithm: Any, k: int, t: int, key: Any) -> np.ndarray:
    """Which nodes evaluate gradients in inner step t of round k, [m]."""
    return uniform(each(jax.random.fold_in(key, t), jnp.arange(M), k), ()) < np.float32(algorithm.activation)


def loop(the: Loop) -> Rounds:
    """The outer and the inner loop, with matrices for the extra mixing."""
    how, x = the.algorithm, the.start
    W_in, W_out = (polynomial(the.W, K, how.accelerated) for K in (how.inner_mixes, how.outer_mixes))
    s = the.gradients(x)
    if how.start == "mean":
        s = np.broadcast_to(s.mean(axis=0), s.shape)
    for k in range(ROUNDS):
        us, v = [x], s
        for t in range(how.local_steps):
            us.append(W_in @ (us[-1] - how.lr * v))
            factor = awake(how, k, t, prepared())[:, None] / how.activation
            batch = drawn(the, k, t)
            v = W_in @ (v + factor * (of(the, batch, us[-1]) - of(the, batch, us[-2])))
        s = W_out @ (s + the.gradients(us[-1]) - the.gradients(x))
        x = us[-1]
        yield x


def counted(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """Two gradients of a batch where a node is active, and one of all examples in every round."""
    how, key = program.algorithm, program.prepared.own[0]
    first = 2 * (how.start == "mean")  # to a coordinator and back
    sent, inner = rounds * (adjacency != 0).sum(axis=0), how.local_steps * how.inner_mixes
    steps = [awake(how, k, t, key) for k in range(rounds) for t in range(how.local_steps)]
    return {
        "sent": {"model": inner * sent, "tracker": (inner + how.outer_mixes) * sent + first},
        "communications": np.full(M, rounds * (inner + how.outer_mixes) + first),
        "grads": (rounds + 1) * -(-Q // how.gradients.batch) + 2 * np.sum(steps, axis=0),
        "releases": np.zeros(M, int),
    }


_GIVEN: dict[str, Any] = {"channels": ("model", "tracker"), "count": counted, "rounds": 200}
_GIVEN["exact"] = {"start": "own"}  # without the coordinator, by whom nodes without neighbours have a part
_POWERS = jdfl.DESTRESS(
    lr=0.02, gradients=jdfl.Gradients(batch=3), local_steps=3, inner_mixes=1, outer_mixes=2, activation=0.7
)
_FAST = replace(_POWERS, inner_mixes=3, outer_mixes=4, accelerated=True)
_ONE = jdfl.DESTRESS(lr=0.02, gradients=jdfl.Gradients(), local_steps=1, inner_mixes=1, outer_mixes=1, start="own")
_OWN = replace(_POWERS, start="own")
ROWS = (
    field(
        _POWERS,
        loop,
        reaches=replace(_POWERS, lr=0.1),
        more=(_OWN,),
        same=((_ONE, jdfl.DIGing(lr=0.02, order="adapt-then-combine")),),
        **_GIVEN,
    ),
    field(_FAST, loop, label="DESTRESS, Chebyshev", reaches=replace(_FAST, lr=0.1), **_GIVEN),
)
