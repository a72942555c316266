"""A convolutional network that somebody has written in Flax, against a loop over nodes in PyTorch, on one core.

GN-LeNet has three convolutions with group normalisation (Y. Wu, K. He, 2018) and pooling, 89,834 parameters for images
of 32x32x3; all nodes take a step of D-PSGD on a ring with a minibatch each. Both reach the same parameters, which is
checked first. A process of its own is bound to one core, so that neither library starts more threads.

Run `python -m benchmarks.own_convolutions [--quick] [--out DIR]`; PyTorch is needed. Two minutes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row

NEEDS = ("torch",)
RESULT = "A round of GN-LeNet on 16 nodes takes {GN-LeNet, m=16 batch=16 -> jdfl / PyTorch} times as long in jdfl."
LR, IN_ALL = 0.01, 64  # step size, and examples of a node
LAYERS = ((3, 32), (32, 32), (32, 64))


class Lenet(nnx.Module):
    """GN-LeNet as a user writes it, with the layers and the pooling of Flax."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.convs = nnx.List([nnx.Conv(a, b, (5, 5), padding=2, rngs=rngs) for a, b in LAYERS])
        self.norms = nnx.List([nnx.GroupNorm(b, num_groups=2, epsilon=1e-5, rngs=rngs) for _, b in LAYERS])
        self.head = nnx.Linear(64 * 4 * 4, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Scores [B, 10] of images [B, 32, 32, 3]."""
        for conv, norm in zip(self.convs, self.norms):
            x = nnx.max_pool(nnx.relu(norm(conv(x))), (2, 2), (2, 2))
        return self.head(x.reshape(len(x), -1))


def built(m: int) -> Any:
    """A problem of random images."""
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((m * IN_ALL, 32, 32, 3), np.float32), np.arange(m * IN_ALL, dtype=np.int32) % 10
    return jdfl.from_model(Lenet(nnx.Rngs(0)), x, y, nodes=m, test_fraction=0.0)


def method(batch: int) -> jdfl.DPSGD:
    """D-PSGD with minibatches in the order of the data."""
    return jdfl.DPSGD(lr=LR, gradients=jdfl.Gradients(batch=batch, sampling="in order"))


def of_jdfl(problem: Any, batch: int, rounds: int) -> Callable[[], Any]:
    """A function that runs `rounds` rounds and returns the state."""
    return rounds_of(method(batch), problem, jdfl.network.ring(problem.m), rounds)


def of_torch(problem: Any, batch: int, rounds: int) -> Callable[[], Any]:
    """The same rounds as a loop over modules; it returns the parameters as numpy arrays, in the order of Flax."""
    import torch  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    leaves = {path: np.array(leaf) for path, leaf in problem.model.unravel(problem.initial_params()[0]).items()}

    def module() -> Any:
        parts: list[Any] = []
        for k, (a, b) in enumerate(LAYERS):
            conv: Any = nn.Conv2d(a, b, 5, padding=2)
            conv.weight.data = torch.from_numpy(leaves[f"convs.{k}.kernel"].transpose(3, 2, 0, 1).copy())
            conv.bias.data = torch.from_numpy(leaves[f"convs.{k}.bias"].copy())
            parts += [conv, nn.GroupNorm(2, b), nn.ReLU(), nn.MaxPool2d(2)]
        head = nn.Linear(1024, 10)
        kernel = leaves["head.kernel"].reshape(4, 4, 64, 10).transpose(2, 0, 1, 3).reshape(1024, 10)
        head.weight.data = torch.from_numpy(kernel.T.copy())
        head.bias.data = torch.from_numpy(leaves["head.bias"].copy())
        return nn.Sequential(*parts, nn.Flatten(), head)

    images, labels = (np.asarray(leaf) for leaf in problem.data)
    x = torch.from_numpy(images.transpose(0, 1, 4, 2, 3).copy())
    y, W = (
        torch.from_numpy(labels.astype(np.int64)),
        torch.from_numpy(np.asarray(jdfl.network.to_scipy(jdfl.network.ring(problem.m)).toarray(), np.float32)),
    )
    nodes = [module() for _ in range(problem.m)]
    t = 0

    def work() -> Any:
        nonlocal t
        for _ in range(rounds):
            begin = t % (IN_ALL // batch) * batch
            some, flat, slopes = slice(begin, begin + batch), list[Any](), list[Any]()
            for i, node in enumerate(nodes):
                own = list(node.parameters())
                slope = torch.autograd.grad(nn.functional.cross_entropy(node(x[i, some]), y[i, some]), own)
                flat.append(torch.cat([w.detach().reshape(-1) for w in own]))
                slopes.append(torch.cat([g.reshape(-1) for g in slope]))
            new = W @ torch.stack(flat) - LR * torch.stack(slopes)
            for node, w in zip(nodes, new):
                nn.utils.vector_to_parameters(w.clone(), node.parameters())
            t += 1
        return [[w.detach().numpy() for w in node.parameters()] for node in nodes]

    return work


def check(problem: Any, batch: int) -> None:
    """AssertionError where both ways reach other parameters, or learn nothing."""
    ring = jdfl.network.ring(problem.m)
    found = np.asarray(jdfl.run(method(batch), problem, ring, steps=3, metrics=[]).params)
    if not np.abs(found - np.asarray(problem.initial_params())).max() > 1e-3:
        raise AssertionError("Expected parameters that change, got those of the start.")
    for i, node in enumerate(of_torch(problem, batch, 3)()):
        ours = problem.model.unravel(jnp.asarray(found[i]))
        for k in range(3):
            np.testing.assert_allclose(ours[f"convs.{k}.kernel"], node[4 * k].transpose(2, 3, 1, 0), atol=1e-4)
        np.testing.assert_allclose(ours["head.bias"], node[-1], atol=1e-4)


def measured(m: int, batch: int, rounds: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of a round in both ways, interleaved, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    problem = built(m)
    check(problem, batch)
    ways = {"jdfl": of_jdfl(problem, batch, rounds), "torch": of_torch(problem, batch, rounds)}
    return {name: [one / rounds for one in times] for name, times in interleaved(ways, repeats).items()}


def figures(m: int, batch: int, rounds: int, repeats: int, goal: str) -> list[Row]:
    """The rows of one size, measured in a process of its own; none where processes cannot be bound to a core."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    command = [sys.executable, "-m", "benchmarks.own_convolutions", "--alone", *map(str, (m, batch, rounds, repeats))]
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds = json.loads(done.splitlines()[-1])
    case = f"GN-LeNet, m={m} batch={batch}"
    return [
        row(case, "a round of jdfl", seconds["jdfl"], "s"),
        row(case, "a round of the loop in PyTorch", seconds["torch"], "s"),
        row(case, "jdfl / PyTorch", ratios(seconds["jdfl"], seconds["torch"]), "x", goal),
    ]


@benchmark("A user's own convolutions")
def main(chosen: Options) -> list[Row]:
    return figures(4, 8, 1, 2, "") if chosen.quick else figures(16, 16, 3, 7, "<= 1.5")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(measured(*map(int, sys.argv[2:]))))
    else:
        main()
