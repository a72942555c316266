"""Shared parts of the DPPS paper's experiments: its networks, methods and settings as in its published code.

Ten nodes, batches of 100 in a fixed order, 12 epochs, plain gradient descent with gamma_s = gamma_l = .1, gamma_n =
.001, all three a tenth from epoch 5 and a hundredth from epoch 10 on (epochs counted from 0), global averaging in every
4th round. There are two readings of the rest:

- ours, `mlp_task`: one architecture for all methods, 784-10-784-10 with a residual connection at width 784 and linear
  scores, pixels in [-1, 1], an even split drawn at random, Eq. 22 as in the text;
- the published code's, `published_task`: a tanh of the scores, pixels in [0, 1], the order in which PyTorch's sampler
  deals the images (seed 0), rates that fall an epoch earlier, and Eq. 22 without the start and from the network's
  largest S. Its wiring differs: "residual-10" for one shared layer and "residual-784" for two and three in Figures 2 to
  4 (`WIRINGS`), "plain" in Tables II and III. The wiring of the tables is not in the code that was published: the
  distances in the files published with it, and the accuracies, are those of this wiring alone.

`python -m experiments.partpsp_scale` has what every part of the second reading changes.

The perceptron fits any machine. ResNet-18 (Fashion-MNIST, l1 clip 100) and the vision transformer (CIFAR-10) run in
full where there is an accelerator. Elsewhere, or in small versions, they are "reduced", which is marked in their names:
a narrow network, few images, small batches, the same ten nodes. The published code has shared learning rates of 1e-5 to
.1 for the ResNet: both ends are separate cases. The published transformers start from weights trained on CIFAR-10
itself; these start at random. GroupNorm replaces BatchNorm.

Y. Zhou, K. Xue, E. Chen: Differentially Private Perturbed Push-Sum Protocol and Its Application in Non-Convex
Optimization, section V.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import jdfl
from experiments.common import Options, refuse
from jdfl import network
from jdfl.engine.metrics import accuracy
from jdfl.models import Model
from jdfl.models.networks import Wiring
from jdfl.problems import NeuralProblem, neural_classification
from jdfl.problems.datasets import locate, unscaled

ROWS = ("mlp", "resnet", "vit")
RESNET_RATES = (0.1, 1e-5)
RESNET_CLIP = 100.0
_BATCH = 20  # of the reduced forms
NODES, BATCH, EPOCHS, SYNCHRONISED = 10, 100, 12, 4
MILESTONES, EARLIER, SHORT = (5, 10), (4, 9), 2  # epochs; the code's are earlier, its files of the figures short
RATE, NOISE_RATE = 0.1, 1e-3
SHARED = {"PartPSP-1": "partpsp-1", "PartPSP-2": "partpsp-2", "SGPDP": "all", "PEDFL": "all"}
PARTS = {"1 layer": "partpsp-1", "2 layers": "partpsp-2", "all layers": "all"}  # of the perceptron
WIRINGS: dict[str, Wiring] = {"1 layer": "residual-10", "2 layers": "residual-784", "all layers": "residual-784"}


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
    pixels: Literal["-1..1", "0..1"] = "-1..1"
    order: Literal["drawn", "dealt"] = "drawn"  # split at random, or dealt in the order of PyTorch's sampler
    reading: Literal["text", "no start", "code"] = "text"  # of Eq. 22
    milestones: tuple[int, ...] = MILESTONES  # epochs


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
    few: dict[str, Any] = {"epochs": 4, "examples": 20_000} if quick and data != "digits" else {}
    size = "" if not few else ", 20,000 images, 4 epochs"
    return Task(f"MLP/{data}{size}", data, model, **few, options=tuple(options.items()))


def published_task(wiring: Wiring = "plain", *, short: bool = False, quick: bool = False) -> Task:
    """The perceptron with the published code's settings; `quick` uses 20,000 images and 4 epochs.

    `short`: as `shortened`.
    """
    ours = mlp_task(quick=quick)
    model = jdfl.models.mlp(wiring, shape=ours.model.shape, output="tanh")
    code: dict[str, Any] = {"pixels": "0..1", "order": "dealt", "reading": "code", "milestones": EARLIER}
    task = replace(ours, title=ours.title.replace("MLP", f"MLP as published, {wiring}"), model=model, **code)
    return shortened(task) if short else task


def shortened(task: Task) -> Task:
    """The two epochs of the files of Figures 2 to 4, in which rates do not fall; all epochs of the few digits."""
    return replace(task, epochs=task.epochs if task.data == "digits" else SHORT, milestones=())


def dealt(n: int, seed: int = 0) -> np.ndarray:
    """The order [n] in which PyTorch's sampler takes n examples; node i of m has every m-th of them, from the i-th on.

    Place i is exchanged with place i + z mod (n - i), where z is the i-th number of the Mersenne Twister MT19937.
    """
    numbers = np.random.RandomState(seed).randint(0, 2**32, size=n, dtype=np.uint32).astype(np.int64)
    order = np.arange(n)
    for i, z in enumerate(numbers[:-1]):
        other = i + z % (n - i)
        order[i], order[other] = order[other], order[i]
    return order


def _dealt(task: Task, m: int) -> dict[str, Any]:
    """The data in this order, and the node of every example."""
    data = unscaled(task.data)
    order = dealt(len(data.labels))[: task.examples]
    data = replace(data, features=np.asarray(data.features)[order], labels=data.labels[order])
    return {"data": data, "partition": "clients", "clients": np.arange(len(order)) % m}


@lru_cache(maxsize=8)
def problem_of(task: Task, shared: str, m: int = NODES, seed: int = 0) -> NeuralProblem:
    """The task over m nodes, with the preset `shared` for the shared parameters.

    The choice of test images is declared public, where the dataset has no test images of its own.
    """
    drawn: dict[str, Any] = {"data": task.data, "examples": task.examples}
    given = drawn if task.order == "drawn" else _dealt(task, m)
    made = neural_classification(
        m=m,
        model=task.model,
        shared=shared,
        seed=seed,
        init_seed=seed,
        test_examples=task.test_examples,
        standardise=False,
        **given,
        **dict(task.options),
    )
    scaled = replace(made, mean=(0.5,), deviation=(0.5,)) if task.pixels == "-1..1" else made
    return scaled.declared(*made.derived)


def batch_of(problem: NeuralProblem, task: Task | None = None) -> int:
    """100 or the task's batch, limited by the smallest node; batches drawn with replacement fit any node."""
    batch = BATCH if task is None else task.batch
    return batch if task is not None and task.rounds else min(batch, int(np.min(np.asarray(problem.sizes))))


def rounds_of(task: Task, problem: NeuralProblem) -> tuple[int, tuple[int, ...]]:
    """All rounds, and those in which learning rates decrease."""
    if task.rounds is not None:
        return task.rounds, tuple(task.rounds * e // EPOCHS for e in task.milestones)
    epoch = int(np.max(np.asarray(problem.sizes))) // batch_of(problem, task)
    return task.epochs * epoch, tuple(int(epoch * round(e * task.epochs / EPOCHS, 9)) for e in task.milestones)


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


def percent(result: jdfl.Result, problem: NeuralProblem) -> float:
    """The final accuracy in per cent; a diverged run's is that of NaN for all scores, which say the first class."""
    if result.ending == "diverged":
        return 100 * float(accuracy(jnp.full_like(problem.initial_params(), jnp.nan), problem))
    return 100 * result.final["accuracy"]


def watched(
    task: Task, problem: NeuralProblem, net: Any, dpps: jdfl.DPPS, *, steps: int, key: int = 0
) -> tuple[np.ndarray, float]:
    """True distances and S of all rounds [steps, 2] of PartPSP, and its accuracy; NaN after a round that overflows."""
    algorithm = method("PartPSP-1", task, problem, replace(dpps, watch=True))
    result = jdfl.run(algorithm, problem, net, steps=steps, every=steps, key=key, metrics=["accuracy"])
    return np.asarray(result.state.shared.seen, np.float64)[:steps], result.final["accuracy"]


FLAGS = {"--rows": {"default": None, "help": f"rows of the table, some of {','.join(ROWS)}; all of them"}}


def chosen_rows(chosen: Options, there: Sequence[str] = ROWS) -> tuple[str, ...]:
    """The rows that the command line names; the perceptron's with --quick."""
    rows = tuple((chosen.more["rows"] or ",".join(there)).split(","))
    if unknown := [one for one in rows if one not in there]:
        refuse(f"Expected --rows to name some of {', '.join(there)}, got {', '.join(unknown)}.")
    return ("mlp",) if chosen.quick else rows


def tasks(row: str, *, quick: bool = False) -> list[Task]:
    """The cases of a row of the paper's tables."""
    if row == "mlp":
        return [mlp_task(quick=quick), published_task(quick=quick)]
    small = quick or not on_accelerator()
    if row == "resnet":
        return [resnet_task(rate, small=small) for rate in RESNET_RATES]
    return [vit_task(small=small)]


def resnet_task(rate: float, *, small: bool) -> Task:
    """ResNet-18 on Fashion-MNIST with a shared rate; `small`: width 8 and 2,000 images."""
    data = images("fashion_mnist")
    shape = (8, 8, 3) if data == "digits" else (28, 28, 3)
    model = jdfl.models.resnet18(shape=shape, width=8 if small else 64)
    title = f"ResNet-18, gamma_s = {rate:g}/{data}"
    if not small:
        return Task(title, data, model, lr_shared=rate, clip=RESNET_CLIP)
    return _reduced(f"{title}, width 8", data, model, rate, RESNET_CLIP)


def vit_task(*, small: bool) -> Task:
    """The vision transformer on CIFAR-10; `small`: one layer of width 32 and 2,000 images."""
    data = images("cifar10")
    shape = (8, 8, 1) if data == "digits" else (32, 32, 3)
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 32, "mlp": 64} if small else {}
    model = jdfl.models.vit(shape=shape, **sizes)
    title = f"ViT/{_called(data)}"
    return _reduced(f"{title}, 1 layer, width 32", data, model) if small else Task(title, data, model)


def _reduced(title: str, data: str, model: jdfl.models.Model, rate: float = 0.1, clip: float | None = None) -> Task:
    """2,000 images in batches of 20; all of the digits."""
    few: dict[str, Any] = {} if data == "digits" else {"examples": 2000, "test_examples": 500}
    size = "" if data == "digits" else ", 2,000 images"
    title = f"reduced: {title}{size}, batch {_BATCH}"
    return Task(title, data, model, lr_shared=rate, clip=clip, batch=_BATCH, **few)


def _called(data: str) -> str:
    """The dataset's name, with a note where its file is lossy."""
    place = locate(data) if data == "cifar10" else None
    if place is None:
        return data
    lossy = Path(place).suffix == ".npz" or any(Path(place).glob("*.npz"))
    return "CIFAR-10 (JPEG q75)" if lossy else "CIFAR-10"


def reduced(task: Task) -> bool:
    """Whether a case is a smaller form of the paper's."""
    return task.title.startswith("reduced")
