"""PartPSP in PyTorch as a loop over nodes, one module for each: what `benchmarks.partpsp_vs_loop` compares with.

Axes: N nodes, q examples per node, d shared parameters.
"""

# pyright: reportUnknownParameterType=false

import copy
from itertools import combinations
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn.functional import cross_entropy  # pyright: ignore[reportMissingImports]


class Perceptron(nn.Module):
    """The perceptron p-h-p-c with a residual connection at width p."""

    def __init__(self, inputs: int, hidden: int, classes: int):
        super().__init__()
        self.layer1 = nn.Linear(inputs, hidden)
        self.layer2 = nn.Linear(hidden, inputs)
        self.layer3 = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, classes] of x [B, inputs]."""
        a = torch.tanh(self.layer1(x))
        return self.layer3(torch.tanh(self.layer2(a)) + x)


class Loop:
    """The nodes of a NeuralProblem with equal numbers of examples, and the operations of a round."""

    def __init__(self, problem: Any, batch: int, degree: int, every: int, rate: float, noise_rate: float, b: Any):
        images, labels = (np.asarray(leaf) for leaf in problem.data)
        flat = images.reshape(*labels.shape, -1).astype(np.float32) / 255
        mean, deviation = (np.asarray(x).item() for x in (problem.mean, problem.deviation))
        self.x = list(torch.from_numpy((flat - mean) / deviation))
        self.y = list(torch.from_numpy(labels.astype(np.int64)))
        leaves = {path: np.asarray(leaf) for path, leaf in problem.model.unravel(problem.initial_params()[0]).items()}
        inputs, hidden = leaves["layer1.kernel"].shape
        first = Perceptron(inputs, hidden, problem.model.classes)
        first.load_state_dict({_name(path): torch.tensor(leaf.T.copy()) for path, leaf in leaves.items()})
        self.nodes = [copy.deepcopy(first) for _ in self.x]
        self.shared = [list(node.layer1.parameters()) for node in self.nodes]
        self.local = [[*node.layer2.parameters(), *node.layer3.parameters()] for node in self.nodes]
        self.s = [_flat(shared) for shared in self.shared]
        self.a = [1.0] * len(self.nodes)
        self.batch, self.degree, self.every = batch, degree, every
        self.rate, self.noise_rate, self.b = rate, noise_rate, b
        self.t = 0

    def loss(self, i: int) -> Tensor:
        """The loss of node i on its batch of this round."""
        begin = self.t % (len(self.y[i]) // self.batch) * self.batch
        rows = slice(begin, begin + self.batch)
        return cross_entropy(self.nodes[i](self.x[i][rows]), self.y[i][rows])

    def round(self, apart: str, draw: str) -> None:
        """One round; `apart` is "pairs" or "cdist", `draw` "laplace" or "exponential"."""
        sent = []
        for i, local in enumerate(self.local):
            g = torch.autograd.grad(self.loss(i), local)
            with torch.no_grad():
                for w, one in zip(local, g):
                    w.sub_(one, alpha=self.rate)
            g = torch.autograd.grad(self.loss(i), self.shared[i])
            sent.append(self.s[i].sub(_flat(g), alpha=self.rate))
        if self.b is not None:
            scale = self.noise_rate * _FURTHEST[apart](sent) / self.b
            sent = [h + _NOISE[draw](scale, h) for h in sent]
        self.s, self.a = self._mixed(sent)
        for shared, s, a in zip(self.shared, self.s, self.a):
            with torch.no_grad():
                for w, one in zip(shared, torch.split(s / a, [w.numel() for w in shared])):
                    w.copy_(one.view_as(w))
        self.t += 1

    def _mixed(self, sent: list[Tensor]) -> tuple[list[Tensor], list[float]]:
        """Every node's vector after the exchange: the weighted sums of what it received."""
        N = len(sent)
        if (self.t + 1) % self.every == 0:
            mean, mass = torch.stack(sent).mean(dim=0), sum(self.a) / N
            return [mean] * N, [mass] * N
        weight, heard = 1 / self.degree, [[(i - hop) % N for hop in range(self.degree)] for i in range(N)]
        s = []
        for senders in heard:
            total = sent[senders[0]] * weight
            for j in senders[1:]:
                total.add_(sent[j], alpha=weight)
            s.append(total)
        return s, [weight * sum(self.a[j] for j in senders) for senders in heard]

    def parameters(self, model: Any) -> np.ndarray:
        """All parameters [N, n] in the order of the model's."""
        found = []
        for node in self.nodes:
            leaves = {path: node.get_parameter(_name(path)).detach().numpy().T for path in model.paths}
            found.append(np.asarray(model.ravel(leaves)))
        return np.stack(found)


def by_pairs(sent: list[Tensor]) -> float:
    """The largest l1 distance between two nodes' vectors, pair by pair."""
    return max((torch.norm(one - other, p=1) for one, other in combinations(sent, 2)), default=torch.zeros(())).item()


def by_cdist(sent: list[Tensor]) -> float:
    """The same with one call."""
    stacked = torch.stack(sent)
    return torch.cdist(stacked, stacked, p=1).max().item()


def laplace(scale: float, like: Tensor) -> Tensor:
    """Laplace noise from `torch.distributions`."""
    return torch.distributions.Laplace(0.0, scale).sample(like.shape)


def exponentials(scale: float, like: Tensor) -> Tensor:
    """Laplace noise as the difference of two exponential variables."""
    one, other = torch.empty(2, like.numel()).exponential_(1 / scale)
    return one - other


_FURTHEST = {"pairs": by_pairs, "cdist": by_cdist}
_NOISE = {"laplace": laplace, "exponential": exponentials}


def _flat(leaves: Any) -> Tensor:
    return torch.cat([leaf.detach().reshape(-1) for leaf in leaves])


def _name(path: str) -> str:
    """PyTorch's name of a layer's leaf."""
    return path.replace("kernel", "weight")
