"""BEER, in the order in which its paper prints it, and with the start that sends the first tracker."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

import jdfl
from tests.field.row import ROUNDS, Loop, Rounds, field

TOP = jdfl.Sparse(s=3)
TOP_BITS = 3 * (32 + 5)


def top(z: np.ndarray) -> np.ndarray:
    """The three largest entries of every row, which travel as float32."""
    sent = np.zeros_like(z)
    for i, row in enumerate(z):
        places = np.argsort(-np.abs(row), kind="stable")[:3]
        sent[i, places] = row[places].astype(np.float32)
    return sent


def recursion(the: Loop, estimate: Callable[[np.ndarray], np.ndarray]) -> Rounds:
    """X, H, V and G of the paper; `estimate` stands for the gradients, and is 0 before the first in the other start."""
    lr, gamma, mix = the.algorithm.lr, the.algorithm.gamma, the.W - np.eye(len(the.W))
    X = H = the.start
    V = E = estimate(X)
    G = 0 * V if the.algorithm.start == "gradient" else top(V)
    for _ in range(ROUNDS):
        X = X + gamma * mix @ H - lr * V
        H = H + top(X - H)
        new = estimate(X)
        V = V + gamma * mix @ G + new - E
        E = new
        G = G + top(V - G)
        yield X


def loop(the: Loop) -> Rounds:
    """The gradients themselves."""
    return recursion(the, the.gradients)


GIVEN = {"channels": ("model", "tracker"), "bits": TOP_BITS}
_TOP = jdfl.BEER(lr=0.02, gamma=0.3, codec=TOP)
_SENT = replace(_TOP, start="zero")
_CPGT = jdfl.CPGT(lr=0.02, gamma=0.3, codec=TOP)
ROWS = (
    field(
        _TOP,
        loop,
        reaches=jdfl.BEER(lr=0.1, gamma=0.5, codec=TOP),
        rounds=1000,
        same=((jdfl.BEER(lr=0.02, gamma=1.0, start="zero", codec=jdfl.Dense()), jdfl.DIGing(lr=0.02)), (_SENT, _CPGT)),
        more=(_SENT,),
        first=1,
        **GIVEN,
    ),
)
