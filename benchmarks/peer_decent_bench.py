"""D-PSGD in decent-bench (Team Decent, AGPL-3.0), with its public interface and nothing added, and its other methods.

Its `DGD` is D-PSGD as in the paper (combine-then-adapt): x_i <- sum_j W_ij x_j - lr grad f_i(x_i), with jdfl's f_i. The
implementation differs: nodes are objects and messages are copies, and a gradient is (A'A) x - A'b with a stored A'A [n,
n], n^2 + n q products in place of 2 n q. A'A is formed in the first round, which is not timed.

It uses NumPy, whose BLAS uses all cores. Its arrays have the type of the data and of the weights; those that it creates
itself are float64, which is therefore its default. It is measured in that way, with its own Metropolis weights, and in
float32 throughout, like jdfl. Only the last iterate of a call is kept, where it would keep all of them.

Its other methods run in the same way, by the names of their classes (`original`); benchmarks/originals.py compares them
with jdfl's.

Axes: m nodes, q examples per node, n parameters.
"""

# pyright: reportUnknownParameterType=false

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import decent_array.interoperability as iop  # pyright: ignore[reportMissingImports]
import networkx as nx
import numpy as np
from decent_bench.agents import Agent  # pyright: ignore[reportMissingImports]
from decent_bench.algorithms import p2p  # pyright: ignore[reportMissingImports]
from decent_bench.costs import LinearRegressionCost  # pyright: ignore[reportMissingImports]
from decent_bench.networks import P2PNetwork  # pyright: ignore[reportMissingImports]
from numpy.typing import DTypeLike


class Running:
    """An algorithm on a network, from its start."""

    def __init__(self, network: Any, algorithm: Any):
        self.network, self.algorithm, self.done = network, algorithm, 0

    def advance(self, rounds: int) -> None:
        """Run a number of rounds."""
        self.algorithm.run(self.network, self.done + rounds, self.done)
        self.done += rounds

    def parameters(self) -> np.ndarray:
        """The parameters of all agents [m, n]."""
        return np.stack([iop.to_numpy(agent.x) for agent in self.network.agents()])


class Reader(Agent):
    """An agent that reads copies of its messages."""

    def messages(self, channel: str = "default") -> Mapping[Any, Any]:
        """The messages received in a channel, by sender."""
        return {sender: iop.copy(message) for sender, message in super().messages(channel).items()}


def costs_of(A: np.ndarray, b: np.ndarray, batch: int | None = None) -> list[LinearRegressionCost]:
    """||A x - b||^2 / (2 q) of every agent, given example by example; a gradient is that of `batch` examples or all."""
    iop.set_backend("numpy")
    sets = ([(iop.from_numpy(a), iop.from_numpy(np.atleast_1d(t))) for a, t in zip(*data)] for data in zip(A, b))
    return [LinearRegressionCost(data, batch_size=batch or "all") for data in sets]


def network_of(costs: Sequence[Any], W: np.ndarray, given: DTypeLike | None, kind: Any = Agent) -> P2PNetwork:
    """Agents with these costs on the links of W [m, m], with its weights in the type `given`, or their own (None)."""
    agents = [kind(cost, state_snapshot_period=sys.maxsize) for cost in costs]
    links = nx.from_numpy_array(W != 0)
    links.remove_edges_from(list(nx.selfloop_edges(links)))
    network = P2PNetwork(links, agents)
    if given is not None:
        network.weights = iop.from_numpy(W.astype(given))
    return network


def original(
    name: str, settings: Mapping[str, Any], costs: Sequence[Any], W: np.ndarray, copied: bool = False
) -> Running:
    """A method of decent-bench from zero in float64, with the weights W [m, m]; `copied`: agents read copies."""
    return Running(network_of(costs, W, np.float64, Reader if copied else Agent), getattr(p2p, name)(**settings))


class DecentBench(Running):
    """D-PSGD of agents with the data A [m, q, n] and b [m, q], at zero, on weights W [m, m] or their own."""

    def __init__(self, A: np.ndarray, b: np.ndarray, W: np.ndarray, lr: float, dtype: DTypeLike, own_weights: bool):
        costs = costs_of(A.astype(dtype, copy=False), b.astype(dtype, copy=False))
        start = iop.from_numpy(np.zeros(A.shape[-1], dtype))
        super().__init__(network_of(costs, W, None if own_weights else dtype), p2p.DGD(step_size=lr, x0=start))


SAME = {
    "decent-bench, float32": partial(DecentBench, dtype=np.float32, own_weights=False),
    "decent-bench, float64": partial(DecentBench, dtype=np.float64, own_weights=True),
}
OTHER = {}
