"""A small problem and network, D-PSGD with Gaussian noise on them, and its runs: for all tests of runs here."""

from typing import Any

import jdfl
from tests.later import Later

NETWORK = Later(jdfl.network.ring, 4)
DRAWN = Later(jdfl.problems.example1, m=4, n=12, s=2, rows=(8, 12))
NOISY = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(5.0)))
DELTA = 1e-5


def run(algorithm: Any = NOISY, problem: Any = None, **how: Any) -> jdfl.Result:
    """Two rounds without metrics."""
    how = {"steps": 2, "metrics": []} | how
    return jdfl.run(algorithm, DRAWN() if problem is None else problem, NETWORK(), **how)
