"""ResNet-18 (K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", 2016).

The layout of the parameters is that of torchvision, with other names: conv1 (7x7, stride 2, no bias), norm1,
max-pooling, layer1 to layer4 of two basic blocks, 1x1 convolutions where the size changes, head. The norm is GroupNorm
by default (Y. Wu, K. He, 2018), as in libraries for differential privacy, so that examples have gradients of their own.
The published experiments use BatchNorm; both have two parameters per channel. Initial convolutions are He's, by
fan-out.
"""

import math
from typing import Literal

from flax import nnx
from jax import Array

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.models.base import Compute, Maker, Model, check_sizes, computed_in

Norm = Literal["group", "batch"]
Stem = Literal["imagenet", "cifar"]
_FIRST = ("conv1.*", "norm1.*", "layer1.*")
_PRESETS = (("partpsp-1", _FIRST), ("partpsp-2", (*_FIRST, "layer2.*")))
_GROUPS = 32


class Layers:
    """Convolutions and norms with the same settings."""

    def __init__(self, norm: Norm, width: int, dtype: Compute, rngs: nnx.Rngs):
        self.norm_kind = norm
        self.groups = min(_GROUPS, max(1, width // 2))
        self.dtype = computed_in(dtype)
        self.rngs = rngs

    def conv(self, inputs: int, outputs: int, size: int, stride: int) -> nnx.Conv:
        """A square convolution without bias, with equal padding on all sides."""
        pad = ((size // 2, size // 2),) * 2
        init = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")
        return nnx.Conv(
            inputs, outputs, (size, size), (stride, stride), padding=pad, use_bias=False, dtype=self.dtype,
            kernel_init=init, rngs=self.rngs,
        )  # fmt: skip

    def norm(self, channels: int) -> nnx.Module:
        """A group norm of the channels: 32 groups or, in a narrow network, half the channels of the first layer.

        The groups of a layer then have the same number of channels as in a network of full width. For an image of one
        pixel a group has no other numbers: two numbers would be normalised to their signs, through which no gradient
        passes.
        """
        if self.norm_kind == "batch":
            return nnx.BatchNorm(channels, momentum=0.0, epsilon=1e-5, dtype=self.dtype, rngs=self.rngs)
        groups = math.gcd(self.groups, channels)
        return nnx.GroupNorm(channels, groups, epsilon=1e-5, dtype=self.dtype, rngs=self.rngs)


class Downsample(nnx.Module):
    """The shortcut of a block that changes the size: a 1x1 convolution and a norm."""

    def __init__(self, layers: Layers, inputs: int, outputs: int, stride: int):
        self.conv = layers.conv(inputs, outputs, 1, stride)
        self.norm = layers.norm(outputs)

    def __call__(self, x: Array) -> Array:
        """The images in the new size."""
        return self.norm(self.conv(x))  # pyright: ignore[reportCallIssue]


class BasicBlock(nnx.Module):
    """relu(x + norm(conv(relu(norm(conv x)))))."""

    def __init__(self, layers: Layers, inputs: int, outputs: int, stride: int):
        self.conv1 = layers.conv(inputs, outputs, 3, stride)
        self.norm1 = layers.norm(outputs)
        self.conv2 = layers.conv(outputs, outputs, 3, 1)
        self.norm2 = layers.norm(outputs)
        same = inputs == outputs and stride == 1
        self.downsample = None if same else Downsample(layers, inputs, outputs, stride)

    def __call__(self, x: Array) -> Array:
        """Images [B, rows / stride, columns / stride, outputs]."""
        y = nnx.relu(self.norm1(self.conv1(x)))  # pyright: ignore[reportCallIssue]
        y = self.norm2(self.conv2(y))  # pyright: ignore[reportCallIssue]
        return nnx.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nnx.Module):
    """The network on images [B, rows, columns, channels]; the head computes in the parameters' dtype."""

    def __init__(
        self, *, colours: int, classes: int, width: int, norm: Norm, stem: Stem, dtype: Compute, rngs: nnx.Rngs
    ):
        layers = Layers(norm, width, dtype, rngs)
        self.stem = stem
        self.conv1 = layers.conv(colours, width, 7, 2) if stem == "imagenet" else layers.conv(colours, width, 3, 1)
        self.norm1 = layers.norm(width)
        for k in range(4):
            inputs, outputs = width * 2 ** max(k - 1, 0), width * 2**k
            blocks = [BasicBlock(layers, inputs, outputs, 2 if k else 1), BasicBlock(layers, outputs, outputs, 1)]
            setattr(self, f"layer{k + 1}", nnx.List(blocks))
        self.head = nnx.Linear(8 * width, classes, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Scores [B, classes] of x [B, rows, columns, channels]."""
        x = nnx.relu(self.norm1(self.conv1(x)))  # pyright: ignore[reportCallIssue]
        if self.stem == "imagenet":
            x = nnx.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))  # pyright: ignore[reportArgumentType]
        for k in range(4):
            for block in getattr(self, f"layer{k + 1}"):
                x = block(x)
        return self.head(x.mean(axis=(1, 2)))


@checked
def resnet18(
    norm: Norm = "group",
    shape: tuple[int, ...] = (28, 28, 3),
    classes: int = 10,
    width: int = 64,
    stem: Stem = "imagenet",
    dtype: Compute = "float32",
) -> Model:
    """ResNet-18: 11,181,642 parameters for three colours, ten classes and width 64.

    Presets: "partpsp-1" shares conv1, norm1 and layer1 (157,504 parameters), "partpsp-2" also layer2 (683,072).

    Args:
        norm: GroupNorm, or BatchNorm as published, which mixes the examples of a batch.
        shape: Rows, columns and channels of an image.
        classes: Number of classes, at least 2.
        width: Channels of the first layer, at least 1; the others have 2, 4 and 8 times as many.
        stem: "imagenet" is the published 7x7 convolution with pooling, which divides rows and columns by four; "cifar"
            is a 3x3 convolution that keeps the size.
        dtype: Type in which the network computes; its parameters are float32.

    Raises ValueError for settings out of range.
    """
    checks.whole(1, width=width)
    sizes = check_sizes(shape, classes, 3)
    options = {"colours": sizes[2], "classes": classes, "width": width, "norm": norm, "stem": stem, "dtype": dtype}
    return Model("resnet18", Maker(ResNet18, tuple(options.items())), sizes, classes, _PRESETS)
