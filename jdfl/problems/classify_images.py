"""From a set of images to a neural problem: read bytes, hold out a test set, split over the nodes, build.

Axes: N examples, m nodes, n parameters.
"""

from dataclasses import replace
from typing import Annotated, Any

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
from jdfl.models.registry import ModelName
from jdfl.problems.base import begun
from jdfl.problems.classify import check_share, computed, with_test
from jdfl.problems.dataset import Dataset
from jdfl.problems.datasets import NAMES, DataName, unscaled
from jdfl.problems.logistic import check_labels
from jdfl.problems.neural import Augment, NeuralProblem
from jdfl.problems.partition import Partition, client_names, drawn, generator
from jdfl.problems.stack import joined, stack
from jdfl.problems.written import Clients, Images, Public, Shared

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
        partition: The data partition: evenly at random, by Dirichlet(alpha) shares of every class, in shards sorted by
            class, or one node per client.
        alpha: Concentration > 0 of the Dirichlet partition: small values give nodes with few classes.
        shards_per_node: Number of shards of a node, at least 1; most shards contain a single class.
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
        public: Names of values that are public anyway: standardise, holdout, partition,
            curvature, start, constants, tuning, stop.
            Privacy reports list them; other values that enter without noise leave no epsilon (see `Problem.declared`).

    Raises ValueError for sparse data, fewer examples than nodes, and data that would not fit into memory;
    FileNotFoundError for a missing file.
    """
    checks.not_negative(penalty=penalty)
    check_share(test_fraction=test_fraction)
    if nodes_at_once is not None:
        checks.whole(1, remedy="None: a number that suits the device.", nodes_at_once=nodes_at_once)
    if isinstance(data, str):
        checks.one_of(NAMES, data=data)
    dataset = _pictured(unscaled(data) if isinstance(data, str) else data, model)
    standardised = dataset.standardise if standardise is None else standardise
    derived = computed(partition, dataset, test_fraction, standardised)
    dataset, clients = with_test(dataset, test_fraction, clients, seed)
    images: Any = dataset.features
    train, test = (images, dataset.labels), dataset.test
    parts = [train] if test is None else [train, test]
    classes = max(2, 1 + int(max(labels.max() for _, labels in parts)))
    check_labels(parts, classes, "Number the classes from 0.")
    network = _model(model, train[0].shape[1:], classes, dtype)
    network = network if shared is None else network.split(shared)
    rows = _some(len(train[1]), examples, "examples", seed)
    train, clients = _rows(train, rows), clients if clients is None else np.asarray(clients)[rows]
    if test is not None:
        test = _rows(test, _some(len(test[1]), test_examples, "test_examples", seed + 1))
    index = drawn(partition, train[1], m, alpha=alpha, shards_per_node=shards_per_node, clients=clients, seed=seed)
    check_memory(network, train[0], test, index)

    kinds = (train[0].dtype, np.dtype(np.int32))
    (images, labels), weight = stack([_rows(train, index[int(i)]) for i in portion(m)], kinds)
    mean, deviation = channels(train[0]) if standardised else (None, None)
    problem = NeuralProblem(
        data=(jnp.asarray(images), jnp.asarray(labels)),
        weight=jnp.asarray(weight.astype(np.float32)),
        curvature=jnp.zeros(len(weight), jnp.float32),
        test=None if test is None else (jnp.asarray(test[0]), jnp.asarray(test[1], jnp.int32)),
        start=network.init(init_seed),
        shared=None if network.n_shared == network.n else network.n_shared,
        name=f"{dataset.name}, {network.name}",
        mean=mean,
        deviation=deviation,
        penalty=None if penalty == 0 else jnp.float32(penalty),
        model=network,
        augment=augment,
        nodes_at_once=nodes_at_once,
        calibration=min(_CALIBRATION, *map(len, index)),
    )
    about = replace(problem.about, nodes=client_names(clients))
    return begun(replace(joined(problem, m), derived=derived, about=about)).declared(*public)


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
    checks.whole(1, total, "None takes all.", **{argument: count})
    return np.sort(generator(seed).choice(total, count, replace=False))


def _rows(part: tuple[Any, ...], chosen: np.ndarray | slice) -> tuple[Any, ...]:
    return tuple(array[chosen] for array in part)


def channels(images: np.ndarray) -> tuple[Any, Any]:
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


def check_memory(model: Model, images: np.ndarray, test: Any, index: list[np.ndarray]) -> None:
    """Refuse more data and parameters than the device has memory for: ValueError."""
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
