"""Push-Pull, AB and ABm on a directed network."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, M, Rounds, directed, field


def loop(the: Loop) -> Rounds:
    """Node by node: each averages what it receives with its own, and splits y among its receivers and itself."""
    lr, momentum = the.algorithm.lr, getattr(the.algorithm, "momentum", 0.0)
    atc = getattr(the.algorithm, "order", "combine-then-adapt") == "adapt-then-combine"
    senders = [[i, *np.flatnonzero(the.links[i])] for i in range(M)]
    receivers = [[j, *np.flatnonzero(the.links[:, j])] for j in range(M)]
    x = before = the.start
    y = g = the.gradients(x)
    for _ in range(ROUNDS):
        sent = x - lr * y if atc else x
        new = np.stack([np.mean([sent[j] for j in senders[i]], axis=0) for i in range(M)])
        if not atc:
            new = new - lr * y
        x, before = new + momentum * (x - before), x
        pushed = np.zeros_like(y)
        for j in range(M):
            for i in receivers[j]:
                pushed[i] += y[j] / len(receivers[j])
        y, g = pushed + the.gradients(x) - g, the.gradients(x)
        yield x


_GIVEN = {"channels": ("model", "tracker"), "first": 1, "on": directed, "rounds": 1000}
_PULL, _AB = jdfl.PushPull(lr=0.05), jdfl.PushPull(lr=0.05, order="combine-then-adapt")
_HEAVY = jdfl.ABm(lr=0.05, momentum=0.3)
ROWS = (
    field(_PULL, loop, reaches=_PULL, **_GIVEN),
    field(_AB, loop, label="AB", reaches=_AB, **_GIVEN),
    field(_HEAVY, loop, reaches=_HEAVY, **_GIVEN),
)
