"""Neural problems from a set of images, or from a person's own network and arrays.

Axes: N examples, M test examples, m nodes, n parameters, B examples of a batch.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.settings import As
from jdfl.devices import memory
from jdfl.devices.processes import portion
from jdfl.models import Model, build
from jdfl.models.base import Compute
from jdfl.models.opening import ModelName, is_of_torch, opened
from jdfl.problems.about import About
from jdfl.problems.base import begun
from jdfl.problems.classify import check_share, computed, with_test
from jdfl.problems.datasets import unscaled
from jdfl.problems.logistic import check_labels
from jdfl.problems.losses import check_number, shapes_of
from jdfl.problems.neural import Augment, NeuralProblem, NeuralRegression
from jdfl.problems.partition import Partition, Settings, client_names, generator, sample
from jdfl.problems.places import NAMES, DataName
from jdfl.problems.readers import Dataset
from jdfl.problems.stack import Clients, Images, Public, Shared, check_options, floats_fit, joined, stack
from jdfl.problems.tables import Intake, Split, Task, TestSplit, taken_in

_SHAPES = {  # of images that may come as rows
    **dict.fromkeys(("mnist", "fashion_mnist"), (28, 28, 1)),
    **dict.fromkeys(("digits", "digits_odd"), (8, 8, 1)),
    **dict.fromkeys(("cifar10", "CIFAR-10 (JPEG q75)"), (32, 32, 3)),
}
_COLOURED = ("resnet18",)  # published with three input channels
_CALIBRATION = 100


@checked
def neural_classification(
    data: Annotated[DataName | str | Dataset, As(Images, default="digits")],
    m: Annotated[int, As(default=10)],
    *,
    model: ModelName | Model = "mlp",
    shared: Shared = None,
    partition: Partition = "iid",
    alpha: float = 0.5,
    shards_per_node: int = 2,
    classes_per_node: int = 2,
    sigma: float = 1.0,
    exponent: float = 1.0,
    least: int = 1,
    noise: float = 0.0,
    rotations: int = 1,
    clients: Clients = None,
    seed: int = 0,
    init_seed: int = 0,
    nodes_at_once: int | None = None,
    dtype: Compute = "float32",
    penalty: float = 0.0,
    augment: Augment | None = None,
    standardise: bool | None = None,
    test_fraction: float = 0.2,
    examples: int | None = None,
    test_examples: int | None = None,
    public: Public = (),
) -> NeuralProblem:
    """Classification of images by a neural network, whose parameters all nodes share, or some of them.

    All nodes start from the same parameters. "iid" on 60,000 images and 10 nodes gives 6,000 each.

    Args:
        data: The images: mnist, fashion_mnist, cifar10, digits, or every dense set of `load`; or a Dataset with
            features [N, p], [N, rows, columns] or [N, rows, columns, channels]. digits are always available; JDFL_DATA
            names the folder with the files of the others.
        m: Number of nodes, at least 1.
        model: The architecture, built for the shape of the images and for `dtype`; or a Model.
        shared: The parameters that all nodes have in common: a preset (partpsp-1, partpsp-2, all) or patterns of their
            names, as for `Model.split`; None: the split of the model, which shares everything unless it was split.
        partition: The data partition: evenly at random; by Dirichlet(alpha) shares of every class, or at nodes of equal
            size; in shards sorted by class; with some classes at every node; at random with log-normal sizes or
            those of a power law; or one node per client.
        alpha: Concentration > 0 of the Dirichlet partitions: small values give nodes with few classes.
        shards_per_node: Number of shards of a node, at least 1; most shards contain a single class.
        classes_per_node: Number of classes of every node for "classes".
        sigma: Standard deviation >= 0 of ln(size) for "log-normal".
        exponent: Exponent >= 0 of "power-law": the r-th largest size is in proportion to r^-exponent.
        least: Fewest examples of a node, >= 1, for "dirichlet", "classes", "log-normal" and "power-law".
        noise: Standard deviation >= 0 of noise in the last node's features; it grows from 0 at the first node.
        rotations: Number of fixed rotations (images by angles) that nodes have in turn; the first is none.
        clients: The client of every training example [N], for the partition by clients.
        seed: Seed of the split.
        init_seed: Seed of the initial parameters.
        nodes_at_once: Nodes computed side by side, at least 1; None: as suits the device. It changes memory and time,
            never the results.
        dtype: Type in which the network computes; its parameters are float32.
        penalty: Weight >= 0 of the squared norm in the objective (halved).
        augment: Data augmentation: images of a batch flipped at random and shifted by up to 4 pixels, or none.
        standardise: Give every channel of the training images mean 0 and deviation 1; None: as the dataset specifies.
        test_fraction: Share of every class held out for testing, in [0, 1), if the dataset has no test set.
        examples: Training images to use, drawn at random; None: all.
        test_examples: Test images to use, drawn at random; None: all.
        public: Names of values that are public anyway, see `Problem.declared`.

    Raises ValueError for sparse data, fewer examples than nodes, and data that would not fit into memory;
    FileNotFoundError for a missing file.
    """
    check_options(public, penalty, None, nodes_at_once)
    check_share(test_fraction=test_fraction)
    how = Settings(alpha, shards_per_node, classes_per_node, sigma, exponent, least, noise, rotations)
    how.check(partition)
    if isinstance(data, str):
        checks.one_of(NAMES, data=data)
    dataset = _pictured(unscaled(data) if isinstance(data, str) else data, model)
    standardised = dataset.standardise if standardise is None else standardise
    train, test, clients, held = with_test(
        (dataset.features, dataset.labels), dataset.test, test_fraction, clients, seed
    )
    parts = [train] if test is None else [train, test]
    classes = max(2, 1 + int(max(labels.max() for _, labels in parts)))
    check_labels(parts, classes, "Number the classes from 0.")
    network = _model(model, train[0].shape[1:], classes, dtype)
    network = network if shared is None else network.split(shared)
    rows = _some(len(train[1]), examples, "examples", seed)
    train, clients = _rows(train, rows), clients if clients is None else np.asarray(clients)[rows]
    if test is not None:
        test = _rows(test, _some(len(test[1]), test_examples, "test_examples", seed + 1))
    index = sample(partition, train[1], m, clients=clients, seed=seed, **how.used(partition))
    mean, deviation = _channels(train[0]) if standardised else (None, None)
    if noise and train[0].dtype == np.uint8:
        train, *tests = [(images / np.float32(255), labels) for images, labels in [train, *([test] if test else [])]]
        test = tests[0] if tests else None
    train = how.skewed(train[0], index, seed), train[1]
    problem = _built(
        NeuralProblem,
        network,
        train,
        test,
        index,
        penalty,
        start=network.init(init_seed),
        name=f"{dataset.name}, {network.name}",
        about=About("", how.words(partition), nodes=client_names(clients)),
        derived=computed(partition, held is not None, standardised),
        mean=mean,
        deviation=deviation,
        augment=augment,
        nodes_at_once=nodes_at_once,
    )
    return problem.declared(*public)


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
    classes_per_node: int = 2,
    sigma: float = 1.0,
    exponent: float = 1.0,
    least: int = 1,
    noise: float = 0.0,
    rotations: int = 1,
    clients: Any = None,
    test: Any = None,
    test_fraction: float = 0.2,
    test_split: TestSplit = "classes",
    penalty: float = 0.0,
    standardise: bool = False,
    seed: int = 0,
    init_seed: int = 0,
    nodes_at_once: int | None = None,
    name: str | None = None,
    public: tuple[str, ...] = (),
) -> NeuralProblem:
    """Your own network of Flax NNX or torch on your own data, split over the nodes.

        model = nnx.Sequential(nnx.Linear(30, 16, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(16, 3, rngs=nnx.Rngs(1)))
        problem = jdfl.from_model(model, X, y, nodes=20)

    Args:
        model: The network, an instance of nnx.Module that maps a batch [B, ...] to outputs [B, outputs]; all nodes
            start from its parameters. Or a function of nnx.Rngs that makes it, a model of `jdfl.models`, or the name of
            one, which is built for the shape of X. Dropout and other layers with random numbers are refused. Or a
            torch.nn.Module of layers that are known in JAX, whose names of parameters stay (extra `torch`); its images
            are [N, channels, rows, columns].
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
        partition: How the nodes share the examples. It, `alpha`, `shards_per_node`, `classes_per_node`, `sigma`,
            `exponent`, `least`, `noise`, `rotations`, `clients`, `test`, `test_fraction`, `test_split` and `seed` are
            as for `from_arrays`.
        penalty: Weight >= 0 of the squared norm in the objective (halved).
        standardise: Give every feature, or every channel of images, mean 0 and variance 1 of the training examples.
        init_seed: Seed >= 0 of the initial parameters, where `model` is no instance.
        nodes_at_once: Nodes computed side by side, at least 1; None: as suits the device. It changes memory and time,
            never the results.
        name: Name of the problem in reports; None: that of the model's class.
        public: Names of values that are public anyway, see `Problem.declared`.

    Raises ValueError for a model, data and settings that do not fit together, before anything is compiled.
    """
    check_options(public, penalty, name, nodes_at_once, standardise=standardise)
    checks.integer(0, 2**32 - 1, "It is the seed of the initial parameters, such as init_seed=0.", init_seed=init_seed)
    if loss is not None and not callable(loss):
        checks.refuse("loss to be a function", "loss", loss, "Write def loss(output, target).")
    how = Settings(alpha, shards_per_node, classes_per_node, sigma, exponent, least, noise, rotations)
    split = (task, partition, how, clients, test, test_fraction, test_split, seed)
    taken = taken_in(None, X, y, nodes, *split)
    taken = _pictures(taken, bool(standardise))
    axes = (2, 3) if is_of_torch(model) and taken.features.ndim > 3 else (1, 2)  # of rows and columns
    taken = taken.skewed(how, seed, axes)
    shape, classes = tuple(taken.features.shape[1:]), taken.classes
    if isinstance(model, str):
        checks.one_of(get_args(ModelName), "Or give an nnx.Module.", model=model)
        model = build(model, shape=shape, classes=max(2, classes))
    if is_of_torch(model):
        from jdfl.models.from_torch import translated  # torch, for those who use it

        examples = [taken.features, *([] if taken.test is None else [taken.test[0]])]
        model = translated(model, examples, bool(standardise))
    network, begin, outputs = opened(model, shape, init_seed)
    _check_outputs(network.name, outputs, classes, loss)
    if shared is not None:
        network = network.split(shared)
    images = taken.features.dtype == np.uint8  # standardised where they are used
    mean, deviation = _channels(taken.features) if standardise and images else (None, None)
    problem = _built(
        NeuralProblem if classes else NeuralRegression,
        network,
        (taken.features, taken.targets),
        taken.test,
        taken.index,
        penalty,
        start=network.ravel(begin()),
        name=name or network.name,
        about=taken.about,
        derived=computed(partition, taken.chose, bool(standardise)),
        mean=mean,
        deviation=deviation,
        nodes_at_once=nodes_at_once,
        criterion=loss,
    )
    return taken.tested(problem).declared(*public)


def _built(
    made: type[NeuralProblem],
    network: Model,
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None,
    index: list[np.ndarray],
    penalty: float,
    **fields: Any,
) -> NeuralProblem:
    """The problem of checked examples, and of `fields` that do not hold examples."""
    _check_memory(network, train[0], test, index)
    m, target = len(index), np.dtype(np.float32 if made is NeuralRegression else np.int32)
    here = [index[int(i)] for i in portion(m)]
    data, weight, blocks = stack([_rows(train, rows) for rows in here], (train[0].dtype, target))
    problem = made(
        data=jax.tree.map(jnp.asarray, data),
        weight=jnp.asarray(weight.astype(np.float32)),
        blocks=jax.device_put(blocks),
        curvature=jnp.zeros(len(weight), jnp.float32),
        test=None if test is None else (jnp.asarray(test[0]), jnp.asarray(test[1], target)),
        shared=None if network.n_shared == network.n else network.n_shared,
        penalty=None if penalty == 0 else jnp.float32(penalty),
        model=network,
        calibration=min(_CALIBRATION, *map(len, index)),
        **fields,
    )
    return begun(joined(problem, m))


def _pictured(dataset: Dataset, model: Any) -> Dataset:
    """The dataset with examples [N, ...] in the shape of the model or of known images, if they fit it."""
    checks.class_numbers(labels=dataset.labels)
    if issparse(dataset.features):
        raise ValueError(f"Expected dense rows for a neural network, got sparse ones in {dataset.name}. Use toarray().")
    shape: tuple[int, ...] = getattr(model, "shape", None) or _SHAPES.get(dataset.name, ())

    def pictures(features: Any) -> Any:
        if features is None:
            return None
        checks.real(features=features)
        array = np.asarray(features)
        array = array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
        if array.ndim == 3:
            return array[..., None]
        for known in (shape, (*shape[:-1], 1)) if shape else ():
            if array.ndim == 2 and array.shape[1] == int(np.prod(known)):
                return array.reshape(-1, *known)
        return array

    return replace(dataset, features=pictures(dataset.features), test_features=pictures(dataset.test_features))


def _model(model: ModelName | Model, shape: tuple[int, ...], classes: int, dtype: Compute) -> Model:
    """The network for examples of this shape, built if only its name is given."""
    if isinstance(model, str):
        if model in _COLOURED and shape[-1] == 1:
            shape = (*shape[:-1], 3)
        return build(model, shape=shape, classes=classes, dtype=dtype)
    if dtype != "float32":
        raise ValueError(f"Expected dtype = {dtype!r} with a model's name, got a model. Build the model with it.")
    if model.classes < classes:
        raise ValueError(f"Expected a model of at least {classes} classes, got {model.classes}. Build one with these.")
    if shape not in (model.shape, (*model.shape[:-1], 1)):
        raise ValueError(f"Expected a model for images of shape {shape}, got {model.shape}. Build one with this shape.")
    return model


def _some(total: int, count: int | None, argument: str, seed: int) -> np.ndarray | slice:
    """The positions of `count` of `total` examples, drawn at random, in ascending order."""
    if count is None:
        return slice(None)
    checks.integer(1, total, "None takes all.", **{argument: count})
    return np.sort(generator(seed).choice(total, count, replace=False))


def _rows(part: tuple[Any, ...], chosen: np.ndarray | slice) -> tuple[Any, ...]:
    return tuple(array[chosen] for array in part)


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
    mean, deviation = _channels(taken.features) if standardise else (0.0, 1.0)

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


def _channels(images: np.ndarray) -> tuple[Any, Any]:
    """The mean and the deviation of every channel, of bytes as fractions of 255."""
    if images.dtype == np.uint8:
        counts = [np.bincount(images[..., c].ravel(), minlength=256) for c in range(images.shape[-1])]
        level, share = np.arange(256) / 255, np.stack(counts) / (images.size // images.shape[-1])
        mean = share @ level
        deviation = np.sqrt(np.maximum(share @ level**2 - mean**2, 0.0))
    else:
        axes = tuple(range(images.ndim - 1))
        mean, deviation = images.mean(axis=axes, dtype=float), images.std(axis=axes, dtype=float)
    deviation = np.where(deviation > 0, deviation, 1.0)
    return tuple(mean.tolist()), tuple(deviation.tolist())


def _check_memory(model: Model, images: np.ndarray, test: Any, index: list[np.ndarray]) -> None:
    """Refuse more data and parameters than the device has memory for."""
    m, q = len(index), max(map(len, index))
    each = images[0].nbytes + 8  # with a label and a weight
    held = 0 if test is None else len(test[1]) * each
    needed = {
        f"{m} x {q} examples of {each} bytes and {held // each} for the test": m * q * each + held,
        f"{m} x {model.n} parameters": 4 * m * model.n,
    }
    room = memory.available()
    most = 0 if room is None else (room - m * q * each - held) // (4 * model.n)
    memory.require(needed, most, m, "Use fewer nodes, `examples` or a smaller model.", room)


def _check_outputs(name: str, outputs: tuple[int, ...], classes: int, loss: Any) -> None:
    """Refuse a model whose outputs do not fit the labels, and a loss that does not fit the outputs."""
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
    about = f"The output has shape {outputs}, the target is one {target.dtype}."
    check_number("loss", shapes_of("loss", "loss(output, target)", about, loss, output, target))
