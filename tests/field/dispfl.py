"""DisPFL."""

import math

import jax
import numpy as np

import jdfl
from jdfl.base.streams import declared
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field


def loop(the: Loop) -> Rounds:
    """Sets of active entries, and averages over the nodes in whose set an entry is."""
    a = the.algorithm
    s = round(a.density * N)
    near = [[i, *(j for j in range(M) if the.links[i, j])] for i in range(M)]
    keys = the.moment(0, part=1).keys(declared()["dispfl.masks"])
    coming = [set(np.argsort(-np.asarray(jax.random.uniform(key, (N,), np.float32)))[:s].tolist()) for key in keys]
    x = [{e: the.start[i][e] for e in active} for i, active in enumerate(coming)]
    for k in range(ROUNDS):
        old, x = x, []
        for i in range(M):
            has = {e: [old[j][e] for j in near[i] if e in old[j]] for e in coming[i]}
            x.append({e: sum(some) / len(some) if some else 0.0 for e, some in has.items()})
        p = math.ceil(a.anneal / 2 * (1 + math.cos(math.pi * k / a.horizon)) * s - 1e-4) if k < a.horizon else 0
        for i in range(M):
            for _ in range(a.local_steps):
                g = the.gradient(i, full(x[i]))
                x[i] = {e: x[i][e] - a.lr * g[e] for e in x[i]}
            g = the.gradient(i, full(x[i]))
            kept = set(sorted(x[i], key=lambda e: abs(x[i][e]))[p:])
            coming[i] = kept | set(sorted(set(range(N)) - kept, key=lambda e: -abs(g[e]))[:p])
        yield [full(one) for one in x]


def full(x: dict[int, float]) -> np.ndarray:
    """The vector [n] with these entries."""
    return np.array([x.get(e, 0.0) for e in range(N)])


_GIVEN = {"exact": {"density": 1.0}, "bits": 8 * 32 + N, "nonzeros": 8, "grads": 3}
_SPARSE = jdfl.DisPFL(lr=0.05, density=0.4, horizon=10, local_steps=2)
ROWS = (field(_SPARSE, loop, **_GIVEN),)
