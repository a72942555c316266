"""The releases that an algorithm may make on a problem's data, and those that it has made.

Axes: m nodes.
"""

from collections.abc import Sequence

import jax
import numpy as np

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import Program
from jdfl.algorithms.statement import loss_reads
from jdfl.engine.invariants import Watched
from jdfl.engine.stopping import StopRule, reads_data
from jdfl.privacy import Guarantee, Ledger, exposing, report
from jdfl.privacy.accounting import scheduled
from jdfl.problems import Problem


def records_of(problem: Problem) -> np.ndarray:
    """The number of every node's records [m]."""
    return np.asarray(jax.device_get(problem.sizes), np.int64)


def guarantee_of(algorithm: Algorithm | Program, problem: Problem, stop: StopRule | None = None) -> Guarantee:
    """The guarantee of the algorithm on this problem; none is claimed where undeclared values of the data enter."""
    program = algorithm if isinstance(algorithm, Program) else Program(algorithm)
    guarantee = program.privacy(problem)
    names = (*problem.entering, *loss_reads(problem)) if guarantee.event is not None else ()
    names = (*names, "stop") if stop_tells(guarantee, stop) else names
    return exposing(guarantee, names, problem.public)


def stop_tells(guarantee: Guarantee, stop: StopRule | None) -> bool:
    """Whether the end of a run reveals values that the guarantee does not cover: of the data, or local parameters."""
    return stop is not None and (reads_data(stop) or bool(guarantee.local))


def watched(guarantee: Guarantee, problem: Problem) -> Watched:
    """The values whose divergence may end a run with this guarantee: only covered ones, since all see its end."""
    if not guarantee.claimed or "stop" in problem.public:
        return "state"
    return "nothing" if guarantee.local else "parameters"


def unspent(guarantee: Guarantee, problem: Problem) -> Ledger:
    """The ledger of a run that has not begun."""
    return Ledger.of(guarantee, np.zeros(problem.m, np.int64), records_of(problem))


def planned_at_most(guarantee: Guarantee, m: int, reserved: np.ndarray | None = None) -> np.ndarray | None:
    """How many releases every node [m] int32 makes at most by the plan of its run; None where nothing is planned."""
    most = scheduled(guarantee.event)
    if most is None and reserved is None:
        return None
    known = np.full(m, 2**31 - 1 if most is None else most)
    return np.minimum(known, 2**31 - 1 if reserved is None else reserved).astype(np.int32)


def planned_by_all(guarantees: Sequence[Guarantee], reserved: Sequence[np.ndarray], m: int) -> np.ndarray | None:
    """The most releases of every node [m] that `planned_at_most` gives for any of several runs; None: any number."""
    found = [planned_at_most(one, m, kept) for one, kept in zip(guarantees, reserved or [None] * len(guarantees))]
    known = [most for most in found if most is not None]
    return np.max(known, axis=0) if len(known) == len(guarantees) else None


def release_limits(
    algorithm: Algorithm | Program,
    problem: Problem,
    stop: StopRule | None = None,
    *,
    epsilon: float,
    delta: float | None,
) -> np.ndarray:
    """The most releases of every node [m] within (epsilon, delta), by the guarantee's own neighbouring relation."""
    guarantee = guarantee_of(algorithm, problem, stop)
    ledger = unspent(guarantee, problem)
    return ledger.limits(epsilon, report(guarantee, ledger.releases, ledger.records, delta=delta).delta)


def check_unspent(releases: np.ndarray, limit: np.ndarray, budget: object) -> None:
    """Refuse a budget that is spent before the first round: ValueError naming the node and the `budget`."""
    over = np.flatnonzero(releases > limit)
    if over.size:
        node = int(over[0])
        raise ValueError(
            f"Expected a budget for the {int(releases[node])} releases of node {node} before the first round, got "
            f"{budget!r}, which allows {int(limit[node])}. Give a larger epsilon, or more noise."
        )
