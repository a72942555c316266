"""The models and data of the DPPS paper's tables, in full or in a smaller form that is marked in its name.

The perceptron fits any machine, and there are two readings of its settings, ours and that of the published code
(`experiments.partpsp_common`). ResNet-18 (Fashion-MNIST, l1 clip 100) and the vision transformer (CIFAR-10) run in
full where there is an accelerator. Elsewhere, or in small versions, they are "reduced": a narrow network, few images,
small batches, the same ten nodes.

The published code has shared learning rates of 1e-5 to .1 for the ResNet: both ends are separate cases. The published
transformers start from weights trained on CIFAR-10 itself; these start at random. GroupNorm replaces BatchNorm.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jdfl
from experiments.common import Options
from experiments.partpsp_common import Task, images, mlp_task, on_accelerator, published_task
from jdfl.problems.datasets import locate

ROWS = ("mlp", "resnet", "vit")
RESNET_RATES = (0.1, 1e-5)
RESNET_CLIP = 100.0
_BATCH = 20  # of the reduced forms


FLAGS = {"--rows": {"default": None, "help": f"rows of the table, some of {','.join(ROWS)}; all of them"}}


def chosen_rows(chosen: Options, there: Sequence[str] = ROWS) -> tuple[str, ...]:
    """The rows that the command line names; the perceptron's with --quick."""
    rows = tuple((chosen.more["rows"] or ",".join(there)).split(","))
    if unknown := [one for one in rows if one not in there]:
        sys.exit(f"Expected --rows to name some of {', '.join(there)}, got {', '.join(unknown)}.")
    return ("mlp",) if chosen.quick else rows


def tasks(row: str, *, quick: bool = False) -> list[Task]:
    """The cases of a row of the paper's tables."""
    if row == "mlp":
        return [mlp_task(quick=quick), published_task(quick=quick)]
    small = quick or not on_accelerator()
    if row == "resnet":
        return [resnet_task(rate, small=small) for rate in RESNET_RATES]
    return [vit_task(small=small)]


def resnet_task(rate: float, *, small: bool, norm: Literal["group", "batch"] = "group") -> Task:
    """ResNet-18 on Fashion-MNIST with a shared rate; `small`: width 8 and 2,000 images.

    `norm`: "batch" is BatchNorm with the means and variances of a node's own batches.
    """
    data = images("fashion_mnist")
    shape = (8, 8, 3) if data == "digits" else (28, 28, 3)
    model = jdfl.models.resnet18(norm, shape=shape, width=8 if small else 64)
    title = f"ResNet-18{', BatchNorm' * (norm == 'batch')}, gamma_s = {rate:g}/{data}"
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
