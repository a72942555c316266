"""Linear, logistic and softmax regression on a person's own arrays.

Axes: N examples, M test examples, m nodes, p features.
"""

import warnings
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from scipy.sparse import csr_array, issparse

from jdfl.base import checks
from jdfl.devices.processes import portion
from jdfl.problems.classify import linear_classifier, standardised
from jdfl.problems.intake import Intake, Split, parts_of, taken_in
from jdfl.problems.labels import Task
from jdfl.problems.least_squares import linear_regression
from jdfl.problems.linear import LinearRegression
from jdfl.problems.logistic import LogisticRegression, SoftmaxRegression
from jdfl.problems.stack import check_public, floating, floats_fit, joined

_PENALTY = 1e-3


def from_arrays(
    X: Any,
    y: Any,
    nodes: int | None = None,
    *,
    task: Task | None = None,
    partition: Split = "iid",
    alpha: float = 0.5,
    shards_per_node: int = 2,
    clients: Any = None,
    test: Any = None,
    test_fraction: float = 0.2,
    penalty: float | None = None,
    standardise: bool = False,
    intercept: bool = True,
    sparse: bool | None = None,
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
            torch tensor. Columns of text or categories are refused; encode them first, for example with
            pandas.get_dummies. With partition = "given", a list of such tables [q_i, p], one for every node.
        y: Labels or targets [N], in any of these containers; a single column [N, 1] is accepted as well. Labels may be
            text, numbers or truth values. They are numbered in sorted order, and `problem.class_names` keeps them. With
            partition = "given", a list of such arrays [q_i].
        nodes: Number of nodes; None: one for every client or given part, otherwise 20.
        task: Whether y has classes or numbers; None: text, truth values and at most 20 different whole numbers are
            classes, and numbers with fractions are targets. Anything else is ambiguous and refused. The text of the
            problem says what was inferred.
        partition: How the nodes share the examples: evenly at random; by Dirichlet(alpha) shares of every class; sorted
            by label or target and cut into shards; one node per client; or as given.
        alpha: Concentration > 0 of the Dirichlet partition: small values give nodes with few classes.
        shards_per_node: Number of shards of every node, at least 1.
        clients: The client of every example [N], text or numbers, which gives one node per client in sorted order. With
            partition = "given", the names [m] of the nodes.
        test: Features [M, p] and labels [M] of a test set; None: a share of the examples is held out.
        test_fraction: Share of every class to hold out for testing, in [0, 1). Equal rows stay together, so that no
            test example has been trained on, and no client loses all of its examples.
        penalty: Weight >= 0 of the squared norm in the objective (halved); None: 0.001 for classification. Linear
            regression has no penalty.
        standardise: Give every feature mean 0 and variance 1 of the training examples.
        intercept: Add a constant feature, which becomes the last one.
        sparse: Keep rows sparse, which logistic regression alone can; None: as X is.
        seed: Seed >= 0 of the test set and the partition.
        name: Name of the problem in reports; None: that of the method.
        dtype: Type of all numbers, float32 or float64; the latter needs JAX_ENABLE_X64=1.
        public: What of the data is public anyway: standardise, holdout, partition,
            curvature, start, constants, tuning, stop (see
            `Problem.declared`).

    Raises ValueError for data, labels and settings that do not fit together, before anything is compiled.
    """
    kind = floating(dtype)
    check_public(public)
    for argument, value in (("standardise", standardise), ("intercept", intercept)):
        checks.one_of((True, False), "It is either on or off.", **{argument: value})
    if sparse is not None:
        checks.one_of((True, False), "None keeps rows as X has them.", sparse=sparse)
    if name is not None and not checks.is_a(name, str):
        checks.refuse("name to be text", "name", name, "It is what reports call the problem.")
    if penalty is not None:
        checks.not_negative("It is the weight of the squared norm, such as 0.001.", penalty=penalty)
        checks.shape((), "It is one number.", penalty=penalty)
    taken = taken_in(
        X,
        y,
        nodes,
        rank=2,
        task=task,
        partition=partition,
        alpha=alpha,
        shards_per_node=shards_per_node,
        clients=clients,
        test=test,
        test_fraction=test_fraction,
        seed=seed,
    )
    taken = _stored(taken, sparse, standardise)
    if standardise:
        taken = replace(taken, **dict(zip(("features", "test"), standardised(taken.features, taken.test))))
    floats_fit("X", taken.features, kind, taken.about.features)
    if taken.test is not None:
        floats_fit("test[0]", taken.test[0], kind, taken.about.features)
    if not taken.classes:
        floats_fit("y", taken.targets, kind)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Numbers in ")  # said above, with the names of columns
        found = _built(taken, penalty, bool(intercept), name, kind)
    derived = ("standardise",) * bool(standardise) + taken.derived
    return replace(found, derived=derived, about=taken.about).declared(*public)


def _built(taken: Intake, penalty: float | None, intercept: bool, name: str | None, kind: np.dtype) -> Any:
    """The problem of checked examples."""
    m = len(taken.index)
    given: dict[str, Any] = {"test": taken.test, "dtype": kind} | ({} if name is None else {"name": name})
    if taken.classes:
        here = range(m) if issparse(taken.features) else portion(m)
        given |= {"penalty": _PENALTY if penalty is None else float(penalty), "intercept": intercept}
        return linear_classifier(parts_of(taken, [int(i) for i in here]), m, taken.classes, **given)
    if penalty:
        raise ValueError(
            f"Expected penalty = 0 for linear regression, which has none, got penalty = {penalty!r}. Leave it out, or "
            "write the loss yourself with jdfl.from_loss(..., penalty=...)."
        )

    def rows(features: Any) -> np.ndarray:
        return np.hstack([features, np.ones((len(features), 1))]) if intercept else features

    if taken.test is not None:
        given["test"] = rows(taken.test[0]), taken.test[1]
    parts = parts_of(taken, [int(i) for i in portion(m)])
    return joined(linear_regression([rows(A) for A, _ in parts], [b for _, b in parts], **given), m)


def _stored(taken: Intake, sparse: bool | None, standardise: bool) -> Intake:
    """The examples with rows as CSR or as dense arrays; ValueError where rows have to be dense."""
    wanted = issparse(taken.features) if sparse is None else bool(sparse)
    if wanted and standardise:
        raise ValueError(
            "Expected standardise = False for sparse X, whose zeros would be lost, got standardise = True. Use "
            "sparse=False, or scale the columns without shifting them."
        )
    if wanted and taken.classes != 2:
        found = f"{taken.classes} classes" if taken.classes else "regression"
        raise ValueError(
            f"Expected two classes for sparse X, got X that is sparse with {found}. Use sparse=False for dense rows."
        )

    def stored(rows: Any) -> Any:
        if issparse(rows) == wanted:
            return rows
        return csr_array(rows) if wanted else rows.toarray()

    test = taken.test
    return replace(taken, features=stored(taken.features), test=None if test is None else (stored(test[0]), test[1]))
