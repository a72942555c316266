"""Marks that the library puts on values while JAX traces a step: primitives that return their first argument.

A mark is an object, so no function of the same name can imitate it. `jdfl.privacy.flow` reads marks from the traced
program, with the values that they were made of. Compiled programs contain nothing of them.

Axes: m nodes, n parameters, q examples per node.
"""

import sys
from collections.abc import Hashable
from dataclasses import fields
from typing import Any

import jax
from jax import Array
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_CALLING = ("jax", "dataclasses", "copy", "functools")  # modules that call what others give them


def ours(depth: int = 2) -> bool:
    """Whether the code at this depth of calls is jdfl's own, apart from this file and modules that call for others."""
    frame: Any = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and (frame.f_globals is globals() or _package(frame) in _CALLING):
        frame = frame.f_back
    if frame is None:
        return False
    found = sys.modules.get(str(frame.f_globals.get("__name__")))
    return found is not None and vars(found) is frame.f_globals and _package(frame) == "jdfl"


def _package(frame: Any) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def plain(one: Any, *kinds: type) -> bool:
    """Whether an object is of one of these classes itself, and has nothing but its fields."""
    return type(one) in kinds and vars(one).keys() <= {field.name for field in fields(one)}


class _Mark(Primitive):
    """A primitive that jdfl's own code alone can put on a value."""

    def bind(self, *given: Any, **params: Any) -> Any:
        """Mark the first argument; a mark by any other code does nothing."""
        return super().bind(*given, **params) if self is SENT or ours() else given[0]


def _mark(name: str) -> Primitive:
    mark = _Mark(f"jdfl.{name}")

    def first(x: Any, *_: Any, **__: Any) -> Any:
        return x

    def lanes(given: Any, axes: Any, **params: Any) -> tuple[Any, Any]:
        return mark.bind(*given, **params | {"lanes": True}), axes[0]

    def pushed(given: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        return mark.bind(*given, **params), tangents[0]

    mark.def_impl(first)
    mark.def_abstract_eval(first)
    mlir.register_lowering(mark, lambda _, x, *__, **___: [x])  # pyright: ignore[reportUnknownLambdaType]
    batching.primitive_batchers[mark] = lanes
    ad.primitive_jvps[mark] = pushed
    return mark


CLIPPED, OWN, SCALE, ROWS = _mark("clipped"), _mark("own"), _mark("scale"), _mark("rows")
BOUNDED, NOISY, SENT = _mark("bounded"), _mark("noisy"), _mark("sent")
MARKS = (CLIPPED, OWN, SCALE, ROWS, BOUNDED, NOISY, SENT)  # none computes anything


def clipped(
    g: Array, w: Array, data: Any, weight: Array | None, bound: Hashable, *, whole: bool, problem: Any = None
) -> Array:
    """Mark g as sums of clipped gradients at w; for clips of the library only."""
    about = None if problem is None else jax.tree.structure(problem)
    return CLIPPED.bind(g, w, *_leaves(data, weight), bound=bound, whole=whole, problem=about, lanes=False)


def own(g: Any, *used: Any) -> Any:
    """Mark row i of the leaves of g [m, ...] as computed from row i of what is `used` alone, leaves [m, ...]."""
    leaves = jax.tree.leaves(used)
    return jax.tree.map(lambda x: OWN.bind(x, *leaves, lanes=False), g)


def scale(x: Array, weight: Array | None, source: Any) -> Array:
    """Mark x ([m] or []) as the sensitivity that `source` computes from the weights of records [m, q]."""
    return SCALE.bind(x, *_leaves(None, weight), source=source, lanes=False)


def rows(some: Any, every: Any) -> Any:
    """Mark leaves of `some` as rows of nodes, taken from the leaves of `every`."""
    return jax.tree.map(lambda x, y: ROWS.bind(x, y, lanes=False), some, every)


def bounded(x: Array) -> Array:
    """Mark x as a value that neighbouring data change by a bounded norm, by a proof that is not in the program.

    Only methods of the library may rest a claim on it.
    """
    return BOUNDED.bind(x, lanes=False)


def noisy(y: Array, x: Array, size: Array, booking: Any) -> Array:
    """Mark y as x [m, n] with noise of a mechanism, whose sensitivity has a size [m] or [], as booked."""
    return NOISY.bind(y, x, size, booking=booking, lanes=False)


def sent(x: Array, channel: str) -> Array:
    """Mark x as leaving a node on a channel."""
    return SENT.bind(x, channel=channel, lanes=False)


def static(settings: Any) -> Any:
    """The settings with numbers in place of arrays [], so that they have a hash; None where JAX traces one of them."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(settings)):
        return None
    return jax.tree.map(lambda leaf: leaf.item() if isinstance(leaf, Array) else leaf, settings)


def _leaves(data: Any, weight: Array | None) -> list[Array]:
    return [*jax.tree.leaves(data), *([] if weight is None else [weight])]
