"""The form of problem arguments on the command line and in YAML."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from jax.typing import ArrayLike, DTypeLike

from jdfl.base.settings import As
from jdfl.models.base import Part


def _clients(file: str | None) -> list[str] | list[int] | None:
    """The words of a file, as numbers where all are whole ones; FileNotFoundError if it is missing."""
    if file is None:
        return None
    path = Path(os.path.expanduser(file))
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at problem.clients, got {file!r}. Check the path.")
    words = path.read_text(encoding="utf-8", errors="surrogateescape").split()  # other bytes stay distinguishable
    return [int(word) for word in words] if all(word.isdecimal() for word in words) else words


def _names(public: str | None) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(name.strip() for name in (public or "").split(",") if name.strip())


def _part(shared: str | None) -> str | tuple[str, ...] | None:
    """A preset's name as it is, patterns as a tuple."""
    if shared is None or not set(shared) & set("*?[.,"):
        return shared
    return tuple(pattern.strip() for pattern in shared.split(","))


Clients = Annotated[
    ArrayLike | None,
    As(
        str | None,
        _clients,
        about="A text file with the client of every training example, for the partition by clients.",
    ),
]
Public = Annotated[
    Sequence[str],
    As(
        str | None,
        _names,
        None,
        about="Names, separated by commas, of values that are public anyway: standardise, holdout, partition, "
        "curvature, start, constants, tuning, stop. Privacy reports list them; other values that enter without noise "
        "leave no epsilon.",
    ),
]
Shared = Annotated[
    Part | None,
    As(
        str | None,
        _part,
        about="The parameters that all nodes have in common: a preset (partpsp-1, partpsp-2, all) or patterns of their "
        "names, separated by commas, as in layer1.*,layer2.*; none: all.",
    ),
]
Precision = Annotated[DTypeLike, As(Literal["float32", "float64"], default="float32")]
Images = Literal["digits", "mnist", "fashion_mnist", "cifar10"]
