"""Soft-DSGD with packets of three entries."""

import jax
import numpy as np

import jdfl
from jdfl.algorithms import soft_dsgd
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field


def loop(the: Loop) -> Rounds:
    """Every entry of every message arrives or not; a receiver takes its own entry for one that does not."""
    lr, W, x = the.algorithm.lr, the.W, the.start
    for k in range(ROUNDS):
        half = x - lr * the.gradients(x)
        keys = the.moment(k).keys(soft_dsgd._ARRIVING)
        x = np.zeros_like(half)
        for i in range(M):
            for j in range(M):
                drawn = np.asarray(jax.random.uniform(jax.random.fold_in(keys[i], j), (7,), np.float32))
                for entry in range(N):
                    arrives = j == i or drawn[entry // 3] < np.float32(the.algorithm.reliability)
                    x[i, entry] += W[i, j] * half[j if arrives else i, entry]
        yield x


_PARENT = jdfl.DPSGD(lr=0.05, order="adapt-then-combine")
ROWS = (
    field(
        jdfl.SoftDSGD(lr=0.05, reliability=0.6, packet=3),
        loop,
        same=((jdfl.SoftDSGD(lr=0.05, reliability=1.0), _PARENT),),
    ),
)
