"""ECD-PSGD, with a codec that draws the entries of every message."""

import jax
import numpy as np

import jdfl
from jdfl.algorithms.round import MODEL
from tests.field.row import ROUNDS, Loop, N, Rounds, field

_KEPT = 16
_LOSSY = jdfl.ECD(lr=0.02, codec=jdfl.RandomK(k=_KEPT, scaled=True))


def loop(the: Loop) -> Rounds:
    """One node after the other; t counts from 1."""
    lr, W = the.algorithm.lr, the.W
    x = hat = the.start
    for k in range(ROUNDS):
        t = k + 1
        new = W @ hat - lr * the.gradients(x)
        sent = compressed(the, k, (1 - 0.5 * t) * x + 0.5 * t * new)
        hat = (1 - 2 / t) * hat + 2 / t * sent
        x = new
        yield x


def compressed(the: Loop, k: int, z: np.ndarray) -> np.ndarray:
    """The entries with the largest random bits, times n / k, which travel as float32."""
    keys = the.moment(k).keys(MODEL.stream, 0)
    sent = np.zeros_like(z)
    for i, key in enumerate(keys):
        lots = np.asarray(jax.random.bits(key, (N,), np.uint32)) >> 1
        places = np.argsort(-lots.astype(np.int64), kind="stable")[:_KEPT]
        sent[i, places] = N / _KEPT * z[i, places].astype(np.float32).astype(float)
    return sent


ROWS = (field(_LOSSY, loop, bits=32 * _KEPT, same=((jdfl.ECD(lr=0.05, codec=jdfl.Dense()), jdfl.DPSGD(lr=0.05)),)),)
