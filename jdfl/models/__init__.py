"""Neural networks as pure pairs (init, apply) on flat parameter vectors; flax is imported when the first one is made.

A new architecture costs one file, one line in `registry` and one in `_MAKERS`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jdfl.models.base import Maker, Model
from jdfl.models.registry import NAMES, build

if TYPE_CHECKING:
    from jdfl.models.convolutional import cnn, cnn3
    from jdfl.models.opening import from_nnx
    from jdfl.models.perceptron import mlp
    from jdfl.models.residual import resnet18
    from jdfl.models.transformer import vit

_MAKERS = {
    "cnn": "convolutional",
    "cnn3": "convolutional",
    "from_nnx": "opening",
    "mlp": "perceptron",
    "resnet18": "residual",
    "vit": "transformer",
}

__all__ = ["NAMES", "Maker", "Model", "build", "cnn", "cnn3", "from_nnx", "mlp", "resnet18", "vit"]


def __getattr__(name: str) -> Any:
    """The architecture of that name, from its file."""
    if name not in _MAKERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MAKERS[name]}"), name)


def __dir__() -> list[str]:
    """The public names, those not imported yet included."""
    return sorted(__all__)
