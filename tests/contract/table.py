"""One row per registered algorithm: how to build it small, its state at a consensus, and its message counts by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms import ceps


@dataclass(frozen=True)
class Row:
    """What the laws need to know of an algorithm."""

    name: str  # its key in REGISTRY
    algorithm: Any
    consensus_state: Callable[[Any, Any, Any], Any]  # (prepared algorithm, problem, w [n]) -> state with all nodes at w
    count: Callable[[Any, np.ndarray, int], dict[str, np.ndarray]]  # (prepared, adjacency, rounds) -> counts [m]
    swept: str  # a float field that changes the result
    label: str = ""

    def __str__(self) -> str:
        """Its test id."""
        return self.label or self.name


def _ceps_consensus(algorithm: Any, problem: Any, w: Any) -> ceps.State:
    count = jnp.full((problem.m,), 2.0, problem.dtype)
    every = jnp.broadcast_to(w, (problem.m, problem.n))
    return ceps.State(every, (algorithm.sigma * count)[:, None] * every, count)


def _ceps_count(algorithm: Any, adjacency: np.ndarray, rounds: int) -> dict[str, np.ndarray]:
    """Every node asks all its neighbours when its period comes round (rate = 1)."""
    m = len(adjacency)
    sent, communications = np.zeros(m, int), np.zeros(m, int)
    for k in range(1, rounds):
        for i in range(m):
            if k % int(algorithm.period[i]) == 0:
                communications[i] += 1
                sent += adjacency[i] != 0
    noisy = algorithm.mechanism is not None
    releases = communications * noisy + noisy * (algorithm.noise == "kept")
    return {"sent": sent, "communications": communications, "grads": communications + 1, "releases": releases}


def _ceps(label: str, **fields: Any) -> Row:
    algorithm = jdfl.CEPS(**({"s": 3, "rate": 1.0, "periods": (2, 4)} | fields))
    return Row("ceps", algorithm, _ceps_consensus, _ceps_count, "mu", label)


TABLE = (
    _ceps("CEPS-Perf"),
    _ceps("CEPS-Perf, self always in", own="always"),
    _ceps("CEPS-sparse", codec=jdfl.Sparse()),
    _ceps("CEPS-1BCS", codec=jdfl.OneBit(d=40)),
    _ceps("CEPS-1BCS, receiver's Phi", codec=jdfl.OneBit(d=40), phi="receiver"),
    _ceps("DP-CEPS, kept", mechanism=jdfl.Gaussian(0.5)),
    _ceps(
        "DP-CEPS-1BCS, literal", codec=jdfl.OneBit(d=40, inverse="paper"), mechanism=jdfl.Gaussian(0.5), noise="literal"
    ),
)
