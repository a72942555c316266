"""Small convolutional networks.

`cnn`: two 3x3 convolutions of 16 and 32 channels with ReLU and max-pooling, a dense layer, a head.

`cnn3`: three 3x3 convolutions of 4, 8 and 8 channels and a head, for training with noise on every gradient. Strides
replace pooling, which makes rounds with one image per node faster on a CPU. The activation is tanh: bounded activations
suffer less from noisy parameters (N. Papernot et al., Tempered Sigmoid Activations for Deep Learning with
Differential Privacy, AAAI 2021). ReLU is an option.
"""

from functools import partial
from itertools import pairwise
from typing import Literal

from flax import nnx
from jax import Array

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.models.base import Compute, Maker, Model, Shape, check_sizes, computed_in

_PRESETS = (("partpsp-1", ("conv1.*",)), ("partpsp-2", ("conv1.*", "conv2.*")))
_STRIDES = (2, 2, 1)  # of the three convolutions
_conv = partial(nnx.Conv, kernel_size=(3, 3))
Activation = Literal["tanh", "relu"]


class CNN(nnx.Module):
    """The network on images [B, rows, columns, channels]; the head computes in the parameters' dtype."""

    def __init__(
        self, *, shape: Shape, classes: int, channels: tuple[int, int], dense: int, dtype: Compute, rngs: nnx.Rngs
    ):
        compute, (rows, columns, colours) = computed_in(dtype), shape
        first, second = channels
        self.conv1 = _conv(colours, first, dtype=compute, rngs=rngs)
        self.conv2 = _conv(first, second, dtype=compute, rngs=rngs)
        self.dense = nnx.Linear((rows // 4) * (columns // 4) * second, dense, dtype=compute, rngs=rngs)
        self.head = nnx.Linear(dense, classes, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Scores [B, classes] of x [B, rows, columns, channels]."""
        for conv in (self.conv1, self.conv2):
            x = nnx.max_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
        return self.head(nnx.relu(self.dense(x.reshape(len(x), -1))))


class CNN3(nnx.Module):
    """Convolutions and a head on images [B, rows, columns, channels]; the head computes in the parameters' dtype."""

    def __init__(
        self, *, shape: Shape, classes: int, channels: tuple[int, int, int], activation: Activation, dtype: Compute,
        rngs: nnx.Rngs,
    ):  # fmt: skip
        rows, columns, colours = shape
        self.activation = activation
        for k, ((before, after), stride) in enumerate(zip(pairwise((colours, *channels)), _STRIDES), 1):
            setattr(self, f"conv{k}", _conv(before, after, strides=stride, dtype=computed_in(dtype), rngs=rngs))
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
    """Two convolutions, a dense layer and a head: 105,866 parameters for images of 28x28x1 and ten classes.

    Presets: "partpsp-1" shares the first convolution, "partpsp-2" both.

    Args:
        shape: Rows, columns and channels of an image, at least 4 rows and columns.
        classes: Number of classes, at least 2.
        channels: Channels of the two convolutions.
        dense: Units of the dense layer.
        dtype: Type in which the network computes; its parameters are float32.

    Raises ValueError for settings out of range.
    """
    sizes = check_sizes(shape, classes, 3)
    checks.whole(4, remedy="Two poolings halve every side.", rows=sizes[0], columns=sizes[1])
    checks.whole(1, first_channels=channels[0], second_channels=channels[1], dense=dense)
    options = {"shape": sizes, "classes": classes, "channels": tuple(channels), "dense": dense, "dtype": dtype}
    return Model("cnn", Maker(CNN, tuple(options.items())), sizes, classes, _PRESETS)


@checked
def cnn3(
    shape: tuple[int, ...] = (28, 28, 1),
    classes: int = 10,
    channels: tuple[int, int, int] = (4, 8, 8),
    activation: Activation = "tanh",
    dtype: Compute = "float32",
) -> Model:
    """Three convolutions and a head: 4,850 parameters for images of 28x28x1 and ten classes.

    Presets: "partpsp-1" shares the first convolution, "partpsp-2" the first two.

    Args:
        shape: Rows, columns and channels of an image.
        classes: Number of classes, at least 2.
        channels: Channels of the three convolutions.
        activation: Activation after every convolution.
        dtype: Type in which the network computes; its parameters are float32.

    Raises ValueError for settings out of range.
    """
    sizes = check_sizes(shape, classes, 3)
    checks.whole(1, first_channels=channels[0], second_channels=channels[1], third_channels=channels[2])
    options = {"shape": sizes, "classes": classes, "channels": tuple(channels)}
    options |= {"activation": activation, "dtype": dtype}
    return Model("cnn3", Maker(CNN3, tuple(options.items())), sizes, classes, _PRESETS)
