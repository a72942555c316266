"""PENS."""

from typing import Any

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, field, problem


def preferred(the: Loop, x: np.ndarray) -> list[list[int]]:
    """For every node the neighbours whose models have the smallest loss on its examples, by sorting."""
    found = []
    for i in range(M):
        A, b = the.examples(i)
        near = [j for j in range(M) if the.links[i, j]]
        found.append(sorted(near, key=lambda j: np.mean((A @ x[j] - b) ** 2))[: the.algorithm.best])
    return found


def course(the: Loop) -> tuple[np.ndarray, np.ndarray]:
    """x [13, m, n] after every round, and who asks whom after the selection [m, m], from how often it was preferred."""
    a, x, degree, xs = the.algorithm, the.start, the.links.sum(axis=1, keepdims=True), []
    often, asks = np.zeros((M, M), int), np.zeros((M, M))
    for k in range(ROUNDS):
        for _ in range(a.local_steps):
            x = x - a.lr * the.gradients(x)
        if k < a.selection:
            with_ = preferred(the, x)
            for i in range(M):
                often[i, with_[i]] += 1
            asks = np.where(degree <= a.best, the.links, often * degree > a.selection * a.best)
        else:
            with_ = [np.flatnonzero(row).tolist() for row in asks]
        x = np.stack([np.mean([x[i], *(x[j] for j in with_[i])], axis=0) for i in range(M)])
        xs.append(x)
    return np.stack(xs), asks


def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """Everybody sends in the rounds of the selection, and those that were preferred afterwards."""
    m, a, (_, asks) = len(adjacency), program.algorithm, course(Loop(PENS, problem()))
    later = rounds - a.selection
    return {
        "sent": {"model": a.selection * (adjacency != 0).sum(axis=0) + later * asks.sum(axis=0)},
        "communications": a.selection + later * (asks.sum(axis=1) > 0),
        "grads": np.full(m, a.local_steps * rounds),
        "releases": np.zeros(m, int),
    }


PENS = jdfl.PENS(lr=0.05, local_steps=2, best=2, selection=5)
ROWS = (field(PENS, lambda the: course(the)[0], count=count),)
