"""A small vision transformer (A. Dosovitskiy and others, "An Image is Worth 16x16 Words", 2021).

The layout of the parameters is that of torchvision: the embedding of the patches and the class token; an encoder with
the position embedding, pre-norm blocks and a last norm; a head on the class token. There is no dropout.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.models.base import Compute, Maker, Model, Shape, check_sizes, computed_in
from jdfl.models.convolution import tiles

_FIRST = ("patches.*", "token")
_PRESETS = (("partpsp-1", _FIRST), ("partpsp-2", (*_FIRST, "encoder.*")))


def attend(query: Array, key: Array, value: Array, **_: Any) -> Array:
    """softmax(q k^T / sqrt d) v [B, T, heads, d] of tokens [B, T, heads, d], with the softmax in float32 or wider.

    jax.nn.dot_product_attention computes the same, but its gradient in bfloat16 needs implicit promotion of dtypes.
    """
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("bthd,bshd->bhts", query * (query.shape[-1] ** -0.5), key).astype(wide)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores).astype(value.dtype), value)


class Block(nnx.Module):
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


class Encoder(nnx.Module):
    """The position embedding, the blocks, and a last norm."""

    def __init__(self, tokens: int, layers: int, width: int, heads: int, hidden: int, dtype: Any, rngs: nnx.Rngs):
        self.position = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (tokens, width), jnp.float32))
        self.blocks = nnx.List([Block(width, heads, hidden, dtype, rngs) for _ in range(layers)])
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
        self.encoder = Encoder(tokens, layers, width, heads, hidden, compute, rngs)
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
    checks.whole(1, patch=patch, layers=layers, heads=heads, width=width, mlp=mlp)
    if sizes[0] % patch or sizes[1] % patch:
        raise ValueError(f"Expected patches that tile images of {sizes[0]}x{sizes[1]}, got patch = {patch}.")
    if width % heads:
        raise ValueError(f"Expected heads to divide the width {width}, got heads = {heads}.")
    options = {"shape": sizes, "classes": classes, "patch": patch, "layers": layers, "heads": heads, "width": width}
    maker = Maker(ViT, (*options.items(), ("hidden", mlp), ("dtype", dtype)))
    return Model("vit", maker, sizes, classes, _PRESETS)
