"""One row per registered algorithm: how to build it small, its state at a consensus, and its message counts by hand."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import jdfl
from jdfl.algorithms import ceps
from tests.toy import Gossip


@dataclass(frozen=True)
class Row:
    """What the laws need to know of an algorithm."""

    name: str  # its key in REGISTRY
    algorithm: Any
    exact: Any  # the algorithm without noise and with messages that arrive as they are
    message_bits: dict[str, int]  # by hand, for n = 20
    nonzeros: int  # most nonzeros of a node's parameters
    consensus_state: Callable[[Any, Any, Any], Any]  # (prepared algorithm, problem, w [n]) -> state with all nodes at w
    count: Callable[
        [Any, np.ndarray, int], dict[str, Any]
    ]  # (prepared, adjacency, rounds) -> sent by channel, counts [m]
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
    return {
        "sent": {"model": sent},
        "communications": communications,
        "grads": communications + 1,
        "releases": releases,
    }


def _ceps(label: str, bits: int, **fields: Any) -> Row:
    algorithm = jdfl.CEPS(**({"s": 3, "rate": 1.0, "periods": (2, 4)} | fields))
    exact = replace(algorithm, mechanism=None, codec=jdfl.Dense())
    return Row("ceps", algorithm, exact, {"model": bits}, 3, _ceps_consensus, _ceps_count, "mu", label)


def _gossip_count(algorithm: Any, adjacency: np.ndarray, rounds: int) -> dict[str, Any]:
    every = np.full(len(adjacency), rounds)
    return {"sent": {"model": every}, "communications": every, "grads": every + 1, "releases": 0 * every}


def _everywhere(algorithm: Any, problem: Any, w: Any) -> Any:
    return jnp.broadcast_to(w, (problem.m, problem.n))


TABLE = (
    _ceps("CEPS-Perf", 32 * 20),
    _ceps("CEPS-Perf, self always in", 32 * 20, own="always", sigma_rule="safe"),
    _ceps("CEPS-sparse", 3 * (32 + 5), codec=jdfl.Sparse()),
    _ceps("CEPS-1BCS", 40 + 64, codec=jdfl.OneBit(d=40)),
    _ceps("CEPS-int8", 3 * 8 + 32 + 11, codec=jdfl.Sparse(value="int8", index="enumerative")),
    _ceps("CEPS-1BCS, shared Phi", 40 + 64, codec=jdfl.OneBit(d=40, shared=True)),
    _ceps("CEPS-1BCS, Hadamard", 40 + 64, codec=jdfl.OneBit(d=40, ensemble="hadamard")),
    _ceps("CEPS-1BCS, side information", 40 + 64, codec=jdfl.OneBit(d=40, side=True)),
    _ceps("CEPS-1BCS, receiver's Phi", 40 + 64, codec=jdfl.OneBit(d=40), phi="receiver"),
    _ceps("DP-CEPS, kept", 32 * 20, mechanism=jdfl.Gaussian(0.5)),
    _ceps(
        "DP-CEPS-1BCS, literal",
        40 + 64,
        codec=jdfl.OneBit(d=40, inverse="paper"),
        mechanism=jdfl.Gaussian(0.5),
        noise="literal",
    ),
)

# Not registered: an algorithm as a newcomer writes it, dense and without a codec, keeps the same laws.
GOSSIP = Row("gossip", Gossip(), Gossip(), {"model": 32 * 20}, 20, _everywhere, _gossip_count, "rate")
