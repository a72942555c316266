"""MoTEF."""

import numpy as np

import jdfl
from tests.field.beer import GIVEN, TOP, recursion
from tests.field.row import Loop, Rounds, field


def loop(the: Loop) -> Rounds:
    """The momentum as a weighted sum over all gradients so far, of which the first begins it or has the same weight."""
    weight, seen, zero = the.algorithm.momentum, [], the.algorithm.start == "zero"

    def momentum(x: np.ndarray) -> np.ndarray:
        seen.append(the.gradients(x))
        first = len(seen) - 1
        return sum(
            (weight if zero or age < first else 1) * (1 - weight) ** age * g for age, g in enumerate(reversed(seen))
        )

    return recursion(the, momentum)


ROWS = (
    field(
        jdfl.MoTEF(lr=0.02, gamma=0.3, codec=TOP),
        loop,
        reaches=jdfl.MoTEF(lr=0.1, gamma=0.5, codec=TOP),
        rounds=1000,
        more=(jdfl.MoTEF(lr=0.02, gamma=0.3, codec=TOP, start="zero"),),
        first=1,
        same=((jdfl.MoTEF(momentum=1.0, gamma=0.3, codec=TOP), jdfl.BEER(gamma=0.3, codec=TOP)),),
        **GIVEN,
    ),
)
