"""The interface to flax.nnx: modules split into named leaves, and merged again.

A module may have parameters (nnx.Param, float32) and the statistics of BatchNorm, and no other arrays, since no other
state is kept between calls. Parameters that two layers share are one leaf.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jdfl.base import checks
from jdfl.models.convolution import relaxed

_untyped: Any = nnx  # flax says little of its states


@dataclass(frozen=True, eq=False)
class Layout:
    """The structure of a module, without values."""

    paths: tuple[str, ...]  # of the parameters, in the order in which the module creates them
    shapes: tuple[tuple[int, ...], ...]
    mixes: bool  # whether there is any BatchNorm
    graphdef: Any
    params: Any  # the tree of an nnx.State, whose leaves are ordered by flax
    stats: Any  # nnx.State of shapes
    order: tuple[str, ...]  # the paths in flax's order

    def module(self, leaves: Mapping[str, Array]) -> Any:
        """The module with these parameters, in training mode; BatchNorm uses the statistics of one batch."""
        state = jax.tree.unflatten(self.params, [leaves[path] for path in self.order])
        stats = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.stats)  # never read
        module = nnx.merge(self.graphdef, state, stats, copy=True)  # copy: also below vmap and grad
        if self.mixes:
            off = {"use_running_average": False, "raise_if_not_found": False}
            module.set_attributes(nnx.BatchNorm, momentum=0.0, **off)
        return module


@lru_cache(maxsize=64)
def layout(make: Callable[[nnx.Rngs], nnx.Module]) -> Layout:
    """The layout of the module of `make`, found without computing; ValueError for other arrays than parameters."""
    found: dict[str, Any] = {}

    def trace() -> tuple[Any, Any]:
        module = make(nnx.Rngs(0))
        nodes = dict(_walk(module, (), ()))
        found["natural"] = {path: rank for rank, path in enumerate(nodes)}
        found["graphdef"], params, stats, rest = _untyped.split(module, nnx.Param, nnx.BatchStat, ...)
        arrays = {path: node for path, node in nodes.items() if not isinstance(node, nnx.Variable)}
        for path, leaf in (_flat(rest) | arrays).items():
            kind = type(leaf).__name__ if checks.is_a(leaf, nnx.Variable) else "an array"
            raise ValueError(
                f"Expected a model with parameters and BatchNorm's statistics alone, got {kind} at {path}. "
                "Leave out layers with random numbers (dropout) or a state, and build constants in __call__."
            )
        return params, stats

    with relaxed():
        params, stats = jax.eval_shape(trace)
    leaves = _flat(params)
    for path, leaf in leaves.items():
        if leaf.dtype != jnp.float32:
            raise ValueError(
                f"Expected a model with parameters in float32, got {leaf.dtype} at {path}. Set param_dtype=jnp.float32."
            )
    if not leaves:
        raise ValueError(f"Expected a model with parameters, got none in {make!r}. Add a layer such as nnx.Linear.")
    natural = found["natural"]
    paths = sorted(leaves, key=lambda path: natural.get(path, len(natural)))
    return Layout(
        paths=tuple(paths),
        shapes=tuple(tuple(leaves[path].shape) for path in paths),
        mixes=bool(jax.tree.leaves(stats)),
        graphdef=found["graphdef"],
        params=jax.tree.structure(params),
        stats=stats,
        order=tuple(leaves),
    )


class Copy:
    """Makes modules of the same structure as one that is there, with parameters of zero.

    Copies are equal where the modules have the same structure and shapes, so that their models are equal, too.
    """

    def __init__(self, module: Any) -> None:
        self.graphdef, state = _untyped.split(module)
        self.state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(self.state))
        self.known: Any = (self.graphdef, jax.tree.structure(self.state), shapes)
        try:
            hash(self.known)
        except TypeError:
            self.known = object()  # of a structure that cannot be compared: equal to itself alone
        self.name = type(module).__name__

    def __call__(self, rngs: Any) -> Any:
        """A module with parameters of zero; random numbers are not used."""
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.state)
        return nnx.merge(self.graphdef, zeros, copy=True)

    def __eq__(self, other: object) -> bool:
        """Whether the other one makes the same modules."""
        return isinstance(other, Copy) and self.known == other.known

    def __hash__(self) -> int:
        return hash(self.known)

    def __repr__(self) -> str:
        return self.name


def parameters(module: Any) -> dict[str, Array]:
    """The parameters of a module by path."""
    return {path: leaf[...] for path, leaf in _flat(_untyped.state(module, nnx.Param)).items()}


def _flat(state: Any) -> dict[str, Any]:
    """The variables of a state by dotted path."""
    return {".".join(map(str, path)): leaf for path, leaf in _untyped.to_flat_state(state)}


def _walk(node: Any, path: tuple[str, ...], above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """The paths of all variables and arrays below a module, in the order in which its attributes were set."""
    if isinstance(node, nnx.Variable | Array):
        yield ".".join(path), node
        return
    if id(node) in above:
        return
    if checks.is_a(node, list | tuple):
        children: dict[Any, Any] = dict(enumerate(cast(list[Any], node)))
    elif isinstance(node, nnx.Module | nnx.Pytree):
        children = vars(node)
    else:
        children = node if checks.is_a(node, dict) else {}
    for name, child in children.items():
        yield from _walk(child, (*path, str(name)), (*above, id(node)))
