"""Small convolutional networks.

`cnn`: two 3x3 convolutions of 16 and 32 channels with ReLU and max-pooling, a dense layer, a head.

`cnn3`: three 3x3 convolutions of 4, 8 and 8 channels and a head, for training with noise on every gradient. Strides
take the place of pooling, which makes rounds with one image per node faster on a CPU. The activation is tanh: what is
bounded suffers less from noisy parameters (N. Papernot et al., Tempered Sigmoid Activations for Deep Learning with
Differential Privacy, AAAI 2021). ReLU is an option.
"""

from itertools import pairwise
from typing import Any, Literal

from flax import nnx
from jax import Array

from jdfl import checks
from jdfl.arguments import checked
from jdfl.models.base import Compute, Maker, Model, check_sizes
from jdfl.models.convolution import convolution, max_pool

_PRESETS = (("partpsp-1", ("conv1.*",)), ("partpsp-2", ("conv1.*", "conv2.*")))
_STRIDES = (2, 2, 1)  # of the three convolutions
Activation = Literal["tanh", "relu"]


class CNN(nnx.Module):
    """The network on images [B, rows, columns, channels]; the head computes in the parameters' dtype."""

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        classes: int,
        channels: tuple[int, int],
        dense: int,
        dtype: Compute,
        rngs: nnx.Rngs,
    ):
        compute = None if dtype == "float32" else dtype
        rows, columns, colours = shape
        first, second = channels
        self.conv1 = nnx.Conv(colours, first, (3, 3), dtype=compute, conv_general_dilated=convolution, rngs=rngs)
        self.conv2 = nnx.Conv(first, second, (3, 3), dtype=compute, conv_general_dilated=convolution, rngs=rngs)
        self.dense = nnx.Linear((rows // 4) * (columns // 4) * second, dense, dtype=compute, rngs=rngs)
        self.head = nnx.Linear(dense, classes, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Scores [B, classes] of x [B, rows, columns, channels]."""
        for conv in (self.conv1, self.conv2):
            x = max_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
        return self.head(nnx.relu(self.dense(x.reshape(len(x), -1))))


class CNN3(nnx.Module):
    """Convolutions and a head on images [B, rows, columns, channels]; the head computes in the parameters' dtype."""

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        classes: int,
        channels: tuple[int, int, int],
        activation: Activation,
        dtype: Compute,
        rngs: nnx.Rngs,
    ):
        rows, columns, colours = shape
        self.activation = activation
        options: dict[str, Any] = {"dtype": None if dtype == "float32" else dtype, "rngs": rngs}
        for place, (before, after) in enumerate(pairwise((colours, *channels))):
            stride = _STRIDES[place]
            conv = nnx.Conv(before, after, (3, 3), stride, conv_general_dilated=convolution, **options)
            setattr(self, f"conv{place + 1}", conv)
            rows, columns = -(-rows // stride), -(-columns // stride)
        self.head = nnx.Linear(rows * columns * channels[-1], classes, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Scores [B, classes] of x [B, rows, columns, channels]."""
        activation = nnx.tanh if self.activation == "tanh" else nnx.relu
        for name in ("conv1", "conv2", "conv3"):
            x = activation(getattr(self, name)(x))
        return self.head(x.reshape(len(x), -1))


@checked
def cnn(
    shape: tuple[int, ...] = (28, 28, 1),
    classes: int = 10,
    channels: tuple[int, int] = (16, 32),
    dense: int = 64,
    dtype: Compute = "float32",
) -> Model:
    """The network for images of `shape`, 105,866 parameters for 28x28x1 and ten classes.

    Presets: "partpsp-1" shares the first convolution, "partpsp-2" both. ValueError for images below 4x4.
    """
    checks.one_of(("float32", "bfloat16"), dtype=dtype)
    rows, columns, colours = check_sizes(shape, classes, 3)
    checks.whole(4, remedy="Two poolings halve every side.", rows=rows, columns=columns)
    if len(channels) != 2:
        raise ValueError(f"Expected channels of both convolutions, got channels = {channels!r}.")
    first, second = channels
    checks.whole(1, first_channels=first, second_channels=second, dense=dense)
    sizes = (rows, columns, colours)
    options = {"shape": sizes, "classes": classes, "channels": (first, second), "dense": dense, "dtype": dtype}
    return Model("cnn", Maker(CNN, tuple(options.items())), sizes, classes, _PRESETS)


@checked
def cnn3(
    shape: tuple[int, ...] = (28, 28, 1),
    classes: int = 10,
    channels: tuple[int, int, int] = (4, 8, 8),
    activation: Activation = "tanh",
    dtype: Compute = "float32",
) -> Model:
    """The network for images of `shape`, 4,850 parameters for 28x28x1 and ten classes.

    Presets: "partpsp-1" shares the first convolution, "partpsp-2" the first two. ValueError for sizes out of range.
    """
    checks.one_of(("float32", "bfloat16"), dtype=dtype)
    checks.one_of(("tanh", "relu"), activation=activation)
    sizes = check_sizes(shape, classes, 3)
    if len(channels) != 3:
        raise ValueError(f"Expected channels of all three convolutions, got channels = {channels!r}.")
    first, second, third = channels
    checks.whole(1, first_channels=first, second_channels=second, third_channels=third)
    options = {"shape": sizes, "classes": classes, "channels": (first, second, third)}
    options |= {"activation": activation, "dtype": dtype}
    return Model("cnn3", Maker(CNN3, tuple(options.items())), sizes, classes, _PRESETS)
