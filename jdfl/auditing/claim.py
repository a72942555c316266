"""The guarantee that an audit compares its attack with, and what it refuses before it runs anything.

Axes: m nodes, N runs, p features.
"""

import warnings
from typing import Any

import jax
import numpy as np

from jdfl.algorithms.program import Program
from jdfl.auditing.canary import given
from jdfl.base import checks
from jdfl.engine.spending import guarantee_of
from jdfl.privacy import Guarantee, Ledger, report
from jdfl.problems import Problem

_FEW = 20  # runs per weight of the score


def check(
    program: Program,
    problem: Problem,
    runs: int,
    node: int,
    canary: Any,
    delta: float | None,
    batch: int | None,
    confidence: float,
    fitted: float,
) -> Guarantee:
    """Refuse everything that can be refused before a run; returns the algorithm's guarantee."""
    checks.whole(100, remedy="Half of the runs see each world, and half of these are used for testing.", runs=runs)
    remedy = "It is one of the problem's nodes; the id of a name is problem.node_names.index(name)."
    checks.whole(0, problem.m - 1, remedy, node=node)
    if batch is not None:
        checks.whole(1, batch=batch)
    check_level(confidence)
    checks.fraction("It is the share of the runs that the score is fitted on.", fitted=fitted)
    if int(runs // 2 * fitted) < 8 or int(runs // 2 * (1 - fitted)) < 8:
        raise ValueError(
            f"Expected fitted that leaves 8 runs of each world to fit on and 8 to test with, got fitted = {fitted!r} "
            f"of {runs} runs. 0.5 is usual; less where there are few looks."
        )
    if isinstance(canary, str):
        checks.one_of(("aligned", "random"), "Or pass a pair of examples.", canary=canary)
    check_dense(problem)
    if not isinstance(canary, str):
        given(problem, canary)
    guarantee = noisy_guarantee(program, problem)
    accounted(guarantee, problem, 1, node, delta)
    return guarantee


def check_level(confidence: float) -> None:
    """Refuse a confidence outside (0, 1): ValueError."""
    checks.positive(confidence=confidence)
    if not confidence < 1:
        checks.refuse("confidence < 1", "confidence", confidence, "0.95 is usual.")


def check_dense(problem: Problem) -> None:
    """Refuse data in which no single record can be replaced: ValueError."""
    axes = problem.weight.shape
    if any(np.shape(leaf)[:2] != axes for leaf in jax.tree.leaves(problem.data)):
        raise ValueError(
            f"Expected data with the axes of nodes and examples {axes} in front, got {type(problem).__name__}. "
            "A record is replaced in dense data only; use the dense problem of the same loss."
        )


def noisy_guarantee(program: Program, problem: Problem) -> Guarantee:
    """The algorithm's guarantee; ValueError where it has no noise."""
    guarantee = guarantee_of(program, problem)
    if guarantee.event is None:
        told = f"Expected an algorithm with noise to audit, got none: {guarantee.reason}. {guarantee.remedy}"
        raise ValueError(told.strip())
    return guarantee


def accounted(
    guarantee: Guarantee, problem: Problem, releases: int, node: int, delta: float | None
) -> tuple[float, float]:
    """Delta and a node's epsilon after all releases of every node, under assumptions where nothing is claimed."""
    records = np.asarray(problem.sizes)
    each = np.full(problem.m, releases)
    accounting = "sound" if guarantee.claimed else "paper"
    total = report(guarantee, each, records, delta=delta, accounting=accounting).delta
    return total, Ledger.of(guarantee, each, records).epsilon(node, total)


def check_features(seen: list[np.ndarray]) -> None:
    """Refuse runs that did not stay finite; warn where there are too few runs for the number of features."""
    wrong = sum(int((~np.isfinite(features)).any(axis=1).sum()) for features in seen)
    runs, weights = sum(map(len, seen)), seen[0].shape[1]
    if wrong:
        raise ValueError(
            f"Expected runs that stay finite, got {wrong} of {runs} that do not. Lower the step size or the noise, "
            "or use a weaker canary."
        )
    if weights * _FEW > runs:
        warnings.warn(
            f"The score has {weights} weights and {runs} runs: the attack is weaker than it could be. Use more runs, "
            "or fewer steps or looks.",
            stacklevel=3,
        )
