"""D-PSGD in gossipy (M. Polato, Apache-2.0), and the gossip learning that it is designed for.

gossipy simulates events: a round consists of time steps; in each, some nodes send their model to one random neighbour,
and a node that receives one takes the mean of both models and immediately trains on its local data. This is not D-PSGD:
a node receives from one neighbour instead of all, and models that have and have not been trained in this round are
mixed. It is timed, with full gradients, as "one neighbour": as many gradients as D-PSGD, and fewer messages.

Its parts can also implement D-PSGD: `AllNeighbours` sends to its neighbours step by step and, when the next round
begins, passes everything it has received to the model handler, which takes the mean and trains (`MERGE_UPDATE`). The
mean of a node and its d neighbours is mixing with weights 1 / (d + 1), which equal Metropolis weights where all degrees
are equal. Gradients are evaluated at the mean: this is `DPSGD(order="adapt-then-combine")`, observed between its two
halves, so the parameters to compare are the means of what the nodes hold. The simulator and the handler, with float32
tensors of PyTorch, are gossipy's own; a message is a deep copy of a handler, and a gradient uses the examples in a new
order, which costs a copy of them. PyTorch uses all cores.

Axes: m nodes, q examples per node, n parameters.
"""

# pyright: reportUnknownParameterType=false

import io
import logging
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from gossipy import CACHE  # pyright: ignore[reportMissingImports]
from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork  # pyright: ignore[reportMissingImports]
from gossipy.data import DataDispatcher  # pyright: ignore[reportMissingImports]
from gossipy.data.handler import ClassificationDataHandler  # pyright: ignore[reportMissingImports]
from gossipy.model import TorchModel  # pyright: ignore[reportMissingImports]
from gossipy.model.handler import TorchModelHandler  # pyright: ignore[reportMissingImports]
from gossipy.node import GossipNode  # pyright: ignore[reportMissingImports]
from gossipy.simul import GossipSimulator  # pyright: ignore[reportMissingImports]

STEPS = 100  # in a round of gossip learning, as in gossipy's examples
logging.getLogger().setLevel(logging.WARNING)  # which gossipy lowers for all packages on import


class Regression(TorchModel):
    """x -> <w, x>, w [n] at zero."""

    def __init__(self, n: int):
        super().__init__()
        self.linear = torch.nn.Linear(n, 1, bias=False)

    def init_weights(self) -> None:
        """Start at zero."""
        torch.nn.init.zeros_(self.linear.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Predictions [q, 1] of x [q, n]."""
        return self.linear(x)


def half_square(predicted: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """||predicted - target||^2 / (2 q)."""
    return 0.5 * torch.nn.functional.mse_loss(predicted, target)


class AllNeighbours(GossipNode):
    """Sends to its neighbours one after another, and processes what it has received when the next round begins."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.neighbours = self.p2p_net.get_peers(self.idx)
        self.step, self.heard = 0, []

    def timed_out(self, t: int) -> bool:
        """Whether there is a neighbour to send to in this step."""
        self.step = t % self.round_len
        if self.step == 0 and self.heard:
            self.model_handler(self.heard, self.data[0])
            self.heard = []
        return self.step < len(self.neighbours)

    def get_peer(self) -> int:
        """The neighbour of this step."""
        return self.neighbours[self.step]

    def receive(self, t: int, msg: Any) -> None:
        """Store a model; it arrives in the step in which it was sent."""
        self.heard.append(CACHE.pop(msg.value[0]))


class Gossipy:
    """Nodes with the data A [m, q, n] and b [m, q], at zero, in a network with uniform weights W [m, m]."""

    def __init__(self, A: np.ndarray, b: np.ndarray, W: np.ndarray, lr: float, node: type, steps: int | None = None):
        m, q, n = A.shape
        links = (W != 0) & ~np.eye(m, dtype=bool)
        degree = links.sum(axis=1)
        if not np.allclose(W[W != 0], 1 / (degree[0] + 1)):
            raise ValueError(f"Expected weights 1 / (d + 1) of a regular network, got {W.min():.3g} to {W.max():.3g}.")
        examples, targets = torch.from_numpy(A.reshape(m * q, n)), torch.from_numpy(b.reshape(m * q, 1))
        data = DataDispatcher(ClassificationDataHandler(examples, targets, test_size=0), m, auto_assign=False)
        data.set_assignments([list(range(i * q, (i + 1) * q)) for i in range(m)], None)
        handler = TorchModelHandler(
            net=Regression(n),
            optimizer=torch.optim.SGD,
            optimizer_params={"lr": lr},
            criterion=half_square,
            batch_size=0,  # all examples
            create_model_mode=CreateModelMode.MERGE_UPDATE,
        )
        steps = steps or int(degree[0])
        nodes = node.generate(data, StaticP2PNetwork(m, links.astype(int)), handler, steps, sync=True)
        self.W = W
        self.simulator = GossipSimulator(nodes, data, steps, AntiEntropyProtocol.PUSH)
        self.simulator.init_nodes()  # with a first gradient at zero, as adapt-then-combine starts

    def advance(self, rounds: int) -> None:
        """Run a number of rounds, without showing progress."""
        with redirect_stdout(io.StringIO()):
            self.simulator.start(rounds)

    def parameters(self) -> np.ndarray:
        """W x [m, n]: where the nodes' next gradients are evaluated."""
        nodes = self.simulator.nodes
        x = [nodes[i].model_handler.model.linear.weight.detach().numpy()[0] for i in range(len(nodes))]
        return self.W @ np.stack(x)


SAME = {"gossipy": partial(Gossipy, node=AllNeighbours)}
OTHER = {"gossipy, one neighbour": partial(Gossipy, node=GossipNode, steps=STEPS)}
