"""Networks of torch as modules of flax.nnx that compute the same, with torch's names and layouts of the parameters.

torch.fx lists the operations of a network, and each becomes the same operation of JAX. Others are refused, and so is
what draws random numbers or keeps a state. torch is imported by no other module.

Axes: B examples; images are [B, channels, rows, columns], as in torch.
"""

import inspect
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from jdfl.base import checks


class _At(NamedTuple):
    """The result of a step; that of step 0 is the input."""

    step: int


class _Leaf(NamedTuple):
    """A parameter."""

    path: str


def _linear(x: Array, weight: Array, bias: Any) -> Array:
    return x @ weight.T if bias is None else x @ weight.T + bias


def _conv(x: Array, weight: Array, bias: Any, padding: Any, stride: Any, dilation: Any, groups: int) -> Array:
    how: Any = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "rhs_dilation": dilation, "feature_group_count": groups}
    last, kernel = jnp.moveaxis(x, 1, -1), weight.transpose(2, 3, 1, 0)  # the layout that is fast in loops
    y = lax.conv_general_dilated(last, kernel, stride, padding, **how)
    return jnp.moveaxis(y if bias is None else y + bias, -1, 1)


def _two(value: Any) -> tuple[int, int]:
    return (value, value) if checks.is_integer(value) else tuple(value)


def _windows(x: Array, begin: float, join: Any, size: Any, stride: Any, padding: Any) -> Array:
    steps, pads = _two(stride or size), [(one, one) for one in _two(padding)]
    last, first = jnp.moveaxis(x, 1, -1), np.asarray(begin, x.dtype)
    y = lax.reduce_window(last, first, join, (1, *_two(size), 1), (1, *steps, 1), ((0, 0), *pads, (0, 0)))
    return jnp.moveaxis(y, -1, 1)


def _max_pool(x: Array, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Array:
    return _windows(x, -np.inf, lax.max, kernel_size, stride, padding)


def _avg_pool(x: Array, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Array:
    return _windows(x, 0.0, lax.add, kernel_size, stride, padding) / float(np.prod(_two(kernel_size)))


def _norm(x: Array, weight: Any, bias: Any, eps: float, rank: int = 0, groups: int = 0) -> Array:
    """Of the last `rank` axes, or of `groups` of channels."""
    parts, axes = (x.reshape(len(x), groups, -1), (-1,)) if groups else (x, tuple(range(-rank, 0)))
    y = parts - parts.mean(axes, keepdims=True)
    y = (y * lax.rsqrt(jnp.square(y).mean(axes, keepdims=True) + eps)).reshape(x.shape)
    weight, bias = (one if one is None or rank else one.reshape(-1, *(1,) * (x.ndim - 2)) for one in (weight, bias))
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _embedding(x: Array, weight: Array, padding_idx: int | None) -> Array:
    if padding_idx is not None:  # a row that torch does not train
        weight = weight.at[padding_idx].set(lax.stop_gradient(weight[padding_idx]))
    return weight[x.astype(jnp.int32)]


def _flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    return x.reshape(*x.shape[: start_dim % x.ndim], -1, *x.shape[end_dim % x.ndim + 1 :])


_INNER: dict[str, Callable[..., Any]] = {"linear": _linear, "conv": _conv, "norm": _norm, "embedding": _embedding}
_OPERATIONS: dict[str, Callable[..., Any]] = {  # by the names of torch's functions, operators and methods
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "neg", "pow", "matmul", "getitem")},
    **{name: lambda x, shape, *more: x.reshape(shape, *more) for name in ("view", "reshape")},
    "identity": lambda x: x,
    "getattr": lambda x, name: x.shape if name == "shape" else None,
    "size": lambda x, dim=None: x.shape if dim is None else x.shape[dim],
    "relu": lambda x, inplace=False: jax.nn.relu(x),
    "tanh": lambda x: jnp.tanh(x),
    "sigmoid": lambda x: jax.nn.sigmoid(x),
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "flatten": _flatten,
    "mean": lambda x, dim=None, keepdim=False: x.mean(dim, keepdims=keepdim),
    "cat": lambda tensors, dim=0: jnp.concatenate(tensors, dim),
}
# operation, settings that are handed on, and those that are fixed
_LAYERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Linear": ("linear", "weight bias", {}),
    "Conv2d": ("conv", "weight bias padding stride dilation groups", {"padding_mode": "zeros"}),
    "MaxPool2d": ("max_pool2d", "kernel_size stride padding", {"dilation": 1, "ceil_mode": False}),
    "AvgPool2d": (
        "avg_pool2d",
        "kernel_size stride padding",
        {"ceil_mode": False, "count_include_pad": True, "divisor_override": None},
    ),
    "LayerNorm": ("norm", "weight bias eps", {}),
    "GroupNorm": ("norm", "weight bias eps", {}),
    "Embedding": ("embedding", "weight padding_idx", {"max_norm": None, "scale_grad_by_freq": False}),
    "Flatten": ("flatten", "start_dim end_dim", {}),
    "ReLU": ("relu", "inplace", {}),
    "Tanh": ("tanh", "", {}),
    "Sigmoid": ("sigmoid", "", {}),
    "GELU": ("gelu", "approximate", {}),
    "Identity": ("identity", "", {}),
}
_VIEWS = ("flatten", "view", "reshape", "getitem", "identity")
_REASONS = {
    "dropout": "It draws random numbers, which no problem of jdfl has: leave it out, or call its method eval.",
    "batchnorm": "It keeps running averages, which are no parameters and belong to no node: use torch.nn.GroupNorm.",
}


class Translated(nnx.Module):
    """A network of torch: its parameters by their names, and its operations in their order."""

    def __init__(self, title: str, steps: tuple[Any, ...], parameters: dict[str, Any]) -> None:
        self._title, self._steps = title, steps
        for path, leaf in parameters.items():
            *above, last = path.split(".")
            place: Any = self
            for name in above:
                if name not in vars(place):
                    setattr(place, name, nnx.Module())
                place = vars(place)[name]
            setattr(place, last, nnx.Param(jnp.asarray(leaf)))

    def __call__(self, x: Array) -> Any:
        """The outputs [B, ...] of a batch x [B, ...]."""
        found: list[Any] = [x]

        def value(one: Any) -> Any:
            if isinstance(one, _At):
                return found[one.step]
            if isinstance(one, _Leaf):
                leaf: Any = reduce(lambda place, name: vars(place)[name], one.path.split("."), self)
                return leaf[...]
            return tuple(map(value, one)) if checks.is_a(one, tuple) else one

        for name, args, options in self._steps:
            operation = (_OPERATIONS | _INNER)[name]
            found.append(operation(*map(value, args), **{key: value(one) for key, one in options}))
        return found[-1]


def translated(model: Any, examples: Sequence[np.ndarray], standardise: bool) -> Translated:
    """A torch.nn.Module as a module of flax.nnx; ValueError for what is not known to be the same in JAX."""
    fx: Any = import_module("torch.fx")
    if standardise and examples[0].ndim > 2:
        checks.refuse("X as it is for torch, with channels first", "standardise", True, "Standardise X yourself.")
    names = {id(leaf): name for name, leaf in model.named_parameters()}
    for name, leaf in model.named_parameters():
        if not leaf.requires_grad:
            _refuse(f"{name} with requires_grad = False", "Every parameter is trained: call requires_grad_(True).")
    for name, one in model.named_modules():
        if one._forward_hooks or one._forward_pre_hooks:
            _refuse(f"{_layer(name, one)} with hooks", "Remove them, such as that of weight_norm.")
    try:
        graph = fx.Tracer().trace(model)
    except Exception as error:
        _refuse(f"{type(model).__name__}, for which torch.fx reports: {checks.message(error)[:300].rstrip('.')}")
    steps: list[Any] = []
    known: dict[Any, _At] = {}
    views = set[Any]()  # nodes that may share the memory of their input

    def plain(one: Any, what: str) -> Any:
        """An argument as a value that can be hashed."""
        if isinstance(one, fx.Node):
            return known[one]
        if checks.is_a(one, list | tuple):
            return tuple(plain(part, what) for part in one)
        if not checks.is_a(one, int | float | str | None) and id(one) not in names:
            _refuse(f"{what} with {checks.text(one)}", "Parameters and numbers alone can enter.")
        return _Leaf(names[id(one)]) if id(one) in names else one

    for node in graph.nodes:
        args, options, what = list(node.args), dict(node.kwargs), f"the operation {node.target}"
        if node.op == "placeholder":
            if known:
                _refuse(f"a second input {node.target}", "Let forward() take one batch.")
            known[node] = _At(0)
            continue
        if node.op == "get_attr":
            name, args, what = "identity", [reduce(getattr, node.target.split("."), model)], f"{node.target}"
        elif node.op == "output":
            name, what = "identity", "several outputs" if not isinstance(args[0], fx.Node) else ""
            if what:
                _refuse(what, "Let forward() return one tensor.")
        elif node.op == "call_module":
            layer = model.get_submodule(node.target)
            what = _layer(node.target, layer)
            name, options = _of_layer(layer, what)
        else:
            name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
            what, options = f"the operation {name}", {key: one for key, one in options.items() if key != "input"}
            args = [*args, node.kwargs["input"]] if "input" in node.kwargs else args
            try:
                inspect.signature(_OPERATIONS[name]).bind(*args, **options)
            except (KeyError, TypeError, ValueError):
                _refuse(f"{what} of {(*args, *options.items())}")
            if name == "getattr" and args[1] != "shape":
                _refuse(f"{what} of {args[1]}")
        if name == "embedding" and known[args[0]] == _At(0):
            _check_numbers(what, len(options["weight"]), examples)
        steps.append((name, plain(args, what), tuple((key, plain(one, what)) for key, one in options.items())))
        known[node] = _At(len(steps))
        if name in _VIEWS:
            views.add(node)
        if options.get("inplace"):
            base, shared = args[0], bool(views & set(args[0].users))
            while base in views:
                base = base.args[0]
                shared |= len(base.users) > 1
            if shared:
                _refuse(f"{what} in place of a tensor that another shares", "Give it inplace=False.")
            known[args[0]] = known[node]
    values = {name: leaf.detach().cpu().numpy() for name, leaf in model.named_parameters()}
    return Translated(type(model).__name__, tuple(steps), values)


def _of_layer(layer: Any, what: str) -> tuple[str, dict[str, Any]]:
    """The operation of a layer, and its settings."""
    kind, own = type(layer).__name__, type(layer).__module__.startswith("torch.nn.modules.")
    if own and kind.startswith("Dropout") and not (layer.training and layer.p):
        kind = "Identity"
    if not own or kind not in _LAYERS:
        _refuse(what)
    name, settings, fixed = _LAYERS[kind]
    for key, value in fixed.items():
        if getattr(layer, key) not in (value, (value, value)):
            _refuse(f"{what} with {key} = {getattr(layer, key)!r}", f"Use {key} = {value!r}.")
    options = {key: getattr(layer, key) for key in settings.split()}
    if kind == "Conv2d":
        spans = [rate * (size - 1) for rate, size in zip(layer.dilation, layer.kernel_size)]
        known = {"same": [(span // 2, span - span // 2) for span in spans], "valid": [(0, 0)] * 2}
        pads = layer.padding
        options["padding"] = known[pads] if checks.is_a(pads, str) else [(one, one) for one in pads]
    if kind in ("LayerNorm", "GroupNorm"):
        options |= {"rank": len(layer.normalized_shape)} if kind == "LayerNorm" else {"groups": layer.num_groups}
    return name, options


def _layer(name: str, layer: Any) -> str:
    return f"the layer {name or 'of the model itself'} ({type(layer).__module__}.{type(layer).__name__})"


def _refuse(what: str, remedy: str = "") -> NoReturn:
    """Refuse a part of a network, by default because it is not known here."""
    reason = next((why for name, why in _REASONS.items() if name in what.lower()), "")
    remedy = remedy or reason or f"Known are {', '.join(_LAYERS)}. Write others in flax.nnx."
    raise ValueError(f"Expected model with layers of torch that jdfl knows in JAX, got {what}. {remedy}")


def _check_numbers(what: str, rows: int, examples: Sequence[np.ndarray]) -> None:
    """Refuse features that are no rows of an embedding; images in bytes would be divided by 255."""
    for X in examples:
        images = X.dtype == np.uint8 and X.ndim > 2
        if images or (np.rint(X) != X).any() or X.min() < 0 or X.max() >= rows:
            raise ValueError(
                f"Expected whole numbers in X from 0 to {rows - 1} for {what}, got {X.dtype} from {X.min()} to "
                f"{X.max()}. Give X in int32, not standardised."
            )
