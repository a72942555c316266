"""LT-ADMM-VR, with a variable for every link and tables that begin again, or are kept."""

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms.admm import _BATCH
from tests.field.lt_admm import linked
from tests.field.row import ROUNDS, Loop, M, Rounds, field


def loop(the: Loop) -> Rounds:
    """The updates as printed, one node after another."""
    how, x, z = the.algorithm, the.start.copy(), linked(the)
    table = [each(the, i, x[i]) for i in range(M)]
    for k in range(ROUNDS):
        keys = [the.moment(k).keys(_BATCH, t) for t in range(how.local_steps)]
        new = x.copy()
        for i in range(M):
            table[i] = table[i] if how.kept else each(the, i, x[i])
            for drawn in keys:
                batch = np.argsort(-np.asarray(jax.random.uniform(drawn[i], (len(table[i]),), jnp.float32)))[
                    : how.batch
                ]
                v = (each(the, i, new[i]) - table[i])[batch].mean(axis=0) + table[i].mean(axis=0)
                pull = how.penalty * the.links[i].sum() * x[i] - z[i].sum(axis=0)
                new[i] = new[i] - how.lr * v - how.beta * pull
                table[i][batch] = each(the, i, new[i])[batch]
        x, old = new, z.copy()
        for i, j in np.argwhere(the.links):
            z[i, j] = (1 - how.relaxation) * old[i, j] - how.relaxation * (old[j, i] - 2 * how.penalty * x[j])
        yield x


def each(the: Loop, i: int, x: np.ndarray) -> np.ndarray:
    """The gradients of all examples of node i at x [q, n]."""
    A, b = the.examples(i)
    return A * (A @ x - b)[:, None]


_ALL = jdfl.LTADMMVR(lr=0.05, local_steps=3, batch=8)
ROWS = (
    field(
        jdfl.LTADMMVR(lr=0.02, local_steps=3, batch=2),
        loop,
        grads=8 + 12,
        exact={"start": "consensus"},
        reaches=jdfl.LTADMMVR(lr=0.03, batch=4),
        rounds=1000,
        same=((_ALL, jdfl.LTADMM(lr=0.05, local_steps=3)),),
    ),
    field(
        jdfl.LTADMMVR(lr=0.02, local_steps=3, batch=2, kept=True),
        loop,
        label="LT-ADMM-VR with a kept table",
        grads=12,
        exact={"start": "consensus"},
        first=8,
        reaches=jdfl.LTADMMVR(lr=0.03, batch=4, kept=True),
        rounds=1000,
    ),
)
