"""Architectures by name, for the command line."""

import inspect
from collections.abc import Callable
from typing import Any, Literal, get_args

from jdfl import models
from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.models.base import Model

ModelName = Literal["mlp", "cnn", "resnet18", "vit", "cnn3"]
NAMES: tuple[ModelName, ...] = get_args(ModelName)


@checked
def build(name: str, **options: Any) -> Model:
    """The architecture of that name.

    Args:
        name: One of `NAMES`.
        **options: Arguments of the function of that name in `jdfl.models`.

    Raises ValueError for an unknown name or option, listing the known ones, and for values the architecture refuses.
    """
    checks.one_of(NAMES, name=name)
    make: Callable[..., Model] = getattr(models, name)
    known = list(inspect.signature(make).parameters)
    for option in options:
        checks.one_of(known, f"These are the options of {name}.", option=option)
    return make(**options)
