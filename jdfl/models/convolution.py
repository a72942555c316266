"""Two-dimensional convolutions and max-pooling whose gradients are fast inside loops.

    y = x * k,    dL/dx = (dL/dy spread over the strides) * (k turned by half),    dL/dk = x * (dL/dy spread)

On a CPU, XLA has a fast convolution only for the layout with channels last, and converts other layouts to it only
outside of loops. JAX's usual gradients have other layouts, and every round of an algorithm is inside a loop: there one
3x3 layer (100 images of 14x14, 16 to 32 channels, two cores) takes 16 ms forwards, 1,185 ms with the gradient of the
kernel and 208 ms with that of the input. Written as convolutions with channels last and explicit transposes, the
gradients take 28 and 21 ms. Patches as columns and a matrix product are faster in some networks (a CNN: 74 ms against
115) and slower in others (five 3x3 layers: 232 ms against 126), but a loop keeps all of the columns: the five layers
then need 141 MiB instead of 29 MiB.

The gradient of pooling scatters. If the windows tile the images, maxima of a reshaped array are faster: 8.7 ms instead
of 26.7 ms (2x2, 100 images of 28x28, 16 channels). For overlapping windows, maxima of shifted images are slower
(24.7 ms instead of 6.6 ms: 3x3 with stride 2, 14x14), so the usual pooling is used.

On an accelerator the usual operations are used. Equal maxima in a window that tiles share the gradient on a CPU; on an
accelerator it goes to one of them. On a CPU the convolution has no forward-mode derivatives; its gradients have them.

Axes: B examples, rows, columns, channels of images; h, v rows and columns of a kernel.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from flax import nnx
from jax import Array, lax

from jdfl.base.backend import backend

_IMAGES = ("NHWC", "HWIO", "NHWC")
_PLAIN: dict[str, tuple[Any, ...]] = {  # settings with which the gradients below are those of the convolution
    "lhs_dilation": (None, (1, 1)),
    "rhs_dilation": (None, (1, 1)),
    "feature_group_count": (1,),
    "batch_group_count": (1,),
    "dimension_numbers": (None, _IMAGES, lax.conv_dimension_numbers((1,) * 4, (1,) * 4, _IMAGES)),
}
Pads = tuple[tuple[int, int], tuple[int, int]]


def in_loops() -> bool:
    """Whether convolutions and pooling use the gradients that are fast in loops, as on a CPU."""
    return backend() == "cpu"


def convolution(x: Array, kernel: Array, strides: Sequence[int], padding: Any, **others: Any) -> Array:
    """The convolution of images with a kernel, [B, rows', columns', outputs].

    It takes the place of `lax.conv_general_dilated` in layers of Flax. `from_model` puts it into the layers nnx.Conv of
    a module itself; in other functions give it to a layer, as in `nn.Conv(16, (3, 3),
    conv_general_dilated=convolution)`. With dilation, groups of channels, another precision, or axes that are not those
    of images it is `lax.conv_general_dilated`.
    """
    plain = x.ndim == 4 and all(value in _PLAIN.get(name, (None,)) for name, value in others.items())
    if not plain or not in_loops():
        others.setdefault("dimension_numbers", _IMAGES)
        return lax.conv_general_dilated(x, kernel, strides, padding, **others)
    steps = (strides[0], strides[1])
    pads = lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], steps, padding) if isinstance(padding, str) else padding
    (top, bottom), (left, right) = pads
    return _convolve(x, kernel, steps, ((top, bottom), (left, right)))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(x: Array, kernel: Array, strides: tuple[int, int], pads: Pads) -> Array:
    return lax.conv_general_dilated(x, kernel, strides, pads, dimension_numbers=_IMAGES)


def _forward(x: Array, kernel: Array, strides: tuple[int, int], pads: Pads) -> tuple[Array, tuple[Array, Array]]:
    y = lax.conv_general_dilated(x, kernel, strides, pads, dimension_numbers=_IMAGES)  # has forward derivatives
    return y, (x, kernel)


def _backward(strides: tuple[int, int], pads: Pads, kept: tuple[Array, Array], slope: Array) -> tuple[Array, Array]:
    x, kernel = kept
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
    """`convolution` for a kernel of the size of its strides that tiles the images: one matrix product."""
    rows, columns = x.shape[1:3]
    h, v, inputs, outputs = kernel.shape
    parts = x.reshape(len(x), rows // h, h, columns // v, v, inputs).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(*parts.shape[:3], -1) @ kernel.reshape(-1, outputs)


def max_pool(x: Array, size: tuple[int, int], strides: tuple[int, int], pads: Pads = ((0, 0), (0, 0))) -> Array:
    """The largest entry of every window of images [B, rows', columns', channels].

    The first of several equal largest entries in a window has the whole gradient, except on a CPU where windows tile
    the images: there they share it.
    """
    if not in_loops() or size != strides or any(map(any, pads)):
        return nnx.max_pool(x, size, strides, pads)  # pyright: ignore[reportArgumentType]
    rows, columns = (n // step for n, step in zip(x.shape[1:3], strides))
    x = x[:, : rows * size[0], : columns * size[1]]
    return x.reshape(len(x), rows, size[0], columns, size[1], x.shape[3]).max((2, 4))
