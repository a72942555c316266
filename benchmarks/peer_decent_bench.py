"""D-PSGD in decent-bench (Team Decent, AGPL-3.0), with its public interface and nothing added.

Its `DGD` is D-PSGD as in the paper (combine-then-adapt): x_i <- sum_j W_ij x_j - lr grad f_i(x_i), with jdfl's f_i. The
implementation differs: nodes are objects and messages are copies, and a gradient is (A'A) x - A'b with a stored A'A [n,
n], n^2 + n q products in place of 2 n q. A'A is formed in the first round, which is not timed.

It uses NumPy, whose BLAS uses all cores. Its arrays have the type of the data and of the weights; those that it creates
itself are float64, which is therefore its default. It is measured in that way, with its own Metropolis weights, and in
float32 throughout, like jdfl. Only the last iterate of a call is kept, where it would keep all of them.

Axes: m nodes, q examples per node, n parameters.
"""

# pyright: reportUnknownParameterType=false

import sys
from functools import partial

import decent_array.interoperability as iop  # pyright: ignore[reportMissingImports]
import networkx as nx
import numpy as np
from decent_bench.agents import Agent  # pyright: ignore[reportMissingImports]
from decent_bench.algorithms.p2p import DGD  # pyright: ignore[reportMissingImports]
from decent_bench.costs import LinearRegressionCost  # pyright: ignore[reportMissingImports]
from decent_bench.networks import P2PNetwork  # pyright: ignore[reportMissingImports]
from numpy.typing import DTypeLike


class DecentBench:
    """Agents with the data A [m, q, n] and b [m, q], at zero, in a network with weights W [m, m] or its own."""

    def __init__(self, A: np.ndarray, b: np.ndarray, W: np.ndarray, lr: float, dtype: DTypeLike, own_weights: bool):
        iop.set_backend("numpy")
        A, b = A.astype(dtype, copy=False), b.astype(dtype, copy=False)
        agents = [Agent(self.cost(*data), state_snapshot_period=sys.maxsize) for data in zip(A, b)]
        links = nx.from_numpy_array(W != 0)
        links.remove_edges_from(list(nx.selfloop_edges(links)))
        self.network = P2PNetwork(links, agents)
        if not own_weights:
            self.network.weights = iop.from_numpy(W.astype(dtype))
        start = iop.from_numpy(np.zeros(A.shape[-1], dtype))
        self.algorithm, self.done = DGD(step_size=lr, x0=start), 0

    @staticmethod
    def cost(A: np.ndarray, b: np.ndarray) -> LinearRegressionCost:
        """||A x - b||^2 / (2 q), given example by example."""
        return LinearRegressionCost([(iop.from_numpy(a), iop.from_numpy(np.atleast_1d(t))) for a, t in zip(A, b)])

    def advance(self, rounds: int) -> None:
        """Run a number of rounds."""
        self.algorithm.run(self.network, self.done + rounds, self.done)
        self.done += rounds

    def parameters(self) -> np.ndarray:
        """The parameters of all agents [m, n]."""
        return np.stack([iop.to_numpy(agent.x) for agent in self.network.agents()])


SAME = {
    "decent-bench, float32": partial(DecentBench, dtype=np.float32, own_weights=False),
    "decent-bench, float64": partial(DecentBench, dtype=np.float64, own_weights=True),
}
OTHER = {}
