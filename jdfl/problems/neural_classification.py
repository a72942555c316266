"""From a set of images to a neural problem: read bytes, hold out a test set, give every node its part, build.

Axes: N examples, m nodes, n parameters.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.sparse import issparse

from jdfl import checks
from jdfl import models as architectures
from jdfl.arguments import checked
from jdfl.devices import memory
from jdfl.devices.processes import portion
from jdfl.models import Model
from jdfl.models.base import Compute
from jdfl.models.split import Part
from jdfl.problems.cifar import read_cifar10
from jdfl.problems.classification import check_share, holdout, kept
from jdfl.problems.dataset import Dataset
from jdfl.problems.datasets import NAMES, load, locate
from jdfl.problems.images import read_mnist
from jdfl.problems.joined import joined
from jdfl.problems.logistic import check_labels
from jdfl.problems.neural import Augment, NeuralProblem
from jdfl.problems.partition import Partition, drawn, generator
from jdfl.problems.stack import stack

_BYTES = ("mnist", "fashion_mnist", "cifar10")  # read without a copy in floating point
_SHAPES = {
    **dict.fromkeys(("mnist", "fashion_mnist"), (28, 28, 1)),
    **dict.fromkeys(("digits", "digits_odd"), (8, 8, 1)),
    **dict.fromkeys(("cifar10", "CIFAR-10 (JPEG q75)"), (32, 32, 3)),
}
_COLOURED = ("resnet18",)  # published with three input channels
_CALIBRATION = 100


class _Examples(NamedTuple):
    images: np.ndarray  # [N, *shape] uint8 or float32
    labels: np.ndarray  # [N] int32


@checked
def neural_classification(
    data: str | Dataset,
    m: int,
    *,
    model: str | Model = "mlp",
    shared: Part | None = None,
    partition: Partition = "iid",
    alpha: float = 0.5,
    shards_per_node: int = 2,
    clients: ArrayLike | None = None,
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
    public: Sequence[str] = (),
) -> NeuralProblem:
    """A neural network for the images of a data set, or for its rows, over `m` nodes that begin alike.

    `data`: a name (mnist, fashion_mnist, cifar10, digits, and every dense set of `load`), or a Dataset with features
    [N, p], [N, rows, columns] or [N, rows, columns, channels]. `model`: one of `jdfl.models`, made for the images'
    shape and for `dtype`, or a Model. `shared`: the part that is common to all nodes, a preset or patterns as in
    `Model.split`; None: the model's own split, which is all of it unless it was split.
    `partition` with `alpha`, `shards_per_node` and `clients`, and the test set (`test_fraction`) are those of
    `classification`; `init_seed` decides the parameters that all nodes begin with. "iid" on 60,000 images and 10 nodes
    gives 6,000 each. `examples` and `test_examples` take so many at random. `standardise` subtracts the mean of every
    channel of the training images and divides by its deviation; None: as the data set asks for. `augment`: "flip-crop"
    flips the images of a batch at random and shifts them by up to 4 pixels. `nodes_at_once` sets how many nodes are
    computed side by side (None: as suits the device), which changes memory and time alone. `public` names what of the
    data is known to all anyway, see `Problem.declared`.

    ValueError for sparse data, an unknown name, fewer examples than nodes, and where memory would not do,
    FileNotFoundError for a file that is not there.
    """
    checks.one_of(get_args(Partition), partition=partition)
    checks.one_of((None, *get_args(Augment)), augment=augment)
    checks.not_negative(penalty=penalty)
    check_share(test_fraction)
    if nodes_at_once is not None:
        checks.whole(1, remedy="None takes as many as suit the device.", nodes_at_once=nodes_at_once)
    name, train, test, wants = _read(data, model)
    standardised = wants if standardise is None else standardise
    found = {
        "standardise": standardised,
        "holdout": test is None and test_fraction != 0,
        "partition": partition in ("dirichlet", "shards"),
    }
    if test is None and test_fraction != 0:
        held = holdout(train.images, train.labels, test_fraction, seed=seed)
        test, clients = _some(train, held), kept(clients, ~held)
        train = _some(train, ~held)
    classes = max(2, 1 + int(max(part.labels.max() for part in (train, test) if part is not None)))
    check_labels([train] if test is None else [train, test], classes, "Number the classes from 0.")
    network = _model(model, train.images.shape[1:], classes, dtype)
    network = network if shared is None else network.split(shared)
    train, clients = _few(train, examples, "examples", seed, clients)
    test = None if test is None else _few(test, test_examples, "test_examples", seed + 1, None)[0]
    index = drawn(partition, train.labels, m, alpha=alpha, shards_per_node=shards_per_node, clients=clients, seed=seed)
    _check_memory(network, train, test, index)

    kinds = (train.images.dtype, np.dtype(np.int32))
    (images, labels), weight = stack([_some(train, index[int(i)]) for i in portion(m)], kinds)
    mean, deviation = _channels(train.images) if standardised else (None, None)
    problem = NeuralProblem(
        data=(jnp.asarray(images), jnp.asarray(labels)),
        weight=jnp.asarray(weight.astype(np.float32)),
        curvature=jnp.zeros(len(weight), jnp.float32),
        test=None if test is None else (jnp.asarray(test.images), jnp.asarray(test.labels, jnp.int32)),
        start=network.init(init_seed),
        shared=None if network.n_shared == network.n else network.n_shared,
        name=f"{name}, {network.name}",
        mean=mean,
        deviation=deviation,
        penalty=None if penalty == 0 else jnp.float32(penalty),
        model=network,
        augment=augment,
        nodes_at_once=nodes_at_once,
        calibration=min(_CALIBRATION, *map(len, index)),
    )
    derived = tuple(name for name, happened in found.items() if happened)
    return replace(joined(problem, m), derived=derived).declared(*public)


def _read(data: str | Dataset, model: Any) -> tuple[str, _Examples, _Examples | None, bool]:
    """The name, the training and the test examples in the shape of images, and whether to standardise."""
    if isinstance(data, str) and data in _BYTES:
        place = locate(data)
        assert place is not None  # only generated sets have no file
        found = read_cifar10(place) if data == "cifar10" else read_mnist(place.parent, known=data)
        name = "CIFAR-10 (JPEG q75)" if found.lossy else data
        rows = Dataset(name, found.images, found.labels, found.test_images, found.test_labels)
    elif isinstance(data, str):
        checks.one_of(NAMES, data=data)
        rows = load(data)
    else:
        rows = data
    checks.class_numbers(labels=rows.labels)
    if issparse(rows.features):
        raise ValueError(f"Expected dense rows for a neural network, got sparse ones in {rows.name}. Use toarray().")
    shape = getattr(model, "shape", None) or _SHAPES.get(rows.name, ())
    train = _Examples(_pictures(rows.features, shape), rows.labels)
    test = None
    if rows.test_features is not None and rows.test_labels is not None:
        test = _Examples(_pictures(rows.test_features, shape), rows.test_labels)
    return rows.name, train, test, rows.standardise


def _pictures(features: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Features as examples [N, ...]: flat rows in the known shape where it fits, bytes as bytes."""
    checks.real(features=features)
    array = np.asarray(features)
    array = array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
    if array.ndim == 3:
        return array[..., None]
    for known in (shape, (*shape[:-1], 1)) if shape else ():
        if array.ndim == 2 and array.shape[1] == int(np.prod(known)):
            return array.reshape(-1, *known)
    return array


def _model(model: str | Model, shape: tuple[int, ...], classes: int, dtype: Compute) -> Model:
    if isinstance(model, str):
        checks.one_of(architectures.NAMES, model=model)
        if model in _COLOURED and shape[-1] == 1:
            shape = (*shape[:-1], 3)
        return architectures.build(model, shape=shape, classes=classes, dtype=dtype)
    if not checks.is_a(model, Model):
        raise ValueError(f"Expected a name or a model of jdfl.models, got model = {model!r}.")
    if dtype != "float32":
        raise ValueError(f"Expected dtype = {dtype!r} beside a model's name, got a model. Build the model with it.")
    if model.classes < classes:
        raise ValueError(f"Expected a model of at least {classes} classes, got {model.classes}. Build one with these.")
    if shape not in (model.shape, (*model.shape[:-1], 1)):
        raise ValueError(f"Expected a model for images of shape {shape}, got {model.shape}. Build one with this shape.")
    return model


def _some(part: _Examples, rows: np.ndarray) -> _Examples:
    return _Examples(part.images[rows], part.labels[rows])


def _few(
    part: _Examples, count: int | None, argument: str, seed: int, clients: ArrayLike | None
) -> tuple[_Examples, ArrayLike | None]:
    """So many examples at random, in their order, and their clients."""
    total = len(part.labels)
    if count is None:
        return part, clients
    checks.whole(1, total, "None takes all.", **{argument: count})
    rows = np.sort(generator(seed).choice(total, count, replace=False))
    return _some(part, rows), kept(clients, rows)


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


def _check_memory(model: Model, train: _Examples, test: _Examples | None, index: list[np.ndarray]) -> None:
    m, q = len(index), max(map(len, index))
    each = train.images[0].nbytes + 8  # with a label and a weight
    held = 0 if test is None else len(test.labels) * each
    needed = {
        f"{m} x {q} examples of {each} bytes and {held // each} for the test": m * q * each + held,
        f"{m} x {model.n} parameters": 4 * m * model.n,
    }
    room = memory.available()
    most = 0 if room is None else (room - m * q * each - held) // (4 * model.n)
    memory.require(needed, most, m, "Use fewer nodes, `examples` or a smaller model.", room)
