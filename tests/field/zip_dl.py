"""Zip-DL."""

import jax
import numpy as np

import jdfl
from jdfl.base.streams import declared, each
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field


def loop(the: Loop) -> Rounds:
    """Message by message: every node draws a noise for every receiver, and takes away their weighted mean."""
    W, a, x = the.W, the.algorithm, the.start
    for k in range(ROUNDS):
        for _ in range(a.local_steps):
            x = x - a.lr * the.gradients(x)
        messages = [messages_of(the, k, i, x[i]) for i in range(M)]
        x = np.stack([sum(W[i, j] * messages[j][i] for j in range(M) if W[i, j]) for i in range(M)])
        yield x


def messages_of(the: Loop, k: int, i: int, y: np.ndarray) -> dict[int, np.ndarray]:
    """What node i sends to every node, itself included, in round k."""
    weight = {j: the.W[j, i] for j in range(M) if the.W[j, i]}
    key = each(the.moment(k).stream(declared()["zip-dl.noise"]), np.array([i], np.int32))[0]
    with jax.enable_x64(True):
        z = {j: np.asarray(jax.random.normal(jax.random.fold_in(key, j), (N,), float)) for j in weight}
    mean = sum(weight[j] * z[j] for j in weight)
    size = the.algorithm.noise / np.sqrt(1 - sum(w**2 for w in weight.values()))
    noises = {j: size * (z[j] - mean) for j in weight}
    assert np.abs(sum(weight[j] * noises[j] for j in weight)).max() < 1e-12
    return {j: y + noise for j, noise in noises.items()}


_NOISY = jdfl.ZipDL(lr=0.05, local_steps=2)
_SILENT = jdfl.ZipDL(lr=0.05, noise=0.0)
ROWS = (
    field(
        _NOISY, loop, grads=2, exact={"noise": 0.0}, same=((_SILENT, jdfl.DPSGD(lr=0.05, order="adapt-then-combine")),)
    ),
)
