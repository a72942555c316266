"""LED."""

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """Node by node."""
    a, x = the.algorithm, the.start
    Wb = (1 - a.gamma) * np.eye(len(x)) + a.gamma * the.W
    y = np.zeros_like(x)
    for _ in range(ROUNDS):
        phi = x.copy()
        for i in range(len(x)):
            for _ in range(a.local_steps):
                phi[i] -= a.lr * the.gradient(i, phi[i]) + a.beta * y[i]
        x = Wb @ phi
        y = y + phi - x
        yield x


_LED = jdfl.LED(lr=0.02, beta=0.3, local_steps=3)
ROWS = (
    field(
        _LED,
        loop,
        grads=3,
        reaches=_LED,
        rounds=1000,
        same=((jdfl.LED(lr=0.05, beta=1.0, local_steps=1), jdfl.ExactDiffusion(lr=0.05)),),
    ),
)
