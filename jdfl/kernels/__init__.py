"""Kernels of our own, in Pallas for GPUs: one file each, with the form that XLA compiles as reference and fallback.

They are used only in runs that ask for them (`jdfl.Options(kernels=True)`), and only where they fit: each file says
which types and shapes it takes. Several devices, and derivatives, have the other form. Here is what all of them share.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import jax
from jax import Array

from jdfl.base.backend import Form, kernels
from jdfl.devices import nodes

PREFIX = "jdfl_"  # of the names of our kernels, which programs have


class Pallas(NamedTuple):
    """Its modules, whose import takes a second that only runs with kernels need."""

    common: Any
    triton: Any


def pallas() -> Pallas:
    """Pallas, and its part for GPUs."""
    return Pallas(*(import_module(f"jax.experimental.pallas{part}") for part in ("", ".triton")))


def form() -> Form | None:
    """How kernels are executed in the code that is traced; None: not at all, as it is for several devices."""
    return None if nodes.share() is not None else kernels()


def width(n: int) -> int:
    """The length of a row of n entries as a program has it: a power of two."""
    return 1 << max(0, n - 1).bit_length()


def with_derivatives(kernel: Callable[..., Array], plain: Callable[..., Array]) -> Callable[..., Array]:
    """The kernel, with the derivatives of the `plain` form of the same function."""
    found = jax.custom_jvp(kernel)
    found.defjvp(lambda arguments, tangents: jax.jvp(plain, arguments, tangents))
    return found
