"""From a data set to a problem: hold out a test set, give every node its part, build.

Axes: N examples, m nodes, p features.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from scipy.sparse import csr_matrix, issparse

from jdfl import checks
from jdfl.arguments import checked
from jdfl.devices.processes import portion
from jdfl.problems.dataset import Dataset, Features
from jdfl.problems.datasets import NAMES, load
from jdfl.problems.jagged import canonical
from jdfl.problems.joined import joined
from jdfl.problems.logistic import LogisticRegression, SoftmaxRegression, logistic_regression, softmax_regression
from jdfl.problems.partition import Partition, drawn, generator
from jdfl.problems.sparse import sparse_logistic_regression

MOST_CLASSES = 2**20


@checked
def classification(
    data: str | Dataset,
    m: int,
    *,
    partition: Partition = "iid",
    penalty: float = 1e-3,
    alpha: float = 0.5,
    shards_per_node: int = 2,
    clients: ArrayLike | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    intercept: bool = False,
    binary: bool = False,
    sparse: bool | None = None,
    dtype: DTypeLike = jnp.float32,
    public: Sequence[str] = (),
) -> LogisticRegression | SoftmaxRegression:
    """Logistic (two classes) or softmax (more) regression of a data set over `m` nodes.

    A data set without a test set gives up about `test_fraction` of every class (0: none; see `holdout`); one that has a
    test set keeps it. `alpha` belongs to the Dirichlet partition, `shards_per_node` to the one by shards (1: almost one
    class per node), `clients` [N], the client of every training example, to the one by clients, `binary` to digits (see
    `load`). `sparse` rows stay so on the device (`SparseLogisticRegression`); None takes the rows as the data set has
    them. `public` names what of the data is known to all anyway, see `Problem.declared`. `intercept` adds a feature
    that is 1 everywhere. ValueError for more nodes than examples, for names that are not known, and for sparse rows of
    more than two classes or of columns to be standardised, FileNotFoundError for a file that is not there.
    """
    checks.one_of(get_args(Partition), partition=partition)
    check_share(test_fraction)
    if isinstance(data, str):
        checks.one_of(NAMES, data=data)
    dataset = load(data, binary=binary) if isinstance(data, str) else data
    checks.real(features=dataset.features)
    checks.class_numbers(labels=dataset.labels)
    features, labels = _stored(dataset.features, sparse), dataset.labels
    if issparse(features):
        _check_sparse(dataset, sparse)
    test, derived = None, computed(partition, dataset, test_fraction, standardise=dataset.standardise)
    if dataset.test_features is not None and dataset.test_labels is not None:
        test = (_stored(dataset.test_features, issparse(features)), dataset.test_labels)
    elif test_fraction != 0:
        held = holdout(features, labels, test_fraction, seed=seed)
        test = (features[held], labels[held])
        features, labels = features[~held], labels[~held]
        clients = kept(clients, ~held)

    if dataset.standardise:  # by the training examples alone
        mean, deviation = features.mean(axis=0, dtype=float), features.std(axis=0, dtype=float)
        deviation = np.where(deviation > 0, deviation, 1.0)
        features = (features - mean) / deviation
        test = None if test is None else ((test[0] - mean) / deviation, test[1])

    index = drawn(partition, labels, m, alpha=alpha, shards_per_node=shards_per_node, clients=clients, seed=seed)
    own = range(m) if issparse(features) else portion(m)
    parts = [(features[index[i]], labels[index[i]]) for i in own]
    if issparse(features):
        rows = sparse_logistic_regression(
            parts, penalty=penalty, test=test, intercept=intercept, name=dataset.name, dtype=dtype
        )
        return replace(rows, derived=derived).declared(*public)
    if dataset.classes <= 2:
        problem = logistic_regression(
            parts, penalty=penalty, test=test, intercept=intercept, name=dataset.name, dtype=dtype
        )
    else:
        problem = softmax_regression(
            parts,
            classes=dataset.classes,
            penalty=penalty,
            test=test,
            intercept=intercept,
            name=dataset.name,
            dtype=dtype,
        )
    return replace(joined(problem, m), derived=derived).declared(*public)


def check_share(test_fraction: float) -> None:
    """Refuse what is no share of every class that could be held out."""
    checks.not_negative("It is the share of every class that is held out.", test_fraction=test_fraction)
    if test_fraction >= 1:
        checks.refuse("test_fraction < 1", "test_fraction", test_fraction)


def computed(partition: Partition, dataset: Dataset, test_fraction: float, *, standardise: bool) -> tuple[str, ...]:
    """What of a problem is computed from all records, by the names of `Problem.declared`."""
    held = test_fraction != 0 and (dataset.test_features is None or dataset.test_labels is None)
    found = {"standardise": standardise, "holdout": held, "partition": partition in ("dirichlet", "shards")}
    return tuple(name for name, happened in found.items() if happened)


@checked
def holdout(features: Features, labels: np.ndarray, fraction: float, *, seed: int = 0) -> np.ndarray:
    """Which examples to hold out for testing: bool [N], true for about `fraction` of every class of `labels` [N].

    Rows of `features` [N, p], dense or CSR, that are equal are kept together, so that no test example has been trained
    on; a group counts for the class of its first row. Groups are taken in random order, and one that would overshoot
    the share of its class is passed over. ValueError for a fraction outside [0, 1), labels that are no numbers of
    classes, from 0, and for a split that leaves either side empty.
    """
    checks.not_negative(fraction=fraction)
    checks.class_numbers(labels=labels)
    checks.shape((None,), "One label for every example.", labels=labels)
    numbers = np.asarray(labels, float)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= MOST_CLASSES) | (numbers % 1 != 0))
    if wrong.size:
        raise ValueError(
            f"Expected labels that are whole numbers of classes from 0, below {MOST_CLASSES}, got "
            f"labels[{wrong[0]}] = {numbers[wrong[0]]:.6g} ({wrong.size} such labels). Number the classes."
        )
    if not issparse(features):
        checks.real(features=features)
    if np.shape(features)[:1] != np.shape(labels):
        found = f"features of shape {np.shape(features)} and labels of shape {np.shape(labels)}"
        raise ValueError(f"Expected a row of features for every label, got {found}.")
    if fraction >= 1:
        raise ValueError(f"Expected fraction < 1, got fraction = {fraction}.")
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
        raise ValueError(f"Expected examples on both sides of the split, got {held.sum()} of {len(held)} held out.")
    return held


def kept(clients: ArrayLike | None, chosen: np.ndarray) -> np.ndarray | None:
    """The clients of the chosen examples, a bool array [N] or indices; ValueError unless there is one for each."""
    if clients is None:
        return None
    ids = np.asarray(clients)
    if chosen.dtype == bool:
        checks.shape(chosen.shape, "One client id for every training example.", clients=ids)
    return ids[chosen]


def _keys(features: Features) -> Iterator[bytes]:
    """Bytes that are equal for equal rows."""
    if not issparse(features):
        yield from (row.tobytes() for row in np.ascontiguousarray(features))
        return
    rows = canonical(features)
    for low, high in zip(rows.indptr[:-1], rows.indptr[1:]):
        yield rows.indices[low:high].tobytes() + rows.data[low:high].tobytes()


def _stored(features: Any, sparse: bool | None) -> Any:
    """Features as CSR, as a dense array, or (None) as they are."""
    if sparse is None or issparse(features) == sparse:
        return features
    return csr_matrix(features) if sparse else features.toarray()


def _check_sparse(dataset: Dataset, sparse: bool | None) -> None:
    if dataset.standardise:
        raise ValueError(
            f"Expected dense rows of {dataset.name}, whose columns are to be standardised and then have no zeros, got "
            f"sparse = {sparse}. Use sparse=False."
        )
    if dataset.classes > 2:
        raise ValueError(
            f"Expected two classes for sparse rows, got {dataset.classes} in {dataset.name}. Use sparse=False."
        )
