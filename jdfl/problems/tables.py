"""Linear, logistic and softmax regression on a person's own arrays, and the intake of such arrays.

Axes: N examples, M test examples, m nodes, p features.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from scipy.sparse import issparse, vstack

from jdfl.base import checks, suggest
from jdfl.base.names import Names, aligned, labelled, labels_of, names_of
from jdfl.devices.processes import portion
from jdfl.problems.about import About, named
from jdfl.problems.base import with_tests_of
from jdfl.problems.classify import (
    alike,
    check_share,
    check_unseen,
    computed,
    linear_classifier,
    standardised,
    with_test,
)
from jdfl.problems.containers import by_columns, column, table
from jdfl.problems.least_squares import linear_regression
from jdfl.problems.linear import LinearRegression
from jdfl.problems.logistic import LogisticRegression, SoftmaxRegression
from jdfl.problems.partition import OF_CLASSES, Partition, Settings, client_names, generator, sample
from jdfl.problems.stack import check_options, floating, floats_fit, joined

Task = Literal["classification", "regression"]
TestSplit = Literal["classes", "nodes", "last"]
Split = Literal[Partition, "given"]
_PENALTY = 1e-3
_NODES = 20  # where nothing says otherwise
_SHOWN = 5  # labels in a message
_FEW = 20  # different whole numbers that are taken for classes


def from_arrays(
    X: Any,
    y: Any,
    nodes: int | None = None,
    *,
    task: Task | None = None,
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
    penalty: float | None = None,
    standardise: bool = False,
    intercept: bool = True,
    seed: int = 0,
    name: str | None = None,
    dtype: DTypeLike = jnp.float32,
    public: tuple[str, ...] = (),
) -> LogisticRegression | SoftmaxRegression | LinearRegression:
    """Logistic, softmax or linear regression on your own data, split over the nodes.

    Two classes give logistic regression, more classes softmax regression, and numbers linear regression.

        problem = jdfl.from_arrays(X, y, nodes=20, partition="dirichlet", alpha=0.3)

    Args:
        X: Features [N, p]: a NumPy array, nested lists, a pandas DataFrame, a SciPy sparse matrix, a JAX array or a
            torch tensor, or a datasets.Dataset of Hugging Face. Columns of text or categories are refused; encode them
            first, for example with pandas.get_dummies. With partition = "given", a list of such tables [q_i, p], one
            for every node.
        y: Labels or targets [N], in any of these containers; a single column [N, 1] is accepted as well. Or the name
            of a column of a table X, which is no feature then. Labels may be text, numbers or truth values. They are
            numbered in sorted order, and `problem.class_names` keeps them. With
            partition = "given", a list of such arrays [q_i].
        nodes: Number of nodes; None: one for every client or given part, otherwise 20.
        task: Whether y has classes or numbers; None: text, truth values and at most 20 different whole numbers are
            classes, and numbers with fractions are targets. Anything else is ambiguous and refused. The text of the
            problem says what was inferred.
        partition: How the nodes share the examples: evenly at random; by Dirichlet(alpha) shares of every class, or at
            nodes of equal size; sorted by label or target and cut into shards; with some classes at every node; at
            random with log-normal sizes or those of a power law; one node per client; or as given. The functions of
            these names in `jdfl.problems.partition` have the formulas. What a partition does not use is refused.
        alpha: Concentration > 0 of the Dirichlet partitions: small values give nodes with few classes.
        shards_per_node: Number of shards of every node, at least 1.
        classes_per_node: Number of classes of every node for "classes".
        sigma: Standard deviation >= 0 of ln(size) for "log-normal".
        exponent: Exponent >= 0 of "power-law": the r-th largest size is in proportion to r^-exponent.
        least: Fewest examples of a node, >= 1, for "dirichlet", "classes", "log-normal" and "power-law".
        noise: Standard deviation >= 0 of Gaussian noise in the features of the last node, after `standardise`; it grows
            from 0 at the first node (`partition.noisy`). Test examples have none, unless `test_split` makes them a
            node's.
        rotations: Number of fixed rotations, after `standardise`, that nodes have in turn (`partition.rotated`): images
            by angles, other features by random orthogonal matrices. Node 0 has none; test examples as for `noise`.
        clients: The client of every example [N], text or numbers, or the name of a column of X, which gives one node
            per client in sorted order. With partition = "given", the names [m] of the nodes.
        test: Features [M, p] and labels [M] of a test set; None: a share of the examples is held out.
        test_fraction: Share of every class to hold out for testing, in [0, 1). Equal rows stay together, so that no
            test example has been trained on, and no client loses all of its examples.
        test_split: "classes" holds out that share of every class of all examples. "nodes" holds out that share of
            every node's examples at random, and "last" the last ones of every node in the order given, such as the
            latest; each node is then evaluated on its own test examples by metrics such as `node_accuracy`. At least
            one is held out where a node has two; a node with a single example has no test example.
        penalty: Weight >= 0 of the squared norm in the objective (halved); None: 0.001 for classification. Linear
            regression has no penalty.
        standardise: Give every feature mean 0 and variance 1 of the training examples.
        intercept: Add a constant feature, which becomes the last one.
        seed: Seed >= 0 of the test set and the partition.
        name: Name of the problem in reports; None: that of the method.
        dtype: Type of all numbers, float32 or float64; the latter needs JAX_ENABLE_X64=1.
        public: Names of values that are public anyway, see `Problem.declared`.

    Raises ValueError for data, labels and settings that do not fit together, before anything is compiled.
    """
    kind = floating(dtype)
    check_options(public, penalty, name, standardise=standardise, intercept=intercept)
    how = Settings(alpha, shards_per_node, classes_per_node, sigma, exponent, least, noise, rotations)
    split = (task, partition, how, clients, test, test_fraction, test_split, seed)
    taken = taken_in(2, X, y, nodes, *split)
    features, held = taken.features, alike("X", taken.features, taken.test, bool(standardise), taken.classes)
    if standardise:
        features, held = standardised(features, held)
    taken = replace(taken, features=features, test=held).skewed(how, seed)
    floats_fit("X", features, kind, taken.about.features)
    if held is not None:
        floats_fit("test[0]", held[0], kind, taken.about.features)
    if not taken.classes:
        floats_fit("y", taken.targets, kind)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Numbers in ")  # given above, with the names of columns
        found = _built(taken, penalty, bool(intercept), name, kind)
    derived = computed(partition, taken.chose, bool(standardise))
    return taken.tested(replace(found, derived=derived, about=taken.about)).declared(*public)


def _built(taken: "Intake", penalty: float | None, intercept: bool, name: str | None, kind: np.dtype) -> Any:
    """The problem of checked examples."""
    m = len(taken.index)
    given: dict[str, Any] = {"test": taken.test, "dtype": kind} | ({} if name is None else {"name": name})
    if taken.classes:
        given |= {"penalty": _PENALTY if penalty is None else float(penalty), "intercept": intercept}
        return linear_classifier(taken.features, taken.targets, taken.index, taken.classes, **given)
    if penalty:
        raise ValueError(
            f"Expected penalty = 0 for linear regression, which has none, got penalty = {penalty!r}. Leave it out, or "
            "write the loss yourself with jdfl.from_loss(..., penalty=...)."
        )

    def rows(features: Any) -> np.ndarray:
        return np.hstack([features, np.ones((len(features), 1))]) if intercept else features

    if taken.test is not None:
        given["test"] = rows(taken.test[0]), taken.test[1]
    here = [taken.index[int(i)] for i in portion(m)]
    A, b = [rows(taken.features[one]) for one in here], [taken.targets[one] for one in here]
    return joined(linear_regression(A, b, **given), m)


@dataclass(frozen=True)
class Intake:
    """Examples as problems take them."""

    features: Any  # [N, ...] of training, NumPy or CSR
    targets: np.ndarray  # [N] int64 class numbers from 0, or float64, or numbers as they were
    test: tuple[Any, np.ndarray] | None  # the same of the test set
    index: list[np.ndarray]  # the training examples of every node
    about: About
    held: np.ndarray | None  # the examples that were held out of those given; None: none were
    own: np.ndarray | None = None  # the node of every test example; None: they are of no node

    def skewed(self, how: Settings, seed: int, axes: tuple[int, int] = (1, 2)) -> "Intake":
        """The same with features as the nodes have them, also of test examples that are of nodes."""
        if self.own is None or self.test is None or issparse(self.features) or not how.skews:
            return replace(self, features=how.skewed(self.features, self.index, seed, axes))
        n = len(self.targets)
        index = [np.concatenate([rows, n + np.flatnonzero(self.own == i)]) for i, rows in enumerate(self.index)]
        features = how.skewed(np.concatenate([self.features, self.test[0]]), index, seed, axes)
        return replace(self, features=features[:n], test=(features[n:], self.test[1]))

    @property
    def chose(self) -> bool:
        """Whether the records decided which of them were held out."""
        return self.held is not None and self.own is None

    def tested(self, problem: Any) -> Any:
        """The problem with the test examples of every node, if there are some."""
        return problem if self.own is None else with_tests_of(problem, self.own)

    @property
    def classes(self) -> int:
        """The number of classes; 0 for regression."""
        return len(self.about.classes)


def taken_in(
    rank: int | None,
    X: Any,
    y: Any,
    nodes: int | None,
    task: Task | None,
    partition: Split,
    how: Settings,
    clients: Any,
    test: Any,
    test_fraction: float,
    test_split: TestSplit,
    seed: int,
    *,
    encode: bool = True,
) -> Intake:
    """The examples of every node and of the test set, for arguments of `from_arrays`, which are all checked.

    The caller applies `skewed`. X has to have `rank` axes; None: at least two. Without `encode`, numbers in y stay as
    they are if there is no task.
    """
    check_split(nodes, task, partition, how, test_fraction, seed)
    checks.one_of(get_args(TestSplit), "It says of what a share is held out.", test_split=test_split)
    why = {"a test set is given": test is not None, "test_fraction = 0": test_fraction == 0}
    if test_split != "classes" and any(why.values()):
        shown = next(words for words, holds in why.items() if holds)
        raise ValueError(
            f'Expected test_split = "classes" where {shown}, got test_split = {test_split!r}. Leave it out; '
            "problem.with_own_test(nodes) says whose the examples of a given test set are."
        )
    names: Names | None = None
    if partition == "given":
        features, targets, clients, names, columns, headings = _given(X, y, nodes, clients, rank)
    else:
        if checks.is_a(test, tuple | list) and len(test) == 2:
            more: dict[str, Any] = {"clients": clients} if checks.is_a(clients, str) else {}
            test = by_columns(test[0], **{"test[1]": test[1]}, **more)[:2]
        X, y, clients = by_columns(X, y=y, clients=clients)
        headings, clients = labels_of(X, axis=1), aligned("clients", clients, labels_of(X), "X")
        features, targets, columns = _pair(("X", "y"), X, y, rank)
        if clients is not None and partition == "iid":
            partition = "clients"
    asis = not encode and task is None and targets.dtype.kind in "biuf"
    task, text = (task, "") if asis and partition not in OF_CLASSES else _task_of(targets, task)
    classes: tuple[Any, ...] = ()
    if task == "classification" and not asis:
        classes, targets = _encode_labels(targets)
    elif task == "regression":
        targets = targets if asis else targets.astype(np.float64)
        if not asis and np.all(targets == targets[0]):
            raise ValueError(
                f"Expected different targets in y, got y = {targets[0]:.6g} in every example. Check that y is the "
                "right column."
            )
        if partition in OF_CLASSES:
            raise ValueError(
                f'Expected a partition without classes for regression, got partition = "{partition}". Use "shards" to '
                "sort the examples by target, or give clients."
            )
    given = None if test is None else _test_set(features, headings, None if asis else classes, test)
    if given is not None:
        check_unseen((features, targets), given)
    kind: Any = "clients" if partition == "given" else partition
    index, place = None, None
    if test_split != "classes":
        m = _nodes_of(nodes, clients)
        parts = sample(kind, targets, m, clients=clients, seed=seed, **how.used(kind))
        train, tests, held, index, place = _of_every_node((features, targets), parts, test_fraction, test_split, seed)
    else:
        train, tests, clients, held = with_test(
            (features, targets), given, test_fraction, clients, seed, classes=bool(classes)
        )
    if classes:
        _warn_of_rare_labels(classes, train[1], None if tests is None else tests[1])
    if index is None:
        index = sample(kind, train[1], _nodes_of(nodes, clients), clients=clients, seed=seed, **how.used(kind))
    own = names if partition == "given" else client_names(clients)
    return Intake(*train, tests, index, About(text, how.words(partition), classes, columns, own), held, place)


def _nodes_of(nodes: int | None, clients: Any) -> int:
    """The number of nodes."""
    if clients is None:
        return _NODES if nodes is None else int(nodes)
    m = len(np.unique(clients))
    if nodes not in (None, m):
        raise ValueError(f"Expected nodes = {m}, the number of clients, got nodes = {nodes}. Leave nodes out.")
    return m


def _of_every_node(
    examples: tuple[Any, np.ndarray], parts: list[np.ndarray], fraction: float, split: TestSplit, seed: int
) -> tuple[tuple[Any, np.ndarray], tuple[Any, np.ndarray], np.ndarray, list[np.ndarray], np.ndarray]:
    """Training and test examples with a share of every node's held out, which, the nodes' index, and tests' nodes."""
    held, draw = np.zeros(len(examples[1]), bool), generator(seed)
    for part in parts:
        count = min(max(round(fraction * len(part)), 1), len(part) - 1)
        held[(draw.permutation(part) if split == "nodes" else part[::-1])[:count]] = True
    node = np.zeros(len(held), np.int64)
    for i, part in enumerate(parts):
        node[part] = i
    place, alone = np.cumsum(~held) - 1, sum(len(part) == 1 for part in parts)
    if alone:
        warnings.warn(
            f"{alone} of {len(parts)} nodes have a single example and no test example: metrics of nodes omit them.",
            stacklevel=5,
        )
    index, (X, y) = [place[part[~held[part]]] for part in parts], examples
    return (X[~held], y[~held]), (X[held], y[held]), held, index, node[held]


def check_split(nodes: Any, task: Any, partition: Any, how: Settings, test_fraction: Any, seed: Any) -> None:
    """Refuse wrong values of arguments about the split of examples over nodes."""
    if nodes is not None:
        checks.integer(1, None, "Give the number of nodes, for example nodes=20.", nodes=nodes)
    checks.one_of(get_args(Split), "The partition says how the nodes share the examples.", partition=partition)
    if task is not None:
        checks.one_of(get_args(Task), "None infers the task from y.", task=task)
    checks.integer(0, None, "The seed decides on the split, for example seed=0.", seed=seed)
    how.check(partition)
    check_share(test_fraction=test_fraction)


def _given(
    X: Any, y: Any, nodes: int | None, clients: Any, rank: int | None
) -> tuple[Any, np.ndarray, np.ndarray, Names | None, tuple[str, ...], Any]:
    """Examples of given parts, one after another; the node of each, names of nodes and columns, and column labels."""
    if checks.is_a(X, Mapping):
        clients = list(X) if clients is None else clients
        X, y = list(X.values()), aligned("y", y, labels_of(X), "X")
    for name, value in (("X", X), ("y", y)):
        if not checks.is_a(value, list | tuple) or not len(value):
            checks.refuse(f"{name} to be a list with one array for every node", name, value, "Or name a partition.")
    if len(X) != len(y) or nodes not in (None, len(X)):
        raise ValueError(
            f"Expected one array in X and one in y for every node, got {len(X)} in X and {len(y)} in y, with nodes = "
            f"{nodes}. Leave nodes out."
        )
    parts: list[tuple[Any, np.ndarray]] = []
    headings, columns = labels_of(X[0], axis=1), ()
    for i, (one, labels) in enumerate(zip(X, y)):
        like = ("X[0]", headings, parts[0][0].shape[1:]) if parts else None
        features, targets, columns = _pair((f"X[{i}]", f"y[{i}]"), one, labels, rank, like)
        parts.append((features, targets))
    names: Names | None = None
    if clients is not None:
        own = column("clients", clients, "Give the name of every node.")
        checks.shape((len(parts),), 'With partition="given", clients are the names of the nodes.', clients=own)
        names = names_of("clients", own)
    if len({(issparse(features), _kind(labels)) for features, labels in parts}) > 1:
        raise ValueError(
            "Expected X dense at all nodes or sparse at all nodes, and y with text at all or numbers at all, got "
            "several kinds. Convert them, for example with toarray() and astype(str)."
        )
    sparse = issparse(parts[0][0])
    together: Any = (vstack if sparse else np.concatenate)([features for features, _ in parts])
    place = np.repeat(np.arange(len(parts)), [len(labels) for _, labels in parts])
    targets = np.concatenate([labels for _, labels in parts])
    return together.tocsr() if sparse else together, targets, place, names, columns, headings


def _kind(labels: np.ndarray) -> str:
    """The kind of labels: text (U), bytes (S) or numbers (f)."""
    return labels.dtype.kind if labels.dtype.kind in "SU" else "f"


def _pair(
    names: tuple[str, str], X: Any, y: Any, rank: int | None, like: tuple[str, Any, tuple[int, ...]] | None = None
) -> tuple[Any, np.ndarray, tuple[str, ...]]:
    """Features and labels that belong together, and the names of columns.

    `like` are the name, the column labels and the shape of an example of other features, which these have to match.
    """
    name, source = names[0], "" if like is None else like[0]
    X = labelled(X) if like is None else aligned(name, X, like[1], source, axis=1)
    y = aligned(names[1], y, labels_of(X), name)
    features, columns = table(name, X, rank)
    targets = column(names[1], y)
    if features.shape[0] != len(targets):
        raise ValueError(
            f"Expected {name} and {names[1]} of the same length, got {features.shape[0]} rows in {name} and "
            f"{len(targets)} in {names[1]}. Give one label or target for every row of features; rows are examples."
        )
    if like is not None and features.shape[1:] != like[2]:
        raise ValueError(
            f"Expected {name} with examples of shape {like[2]} as {source} has, got {features.shape[1:]}. Prepare both "
            "in the same way."
        )
    return features, targets, columns


def _test_set(features: Any, headings: Any, classes: tuple[Any, ...] | None, test: Any) -> tuple[Any, np.ndarray]:
    """Features and numbered labels of a test set that is given; without classes the labels stay as they are."""
    if not checks.is_a(test, tuple | list) or len(test) != 2:
        checks.refuse("test to be a pair of features and labels", "test", test, "Write test=(X_test, y_test).")
    like = ("X", headings, features.shape[1:])
    rows, labels, _ = _pair(("test[0]", "test[1]"), test[0], test[1], len(features.shape), like)
    if issparse(rows) != issparse(features):
        rows = rows.toarray() if issparse(rows) else type(features)(rows)
    if classes is None:
        return rows, labels
    if not classes:
        _task_of(labels, "regression", "test[1]")
        return rows, labels.astype(np.float64)
    known = np.asarray(classes)
    unseen = np.setdiff1d(labels, known) if _kind(known) == _kind(labels) else np.unique(labels)
    if unseen.size:
        raise ValueError(
            f"Expected labels in test[1] that y has, such as {classes[0]!r}, got {named(tuple(unseen.tolist()))}, "
            "which no training example has. Drop these test examples, or add training examples."
        )
    return rows, np.searchsorted(known, labels).astype(np.int64)


def _task_of(targets: np.ndarray, task: Task | None, name: str = "y") -> tuple[Task, str]:
    """The task, given or inferred, and its text."""
    kind = targets.dtype.kind
    if task is not None:
        if task == "regression" and kind not in "iuf":
            raise ValueError(
                f'Expected numbers in {name} with task = "regression", got labels such as {targets[0].item()!r}. Use '
                'task="classification", or give numbers.'
            )
        return task, str(task)
    if kind in "SUb":
        return "classification", "classification (inferred: y has labels)"
    different = np.unique(targets)
    integers = bool(np.all(different == np.rint(different)))
    if integers and len(different) <= _FEW:
        return "classification", f"classification (inferred: y has {len(different)} different whole numbers)"
    if not integers and len(different) > 2:
        return "regression", "regression (inferred: y has numbers with fractions)"
    raise ValueError(
        f'Expected task = "classification" or "regression", got task = None with y that has {len(different):,} '
        f"different values, {named(tuple(different[:_SHOWN].tolist()))}, which may be either. Write "
        'task="classification" or task="regression".'
    )


def _encode_labels(targets: np.ndarray) -> tuple[tuple[Any, ...], np.ndarray]:
    """The labels in sorted order, and the number of every example's label [N]."""
    labels, numbers = np.unique(targets, return_inverse=True)
    if not 2 <= len(labels) <= len(targets) / 2:
        raise ValueError(
            f"Expected at least two classes in y, and fewer than half of the examples, got y with {len(labels):,} "
            f"different labels, such as {labels[0].item()!r}, among {len(targets):,} examples. Check that y is the "
            'right column, or use task="regression" for numbers.'
        )
    return tuple(labels.tolist()), numbers.astype(np.int64)


def _warn_of_rare_labels(classes: tuple[Any, ...], train: np.ndarray, test: np.ndarray | None) -> None:
    """Warn of labels that occur once, or in one of training [N] and test examples [M] alone, with their counts."""
    counts = np.bincount(train, minlength=len(classes))
    tested = counts if test is None else np.bincount(test, minlength=len(classes))
    total = counts if test is None else counts + tested
    rare = np.flatnonzero((total == 1) | (counts == 0) | (tested == 0))
    if rare.size:
        known = [one for i, one in enumerate(classes) if total[i] > 1]
        shown = [f"{classes[i]!r} ({total[i]})" for i in rare[:_SHOWN]]
        more = f", and {rare.size - _SHOWN} more" if rare.size > _SHOWN else ""
        meant = next((f" {one}" for i in rare if (one := suggest.hint(classes[i], known))), "")
        warnings.warn(
            "y has labels that occur once, or not both in the training and the test examples, with numbers of examples"
            f": {', '.join(shown)}{more}.{meant} Each of the {len(classes)} labels is a class: correct the spelling, "
            "drop these examples, or give more of them.",
            stacklevel=4,
        )
