"""What a person's labels are: classes, which are numbered, or targets of a regression. Host only.

Axes: N examples.
"""

import warnings
from typing import Any, Literal

import numpy as np

from jdfl.base import suggest
from jdfl.problems.about import named

Task = Literal["classification", "regression"]
TASKS: tuple[Task, ...] = ("classification", "regression")
_SHOWN = 5  # labels in a message
_FEW = 20  # different whole numbers that are taken for classes


def task_of(targets: np.ndarray, task: Task | None) -> tuple[Task, str]:
    """The task, given or inferred, and the words that say it.

    Args:
        targets ([N]): Labels or targets.
        task: The task; None: inferred.

    Raises ValueError for numbers that may be either, and for text as targets of regression.
    """
    kind = targets.dtype.kind
    if task is not None:
        if task == "regression" and kind not in "iuf":
            raise ValueError(
                f'Expected numbers in y with task = "regression", got labels such as {targets[0].item()!r}. Use '
                'task="classification", or give numbers.'
            )
        return task, str(task)
    if kind in "SUb":
        return "classification", "classification (inferred: y has labels)"
    different = np.unique(targets)
    whole = bool(np.all(different == np.rint(different)))
    if whole and len(different) <= _FEW:
        return "classification", f"classification (inferred: y has {len(different)} different whole numbers)"
    if not whole and len(different) > 2:
        return "regression", "regression (inferred: y has numbers with fractions)"
    values = (
        f"{len(different):,} different whole numbers" if whole else f"the values {named(tuple(different.tolist()))}"
    )
    raise ValueError(
        f'Expected task = "classification" or "regression", got task = None with y that has {values}, which may be '
        'either. Write task="classification" or task="regression".'
    )


def numbered(targets: np.ndarray) -> tuple[tuple[Any, ...], np.ndarray]:
    """The labels in sorted order, and the number of every example's label [N]; ValueError unless they make classes."""
    labels, numbers = np.unique(targets, return_inverse=True)
    classes: tuple[Any, ...] = tuple(labels.tolist())
    if len(classes) < 2:
        raise ValueError(
            f"Expected at least two classes in y, got y with the label {targets.tolist()[0]!r} alone. Check that "
            "y is the right column."
        )
    if len(classes) > len(targets) / 2:
        raise ValueError(
            f"Expected fewer classes than half of the examples, got y with {len(classes):,} different labels among "
            f'{len(targets):,} examples. Use task="regression" for numbers, or another column.'
        )
    return classes, numbers.astype(np.int64)


def warn_of_rare(classes: tuple[Any, ...], train: np.ndarray, test: np.ndarray | None) -> None:
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
        where = "once" if test is None else "once, or not both in the training and the test examples"
        warnings.warn(
            f"y has labels that occur {where}, with numbers of examples: {', '.join(shown)}{more}.{meant} Each of "
            f"the {len(classes)} labels is a class: correct the spelling, drop these examples, or give more of them.",
            stacklevel=4,
        )


def real(targets: np.ndarray) -> np.ndarray:
    """The targets in float64 [N]; ValueError where all are the same."""
    found = targets.astype(np.float64)
    if np.all(found == found[0]):
        raise ValueError(
            f"Expected different targets in y, got y = {found[0]:.6g} in every example. Check that y is the right "
            "column."
        )
    return found
