"""After how many rounds a network repeats, and its mixing matrices until then."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jdfl import checks
from jdfl.arguments import checked
from jdfl.network.arcs import called
from jdfl.network.graph import Graph, Network, Static, as_dense
from jdfl.network.sequences import Periodic
from jdfl.network.synchronised import Synchronised

_MOST_ENTRIES = 2**28  # of all mixing matrices of a period


@checked
def period_of(network: Graph | Network) -> int | None:
    """The number of rounds after which a network is the same again; None for one that is drawn at random."""
    if isinstance(network, Graph | Static):
        return 1
    if isinstance(network, Periodic):
        return int(network.graphs.senders.shape[0])
    if isinstance(network, Synchronised):
        inner = period_of(network.base)
        return None if inner is None else math.lcm(inner, int(network.every))
    return None


@checked
def matrices(network: Network, rounds: int, purpose: str) -> Callable[[int], np.ndarray]:
    """W_t [m, m] float64 of every round below `rounds`, on the host.

    Raises ValueError for a network that is drawn at random, whose matrices are not known before the run, and for more
    than memory should hold; `purpose` says what they are for.
    """
    checks.whole(1, rounds=rounds)
    m, period = network.m, period_of(network)
    if period is None:
        raise ValueError(
            f"Expected a network that is known before the run for {purpose}, got {called(network)}, which is drawn at "
            "random. Use a fixed or a periodic one, such as jdfl.network.d_out."
        )
    count = min(period, rounds)
    if count * m**2 > _MOST_ENTRIES:
        raise ValueError(
            f"Expected at most {_MOST_ENTRIES} entries of mixing matrices for {purpose}, got {count} rounds of "
            f"{m} x {m}. Take fewer nodes, or a network of a shorter period."
        )
    known: dict[bytes, np.ndarray] = {}
    found: list[np.ndarray] = []
    for t in range(count):
        graph = network.at(jnp.int32(t), jax.random.key(0))
        synchronised = graph.synchronised is not None and bool(graph.synchronised)
        W = np.full((m, m), 1 / m) if synchronised else np.asarray(as_dense(graph), np.float64)
        found.append(known.setdefault(W.tobytes(), W))
    return lambda t: found[t % period]
