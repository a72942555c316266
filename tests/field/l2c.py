"""L2C."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, field, problem


def course(the: Loop) -> tuple[np.ndarray, list[list[int]]]:
    """x after every round, and the neighbours that remain; weights follow from JAX's derivative of the new loss."""
    a, x = the.algorithm, the.start
    near = [[i, *(j for j in range(M) if the.links[i, j])] for i in range(M)]
    b = [dict.fromkeys(near[i], 0.0) for i in range(M)]
    xs = []
    for k in range(ROUNDS):
        if k == a.prune:
            best = [sorted(near[i][1:], key=lambda j: -b[i][j])[: a.keep] for i in range(M)]
            near = [[i, *sorted(best[i])] for i in range(M)]
        y = x
        for _ in range(a.local_steps):
            y = y - a.lr * the.gradients(y)
        moved, new = y - x, []
        for i in range(M):
            weights = np.array([b[i][j] for j in near[i]])
            with jax.enable_x64(True):
                slopes, one = map(np.asarray, slopes_and_model(the.examples(i), x[i], moved[near[i]], weights))
            new.append(one)
            for j, slope in zip(near[i], slopes):
                b[i][j] -= a.lr_weights * slope
        x = np.stack(new)
        xs.append(x)
    return np.stack(xs), [one[1:] for one in near]


@jax.jit
def slopes_and_model(examples: Any, x: Any, updates: Any, b: Any) -> tuple[Any, Any]:
    """JAX's derivative of the loss of the new model by b, and the new model [n]."""
    A, target = examples

    def model(b: Any) -> Any:
        return x + jax.nn.softmax(b) @ updates

    return jax.grad(lambda b: jnp.mean((A @ model(b) - target) ** 2) / 2)(b), model(b)


def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """Everybody sends before pruning, and those that are kept afterwards."""
    a, every = program.algorithm, np.full(len(adjacency), rounds)
    asked = np.bincount(np.concatenate(course(Loop(_PRUNED, problem()))[1]).astype(int), minlength=M)
    sent = a.prune * (adjacency != 0).sum(axis=0) + (rounds - a.prune) * asked
    return {
        "sent": {"model": sent},
        "communications": every,
        "grads": (a.local_steps + 1) * every,
        "releases": 0 * every,
    }


_PRUNED = jdfl.L2C(lr=0.05, lr_weights=0.5, local_steps=2, prune=6, keep=1)
ROWS = (field(_PRUNED, lambda the: course(the)[0], count=count),)
