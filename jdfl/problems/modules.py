"""A person's own neural network on their own arrays.

Axes: N examples, M test examples, m nodes, n parameters, B examples of a batch.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse

from jdfl.base import checks
from jdfl.devices.processes import portion
from jdfl.models import build
from jdfl.models.opening import opened
from jdfl.models.registry import ModelName
from jdfl.problems.base import begun
from jdfl.problems.classify_images import channels, check_memory
from jdfl.problems.functions import check_arguments, check_number, said_by
from jdfl.problems.intake import Intake, Split, parts_of, taken_in
from jdfl.problems.labels import Task
from jdfl.problems.neural import NeuralProblem, NeuralRegression
from jdfl.problems.stack import check_public, floats_fit, joined, stack

_CALIBRATION = 100


def from_model(
    model: Any,
    X: Any,
    y: Any,
    nodes: int | None = None,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    task: Task | None = None,
    shared: str | tuple[str, ...] | None = None,
    partition: Split = "iid",
    alpha: float = 0.5,
    shards_per_node: int = 2,
    clients: Any = None,
    test: Any = None,
    test_fraction: float = 0.2,
    penalty: float = 0.0,
    standardise: bool = False,
    seed: int = 0,
    init_seed: int = 0,
    nodes_at_once: int | None = None,
    name: str | None = None,
    public: tuple[str, ...] = (),
) -> NeuralProblem:
    """Your own Flax NNX network on your own data, split over the nodes.

        model = nnx.Sequential(nnx.Linear(30, 16, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(16, 3, rngs=nnx.Rngs(1)))
        problem = jdfl.from_model(model, X, y, nodes=20)

    Args:
        model: The network, an instance of nnx.Module that maps a batch [B, ...] to outputs [B, outputs]; all nodes
            start from its parameters. Or a function of nnx.Rngs that makes it, a model of `jdfl.models`, or the name of
            one, which is built for the shape of X. Dropout and other layers with random numbers are refused.
            Classification needs one output per class, or a single one for two classes; regression needs one output.
        X: Features [N, ...] in any container that `from_arrays` takes, dense. An example has the shape that the model
            expects. Images in bytes [N, rows, columns, channels] are stored as such and divided by 255.
        y: Labels or targets [N], as for `from_arrays`.
        nodes: Number of nodes; None: one for every client or given part, otherwise 20.
        loss: The loss of one example, `loss(output, target) -> number`, where output [outputs] is the model's and the
            target a class number or a float; None: cross-entropy for classes, half the squared error for regression.
        task: Whether y has classes or numbers; None: inferred from y, as for `from_arrays`.
        shared: Patterns of the names of the parameters that are common to all nodes, as in ("encoder.*",), or the name
            of a preset of the model; None: all are.
        partition: How the nodes share the examples, as for `from_arrays`.
        alpha: Concentration > 0 of the Dirichlet partition: small values give nodes with few classes.
        shards_per_node: Number of shards of every node, at least 1.
        clients: The client of every example [N]; with partition = "given", the names [m] of the nodes.
        test: Features [M, ...] and labels [M] of a test set; None: a share of the examples is held out.
        test_fraction: Share of every class to hold out for testing, in [0, 1).
        penalty: Weight >= 0 of the squared norm in the objective (halved).
        standardise: Give every feature, or every channel of images, mean 0 and variance 1 of the training examples.
        seed: Seed >= 0 of the test set and the partition.
        init_seed: Seed >= 0 of the initial parameters, where `model` is no instance.
        nodes_at_once: Nodes computed side by side, at least 1; None: as suits the device. It changes memory and time,
            never the results.
        name: Name of the problem in reports; None: that of the model's class.
        public: What of the data is public anyway: standardise, holdout, partition,
            curvature, start, constants, tuning, stop (see
            `Problem.declared`).

    Raises ValueError for a model, data and settings that do not fit together, before anything is compiled.
    """
    check_public(public)
    checks.not_negative("It is the weight of the squared norm, such as 0.001.", penalty=penalty)
    checks.shape((), "It is one number.", penalty=penalty)
    checks.one_of((True, False), "It is either on or off.", standardise=standardise)
    checks.whole(
        0, 2**32 - 1, "The seed decides on the initial parameters, for example init_seed=0.", init_seed=init_seed
    )
    if nodes_at_once is not None:
        checks.whole(1, remedy="None: a number that suits the device.", nodes_at_once=nodes_at_once)
    if name is not None and not checks.is_a(name, str):
        checks.refuse("name to be text", "name", name, "It is what reports call the problem.")
    if loss is not None:
        if not callable(loss):
            checks.refuse("loss to be a function", "loss", loss, "Write def loss(output, target).")
        check_arguments("loss", loss, ("output", "target"))
    taken = taken_in(
        X,
        y,
        nodes,
        rank=None,
        task=task,
        partition=partition,
        alpha=alpha,
        shards_per_node=shards_per_node,
        clients=clients,
        test=test,
        test_fraction=test_fraction,
        seed=seed,
    )
    taken = _pictures(taken, bool(standardise))
    shape, classes = tuple(taken.features.shape[1:]), taken.classes
    if isinstance(model, str):
        checks.one_of(get_args(ModelName), "Or give an nnx.Module.", model=model)
        model = build(model, shape=shape, classes=max(2, classes))
    network, begin, outputs = opened(model, shape, init_seed)
    _check_outputs(network.name, outputs, classes, loss)
    if shared is not None:
        _check_shared(shared)
        network = network.split(tuple(shared) if isinstance(shared, list) else shared)
    check_memory(network, taken.features, taken.test, taken.index)
    problem = _built(
        taken,
        start=network.ravel(begin()),
        shared=None if network.n_shared == network.n else network.n_shared,
        name=name or network.name,
        about=taken.about,
        derived=("standardise",) * bool(standardise) + taken.derived,
        penalty=None if penalty == 0 else jnp.float32(penalty),
        model=network,
        nodes_at_once=nodes_at_once,
        calibration=min(_CALIBRATION, *map(len, taken.index)),
        criterion=loss,
        **_scale(taken, bool(standardise)),
    )
    return begun(problem).declared(*public)


def _built(taken: Intake, **fields: Any) -> NeuralProblem:
    """The problem of checked examples, and of the `fields` that do not hold examples."""
    target = np.dtype(np.int32 if taken.classes else np.float32)
    m = len(taken.index)
    (images, labels), weight = stack(parts_of(taken, [int(i) for i in portion(m)]), (taken.features.dtype, target))
    made = NeuralProblem if taken.classes else NeuralRegression
    test = taken.test
    problem = made(
        data=(jnp.asarray(images), jnp.asarray(labels)),
        weight=jnp.asarray(weight.astype(np.float32)),
        curvature=jnp.zeros(len(weight), jnp.float32),
        test=None if test is None else (jnp.asarray(test[0]), jnp.asarray(test[1], target)),
        **fields,
    )
    return joined(problem, m)


def _scale(taken: Intake, standardise: bool) -> dict[str, Any]:
    """The mean and the deviation of the channels of images in bytes, which are standardised where they are used."""
    if not standardise or taken.features.dtype != np.uint8:
        return {}
    return dict(zip(("mean", "deviation"), channels(taken.features)))


def _pictures(taken: Intake, standardise: bool) -> Intake:
    """Dense features in float32, standardised where that is asked for, but images in bytes as they are."""
    if issparse(taken.features):
        raise ValueError("Expected dense X for a neural network, got a sparse matrix. Use X.toarray().")
    if taken.features.dtype == np.uint8 and taken.features.ndim > 2:
        if taken.test is not None and taken.test[0].dtype != np.uint8:
            raise ValueError(
                f"Expected test[0] in bytes as X is, got dtype {taken.test[0].dtype}. Give both in the same type."
            )
        return taken
    taken = replace(taken, features=taken.features.astype(np.result_type(taken.features, np.float32)))
    mean, deviation = channels(taken.features) if standardise else (0.0, 1.0)

    def stored(features: Any, name: str) -> np.ndarray:
        found = (features - np.asarray(mean)) / np.asarray(deviation) if standardise else features
        floats_fit(name, found, np.dtype(np.float32), taken.about.features, 5)
        return found.astype(np.float32, copy=False)

    test = taken.test
    return replace(
        taken,
        features=stored(taken.features, "X"),
        test=None if test is None else (stored(test[0], "test[0]"), test[1]),
    )


def _check_outputs(name: str, outputs: tuple[int, ...], classes: int, loss: Any) -> None:
    """Refuse a model whose outputs do not fit the labels, and a loss that does not fit the outputs: ValueError."""
    width = outputs[0] if outputs else 1
    if loss is None or classes:
        wanted = {1, 2} if classes == 2 else {max(1, classes)}
        if width not in wanted:
            words = f"{classes} outputs, one for each class in y" if classes else "one output for regression"
            raise ValueError(
                f"Expected model with {words}, got model = {name} with {width} outputs. Change the width of its last "
                "layer" + (', or say task="classification".' if not classes else ".")
            )
    if loss is None:
        return
    output = jax.ShapeDtypeStruct(outputs, jnp.float32)
    target = jax.ShapeDtypeStruct((), jnp.int32 if classes else jnp.float32)
    try:
        found = jax.eval_shape(loss, output, target)
    except Exception as error:
        raise ValueError(
            f"Expected loss(output, target) to run on one example, got loss that raised {type(error).__name__}: "
            f"{said_by(error)} The output has shape {outputs}, the target is one {target.dtype}. Write loss "
            "for one example, in JAX."
        ) from error
    check_number("loss", found)


def _check_shared(shared: Any) -> None:
    fits = isinstance(shared, tuple | list) and all(isinstance(one, str) for one in shared)
    if not fits and not isinstance(shared, str):
        checks.refuse("shared to be a tuple of patterns", "shared", shared, 'For example shared=("encoder.*",).')
