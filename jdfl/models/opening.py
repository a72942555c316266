"""A model by its name, and any flax.nnx network as a model: made by a function, or an instance that is there."""

import inspect
from collections.abc import Callable, Hashable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import nnx

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.models import graph, networks
from jdfl.models.base import Model, Presets, Shape, check_sizes, relaxed

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
    make: Callable[..., Model] = getattr(networks, name)
    known = list(inspect.signature(make).parameters)
    for option in options:
        checks.one_of(known, f"These are the options of {name}.", option=option)
    return make(**options)


def from_nnx(
    make: Callable[[nnx.Rngs], nnx.Module],
    shape: tuple[int, ...],
    classes: int,
    name: str = "nnx",
    presets: dict[str, tuple[str, ...]] | None = None,
) -> Model:
    """Any flax.nnx network as a model.

    Two models are equal where `make` is: pass the same function, or a `Maker`, which compares by its options, rather
    than a new lambda each time. BatchNorm uses the statistics of the batch; other layers with a state or with random
    numbers (dropout) are refused.

    Args:
        make: The function that makes a module: `make(rngs)(x [B, *shape])` returns the scores [B, classes].
        shape: Shape of an example.
        classes: Number of classes, at least 2.
        name: Name of the model in reports.
        presets: Names of splits, with the patterns of the paths that each of them shares; None: there are none.

    Raises ValueError for layers that are refused, for parameters that are not float32, and for scores of another shape.
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


_INSTANCE = (
    "Give an instance of a flax.nnx.Module, such as MyModel(..., rngs=nnx.Rngs(0)), or of a torch.nn.Module. "
    "jdfl.from_loss takes networks of flax.linen and equinox."
)


def opened(model: Any, shape: Shape, init_seed: int) -> tuple[Model, Callable[[], Any], tuple[int, ...]]:
    """A module, its maker or a model as a model, a function of its start by path, and its output's shape."""
    if checks.is_a(model, Model):
        return model, lambda: model.unravel(model.init(init_seed)), _outputs(model, shape)
    module = _module(model)
    make: Any = graph.Copy(module) if module is model else model
    graph.layout(make)
    name = getattr(module, "_title", type(module).__name__)
    outputs = _outputs(Model(name, make, shape, 1), shape)
    known = Model(name, make, shape, outputs[0] if outputs else 1)
    if module is model:
        return known, lambda: graph.parameters(module), outputs
    return known, lambda: known.unravel(known.init(init_seed)), outputs


def is_of_torch(model: Any) -> bool:
    """Whether it is a torch.nn.Module; torch is not imported."""
    return any(f"{one.__module__}.{one.__name__}" == "torch.nn.modules.module.Module" for one in type(model).__mro__)


def _module(model: Any) -> Any:
    """The module itself, or one without values that a function makes."""
    if isinstance(model, type):
        checks.refuse("model to be an instance, not a class", "model", model, _INSTANCE)
    found: list[Any] = [model]
    if not isinstance(model, nnx.Module) and callable(model):
        try:
            with relaxed():
                jax.eval_shape(lambda: found.append(model(nnx.Rngs(0))))
        except Exception as error:
            raise ValueError(
                f"Expected model to be a function of nnx.Rngs that makes a module, got model = {checks.text(model)} "
                f"that raised {type(error).__name__}: {checks.message(error).rstrip('.')}. {_INSTANCE}"
            ) from error
    module = found[-1]
    if not isinstance(module, nnx.Module):
        what = "model" if module is model else "model(rngs)"
        checks.refuse("model to be a flax.nnx.Module", what, module, _INSTANCE)
    if not callable(module):
        checks.refuse("model to have a method __call__(x)", "model", type(module), "It gives the outputs of a batch x.")
    return module


def _outputs(model: Model, shape: Shape) -> tuple[int, ...]:
    """The shape of the output for one example, found by shapes alone; ValueError where the model does not take it."""
    layers = ", ".join(f"{path} {size}" for path, size in zip(model.paths[:4], model.shapes[:4]))
    try:
        if model.shape != shape:
            raise ValueError(f"it was built for examples of shape {model.shape}.")
        w, x = jax.ShapeDtypeStruct((model.n,), jnp.float32), jax.ShapeDtypeStruct((3, *shape), jnp.float32)
        with relaxed():
            found: Any = jax.eval_shape(model.apply, w, x)
    except Exception as error:
        raise ValueError(
            f"Expected model to take a batch of examples of shape {shape}, as X has, got model = {model.name}, whose "
            f"first parameters are {layers}, that raised {type(error).__name__}: {checks.message(error).rstrip('.')}. "
            "Build the model for this shape, or reshape X."
        ) from error
    if len(found.shape) not in (1, 2) or found.shape[0] != 3:
        raise ValueError(
            f"Expected model to give outputs [batch, outputs], got model = {model.name} that gives shape {found.shape} "
            "for a batch of 3. Keep the batch as the first axis, and flatten what follows."
        )
    return found.shape[1:]
