"""PORTER-GC."""

import numpy as np

import jdfl
from tests.field.beer import GIVEN, TOP, recursion
from tests.field.row import Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """Every node's gradient, clipped smoothly."""
    tau = the.algorithm.tau
    return recursion(the, lambda x: np.stack([tau / (tau + np.linalg.norm(g)) * g for g in the.gradients(x)]))


_UNCLIPPED = jdfl.PORTER(tau=None, gamma=0.3, codec=TOP), jdfl.BEER(gamma=0.3, codec=TOP, start="zero")
_FIRST = jdfl.PORTER(lr=0.05, gamma=0.3, tau=0.5, codec=TOP, start="gradient")
ROWS = (field(jdfl.PORTER(lr=0.05, gamma=0.3, tau=0.5, codec=TOP), loop, same=(_UNCLIPPED,), more=(_FIRST,), **GIVEN),)
