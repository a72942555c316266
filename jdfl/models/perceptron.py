"""Two published multilayer perceptrons p-h-p-c, and the plain one: p inputs, h hidden units, c classes.

    a = tanh(L1 x) [h],   b = tanh(L2 a) [p],   scores = L3 b [c]
    "residual-784": b = tanh(L2 a) + x          (a residual connection at the width of the input)
    "residual-10":  scores = L3 b + a           (at the width of the hidden layer, which needs h = c)
    "plain":        neither

They are the networks of the published code of PartPSP, which also has a tanh after the last layer: with `output` =
"tanh" it is tanh(L3 b) instead of L3 b (the paper has tanh between layers). That code uses the second for one shared
layer ("partpsp-1") and the first for two ("partpsp-2"); to compare the splits, use the same wiring for both. With 784
inputs and h = c = 10 the layers have 7,850, 8,624 and 7,850 parameters. Initial values are uniform on +-1/sqrt(inputs),
PyTorch's default for the weights and biases of a layer.
"""

import math
from functools import partial
from typing import Any, Literal

import jax
from flax import nnx
from jax import Array, lax

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.models.base import Compute, Maker, Model, check_sizes, computed_in

Wiring = Literal["residual-784", "residual-10", "plain"]
Output = Literal["linear", "tanh"]
_PRESETS = (("partpsp-1", ("layer1.*",)), ("partpsp-2", ("layer1.*", "layer2.*")))


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
    checks.whole(1, hidden=hidden)
    if wiring == "residual-10":
        checks.one_of((classes,), "The wiring 'residual-10' adds the hidden layer to the scores.", hidden=hidden)
    options: dict[str, Any] = {"inputs": math.prod(sizes), "hidden": hidden, "classes": classes, "wiring": wiring}
    options |= {"output": output, "dtype": dtype}
    return Model("mlp", Maker(MLP, tuple(options.items())), sizes, classes, _PRESETS)


def _linear(inputs: int, outputs: int, dtype: Any, rngs: nnx.Rngs, dot: Any = lax.dot_general) -> nnx.Linear:
    uniform = partial(_uniform, bound=1 / math.sqrt(inputs))
    return nnx.Linear(inputs, outputs, dtype=dtype, kernel_init=uniform, bias_init=uniform, dot_general=dot, rngs=rngs)


def _narrow(x: Array, kernel: Array, dimensions: Any, precision: Any = None, **options: Any) -> Array:
    """Examples x [B, inputs] times a kernel [inputs, outputs] with few outputs, transposed so that the gradient sums
    along outputs.

    This takes a third of the time on a CPU. The barrier keeps the compiler from transposing it back.
    """
    turned = lax.optimization_barrier(kernel.T)
    return lax.dot_general(x, turned, (((1,), (1,)), ((), ())), precision=precision, **options)


def _uniform(key: Array, shape: Any, dtype: Any, bound: float) -> Array:
    return jax.random.uniform(key, shape, dtype, -bound, bound)
