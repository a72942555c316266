"""Architectures by name, for the command line."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from jdfl import checks
from jdfl.arguments import checked
from jdfl.models.base import Model

_FILES = {
    "mlp": "perceptron",
    "cnn": "convolutional",
    "resnet18": "residual",
    "vit": "transformer",
    "cnn3": "convolutional",
}
NAMES = tuple(_FILES)


@checked
def build(name: str, **options: Any) -> Model:
    """The architecture `name`, one of `NAMES`, with the options of the function of that name.

    ValueError for an unknown name or option, listing the known ones, and for values the architecture refuses.
    """
    checks.one_of(NAMES, name=name)
    make: Callable[..., Model] = getattr(import_module(f"jdfl.models.{_FILES[name]}"), name)
    known = list(inspect.signature(make).parameters)
    for option in options:
        checks.one_of(known, f"These are the options of {name}.", option=option)
    return make(**options)
