"""A problem of all nodes of which every process has loaded the data of its own ones alone.

Axes: m nodes, q examples per node (padded with weight 0).
"""

from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.devices.processes import Portion, gathered
from jdfl.problems.base import Problem

P = TypeVar("P", bound=Problem)


def joined(problem: P, m: int) -> P:
    """The problem of m nodes from that of this process's `processes.portion(m)`, which holds as it is in one process.

    Weights and curvatures of all nodes are exchanged; the data are placed by a run. All processes have to join.
    """
    if jax.process_count() == 1:
        return problem
    q = problem.weight.shape[1]
    beyond = int(np.max(gathered(np.full((problem.m,), q), m))) - q

    def longer(x: Any) -> np.ndarray:
        return np.pad(np.asarray(x), [(0, 0), (0, beyond), *[(0, 0)] * (x.ndim - 2)])

    return replace(
        problem,
        data=jax.tree.map(lambda x: Portion(longer(x), m), problem.data),
        weight=jnp.asarray(gathered(longer(problem.weight), m)),
        curvature=jnp.asarray(gathered(problem.curvature, m)),
    )
