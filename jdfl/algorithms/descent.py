"""Gradient descent steps at every node: plain, with an optax optimizer, or mixed and descended in one kernel.

Axes: m nodes, n parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array
from typing_extensions import Doc

from jdfl.algorithms.gradients import NOISE, Gradients
from jdfl.algorithms.round import LOOKS, Round, exact
from jdfl.arrays import ops
from jdfl.base import checks, keys
from jdfl.base.settings import As
from jdfl.kernels import one_round
from jdfl.privacy.clipping import factor
from jdfl.privacy.mechanisms import Gaussian
from jdfl.problems import LinearRegression

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
        said = f"{type(error).__name__}: {checks.message(error)}"
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


def fits_one_kernel(gradients: Gradients, x: Array, round: Round) -> bool:
    """Whether `mixed_and_descended` can mix x [m, n] and add a step along `gradients` at x: least squares with single,
    clipped, noisy examples.
    """
    settings = gradients.batch, gradients.per, gradients.norm, gradients.noisy
    graph, problem = round.graph, round.problem
    return (
        type(problem) is LinearRegression
        and problem.blocks is None
        and one_round.fits(x, problem.data[0])
        and settings == (1, "example", "l2", "always")
        and gradients.clip is not None
        and gradients.sampling != "poisson"
        and type(gradients.mechanism) is Gaussian
        and (round.rows, round.exchanging, graph.late, graph.synchronised, graph.halo) == (None,) * 5
        and graph.format == "padded"
        and exact(round.codec, x)
    )


def mixed_and_descended(gradients: Gradients, x: Array, lr: Any, round: Round) -> Array:
    """W x - lr g [m, n] for x [m, n] in one kernel, with clipped gradients g of one example per node and their noise.

    The noise is that of the usual form, from the same keys and the same number up to rounding. That form counts what
    the round sends, computes and releases: a step traces it in any case, and where this takes its place, the compiler
    leaves it out.
    """
    problem, graph = round.problem, round.graph
    A, b = problem.data
    places = jnp.broadcast_to(jnp.arange(b.shape[1], dtype=jnp.int32), b.shape)
    place, weight, total = gradients.sample(replace(round, problem=replace(problem, data=places)))
    mechanism: Any = gradients.mechanism
    scale = mechanism.multiplier * gradients.sensitivities(problem)
    words = jax.random.key_data(round.keys(NOISE, round.local_step * LOOKS))

    def move(w: Array, a: Array, place: Array, *node: Any) -> Array:
        b, weight, total, clip, scale, lr, key = node
        slope = jnp.sum(w * a) - b[place]
        share = weight[0] * factor(ops.length(a, "l2") * jnp.abs(slope), clip[0])
        clipped = jnp.where(share > 0, slope, 0.0) * share * a / total[0]
        return -lr[0] * (clipped + scale[0] * keys.normal((key[0], key[1]), a.shape[0]))

    of_all = (jnp.asarray(one, x.dtype).reshape(-1) for one in (gradients.clip, scale, lr))
    rest = b, weight[:, 0], total, *of_all, words
    table = graph.senders, graph.weight, graph.self_weight
    return one_round.mixed_and_moved(x, table, A, place[:, 0], rest, move)
