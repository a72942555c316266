"""From a person's examples to the examples of every node: labels numbered, a test set held out, nodes given their part.

Host only. Axes: N examples, m nodes, p features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from scipy.sparse import issparse, vstack

from jdfl.base import checks
from jdfl.base.names import Names, aligned, labelled, labels_of, names_of
from jdfl.problems.about import About, named
from jdfl.problems.classify import holdout, same_rows
from jdfl.problems.containers import column, table
from jdfl.problems.labels import TASKS, Task, numbered, real, task_of, warn_of_rare
from jdfl.problems.partition import Partition, by_client, client_names, drawn

Split = Literal["iid", "dirichlet", "shards", "clients", "given"]
_SPLITS = ("iid", "dirichlet", "shards", "clients", "given")
_NODES = 20  # where nothing says otherwise
_PARTS = 'With partition="given", X and y are lists with one entry for every node.'


@dataclass(frozen=True)
class Intake:
    """Examples as problems take them."""

    features: Any  # [N, ...] of training, NumPy or CSR
    targets: np.ndarray  # [N] int64 class numbers from 0, or float64
    test: tuple[Any, np.ndarray] | None  # the same of the test set
    index: list[np.ndarray]  # the training examples of every node
    about: About
    derived: tuple[str, ...]  # as for `Problem.declared`, but for "standardise"

    @property
    def classes(self) -> int:
        """The number of classes; 0 for regression."""
        return len(self.about.classes)


def taken_in(
    X: Any,
    y: Any,
    nodes: int | None,
    *,
    rank: int | None,
    task: Task | None,
    partition: Split,
    alpha: float,
    shards_per_node: int,
    clients: Any,
    test: Any,
    test_fraction: float,
    seed: int,
) -> Intake:
    """The examples of every node and of the test set, with everything checked that the arguments may get wrong.

    Arguments are those of `from_arrays`, and `rank`, the axes that X has to have; None: at least two.

    Raises ValueError for all that could not be learnt from.
    """
    if nodes is not None:
        checks.whole(1, None, "Give the number of nodes, for example nodes=20.", nodes=nodes)
    checks.one_of(_SPLITS, "The partition says how the nodes share the examples.", partition=partition)
    if task is not None:
        checks.one_of(TASKS, "None infers the task from y.", task=task)
    checks.whole(0, None, "The seed decides on the split, for example seed=0.", seed=seed)
    checks.positive("Small values of alpha, such as 0.1, give unequal nodes; 100 gives similar ones.", alpha=alpha)
    checks.shape((), "It is one number for all classes.", alpha=alpha)
    checks.whole(1, None, "It is the number of pieces of each node.", shards_per_node=shards_per_node)
    _number(test_fraction=test_fraction)

    names: Names | None = None
    columns: tuple[str, ...] = ()
    if partition == "given":
        features, targets, clients, names, columns, headings = _given(X, y, nodes, clients, rank)
    else:
        X = labelled(X)
        features, columns = table("X", X, rank)
        y, clients = (aligned(name, one, labels_of(X), "X") for name, one in (("y", y), ("clients", clients)))
        targets, headings = column("y", y), labels_of(X, axis=1)
        _same_length("X", features, "y", targets)
    found, said = task_of(targets, task)
    classes: tuple[Any, ...] = ()
    if found == "classification":
        classes, targets = numbered(targets)
    else:
        targets = real(targets)
    train, clients, held_out = _test(features, targets, headings, classes, test, test_fraction, clients, seed)
    if classes:
        warn_of_rare(classes, train[0][1], None if train[1] is None else train[1][1])
    index, words, nodes_of = _split(train[0][1], nodes, partition, found, alpha, shards_per_node, clients, seed)
    about = About(said, words, classes, columns, nodes_of if names is None else names)
    happened = {"holdout": held_out, "partition": partition in ("dirichlet", "shards")}
    return Intake(*train[0], train[1], index, about, tuple(name for name, one in happened.items() if one))


def _number(**named: Any) -> None:
    """Refuse a value that is not a share in [0, 1)."""
    for name, value in named.items():
        if not checks.is_a(value, int | float | np.number) or checks.is_a(value, bool) or not 0 <= value < 1:
            checks.refuse(
                f"{name} in [0, 1)", name, value, "Give the share of the examples to hold out for testing, such as 0.2."
            )


def _given(
    X: Any, y: Any, nodes: int | None, clients: Any, rank: int | None
) -> tuple[Any, np.ndarray, np.ndarray, Names | None, tuple[str, ...], Any]:
    """Examples of given parts, one after another; the node of each, names of nodes and columns, and column labels."""
    if checks.is_a(X, Mapping):
        clients = list(X) if clients is None else clients
        X, y = list(X.values()), aligned("y", y, labels_of(X), "X")
    for name, value in (("X", X), ("y", y)):
        if not checks.is_a(value, list | tuple) or not len(value):
            checks.refuse(f"{name} to be a list with one array for every node", name, value, _PARTS)
    if len(X) != len(y):
        raise ValueError(f"Expected y for as many nodes as X, got {len(X)} arrays in X and {len(y)} in y. {_PARTS}")
    if nodes is not None and nodes != len(X):
        raise ValueError(f"Expected nodes = {len(X)}, the length of X, got nodes = {nodes}. Leave nodes out.")
    parts: list[tuple[Any, np.ndarray]] = []
    X = [labelled(one) for one in X]
    headings, columns = labels_of(X[0], axis=1), ()
    for i, (one, labels) in enumerate(zip(X, y)):
        one = aligned(f"X[{i}]", one, headings, "X[0]", axis=1)
        labels = aligned(f"y[{i}]", labels, labels_of(one), f"X[{i}]")
        if np.shape(labels) == (0,) or getattr(one, "shape", (1,))[:1] == (0,):
            raise ValueError(f"Expected examples at every node, got X[{i}] and y[{i}] without any. Leave node {i} out.")
        rows, columns = table(f"X[{i}]", one, rank)
        part = rows, column(f"y[{i}]", labels)
        _same_length(f"X[{i}]", part[0], f"y[{i}]", part[1])
        if part[0].shape[1:] != (shape := (parts or [part])[0][0].shape[1:]):
            raise ValueError(
                f"Expected X[{i}] with examples of shape {shape} as X[0] has, got {part[0].shape[1:]}. Give the same "
                "features at every node."
            )
        parts.append(part)
    names: Names | None = None
    if clients is not None:
        own = column("clients", clients, "Give the name of every node.")
        checks.shape((len(parts),), 'With partition="given", clients are the names of the nodes.', clients=own)
        names = names_of("clients", own)
    sparse = [issparse(one) for one, _ in parts]
    if any(sparse) and not all(sparse):
        raise ValueError(
            f"Expected X of one kind at all nodes, got X[{sparse.index(True)}] sparse and X[{sparse.index(False)}] "
            "dense. Make all of them sparse, or use toarray()."
        )
    together: Any = (vstack if all(sparse) else np.concatenate)([one for one, _ in parts])
    together = together.tocsr() if all(sparse) else together
    place = np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts])
    kinds = {"text" if labels.dtype.kind in "SU" else "numbers" for _, labels in parts}
    if len(kinds) > 1:
        raise ValueError("Expected labels of one kind in y, got text at one node and numbers at another. Use one kind.")
    return together, np.concatenate([labels for _, labels in parts]), place, names, columns, headings


def _same_length(one: str, features: Any, other: str, targets: np.ndarray) -> None:
    if features.shape[0] != len(targets):
        remedy = "Give one label or target for every row of features."
        if features.shape[-1] == len(targets):
            remedy = f"Rows of {one} are examples: use {one}.T if it is the other way round."
        raise ValueError(
            f"Expected {one} and {other} of the same length, got {features.shape[0]} rows in {one} and {len(targets)} "
            f"in {other}. {remedy}"
        )


def _test(
    features: Any,
    targets: np.ndarray,
    headings: Any,
    classes: tuple[Any, ...],
    test: Any,
    fraction: float,
    clients: Any,
    seed: int,
) -> tuple[tuple[tuple[Any, np.ndarray], tuple[Any, np.ndarray] | None], Any, bool]:
    """Training and test examples, the clients of the training examples, and whether any were held out."""
    if clients is not None:
        clients = column("clients", clients, "Give the client of every example.")
        checks.shape(targets.shape, "Give the client of every example.", clients=clients)
    if test is not None:
        return ((features, targets), _test_set(features, headings, classes, test)), clients, False
    if fraction == 0:
        return ((features, targets), None), clients, False
    try:
        held = holdout(features, targets if classes else np.zeros(len(targets), np.int64), fraction, seed=seed)
    except ValueError as error:
        raise ValueError(
            f"{error} Use another test_fraction, test_fraction = 0 for no test set, or test=(X, y)."
        ) from None
    if clients is not None:
        for client in np.setdiff1d(clients, clients[~held]):
            held[same_rows(features, int(np.flatnonzero(clients == client)[0]))] = False  # none is left without any
        clients = clients[~held]
    parts = (features[~held], targets[~held]), (features[held], targets[held])
    return (parts[0], parts[1] if held.any() else None), clients, True


def _test_set(features: Any, headings: Any, classes: tuple[Any, ...], test: Any) -> tuple[Any, np.ndarray]:
    """Features and numbered labels of a test set that is given."""
    if not checks.is_a(test, tuple | list) or len(test) != 2:
        checks.refuse("test to be a pair of features and labels", "test", test, "Write test=(X_test, y_test).")
    given = aligned("test[0]", test[0], headings, "X", axis=1)
    rows, _ = table("test[0]", given, len(features.shape))
    labels = column("test[1]", aligned("test[1]", test[1], labels_of(given), "test[0]"))
    _same_length("test[0]", rows, "test[1]", labels)
    if rows.shape[1:] != features.shape[1:]:
        raise ValueError(
            f"Expected test[0] with examples of shape {features.shape[1:]} as X has, got {rows.shape[1:]}. Prepare "
            "training and test features in the same way."
        )
    if issparse(rows) != issparse(features):
        rows = rows.toarray() if issparse(rows) else type(features)(rows)
    if not classes:
        if labels.dtype.kind not in "iuf":
            raise ValueError(
                f"Expected numbers in test[1], got labels such as {labels[0].item()!r}. Give numbers as in y."
            )
        return rows, labels.astype(np.float64)
    known = np.asarray(classes)
    if (known.dtype.kind in "SU") != (labels.dtype.kind in "SU"):
        raise ValueError(
            f"Expected labels in test[1] of the kind in y, such as {classes[0]!r}, got {labels.tolist()[0]!r}. Use the "
            "same labels in both."
        )
    unseen = np.setdiff1d(labels, known)
    if unseen.size:
        raise ValueError(
            f"Expected labels in test[1] that y has, got {named(tuple(unseen.tolist()))}, which no training example "
            "has. Drop these test examples, or add training examples."
        )
    return rows, np.searchsorted(known, labels).astype(np.int64)


def _split(
    targets: np.ndarray,
    nodes: int | None,
    partition: Split,
    task: Task,
    alpha: float,
    shards_per_node: int,
    clients: Any,
    seed: int,
) -> tuple[list[np.ndarray], str, Names | None]:
    """The examples of every node, the words for it, and the names of the nodes where clients have some."""
    if partition == "clients" and clients is None:
        raise ValueError('Expected clients with partition = "clients", got none. Give the client of every example.')
    if clients is not None:
        if partition in ("dirichlet", "shards"):
            raise ValueError(
                f"Expected clients or partition = {partition!r}, got both. Leave one of them out: clients say "
                "which node has an example."
            )
        parts = by_client(clients)
        if nodes is not None and nodes != len(parts):
            raise ValueError(
                f"Expected nodes = {len(parts)}, the number of clients, got nodes = {nodes}. Leave nodes out."
            )
        if partition == "given":
            return parts, "as given", None
        return parts, "one node per client", client_names(clients)
    m = _NODES if nodes is None else int(nodes)
    each = shards_per_node if partition == "shards" else 1
    if m * each > len(targets):
        pieces = f" of {each} shards each" if each > 1 else ""
        raise ValueError(
            f"Expected nodes = {len(targets) // each} at most{pieces} for {len(targets)} training examples, got "
            f"nodes = {m}. Use fewer nodes, more examples, or a smaller test_fraction."
        )
    if partition == "dirichlet" and task == "regression":
        raise ValueError(
            'Expected partition = "iid", "shards" or "clients" for regression, got partition = "dirichlet", which '
            'splits classes. Use "shards" to sort the examples by target, or give clients.'
        )
    how: dict[str, Any] = {"alpha": alpha, "shards_per_node": shards_per_node, "seed": seed}
    words = {"iid": "iid", "dirichlet": f"Dirichlet, alpha = {alpha:g}", "shards": f"{shards_per_node} shards per node"}
    return drawn(cast(Partition, partition), targets, m, **how), words[partition], None


def parts_of(taken: Intake, here: Sequence[int]) -> list[tuple[Any, np.ndarray]]:
    """The features and targets of some nodes."""
    return [(taken.features[taken.index[i]], taken.targets[taken.index[i]]) for i in here]
