"""A small convolutional network: two 3x3 convolutions of 16 and 32 channels with max-pooling, a dense layer, a head."""

from flax import nnx
from jax import Array

from jdfl import checks
from jdfl.models.base import Compute, Maker, Model, check_sizes
from jdfl.models.convolution import convolution, max_pool

_PRESETS = (("partpsp-1", ("conv1.*",)), ("partpsp-2", ("conv1.*", "conv2.*")))


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
