"""The networks that come with jdfl: perceptrons, small convolutional networks, ResNet-18 and a vision transformer.

`mlp`: two published multilayer perceptrons p-h-p-c, and the plain one: p inputs, h hidden units, c classes.

    a = tanh(L1 x) [h],   b = tanh(L2 a) [p],   scores = L3 b [c]
    "residual-784": b = tanh(L2 a) + x          (a residual connection at the width of the input)
    "residual-10":  scores = L3 b + a           (at the width of the hidden layer, which needs h = c)
    "plain":        neither

They are the networks of the published code of PartPSP, which also has a tanh after the last layer: with `output` =
"tanh" it is tanh(L3 b) instead of L3 b (the paper has tanh between layers). That code uses the second for one shared
layer ("partpsp-1") and the first for two ("partpsp-2"); to compare the splits, use the same wiring for both. With 784
inputs and h = c = 10 the layers have 7,850, 8,624 and 7,850 parameters. Initial values are uniform on +-1/sqrt(inputs),
PyTorch's default for the weights and biases of a layer.

`cnn3`: for training with noise on every gradient. Strides replace pooling, which makes rounds with one image per node
faster on a CPU. The activation is tanh: bounded activations suffer less from noisy parameters (N. Papernot et al.,
Tempered Sigmoid Activations for Deep Learning with Differential Privacy, AAAI 2021).

`resnet18`: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", 2016, in the layout of
torchvision. The norm is GroupNorm by default (Y. Wu, K. He, 2018), so that examples have gradients of their own. The
published experiments use BatchNorm. Initial convolutions are He's, by fan-out.

`vit`: A. Dosovitskiy and others, "An Image is Worth 16x16 Words", 2021, in the layout of torchvision, with pre-norm
blocks and without dropout.
"""

import math
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.models.base import Compute, Maker, Model, Shape, check_sizes, computed_in
from jdfl.models.convolution import tiles

Wiring = Literal["residual-784", "residual-10", "plain"]
Output = Literal["linear", "tanh"]
_MLP_PRESETS = (("partpsp-1", ("layer1.*",)), ("partpsp-2", ("layer1.*", "layer2.*")))


class MLP(nnx.Module):
    """The network on examples of any shape, flattened."""

    def __init__(
        self,
        *,
        inputs: int,
        hidden: int,
        classes: int,
        wiring: Wiring,
        output: Output,
        dtype: Compute,
        rngs: nnx.Rngs,
    ):
        compute = computed_in(dtype)
        self.layer1 = _linear(inputs, hidden, compute, rngs, _narrow)
        self.layer2 = _linear(hidden, inputs, compute, rngs)
        self.layer3 = _linear(inputs, classes, None, rngs, _narrow)
        self.wiring, self.output = wiring, output

    def __call__(self, x: Array) -> Array:
        """Scores [B, classes] of x [B, ...]."""
        x = x.reshape(len(x), -1)
        a = nnx.tanh(self.layer1(x))
        b = nnx.tanh(self.layer2(a))
        if self.wiring == "residual-784":
            b = b + x
        scores = self.layer3(b)
        scores = nnx.tanh(scores) if self.output == "tanh" else scores
        return scores + a if self.wiring == "residual-10" else scores


@checked
def mlp(
    wiring: Wiring = "residual-784",
    shape: tuple[int, ...] = (28, 28, 1),
    classes: int = 10,
    hidden: int = 10,
    dtype: Compute = "float32",
    output: Output = "linear",
) -> Model:
    """The perceptron of PartPSP for examples of any shape; "784" and "10" in the name of a wiring stand for p and h.

    Presets: "partpsp-1" shares the first layer, "partpsp-2" the first two.

    Args:
        wiring: The residual connection, or none ("plain").
        shape: Shape of an example; p is its number of entries.
        classes: Number of classes c, at least 2.
        hidden: Units h of the hidden layer, at least 1; "residual-10" needs h = c.
        dtype: Type in which the network computes; its parameters are float32.
        output: Whether the last layer's output is used as it is or passes through a tanh, as in the published code,
            before the residual connection of "residual-10".

    Raises ValueError for settings out of range and a residual connection between unequal widths.
    """
    sizes = check_sizes(shape, classes)
    checks.integer(1, hidden=hidden)
    if wiring == "residual-10":
        checks.one_of((classes,), "The wiring 'residual-10' adds the hidden layer to the scores.", hidden=hidden)
    options: dict[str, Any] = {"inputs": math.prod(sizes), "hidden": hidden, "classes": classes, "wiring": wiring}
    options |= {"output": output, "dtype": dtype}
    return Model("mlp", Maker(MLP, tuple(options.items())), sizes, classes, _MLP_PRESETS)


def _linear(inputs: int, outputs: int, dtype: Any, rngs: nnx.Rngs, dot: Any = lax.dot_general) -> nnx.Linear:
    uniform = partial(_uniform, bound=1 / math.sqrt(inputs))
    return nnx.Linear(inputs, outputs, dtype=dtype, kernel_init=uniform, bias_init=uniform, dot_general=dot, rngs=rngs)


def _narrow(x: Array, kernel: Array, dimensions: Any, precision: Any = None, **options: Any) -> Array:
    """Examples [B, inputs] times a kernel [inputs, outputs] of few outputs, in a third of the time on a CPU."""
    turned = lax.optimization_barrier(kernel.T)  # keeps the compiler from transposing it back
    return lax.dot_general(x, turned, (((1,), (1,)), ((), ())), precision=precision, **options)


def _uniform(key: Array, shape: Any, dtype: Any, bound: float) -> Array:
    return jax.random.uniform(key, shape, dtype, -bound, bound)


_CNN_PRESETS = (("partpsp-1", ("conv1.*",)), ("partpsp-2", ("conv1.*", "conv2.*")))
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
        shape: Rows, columns and channels of an image; here at least 4 rows and columns.
        classes: Number of classes, at least 2.
        channels: Channels of the two convolutions.
        dense: Units of the dense layer.
        dtype: Type in which the network computes; its parameters are float32.

    Raises ValueError for settings out of range.
    """
    sizes = check_sizes(shape, classes, 3)
    checks.integer(4, remedy="Two poolings halve every side.", rows=sizes[0], columns=sizes[1])
    checks.integer(1, first_channels=channels[0], second_channels=channels[1], dense=dense)
    options = {"shape": sizes, "classes": classes, "channels": tuple(channels), "dense": dense, "dtype": dtype}
    return Model("cnn", Maker(CNN, tuple(options.items())), sizes, classes, _CNN_PRESETS)


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
        channels: Channels of the three convolutions.
        activation: Activation after every convolution.

    `shape`, `classes`, `dtype` and what is raised are as for `cnn`.
    """
    sizes = check_sizes(shape, classes, 3)
    checks.integer(1, first_channels=channels[0], second_channels=channels[1], third_channels=channels[2])
    options = {"shape": sizes, "classes": classes, "channels": tuple(channels)}
    options |= {"activation": activation, "dtype": dtype}
    return Model("cnn3", Maker(CNN3, tuple(options.items())), sizes, classes, _CNN_PRESETS)


Norm = Literal["group", "batch"]
Stem = Literal["imagenet", "cifar"]
_RESNET_FIRST = ("conv1.*", "norm1.*", "layer1.*")
_RESNET_PRESETS = (("partpsp-1", _RESNET_FIRST), ("partpsp-2", (*_RESNET_FIRST, "layer2.*")))
_GROUPS = 32


class _Layers:
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
        """A group norm of 32 groups or, in a narrow network, half the channels of the first layer.

        For an image of one pixel two numbers would be normalised to their signs, through which no gradient passes.
        """
        if self.norm_kind == "batch":
            return nnx.BatchNorm(channels, momentum=0.0, epsilon=1e-5, dtype=self.dtype, rngs=self.rngs)
        groups = math.gcd(self.groups, channels)
        return nnx.GroupNorm(channels, groups, epsilon=1e-5, dtype=self.dtype, rngs=self.rngs)


class _Downsample(nnx.Module):
    """The shortcut of a block that changes the size: a 1x1 convolution and a norm."""

    def __init__(self, layers: _Layers, inputs: int, outputs: int, stride: int):
        self.conv = layers.conv(inputs, outputs, 1, stride)
        self.norm = layers.norm(outputs)

    def __call__(self, x: Array) -> Array:
        """The images in the new size."""
        return self.norm(self.conv(x))  # pyright: ignore[reportCallIssue]


class _BasicBlock(nnx.Module):
    """relu(x + norm(conv(relu(norm(conv x)))))."""

    def __init__(self, layers: _Layers, inputs: int, outputs: int, stride: int):
        self.conv1 = layers.conv(inputs, outputs, 3, stride)
        self.norm1 = layers.norm(outputs)
        self.conv2 = layers.conv(outputs, outputs, 3, 1)
        self.norm2 = layers.norm(outputs)
        same = inputs == outputs and stride == 1
        self.downsample = None if same else _Downsample(layers, inputs, outputs, stride)

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
        layers = _Layers(norm, width, dtype, rngs)
        self.stem = stem
        self.conv1 = layers.conv(colours, width, 7, 2) if stem == "imagenet" else layers.conv(colours, width, 3, 1)
        self.norm1 = layers.norm(width)
        for k in range(4):
            inputs, outputs = width * 2 ** max(k - 1, 0), width * 2**k
            blocks = [_BasicBlock(layers, inputs, outputs, 2 if k else 1), _BasicBlock(layers, outputs, outputs, 1)]
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
        width: Channels of the first layer, at least 1; the others have 2, 4 and 8 times as many.
        stem: "imagenet" is the published 7x7 convolution with pooling, which divides rows and columns by four; "cifar"
            is a 3x3 convolution that keeps the size.

    `shape`, `classes`, `dtype` and what is raised are as for `cnn`.
    """
    checks.integer(1, width=width)
    sizes = check_sizes(shape, classes, 3)
    options = {"colours": sizes[2], "classes": classes, "width": width, "norm": norm, "stem": stem, "dtype": dtype}
    return Model("resnet18", Maker(ResNet18, tuple(options.items())), sizes, classes, _RESNET_PRESETS)


_VIT_FIRST = ("patches.*", "token")
_VIT_PRESETS = (("partpsp-1", _VIT_FIRST), ("partpsp-2", (*_VIT_FIRST, "encoder.*")))


def attend(query: Array, key: Array, value: Array, **_: Any) -> Array:
    """softmax(q k^T / sqrt d) v [B, T, heads, d] of tokens [B, T, heads, d], with the softmax in float32 or wider.

    jax.nn.dot_product_attention computes the same, but its gradient in bfloat16 needs implicit promotion of dtypes.
    """
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("bthd,bshd->bhts", query * (query.shape[-1] ** -0.5), key).astype(wide)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores).astype(value.dtype), value)


class _Block(nnx.Module):
    """x + attention(norm x), then x + mlp(norm x)."""

    def __init__(self, width: int, heads: int, hidden: int, dtype: Any, rngs: nnx.Rngs):
        self.norm1 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, dtype=dtype, attention_fn=attend, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)
        self.dense1 = nnx.Linear(width, hidden, dtype=dtype, rngs=rngs)
        self.dense2 = nnx.Linear(hidden, width, dtype=dtype, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Tokens [B, T, width]."""
        x = x + self.attention(self.norm1(x))
        return x + self.dense2(nnx.gelu(self.dense1(self.norm2(x)), approximate=False))


class _Encoder(nnx.Module):
    """The position embedding, the blocks, and a last norm."""

    def __init__(self, tokens: int, layers: int, width: int, heads: int, hidden: int, dtype: Any, rngs: nnx.Rngs):
        self.position = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (tokens, width), jnp.float32))
        self.blocks = nnx.List([_Block(width, heads, hidden, dtype, rngs) for _ in range(layers)])
        self.norm = nnx.LayerNorm(width, dtype=dtype, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Tokens [B, T, width]."""
        x = x + self.position[...].astype(x.dtype)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class ViT(nnx.Module):
    """The network on images [B, rows, columns, channels]; the head computes in the parameters' dtype."""

    def __init__(
        self, *, shape: Shape, classes: int, patch: int, layers: int, heads: int, width: int, hidden: int,
        dtype: Compute, rngs: nnx.Rngs,
    ):  # fmt: skip
        compute, (rows, columns, colours) = computed_in(dtype), shape
        size = (patch, patch)
        self.patches = nnx.Conv(
            colours, width, size, size, padding="VALID", dtype=compute, conv_general_dilated=tiles, rngs=rngs
        )
        self.token = nnx.Param(jnp.zeros(width, jnp.float32))
        tokens = 1 + (rows // patch) * (columns // patch)
        self.encoder = _Encoder(tokens, layers, width, heads, hidden, compute, rngs)
        self.head = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Scores [B, classes] of x [B, rows, columns, channels]."""
        patches = self.patches(x)
        patches = patches.reshape(len(x), -1, patches.shape[-1])
        token = jnp.broadcast_to(self.token[...].astype(patches.dtype), (len(x), 1, patches.shape[-1]))
        return self.head(self.encoder(jnp.concatenate([token, patches], axis=1))[:, 0])


@checked
def vit(
    shape: tuple[int, ...] = (32, 32, 3),
    patch: int = 4,
    layers: int = 4,
    heads: int = 4,
    width: int = 128,
    mlp: int = 1024,
    classes: int = 10,
    dtype: Compute = "float32",
) -> Model:
    """A vision transformer, by default with 1,335,690 parameters.

    Presets: "partpsp-1" shares the patch embedding and the class token (6,400), "partpsp-2" also the
    encoder (1,334,400).

    Args:
        shape: Rows, columns and channels of an image.
        patch: Side of a patch in pixels; patches tile the image.
        layers: Blocks of the encoder, at least 1.
        heads: Heads of every attention, a divisor of the width.
        width: Entries of a token, at least 1.
        mlp: Hidden units of a block's perceptron, at least 1.
        classes: Number of classes, at least 2.
        dtype: Type in which the network computes; its parameters are float32.

    Raises ValueError for settings out of range, patches that do not tile the image and heads that do not divide the
    width.
    """
    sizes = check_sizes(shape, classes, 3)
    checks.integer(1, patch=patch, layers=layers, heads=heads, width=width, mlp=mlp)
    if sizes[0] % patch or sizes[1] % patch:
        raise ValueError(f"Expected patches that tile images of {sizes[0]}x{sizes[1]}, got patch = {patch}.")
    if width % heads:
        raise ValueError(f"Expected heads to divide the width {width}, got heads = {heads}.")
    options = {"shape": sizes, "classes": classes, "patch": patch, "layers": layers, "heads": heads, "width": width}
    maker = Maker(ViT, (*options.items(), ("hidden", mlp), ("dtype", dtype)))
    return Model("vit", maker, sizes, classes, _VIT_PRESETS)
