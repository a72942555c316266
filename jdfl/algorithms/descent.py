"""Gradient descent steps at every node: plain, or with an optax optimizer.

Axes: m nodes, n parameters.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array
from typing_extensions import Doc

from jdfl.algorithms.round import Round
from jdfl.base import checks
from jdfl.base.settings import As

OPTIMIZERS: dict[str, Any] = {
    "sgd": None,
    "momentum": partial(optax.sgd, momentum=0.9),
    "nesterov": partial(optax.sgd, momentum=0.9, nesterov=True),
    "adam": optax.adam,
    "adamw": optax.adamw,
    "adagrad": optax.adagrad,
    "rmsprop": optax.rmsprop,
}
_Name = Literal["sgd", "momentum", "nesterov", "adam", "adamw", "adagrad", "rmsprop"]
Optimizer = Annotated[
    Callable[[Any], optax.GradientTransformation] | optax.GradientTransformation | None,
    As(_Name, OPTIMIZERS.__getitem__, "sgd", "The optimizer of the gradient steps; momentum is 0.9."),
    Doc("An optax optimizer, or a function that makes one from `lr`; None: plain gradient steps."),
]


def check_optimizer(optimizer: Optimizer) -> None:
    """Raise ValueError for anything that is not an `optimizer`."""
    if optimizer is None or isinstance(optimizer, optax.GradientTransformation):
        return
    remedy = "Give a function from a learning rate to an optax transformation, such as optax.adam, or a transformation."
    if not callable(optimizer):
        checks.refuse("an optax optimizer", "optimizer", optimizer, remedy)
    try:
        made = optimizer(0.1)
    except Exception as error:
        said = f"{type(error).__name__}: {checks.said(error)}"
        raise ValueError(f"Expected optimizer(0.1) to be an optax transformation, got {said}. {remedy}") from error
    if not checks.is_a(made, optax.GradientTransformation):
        checks.refuse("optimizer(0.1) to be an optax transformation", "optimizer(0.1)", made, remedy)


def transformation(optimizer: Optimizer, lr: Any) -> optax.GradientTransformation:
    """Plain gradient descent with step size lr (None), `optimizer(lr)`, or a transformation with its own rate."""
    if optimizer is None:
        return optax.sgd(lr)
    return optimizer if isinstance(optimizer, optax.GradientTransformation) else optimizer(lr)


def begin(optimizer: Optimizer, lr: Any, x: Array) -> Any:
    """The optimizer's initial state for every node, leaves [m, ...], at parameters x [m, n]."""
    with jax.numpy_dtype_promotion("standard"):  # optax mixes integers and floats
        return jax.vmap(transformation(optimizer, lr).init)(x)


def update(optimizer: Optimizer, lr: Any, gradient: Array, state: Any, x: Array) -> tuple[Array, Any]:
    """The change of the parameters [m, n] and the optimizer's next `state`, given the gradient [m, n] at x [m, n]."""
    with jax.numpy_dtype_promotion("standard"):
        added, state = jax.vmap(transformation(optimizer, lr).update)(gradient, state, x)
    return jnp.asarray(added, x.dtype), state


def local_steps(algorithm: Any, x: Array, state: Any, round: Round) -> tuple[Array, Any]:
    """The parameters [m, n] and the optimizer's state after an algorithm's `local_steps` gradient steps from x [m, n].

    The algorithm has the fields `local_steps`, `gradients`, `optimizer` and `lr`. The first step counts as following an
    exchange of messages.
    """

    def step(here: Round, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        y, state = carry
        move, state = update(algorithm.optimizer, algorithm.lr, algorithm.gradients(y, here), state, y)
        return y + move, state

    return round.repeat(algorithm.local_steps, step, (x, state))
