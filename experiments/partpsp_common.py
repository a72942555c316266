"""Shared parts of the DPPS paper's experiments: its networks, methods and settings as in its published code.

Ten nodes, batches of 100 in a fixed order, 12 epochs, plain gradient descent with gamma_s = gamma_l = .1, gamma_n =
.001, all three a tenth from epoch 5 and a hundredth from epoch 10 on (epochs counted from 0; in the code an epoch
earlier, 4 and 9), global averaging in every 4th round, one architecture for all methods: 784-10-784-10 with a residual
connection at width 784, without the code's tanh of the scores. Pixels are scaled to [-1, 1]: of the usual scalings it
is the one that reproduces the study's accuracies. In [0, 1] private runs are 1 to 3 points worse, and standardised
pixels make all runs, including noiseless ones, about 1 point better.

Y. Zhou, K. Xue, E. Chen: Differentially Private Perturbed Push-Sum Protocol and Its Application in Non-Convex
Optimization, section V.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np

import jdfl
from jdfl import network
from jdfl.models import Model
from jdfl.problems import NeuralProblem, neural_classification
from jdfl.problems.datasets import locate

NODES, BATCH, EPOCHS, SYNCHRONISED = 10, 100, 12, 4
MILESTONES = (5, 10)  # epochs
RATE, NOISE_RATE = 0.1, 1e-3
SHARED = {"PartPSP-1": "partpsp-1", "PartPSP-2": "partpsp-2", "SGPDP": "all", "PEDFL": "all"}
PARTS = {"1 layer": "partpsp-1", "2 layers": "partpsp-2", "all layers": "all"}  # of the perceptron


@dataclass(frozen=True)
class Task:
    """A model on data, and the length of its training."""

    title: str
    data: str
    model: Model
    epochs: int = EPOCHS
    examples: int | None = None
    test_examples: int | None = None
    lr_shared: float = RATE
    clip: float | None = None
    batch: int = BATCH
    rounds: int | None = None  # with batches drawn with replacement; None: whole epochs, in the order of the data
    options: tuple[tuple[str, Any], ...] = ()  # of neural_classification


def on_accelerator() -> bool:
    """Whether the large networks can run in full."""
    return jax.default_backend() != "cpu"


def images(*names: str) -> str:
    """The first available dataset; scikit-learn's digits where there are no files."""
    for name in names:
        try:
            locate(name)
        except (FileNotFoundError, ValueError):
            continue
        return name
    return "digits"


def mlp_task(*, quick: bool = False, **options: Any) -> Task:
    """The paper's perceptron on MNIST (or on digits); `quick` uses 20,000 images and 4 epochs."""
    data = images("mnist")
    model = jdfl.models.mlp(shape=(8, 8, 1) if data == "digits" else (28, 28, 1))
    few = {"epochs": 4, "examples": 20_000} if quick and data != "digits" else {}
    size = "" if not few else ", 20,000 images, 4 epochs"
    return Task(f"MLP/{data}{size}", data, model, **few, options=tuple(options.items()))


@lru_cache(maxsize=8)
def problem_of(task: Task, shared: str, m: int = NODES, seed: int = 0) -> NeuralProblem:
    """The task over m nodes, with the preset `shared` for the shared parameters.

    The choice of test images is declared public, where the dataset has no test images of its own.
    """
    made = neural_classification(
        task.data,
        m,
        model=task.model,
        shared=shared,
        seed=seed,
        init_seed=seed,
        examples=task.examples,
        test_examples=task.test_examples,
        standardise=False,
        **dict(task.options),
    )
    return replace(made, mean=(0.5,), deviation=(0.5,)).declared(*made.derived)


def batch_of(problem: NeuralProblem, task: Task | None = None) -> int:
    """100 or the task's batch, limited by the smallest node; batches drawn with replacement fit any node."""
    batch = BATCH if task is None else task.batch
    return batch if task is not None and task.rounds else min(batch, int(np.min(np.asarray(problem.sizes))))


def rounds_of(task: Task, problem: NeuralProblem) -> tuple[int, tuple[int, ...]]:
    """All rounds, and those in which learning rates decrease."""
    if task.rounds is not None:
        return task.rounds, tuple(task.rounds * e // EPOCHS for e in MILESTONES)
    epoch = int(np.max(np.asarray(problem.sizes))) // batch_of(problem, task)
    return task.epochs * epoch, tuple(int(epoch * round(e * task.epochs / EPOCHS, 9)) for e in MILESTONES)


def networks(m: int = NODES, *, every: int = SYNCHRONISED, hops: str = "code") -> Mapping[str, Any]:
    """The paper's networks by name, with global averaging in every `every`-th round."""
    made: dict[str, Any] = {"EXP": network.one_peer_exponential(m, hops=hops)}  # pyright: ignore[reportArgumentType]
    made |= {f"{d}-Out": network.d_out(m, d) for d in (2, 4, 6, 8, 10) if d <= m}
    return {name: network.synchronised(one, every) for name, one in made.items()}


def gradients(problem: NeuralProblem, task: Task, clip: float | None = None) -> jdfl.Gradients:
    """Batches in a fixed order, clipped as a whole in l1, or not at all."""
    batch, sampling = batch_of(problem, task), "replacement" if task.rounds else "in order"
    return jdfl.Gradients(batch=batch, sampling=sampling, clip=clip, per="batch", norm="l1")


def method(name: str, task: Task, problem: NeuralProblem, dpps: jdfl.DPPS) -> Any:
    """PartPSP-1, PartPSP-2, SGPDP or PEDFL with the published settings over the protocol."""
    _, milestones = rounds_of(task, problem)
    given: dict[str, Any] = {"gradients": gradients(problem, task, task.clip), "dpps": dpps, "milestones": milestones}
    if name.startswith("PartPSP"):
        return jdfl.PartPSP(lr_shared=task.lr_shared, lr_local=RATE, **given)
    kind = {"SGPDP": jdfl.SGP, "PEDFL": jdfl.PEDFL}[name]
    return kind(lr=task.lr_shared, **given)


def alone(problem: NeuralProblem, task: Task, *, frozen: bool = False) -> tuple[Any, NeuralProblem]:
    """Training without communication: everything, or all but the shared part; evaluated at own parameters."""
    _, milestones = rounds_of(task, problem)
    descent = {"optimizer": _falling(milestones), "gradients": gradients(problem, task)}
    if frozen:
        return jdfl.LocalOnly(train="local", **descent), problem
    return jdfl.LocalOnly(**descent), replace(problem, shared=0)


@lru_cache
def _falling(milestones: tuple[int, ...]) -> Any:
    """Descent with a decreasing learning rate; one object for all equal runs, which then share a compiled program."""
    import optax

    return optax.sgd(optax.piecewise_constant_schedule(RATE, dict.fromkeys(milestones, 0.1)))


def trained(
    algorithm: Any,
    task: Task,
    problem: NeuralProblem,
    net: Any,
    *,
    key: int = 0,
    metrics: tuple[str, ...] = ("accuracy",),
) -> jdfl.Result:
    """The whole run, measured at its end."""
    steps, _ = rounds_of(task, problem)
    return jdfl.run(algorithm, problem, net, steps=steps, every=steps, key=key, metrics=list(metrics))


def watched(
    task: Task, problem: NeuralProblem, net: Any, dpps: jdfl.DPPS, *, steps: int, key: int = 0
) -> tuple[np.ndarray, float]:
    """True distances and S of all rounds [steps, 2] of PartPSP, and its accuracy; NaN after a round that overflows."""
    algorithm = method("PartPSP-1", task, problem, replace(dpps, watch=True))
    result = jdfl.run(algorithm, problem, net, steps=steps, every=steps, key=key, metrics=["accuracy"])
    return np.asarray(result.state.shared.seen, np.float64), result.final["accuracy"]
