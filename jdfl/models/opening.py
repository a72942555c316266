"""Any flax.nnx network as a model."""

from collections.abc import Callable, Hashable

import jax
import jax.numpy as jnp
from flax import nnx

from jdfl.base import checks
from jdfl.models import graph
from jdfl.models.base import Model, Presets, check_sizes


def from_nnx(
    make: Callable[[nnx.Rngs], nnx.Module],
    shape: tuple[int, ...],
    classes: int,
    name: str = "nnx",
    presets: dict[str, tuple[str, ...]] | None = None,
) -> Model:
    """Any flax.nnx network as a model.

    Two models are equal where `make` is: hand over one function, or a `Maker`, which compares by its options, rather
    than a new lambda each time. BatchNorm is set to the batch's own statistics; other layers with a state or with
    random numbers (dropout) are refused.

    Args:
        make: What makes a module: `make(rngs)(x [B, *shape])` is the scores [B, classes].
        shape: An example's axes.
        classes: Number of classes, at least 2.
        name: What reports call the model.
        presets: Names of splits, with the patterns of the paths that each shares; None: there are none.

    Raises ValueError for layers that could not be carried, for parameters that are not float32, and for scores of
    another shape.
    """
    sizes = check_sizes(shape, classes)
    if not callable(make) or not checks.is_a(make, Hashable):
        raise ValueError(f"Expected make to be a function of nnx.Rngs that can be hashed, got make = {make!r}.")
    named: Presets = tuple((key, tuple(patterns)) for key, patterns in (presets or {}).items())
    model = Model(name, make, sizes, classes, named)
    graph.layout(make)
    w, x = jax.ShapeDtypeStruct((model.n,), jnp.float32), jax.ShapeDtypeStruct((3, *sizes), jnp.float32)
    scores = jax.eval_shape(model.apply, w, x)
    checks.shape((3, classes), f"These are {name}'s scores of three examples.", scores=scores)
    for key in dict(named):
        model.split(key)
    return model
