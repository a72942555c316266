"""Networks small enough to compile in a context, one of every kind, and parameters and examples for them."""

from typing import Any

import jax
import numpy as np

from jdfl import models
from jdfl.models import Model

_OPTIONS = {
    "mlp": {"shape": (4, 4, 1), "classes": 3, "hidden": 3},
    "cnn": {"shape": (8, 8, 1), "classes": 3, "channels": (2, 3), "dense": 4},
    "cnn3": {"shape": (7, 6, 1), "classes": 3, "channels": (2, 2, 3)},
    "vit": {"shape": (4, 4, 2), "patch": 2, "layers": 1, "heads": 2, "width": 4, "mlp": 6, "classes": 3},
    "batch": {"norm": "batch", "shape": (16, 16, 1), "classes": 3, "width": 2, "stem": "cifar"},
    "group": {"norm": "group", "shape": (16, 16, 1), "classes": 3, "width": 4, "stem": "cifar"},
}


def small(name: str, **options: Any) -> Model:
    """A new small network: of an architecture, or ResNet-18 with the norm of that name."""
    kind = "resnet18" if "norm" in _OPTIONS[name] else name
    return models.build(kind, **_OPTIONS[name] | options)


SMALL = {name: small(name) for name in _OPTIONS}
NAMES = list(SMALL)


def parameters(model: Model, m: int, seed: int = 0) -> np.ndarray:
    """Different parameters [m, n] with scales near one, so that no layer is switched off."""
    rng = np.random.default_rng(seed)
    rows = []
    for path, shape in zip(model.paths, model.shapes):
        spread = 1 / np.sqrt(max(1, np.prod(shape[:-1])))
        centre = 1.0 if path.endswith("scale") else 0.0
        rows.append((centre + spread * rng.standard_normal((m, *shape))).reshape(m, -1))
    return np.concatenate(rows, 1).astype(np.float32)


def examples(model: Model, *lead: int, seed: int = 0) -> np.ndarray:
    """Examples [*lead, *shape] uniform on [0, 1]."""
    return np.random.default_rng(seed).random((*lead, *model.shape), np.float32)


def leaves_of(model: Model, w: Any) -> dict[str, np.ndarray]:
    """The leaves of w [..., n] by path, in numpy, from one program."""
    leaves = jax.jit(lambda w: list(model.unravel(w).values()))(w)
    return dict(zip(model.paths, jax.device_get(leaves)))
