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


def loop(the: Loop) -> np.ndarray:
    """Lists of neighbours, and a dictionary of how often each was preferred."""
    a, x, degree = the.algorithm, the.start, the.links.sum(axis=1)
    often: dict[tuple[int, int], int] = {}
    xs = []
    for k in range(ROUNDS):
        for _ in range(a.local_steps):
            x = x - a.lr * the.gradients(x)
        if k < a.selection:
            with_ = preferred(the, x)
            for i in range(M):
                for j in with_[i]:
                    often[i, j] = often.get((i, j), 0) + 1
        else:
            near = [[j for j in range(M) if the.links[i, j]] for i in range(M)]
            with_ = [
                [j for j in near[i] if often.get((i, j), 0) * degree[i] > a.selection * a.best or degree[i] <= a.best]
                for i in range(M)
            ]
        x = np.stack([np.mean([x[i], *(x[j] for j in with_[i])], axis=0) for i in range(M)])
        xs.append(x)
    return np.stack(xs)


def count(program: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    """Everybody sends in the rounds of the selection, and those that were preferred afterwards."""
    m, every = len(adjacency), np.full(len(adjacency), rounds)
    a = program.algorithm
    later = rounds - a.selection
    asks = selected()
    return {
        "sent": {"model": a.selection * (adjacency != 0).sum(axis=0) + later * asks.sum(axis=0)},
        "communications": a.selection + later * (asks.sum(axis=1) > 0),
        "grads": a.local_steps * every,
        "releases": np.zeros(m, int),
    }


def selected() -> np.ndarray:
    """Who asks whom after the selection of the row's settings [m, m], by hand from their losses."""
    the = Loop(PENS, problem())
    chosen, x = np.zeros((M, M), int), the.start
    for _ in range(PENS.selection):
        for _ in range(PENS.local_steps):
            x = x - PENS.lr * the.gradients(x)
        with_ = preferred(the, x)
        for i in range(M):
            chosen[i, with_[i]] += 1
        x = np.stack([np.mean([x[i], *(x[j] for j in with_[i])], axis=0) for i in range(M)])
    degree = the.links.sum(axis=1, keepdims=True)
    return np.where(degree <= PENS.best, the.links, chosen * degree > PENS.selection * PENS.best)


PENS = jdfl.PENS(lr=0.05, local_steps=2, best=2, selection=5)
ROWS = (field(PENS, loop, count=count),)
