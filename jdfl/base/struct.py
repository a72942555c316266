"""Frozen dataclasses that JAX treats as pytrees, and distinguishes by their class.

`jax.tree_util.register_dataclass`, which flax.struct uses, makes structures that compare equal whenever their fields'
values do, whatever the classes (jax 0.10.2): a jitted function may then run the program that was compiled for another
algorithm. Structures registered with their own flattening functions compare their classes.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.base import suggest

T = TypeVar("T")


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class StepSizeSchedule:
    """A step size that is a function of the round, which counts from 0; it is part of the compiled program."""

    function: Callable[[Any], Any]

    def __call__(self, k: jax.Array) -> jax.Array:
        """The value in round k []."""
        with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
            return jnp.asarray(self.function(jnp.asarray(k, int)))  # int64 where floats may have 64 bits, too


def field(*, pytree_node: bool = True, per_node: bool | Callable[[Any], bool] = False, **options: Any) -> Any:
    """A field of a dataclass; with `pytree_node=False` it is static, part of the structure.

    `per_node` declares that its arrays have a row for every node, unless they are single numbers; it may be a function
    of the dataclass value.
    """
    return dataclasses.field(metadata={"pytree_node": pytree_node, "per_node": per_node}, **options)


def per_node(value: Any) -> Any:
    """A tree of flags like `value`: which of its arrays have a row for every node, according to its fields."""
    if not _is_struct(value):
        inner, structure = jax.tree.flatten(value, is_leaf=_is_struct)
        return structure.unflatten([_is_struct(one) and per_node(one) for one in inner])
    changed = {}
    for one in dataclasses.fields(value):
        if one.metadata.get("pytree_node", True):
            declared, held = one.metadata.get("per_node", False), getattr(value, one.name)
            rows = declared(value) if callable(declared) else declared
            changed[one.name] = jax.tree.map(lambda x: np.ndim(x) > 0, held) if rows else per_node(held)
    return dataclasses.replace(value, **changed)


def each_row(function: Callable[[Any], Any], value: T) -> T:
    """The tree `value` with `function` applied to arrays that have a row for every node (`per_node`)."""
    return jax.tree.map(lambda x, row: function(x) if row else x, value, per_node(value))


def _is_struct(value: Any) -> bool:
    return getattr(value, "__jdfl_struct__", False)


@dataclass_transform(frozen_default=True, field_specifiers=(field, dataclasses.field))
def dataclass(cls: type[T]) -> type[T]:
    """A frozen dataclass whose fields are leaves or subtrees unless they are static, with a method `replace`.

    A class that has `_repr_html_` keeps its own `__repr__`, too.
    """
    if not hasattr(cls, "__post_init__"):
        cls.__post_init__ = _keep_schedule  # pyright: ignore[reportAttributeAccessIssue]
    made: Any = suggest.init(dataclasses.dataclass(frozen=True, repr=not hasattr(cls, "_repr_html_"))(cls))
    names: dict[bool, list[str]] = {True: [], False: []}
    for one in dataclasses.fields(made):
        names[one.metadata.get("pytree_node", True)].append(one.name)
    leaves, static = names[True], names[False]

    def children(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(value, name) for name in leaves), tuple(getattr(value, name) for name in static)

    def named_children(value: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        found, aux = children(value)
        return tuple((jax.tree_util.GetAttrKey(name), child) for name, child in zip(leaves, found)), aux

    def whole(aux: tuple[Any, ...], found: Any) -> Any:
        return made(**dict(zip(leaves, found)), **dict(zip(static, aux)))

    jax.tree_util.register_pytree_with_keys(made, named_children, whole, children)
    made.__jdfl_struct__ = True
    made.replace = dataclasses.replace
    return made


def _keep_schedule(self: Any) -> None:
    """Keep a function given as the step size `lr` as a schedule."""
    if callable(lr := getattr(self, "lr", None)) and not isinstance(lr, StepSizeSchedule):
        object.__setattr__(self, "lr", StepSizeSchedule(lr))
