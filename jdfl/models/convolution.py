"""Two-dimensional convolutions and max-pooling whose gradients are fast inside loops.

    y = x * k,    dL/dx = (dL/dy spread over the strides) * (k turned by half),    dL/dk = x * (dL/dy spread)

On a CPU, XLA has a fast convolution only for the layout with channels last, and converts other layouts to it only
outside of loops. JAX's usual gradients have other layouts, and every round of an algorithm is inside a loop: there one
3x3 layer (100 images of 14x14, 16 to 32 channels, two cores) takes 16 ms forwards, 1,185 ms with the gradient of the
kernel and 208 ms with that of the input. Written as convolutions with channels last and explicit transposes, the
gradients take 28 and 21 ms. Patches as columns and a matrix product are faster in some networks (a CNN: 74 ms against
115) and slower in others (five 3x3 layers: 232 ms against 126), but a loop keeps all of the columns: the five layers
then need 141 MiB instead of 29 MiB.

The gradient of pooling scatters, which a CPU does one entry after another. Where the windows tile the images it is
written as comparisons with the maxima: 8 ms instead of 13 ms (2x2, 100 images of 28x28, 16 channels, one core). As in
the usual gradient, the first of several equal maxima has it all.

On an accelerator nothing is changed. On a CPU the convolution has no forward-mode derivatives; its gradients have them.

Axes: B examples, rows, columns, channels of images; h, v rows and columns of a kernel.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Literal

from jdfl.base.backend import backend

_IMAGES = ("NHWC", "HWIO", "NHWC")
_PLAIN: dict[str, Any] = {  # settings with which the gradients below are those of the convolution
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
    "feature_group_count": 1,
    "batch_group_count": 1,
    "dimension_numbers": lax.conv_dimension_numbers((1,) * 4, (1,) * 4, _IMAGES),
}
Pads = tuple[tuple[int, int], tuple[int, int]]
P = ParamSpec("P")
R = TypeVar("R")


def in_loops() -> bool:
    """Whether convolutions and pooling get the gradients that are fast in loops, as on a CPU."""
    return backend() == "cpu"


def fast(function: Callable[P, R]) -> Callable[P, R]:
    """A function with the same values, whose convolutions and max-pooling of images have gradients fast in loops.

    `from_model` does this with every model. Do it with a loss of your own, as in `from_loss(fast(loss), ...)`. Each
    call traces the function and puts the form of this module in the place of those operations of JAX that it equals:
    not of convolutions with dilation, groups of channels, another precision or axes in another order than those of
    images, nor of pooling over windows that overlap or are padded. What the function itself does inside a `jit` or a
    loop stays as it is.

    Args:
        function: A function of arrays, or of trees of arrays, which are given by position.
    """

    @wraps(function)
    def same(*args: Any) -> Any:
        if not in_loops():
            return function(*args)  # pyright: ignore[reportCallIssue]
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
        ways = [_way(equation) for equation in program.eqns]
        if not any(ways):
            return function(*args)  # pyright: ignore[reportCallIssue]
        inner = program.jaxpr
        known: dict[Any, Any] = dict(zip([*inner.constvars, *inner.invars], [*program.consts, *jax.tree.leaves(args)]))

        def values(some: Sequence[Any]) -> list[Any]:
            return [one.val if isinstance(one, Literal) else known[one] for one in some]

        for equation, way in zip(inner.eqns, ways):
            given, how = values(equation.invars), equation.primitive
            if way is not None:
                made = way(*given)
            else:
                with equation.ctx.manager:
                    made = how.bind(*given, **how.get_bind_params(equation.params))
            known |= zip(equation.outvars, made if how.multiple_results else [made])
        return jax.tree.unflatten(jax.tree.structure(shapes), values(inner.outvars))

    return same  # pyright: ignore[reportReturnType]


def _way(equation: Any) -> Callable[..., Array] | None:
    """The fast form of an operation, or None for one that has none."""
    params, name = dict(equation.params), equation.primitive.name
    if name == "conv_general_dilated":
        steps, pads = params.pop("window_strides"), params.pop("padding")
        plain = equation.invars[0].aval.ndim == 4 and all(_PLAIN.get(key) == value for key, value in params.items())
        return partial(_convolve, steps, pads) if plain else None
    if name == "reduce_window_max":
        size, dilated = params["window_dimensions"], {*params["base_dilation"], *params["window_dilation"]}
        tiles = size == params["window_strides"] and len(size) == 4 and size[0] == size[3] == 1 and dilated == {1}
        return partial(_pool, size) if tiles and not any(map(any, params["padding"])) else None
    return None


def _pool(size: Sequence[int], x: Array) -> Array:
    """The largest entry of every window; rows and columns that fill none are left out."""
    _, h, v, _ = size
    rows, columns = x.shape[1] // h, x.shape[2] // v
    x = x[:, : rows * h, : columns * v]
    return _maxima(x.reshape(len(x), rows, h, columns, v, x.shape[3]))


@jax.custom_vjp
def _maxima(x: Array) -> Array:
    return x.max((2, 4))


def _kept_maxima(x: Array) -> tuple[Array, tuple[Array, Array]]:
    y = x.max((2, 4))
    return y, (x, y)


def _to_first(saved: tuple[Array, Array], slope: Array) -> tuple[Array]:
    """The gradient goes to the first of several equal maxima of a window."""
    x, y = saved
    rows = list[Array]()
    for i in range(x.shape[2]):
        row = list[Array]()
        for j in range(x.shape[4]):
            here = x[:, :, i, :, j] == y
            row.append(jnp.where(here, slope, 0))
            slope = jnp.where(here, 0, slope)
        rows.append(jnp.stack(row, axis=3))
    return (jnp.stack(rows, axis=2),)


_maxima.defvjp(_kept_maxima, _to_first)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _convolve(strides: tuple[int, int], pads: Pads, x: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(x, kernel, strides, pads, dimension_numbers=_IMAGES)


def _forward(strides: tuple[int, int], pads: Pads, x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    y = lax.conv_general_dilated(x, kernel, strides, pads, dimension_numbers=_IMAGES)  # has forward derivatives
    return y, (x, kernel)


def _backward(strides: tuple[int, int], pads: Pads, saved: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, kernel = saved
    sizes = list(zip(x.shape[1:3], kernel.shape[:2], slope.shape[1:3], strides, pads))
    before = [size - 1 - pad[0] for _, size, _, _, pad in sizes]
    after = [n + pad[0] - (out - 1) * step - 1 for n, _, out, step, pad in sizes]
    turned = kernel[::-1, ::-1].swapaxes(2, 3)
    by_input = lax.conv_general_dilated(
        slope, turned, (1, 1), list(zip(before, after)), lhs_dilation=strides, dimension_numbers=_IMAGES
    )
    ends = [(pad[0], (out - 1) * step + size - n - pad[0]) for n, size, out, step, pad in sizes]
    by_kernel = lax.conv_general_dilated(
        x.transpose(3, 1, 2, 0), slope.transpose(1, 2, 0, 3), (1, 1), ends, rhs_dilation=strides,
        dimension_numbers=_IMAGES,
    )  # fmt: skip
    return by_input, by_kernel.transpose(1, 2, 0, 3)


_convolve.defvjp(_forward, _backward)


def tiles(x: Array, kernel: Array, strides: Sequence[int], padding: Any, **_: Any) -> Array:
    """The convolution for a kernel of the size of its strides that tiles the images: one matrix product."""
    rows, columns = x.shape[1:3]
    h, v, inputs, outputs = kernel.shape
    parts = x.reshape(len(x), rows // h, h, columns // v, v, inputs).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(*parts.shape[:3], -1) @ kernel.reshape(-1, outputs)


@contextmanager
def relaxed() -> Generator[None]:
    """The settings that Flax layers need: they promote ranks, and dtypes when they compute in bfloat16."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
