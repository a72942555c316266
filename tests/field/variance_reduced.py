"""GT-SAGA, GT-SVRG, GT-VR and GT-SARAH."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms import activation, sampling, variance_reduced
from jdfl.base.streams import Keys, each
from tests.field.row import ROUNDS, Loop, M, N, field

Q = 8  # examples of a node


def uniform(keys: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of every node [m, ...]."""
    return np.stack([np.asarray(jax.random.uniform(key, shape, jnp.float32)) for key in keys])


def drawn(the: Loop, k: int, t: int = 0) -> list[np.ndarray]:
    """The examples of every node in step t of round k, with repetitions."""
    keys, b = the.moment(k).keys(sampling._BATCH, t), the.algorithm.gradients.batch
    return [np.asarray(the.problem.minibatch(key, jnp.arange(Q), jnp.ones(Q), b)[0]) for key in keys]


def of(the: Loop, examples: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """The gradients [m, n] at x [m, n] of some examples."""
    g = np.zeros((M, N))
    for i in range(M):
        A, b = the.examples(i)
        for t in examples[i]:
            g[i] += A[t] * (A[t] @ x[i] - b[t]) / len(examples[i])
    return g


def tracked(the: Loop, estimate: Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """x [13, m, n] of gradient tracking with v = estimate(k, x, x before, v before), in the indices of the papers."""
    W, lr, atc = the.W, the.algorithm.lr, the.algorithm.order == "adapt-then-combine"
    xs, vs = [the.start], [the.gradients(the.start)]
    y = vs[0]
    for k in range(ROUNDS):
        xs.append(W @ (xs[-1] - lr * y) if atc else W @ xs[-1] - lr * y)
        vs.append(estimate(k, xs[-1], xs[-2], vs[-1]))
        y = W @ (y + vs[-1] - vs[-2]) if atc else W @ y + vs[-1] - vs[-2]
    return np.stack(xs[1:])


def saga(the: Loop) -> np.ndarray:
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


def prepared() -> Any:
    """The key of activations where `testing.Case.play` prepares."""
    at = jax.random.fold_in(jax.random.split(jax.random.key(3), 3)[0], 0)
    return activation.ACTIVE.of(Keys.of(at).choice)


def due(algorithm: Any, k: int, key: Any = None) -> np.ndarray:
    """Which nodes compute gradients of all examples in round k, [m], with the key of the run."""
    p = getattr(algorithm, "probability", None)
    if p is None:
        return np.full(M, (k + 1) % algorithm.period == 0)
    return uniform(each(prepared() if key is None else key, jnp.arange(M), k), ()) < np.float32(p)


def svrg(the: Loop) -> np.ndarray:
    """With the point that is remembered alone."""
    u = the.start.copy()

    def estimate(k: int, x: np.ndarray, _: Any, __: Any) -> np.ndarray:
        now = due(the.algorithm, k)
        u[now] = x[now]
        batch = drawn(the, k)
        return of(the, batch, x) - of(the, batch, u) + the.gradients(u)

    return tracked(the, estimate)


def sarah(the: Loop) -> np.ndarray:
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


def plain(algorithm: Any, **all_examples: Any) -> tuple[Any, Any]:
    """The method with all examples in a batch, and gradient tracking in the same order."""
    return replace(algorithm, **all_examples), jdfl.DIGing(lr=algorithm.lr, order=algorithm.order)


_ALL = {"gradients": jdfl.Gradients()}
ROWS = (
    field(
        _SAGA,
        saga,
        first=4,
        exact={"batch": Q},
        reaches=jdfl.GTSAGA(lr=0.05, batch=2),
        same=(plain(_SAGA, batch=Q),),
        **_GIVEN,
    ),
    field(
        _SVRG,
        svrg,
        count=counted,
        reaches=replace(_SVRG, lr=0.1, period=10),
        same=(plain(_SVRG, **_ALL),),
        **_GIVEN,
    ),
    field(
        _VR,
        svrg,
        label="GT-VR",
        count=counted,
        reaches=replace(_VR, lr=0.1),
        same=(plain(_VR, **_ALL),),
        **_GIVEN,
    ),
    field(
        _SARAH,
        sarah,
        count=counted,
        reaches=replace(_SARAH, lr=0.1, period=10),
        same=(plain(_SARAH, **_ALL),),
        **_GIVEN,
    ),
)
