"""GT-SAGA, GT-SVRG, GT-VR and GT-SARAH."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms import choosing, gradients, variance_reduced
from jdfl.base.streams import Keys, each
from tests.field.row import ROUNDS, Loop, M, N, Rounds, field

Q = 8  # examples of a node


@partial(jax.jit, static_argnames=("shape",))
def _uniform(keys: Any, shape: tuple[int, ...]) -> Any:
    return jax.vmap(lambda key: jax.random.uniform(key, shape, jnp.float32))(keys)


@partial(jax.jit, static_argnames=("b",))
def _examples(problem: Any, keys: Any, b: int) -> Any:
    return jax.vmap(lambda key: problem.minibatch(key, jnp.arange(Q), jnp.ones(Q), b)[0])(keys)


def uniform(keys: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of every node [m, ...]."""
    return np.asarray(_uniform(keys, shape))


def drawn(the: Loop, k: int, t: int = 0) -> np.ndarray:
    """The examples [m, b] of every node in step t of round k, with repetitions."""
    return np.asarray(_examples(the.problem, the.moment(k).keys(gradients._BATCH, t), the.algorithm.gradients.batch))


def of(the: Loop, examples: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The gradients [m, n] at x [m, n] of some examples."""
    g = np.zeros((M, N))
    for i in range(M):
        A, b = the.examples(i)
        for t in examples[i]:
            g[i] += A[t] * (A[t] @ x[i] - b[t]) / len(examples[i])
    return g


def tracked(the: Loop, estimate: Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Rounds:
    """Gradient tracking with v = estimate(k, x, x before, v before)."""
    W, lr, atc = the.W, the.algorithm.lr, the.algorithm.order == "adapt-then-combine"
    x, y = the.start, the.gradients(the.start)
    v = y
    for k in range(ROUNDS):
        before, old = x, v
        x = W @ (x - lr * y) if atc else W @ x - lr * y
        v = estimate(k, x, before, old)
        y = W @ (y + v - old) if atc else W @ y + v - old
        yield x


def saga(the: Loop) -> Rounds:
    """With a table of points instead of gradients, and its mean computed from all of them."""
    points = np.repeat(the.start[:, None], Q, axis=1)  # [m, q, n], where the last gradient of an example was taken

    def one(i: int, t: int, x: np.ndarray) -> np.ndarray:
        A, b = the.examples(i)
        return A[t] * (A[t] @ x - b[t])

    def estimate(k: int, x: np.ndarray, _: Any, __: Any) -> np.ndarray:
        bits, v = uniform(the.moment(k).keys(variance_reduced._EXAMPLES), (Q,)), np.zeros((M, N))
        for i in range(M):
            batch = np.argsort(-bits[i])[: the.algorithm.batch]
            v[i] = np.mean([one(i, t, x[i]) - one(i, t, points[i, t]) for t in batch], axis=0)
            v[i] += np.mean([one(i, t, points[i, t]) for t in range(Q)], axis=0)
            points[i, batch] = x[i]
        return v

    return tracked(the, estimate)


@cache
def prepared() -> Any:
    """The key of activations where `testing.Case.play` prepares."""
    at = jax.random.fold_in(jax.random.split(jax.random.key(3), 3)[0], 0)
    return choosing.ACTIVE.of(Keys.of(at).choice)


def due(algorithm: Any, k: int, key: Any = None) -> np.ndarray:
    """Which nodes compute gradients of all examples in round k, [m], with the key of the run."""
    p = getattr(algorithm, "probability", None)
    if p is None:
        return np.full(M, (k + 1) % algorithm.period == 0)
    return uniform(each(prepared() if key is None else key, jnp.arange(M), k), ()) < np.float32(p)


def svrg(the: Loop) -> Rounds:
    """With the point that is remembered alone."""
    u = the.start.copy()

    def estimate(k: int, x: np.ndarray, _: Any, __: Any) -> np.ndarray:
        now = due(the.algorithm, k)
        u[now] = x[now]
        batch = drawn(the, k)
        return of(the, batch, x) - of(the, batch, u) + the.gradients(u)

    return tracked(the, estimate)


def sarah(the: Loop) -> Rounds:
    """A full gradient, and then q = period - 1 recursive ones."""

    def estimate(k: int, x: np.ndarray, before: np.ndarray, v: np.ndarray) -> np.ndarray:
        if due(the.algorithm, k).all():
            return the.gradients(x)
        return v + of(the, drawn(the, k), x) - of(the, drawn(the, k), before)

    return tracked(the, estimate)


def counted(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """Two gradients of a batch in a round, and one of all examples where it is due: instead of them in GT-SARAH."""
    algorithm, key = program.algorithm, program.prepared.own
    whole, dues = -(-Q // algorithm.gradients.batch), np.stack([due(algorithm, k, key) for k in range(rounds)])
    two = ~dues if isinstance(algorithm, jdfl.GTSARAH) else np.ones_like(dues)
    return {
        "sent": dict.fromkeys(("model", "tracker"), rounds * (adjacency != 0).sum(axis=0)),
        "communications": np.full(M, rounds),
        "grads": whole + 2 * two.sum(axis=0) + whole * dues.sum(axis=0),
        "releases": np.zeros(M, int),
    }


_GIVEN: dict[str, Any] = {"channels": ("model", "tracker"), "rounds": 900}
_BATCH = jdfl.Gradients(batch=3)
_SAGA = jdfl.GTSAGA(lr=0.01, batch=2)
_SVRG, _SARAH = jdfl.GTSVRG(lr=0.02, gradients=_BATCH, period=4), jdfl.GTSARAH(lr=0.02, gradients=_BATCH, period=4)
_VR = jdfl.GTSVRG(lr=0.02, gradients=_BATCH, probability=0.3, order="adapt-then-combine")


ROWS = (
    field(_SAGA, saga, first=4, exact={"batch": Q}, reaches=jdfl.GTSAGA(lr=0.05, batch=2), **_GIVEN),
    field(_SVRG, svrg, count=counted, reaches=replace(_SVRG, lr=0.1, period=10), **_GIVEN),
    field(_VR, svrg, label="GT-VR", count=counted, reaches=replace(_VR, lr=0.1), **_GIVEN),
    field(_SARAH, sarah, count=counted, reaches=replace(_SARAH, lr=0.1, period=10), **_GIVEN),
)
