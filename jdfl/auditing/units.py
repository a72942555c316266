"""Known amounts in place of a mechanism's noise: what others see then moves by as much as the noise's scale is.

Axes: m nodes, n parameters.
"""

from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.algorithms.program import Program
from jdfl.algorithms.updates import Updates
from jdfl.privacy import Gaussian, Laplace


@jax.custom_batching.custom_vmap
def _placed(units: Array, x: Array, scale: Array) -> Array:
    return x + scale * units[0]


@_placed.def_vmap
def _rows(size: int, batched: Any, units: Array, x: Array, scale: Array) -> tuple[Array, bool]:
    x, scale = (a if there else jnp.broadcast_to(a, (size, *a.shape)) for a, there in zip((x, scale), batched[1:]))
    return x + scale[:, None] * units, True


@struct.dataclass
class _Units:
    """So many units [m, n] of the scale in place of noise, for a sensitivity in the l2 norm."""

    multiplier: Any
    units: Array
    norm: ClassVar[str] = "l2"

    def add(self, key: Array, x: Array, sensitivity: Any) -> Array:
        """The vector x [n] of a node moved by its units: mechanisms do not know their node, vmap does."""
        return _placed(self.units, x, jnp.asarray(self.multiplier * sensitivity, x.dtype))


@struct.dataclass
class _UnitsL1(_Units):
    """The same for a sensitivity in the l1 norm."""

    norm: ClassVar[str] = "l1"


def owner(algorithm: Any) -> str | None:
    """The field, "updates" or "gradients", that holds the mechanism; None where there is none."""
    known = [field.name for field in fields(algorithm)] if is_dataclass(algorithm) else []  # properties do not count
    parts = {name: getattr(algorithm, name) for name in ("updates", "gradients") if name in known}
    return next((name for name, part in parts.items() if getattr(part, "mechanism", None) is not None), None)


def moved(algorithm: Any, units: Array) -> Any:
    """The algorithm with so many units [m, n] of the scale instead of noise."""
    if isinstance(algorithm, Program):
        return replace(algorithm, algorithm=moved(algorithm.algorithm, units))
    name = owner(algorithm) or ""
    part = getattr(algorithm, name)
    kind = _Units if part.mechanism.norm == "l2" else _UnitsL1
    return replace(algorithm, **{name: replace(part, mechanism=kind(part.mechanism.multiplier, units))})


def refused(algorithm: Any) -> str:
    """Why the algorithm's noise cannot be replaced; empty if it can."""
    algorithm = algorithm.algorithm if isinstance(algorithm, Program) else algorithm
    name = owner(algorithm)
    if name is None:
        return "its noise is not added by a mechanism of gradients or updates"
    part = getattr(algorithm, name)
    if type(part.mechanism) not in (Gaussian, Laplace):
        return f"the scale of a {type(part.mechanism).__name__} is not known"
    if isinstance(part, Updates) and part.trust == "central":
        return "single nodes have a share of the noise alone, and others see means"
    return ""
