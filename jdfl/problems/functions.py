"""A person's own functions, tried before a run: by shapes alone first, then at the start on a few examples."""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import checks
from jdfl.models.base import relaxed
from jdfl.problems.base import Problem
from jdfl.problems.packing import Packing

_TOGETHER = 4  # examples that are tried together and one by one
_TRIED = 32  # examples whose losses are computed at the start


def check_loss(loss: Callable[..., Any], packing: Packing, example: Any, kind: np.dtype) -> None:
    """Refuse a loss that does not give one real number for one example, or does not depend on the parameters.

    Args:
        loss: The function of a tree of parameters and one example.
        packing: The layout of the parameters.
        example: The shapes and types of one example.
        kind: Type of the parameters.

    Raises ValueError; nothing is compiled.
    """
    check_arguments("loss", loss, ("params", "example"))
    found = traced("loss", "loss(params, example)", loss, packing, kind, example)
    check_number("loss", found)

    def value(w: Array, example: Any) -> Any:
        with relaxed():
            return jnp.reshape(loss(packing.unflatten(w), example), ())

    program = jax.make_jaxpr(value)(jax.ShapeDtypeStruct((packing.n,), kind), example).jaxpr
    if not _reaches(program, program.invars[0]):
        raise ValueError(
            "Expected a loss that depends on params, got loss = "
            f"{checks.shown(loss)}, whose value is the same for all parameters. Use the params that the function is "
            "given."
        )


def check_predict(predict: Callable[..., Any], packing: Packing, example: Any, kind: np.dtype) -> int:
    """The number of classes of the scores that a function gives for one example's features; ValueError for others."""
    check_arguments("predict", predict, ("params", "features"))
    call = "predict(params, features)"
    found = traced("predict", call, predict, packing, kind, example[0])
    leaves = jax.tree.leaves(found)
    fits = len(leaves) == 1 and len(leaves[0].shape) <= 1 and leaves[0].shape != (0,)
    if not fits or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        raise ValueError(
            f"Expected {call} to give scores [classes] of one example in floating point, got predict that gives "
            f"{described(found)}. Return the scores, not the class."
        )
    return max(2, int(np.prod(leaves[0].shape)))


def check_pair(example: Any) -> None:
    """Refuse examples that are no pair of features and a label, which accuracies need: ValueError."""
    if not checks.is_a(example, tuple | list) or len(example) != 2 or not hasattr(example[1], "shape"):
        remedy = "Give data as a pair of features and labels, or leave predict out."
        raise ValueError(
            f"Expected data of pairs (features, label) for predict, got data of {described(example)}. {remedy}"
        )


def check_arguments(name: str, function: Callable[..., Any], wanted: tuple[str, ...]) -> None:
    """Refuse a function that cannot be called with the `wanted` positional arguments: ValueError."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # it does not tell its arguments
    try:
        signature.bind(*wanted)
    except TypeError:
        found = ", ".join(signature.parameters) or "no arguments"
        raise ValueError(
            f"Expected {name}({', '.join(wanted)}) with {len(wanted)} arguments, got {name} = {checks.shown(function)} "
            f"that takes {found}. Bind further arguments with functools.partial."
        ) from None


def check_number(name: str, found: Any) -> None:
    """Refuse what a loss gives by its shape and type, unless it is one real number: ValueError."""
    leaves = jax.tree.leaves(found)
    if len(leaves) != 1 or not hasattr(leaves[0], "shape"):
        remedy = "Return the loss alone, without auxiliary values." if leaves else "Return the loss."
        raise ValueError(f"Expected {name} to give one number, got {name} that gives {described(found)}. {remedy}")
    if int(np.prod(leaves[0].shape)) != 1:
        raise ValueError(
            f"Expected {name} to give one number for one example, got {name} that gives shape {leaves[0].shape}. Take "
            "the sum or the mean, for example with jnp.mean."
        )
    if not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        raise ValueError(
            f"Expected {name} to give a floating-point number, got {name} that gives {leaves[0].dtype}. It has to be "
            "differentiable in the parameters: counts and argmax are not."
        )


def traced(
    name: str, call: str, function: Callable[[Any, Any], Any], packing: Packing, kind: np.dtype, example: Any
) -> Any:
    """Shapes and types of what a function of parameters and an example gives; ValueError for whatever it raises."""

    def one(w: Array, example: Any) -> Any:
        with relaxed():
            return function(packing.unflatten(w), example)

    try:
        return jax.eval_shape(one, jax.ShapeDtypeStruct((packing.n,), kind), example)
    except Exception as error:
        shapes = ", ".join(f"{path} {shape}" for path, shape in zip(packing.paths, packing.shapes))
        raise ValueError(
            f"Expected {call} to run on one example, got {name} that raised {type(error).__name__}: "
            f"{said_by(error)} One example is {described(example)}, params are {shapes[:300]}. Write {name} for one "
            "example, without an axis of examples, in JAX."
        ) from error


def check_start(problem: Problem) -> None:
    """Compute losses and gradients of a few examples at the start; refuse what is not finite: ValueError.

    A gradient that is zero for all of them makes a warning, since no algorithm moves from there.
    """
    real = np.flatnonzero(np.asarray(problem.weight[0]) > 0)[:_TRIED]
    bare: Any = problem.replace(name="", test=None)  # pyright: ignore[reportAttributeAccessIssue]
    values, sizes = _at_start(bare, bare.some_node(), real.astype(np.int32))
    for found, what in ((values, "losses"), (sizes, "gradients")):
        bad = np.flatnonzero(~np.isfinite(np.asarray(found)))
        if bad.size:
            raise ValueError(
                f"Expected finite {what} at the start, got loss with {what[:-1]} {np.asarray(found)[bad[0]]} for "
                f"example {real[bad[0]]} of node 0. Look for log(0), sqrt(0) or a division by zero, and choose params "
                "where the loss is finite."
            )
    if not np.any(np.asarray(sizes)):
        warnings.warn(
            f"The gradient of the loss is zero at params for the first {len(real)} examples of node 0: no algorithm "
            "moves from there. Start from other params, for example random ones.",
            stacklevel=3,
        )


def check_examples(problem: Problem, *, clipped: bool) -> None:
    """Try a model or a problem that you wrote on a few examples together and one by one.

    Where the loss of an example depends on the others, gradients of single examples are no parts of the gradient of a
    batch.

    Args:
        problem: The problem; those of jdfl, and models of jdfl, are not tried.
        clipped: Whether a method clips the gradients of single examples: then a difference is refused, and otherwise
            warned about.

    Raises ValueError also for losses that are not finite at the start.
    """
    own = not type(problem).__module__.startswith("jdfl.")
    model: Any = getattr(problem, "model", None)
    if not own and (model is None or not model.own or model.examples_mix):
        return
    node = int(np.argmax(np.asarray(problem.sizes)))
    real = np.flatnonzero(np.asarray(problem.weight[node]) > 0)[:_TOGETHER]
    noise = np.random.default_rng(0).standard_normal(problem.n)  # a last layer of zeros would hide a difference
    bare = replace(problem, name="", test=None)
    first, together, alone = _compared(bare, np.asarray(0.1 * noise, problem.dtype), node, real.astype(np.int32))
    if not np.isfinite(np.asarray(first)).all():
        raise ValueError(
            f"Expected finite losses at the start, got {np.asarray(first).tolist()} for examples {real.tolist()} of "
            f"node {node} of {problem.name}. Look for log(0), sqrt(0) or a division by zero, or start elsewhere."
        )
    if np.allclose(together, alone, rtol=1e-3, atol=1e-5 * float(np.max(np.abs(alone), initial=1.0)), equal_nan=True):
        return
    place = int(np.argmax(np.abs(np.asarray(together) - np.asarray(alone))))
    found = (
        f"{type(problem).__name__ if own else model.name}, which gives example {real[place]} of node {node} the loss "
        f"{float(together[place]):.6g} among {len(real)} examples and {float(alone[place]):.6g} alone"
    )
    if clipped:
        raise ValueError(
            "Expected a model whose output for an example does not depend on the others for gradients that are clipped "
            f'example by example, got {found}. Compute every example by itself, or clip with per="batch".'
        )
    warnings.warn(
        f"The loss of an example depends on the others in its batch, and so on the batch size, with {found}.",
        stacklevel=4,
    )


@jax.jit
def _compared(problem: Any, noise: Array, node: Array, chosen: Array) -> tuple[Array, Array, Array]:
    """The losses [b] of a node's examples at the start, and those away from it, together and one by one."""
    data, start = problem.take(problem.local(node)[0], chosen), problem.begin()[0]
    w = start + noise

    def one(example: Any) -> Array:
        return problem.losses(w, jax.tree.map(lambda leaf: leaf[None], example))[0]

    return problem.losses(start, data), problem.losses(w, data), jax.lax.map(one, data)


@jax.jit
def _at_start(problem: Any, data: Any, chosen: Array) -> tuple[Array, Array]:
    """The losses [b] and the largest entries of the gradients [b] of the examples `chosen` [b] of a node."""
    w, data = problem.begin()[0], problem.take(data, chosen)

    def one(example: Any) -> tuple[Array, Array]:
        value, g = jax.value_and_grad(problem.loss)(w, example)
        return value, jnp.max(jnp.abs(g))

    return jax.lax.map(one, data)


def said_by(error: Exception) -> str:
    """The first line of what an error says, as a sentence."""
    text = (checks.said(error).strip().splitlines() or ["nothing"])[0].strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _reaches(program: Any, start: Any) -> bool:
    """Whether the results of a traced program depend on one of its inputs."""
    seen = {start}
    for step in program.eqns:
        if any(not hasattr(one, "val") and one in seen for one in step.invars):
            seen.update(step.outvars)
    return any(not hasattr(one, "val") and one in seen for one in program.outvars)


def described(tree: Any) -> str:
    """A tree in a message, with shapes and types instead of arrays."""

    def one(leaf: Any) -> str:
        return f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "shape") else type(leaf).__name__

    return checks.shown(jax.tree.map(one, tree)) if jax.tree.leaves(tree) else checks.shown(tree)
