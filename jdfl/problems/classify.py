"""From a dataset to a classification problem: hold out a test set, split the examples over the nodes, build.

Axes: N examples, m nodes, p features.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy.sparse import csr_array, issparse

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.names import aligned, labels_of
from jdfl.base.settings import As, Bound
from jdfl.devices.processes import portion
from jdfl.problems.about import About
from jdfl.problems.containers import column
from jdfl.problems.datasets import load
from jdfl.problems.logistic import LogisticRegression, SoftmaxRegression, logistic_regression, softmax_regression
from jdfl.problems.partition import BY_LABEL, Partition, Settings, client_names, generator, sample
from jdfl.problems.places import NAMES, DataName
from jdfl.problems.readers import Dataset, Features
from jdfl.problems.sparse import canonical, sparse_logistic_regression
from jdfl.problems.stack import Clients, Precision, Public, joined

_MOST_CLASSES = 2**20


@checked
def classification(
    data: Annotated[DataName | str | Dataset, As(DataName, default="breast_cancer")],
    m: Annotated[int, As(default=32)],
    *,
    partition: Partition = "iid",
    penalty: float = 1e-3,
    alpha: float = 0.5,
    shards_per_node: int = 2,
    classes_per_node: int = 2,
    sigma: float = 1.0,
    exponent: float = 1.0,
    least: int = 1,
    noise: float = 0.0,
    rotations: int = 1,
    clients: Clients = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    intercept: bool = False,
    binary: bool = False,
    dtype: Precision = jnp.float32,
    public: Public = (),
) -> LogisticRegression | SoftmaxRegression:
    """Logistic or softmax regression on a real dataset, its examples split over the nodes.

    Args:
        data: The dataset, or the name of one (see `load`). breast_cancer, digits, realsim_like and epsilon_like are
            always available; JDFL_DATA names the folder with the files of the others.
        m: Number of nodes, at least 1.
        partition: The data partition: evenly at random; by Dirichlet(alpha) shares of every class, or at nodes of equal
            size; in shards sorted by class; with some classes at every node; at random with log-normal sizes or
            those of a power law; or one node per client.
        penalty: Weight >= 0 of the squared norm in the objective (halved).
        alpha: Concentration > 0 of the Dirichlet partitions: small values give nodes with few classes.
        shards_per_node: Number of shards of a node, at least 1; most shards contain a single class.
        classes_per_node: Number of classes of every node for "classes".
        sigma: Standard deviation >= 0 of ln(size) for "log-normal".
        exponent: Exponent >= 0 of "power-law": the r-th largest size is in proportion to r^-exponent.
        least: Fewest examples of a node, >= 1, for "dirichlet", "classes", "log-normal" and "power-law".
        noise: Standard deviation >= 0 of noise in the last node's features; it grows from 0 at the first node.
        rotations: Number of fixed rotations (random orthogonal matrices) that nodes have in turn; the first is none.
        clients: The client of every training example [N], for the partition by clients.
        test_fraction: Share of every class held out for testing, in [0, 1), if the dataset has no test set (see
            `holdout`).
        seed: Seed of the split.
        intercept: Add a constant feature.
        binary: For digits, odd against even instead of ten classes.
        public: Names of values that are public anyway, see `Problem.declared`.

    Raises ValueError for more nodes than examples, and for sparse rows of more than two classes or of columns to be
    standardised; FileNotFoundError for a file that is not there.
    """
    check_share(test_fraction=test_fraction)
    how = Settings(alpha, shards_per_node, classes_per_node, sigma, exponent, least, noise, rotations)
    how.check(partition)
    if isinstance(data, str):
        checks.one_of(NAMES, data=data)
    dataset = load(data, binary=binary) if isinstance(data, str) else data
    checks.real(features=dataset.features)
    checks.class_numbers(labels=dataset.labels)
    (features, labels), test, clients, held = with_test(
        (dataset.features, dataset.labels), dataset.test, test_fraction, clients, seed
    )
    test = alike(dataset.name, features, test, dataset.standardise, dataset.classes)
    if dataset.standardise:  # by the training examples alone
        features, test = standardised(features, test)
    index = sample(partition, labels, m, clients=clients, seed=seed, **how.used(partition))
    features = how.skewed(features, index, seed)
    given: dict[str, Any] = {"penalty": penalty, "test": test, "intercept": intercept, "name": dataset.name}
    problem = linear_classifier(features, labels, index, dataset.classes, dtype=dtype, **given)
    about = About("classification", how.words(partition), nodes=client_names(clients))
    derived = computed(partition, held is not None, dataset.standardise)
    return replace(problem, derived=derived, about=about).declared(*public)


def linear_classifier(
    features: Any, labels: np.ndarray, index: list[np.ndarray], classes: int, **given: Any
) -> LogisticRegression | SoftmaxRegression:
    """Logistic regression for two classes, on sparse rows where they are sparse, and softmax regression for more."""
    m = len(index)
    here = range(m) if issparse(features) else portion(m)
    parts = [(features[index[int(i)]], labels[index[int(i)]]) for i in here]
    if issparse(features):
        return sparse_logistic_regression(parts, **given)
    if classes <= 2:
        return joined(logistic_regression(parts, **given), m)
    return joined(softmax_regression(parts, classes=classes, **given), m)


def standardised(features: Any, test: Any) -> tuple[Any, Any]:
    """Features [N, p] with mean 0 and variance 1 of every column, and those of a test set by the same numbers."""
    mean, deviation = features.mean(axis=0, dtype=float), features.std(axis=0, dtype=float)
    deviation = np.where(deviation > 0, deviation, 1.0)
    features = (features - mean) / deviation
    return features, None if test is None else ((test[0] - mean) / deviation, test[1])


def check_share(**named: Any) -> None:
    """Refuse values that are not a share in [0, 1)."""
    remedy = "Give the share of every class to hold out for testing, such as 0.2."
    checks.within(Bound("[0, 1)"), remedy, **named)
    checks.shape((), remedy, **named)


def computed(partition: str, held_out: bool, standardise: bool) -> tuple[str, ...]:
    """The values of a problem that are computed from all records, by the names of `Problem.declared`."""
    found = {"standardise": standardise, "holdout": held_out, "partition": partition in BY_LABEL}
    return tuple(name for name, happened in found.items() if happened)


def with_test(
    train: tuple[Any, np.ndarray],
    test: tuple[Any, np.ndarray] | None,
    fraction: float,
    clients: ArrayLike | None,
    seed: int,
    *,
    classes: bool = True,
) -> tuple[tuple[Any, np.ndarray], tuple[Any, np.ndarray] | None, Any, np.ndarray | None]:
    """Training examples, the test set, the clients of the training examples, and the examples [N] that are held out."""
    features, targets = train
    if clients is not None:
        clients = column("clients", clients, "Give the client of every example.")
        checks.shape(np.shape(targets), "Give one client for every label.", clients=clients)
    if test is not None or fraction == 0:
        return train, test, clients, None
    try:
        held = holdout(features, targets if classes else np.zeros(len(targets), np.int64), fraction, seed=seed)
    except ValueError as error:
        raise ValueError(f"{error} Use another test_fraction, or test_fraction = 0 for no test set.") from None
    if clients is not None:
        every, first = np.unique(clients, return_index=True)
        lost = first[~np.isin(every, clients[~held])]  # no client is left without any example
        if lost.size:
            keys = list(_keys(features))
            again = {keys[i] for i in lost}
            held[[key in again for key in keys]] = False
        clients = clients[~held]
    test = (features[held], targets[held]) if held.any() else None
    return (features[~held], targets[~held]), test, clients, held


def check_unseen(train: Any, test: Any) -> None:
    """Refuse a test set that is all in the training data; a warning where few rows differ, as of categories."""
    pairs = list(zip(jax.tree.leaves(test), jax.tree.leaves(train)))
    test = [one.astype(other.dtype) if one.dtype.kind == other.dtype.kind else one for one, other in pairs]
    given, own = ([hash(row) for row in zip(*map(_keys, some))] for some in (test, [one for _, one in pairs]))
    if not set(given) <= set(own):
        return
    found = f"{len(given):,} examples that are all in the training data"
    if len(set(own)) > len(own) / 2:
        raise ValueError(
            f"Expected test with examples that no node trains on, got test with {found}. Give others, or leave test "
            "out, and hold examples out with test_fraction=0.2."
        )
    warnings.warn(
        f"The test set has {found}, in which few rows differ: accuracies are those of training.", stacklevel=4
    )


def alike(name: str, features: Any, test: tuple[Any, Any] | None, standardise: bool, classes: int) -> Any:
    """The test set with rows as the features have them; ValueError for sparse rows of what needs dense ones."""
    if issparse(features) and (standardise or classes != 2):
        what = "standardise = True, which shifts zeros" if standardise else f"{classes or 'no'} classes"
        raise ValueError(f"Expected two classes and no shift for sparse rows of {name}, got {what}. Use toarray().")
    if test is None or issparse(test[0]) == issparse(features):
        return test
    return csr_array(test[0]) if issparse(features) else test[0].toarray(), test[1]


@checked
def holdout(features: Features, labels: np.ndarray, fraction: float, *, seed: int = 0) -> np.ndarray:
    """The examples to hold out for testing: bool [N], true for about the same share of every class.

    Equal rows are kept together, so that no test example is also a training example; a group belongs to the class of
    its first row. Groups are taken in random order, and a group that would exceed the share of its class is skipped.

    Args:
        features: Rows [N, p], dense or CSR, or images [N, ...].
        labels ([N]): Class of every example, numbered from 0.
        fraction: Share of every class to hold out, in [0, 1).
        seed: Seed of the split.

    Raises ValueError for a fraction out of range, labels that are not numbers of classes, and for a split that leaves
    either side empty.
    """
    check_share(fraction=fraction)
    checks.class_numbers(labels=labels)
    labels = np.asarray(aligned("labels", labels, labels_of(features), "features"))
    checks.shape((None,), "One label for every example.", labels=labels)
    numbers = labels.astype(float)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= _MOST_CLASSES) | (numbers % 1 != 0))
    if wrong.size:
        raise ValueError(
            f"Expected labels that are whole numbers of classes from 0, below {_MOST_CLASSES}, got "
            f"labels[{wrong[0]}] = {numbers[wrong[0]]:.6g} ({wrong.size} such labels). Number the classes."
        )
    if not issparse(features):
        checks.real(features=features)
    if np.shape(features)[:1] != np.shape(labels):
        found = f"features of shape {np.shape(features)} and labels of shape {np.shape(labels)}"
        raise ValueError(f"Expected a row of features for every label, got {found}.")
    groups: dict[bytes, list[int]] = {}
    for row, key in enumerate(_keys(features)):
        groups.setdefault(key, []).append(row)
    room = {label: round(fraction * count) for label, count in zip(*np.unique(labels, return_counts=True))}
    held = np.zeros(len(labels), bool)
    members = list(groups.values())
    for k in generator(seed).permutation(len(members)):
        rows = members[int(k)]
        label = labels[rows[0]]
        if len(rows) <= room[label]:
            held[rows] = True
            room[label] -= len(rows)
    if fraction > 0 and (held.all() or not held.any()):
        copies = max(map(len, members))
        why = f" Equal rows stay together: {len(members)} rows differ, one occurs {copies} times. Drop duplicates."
        raise ValueError(
            f"Expected examples on both sides of the split, got fraction = {fraction:g}, which holds out "
            f"{held.sum()} of {len(held)}.{why if copies > 1 else ''}"
        )
    return held


def _keys(features: Features) -> Iterator[bytes]:
    """Bytes for every row, equal for equal rows."""
    if not issparse(features):
        yield from (row.tobytes() for row in np.ascontiguousarray(features))
        return
    rows = canonical(features)
    for low, high in zip(rows.indptr[:-1], rows.indptr[1:]):
        yield rows.indices[low:high].tobytes() + rows.data[low:high].tobytes()
