"""Runs in the ledger of their data set: planned before they begin, counted when they have ended.

Axes: m nodes.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import Program, planned
from jdfl.base.keys import key_data, key_digest, typed_key
from jdfl.devices import processes
from jdfl.engine import loop, stepping
from jdfl.engine.data_ledger import DataLedger, Ended, Hold, Intent
from jdfl.engine.ledger_file import Standing
from jdfl.engine.provenance import fingerprint, versions
from jdfl.engine.result import Result
from jdfl.engine.spending import guarantee_of, records_of
from jdfl.engine.stopping import StopRule
from jdfl.network.graph import Network
from jdfl.privacy import Ledger, exposing
from jdfl.problems import Problem

_THEMSELVES = ("steps", "stop rule", "diverged", "budget")  # endings of runs that nobody has cut off


def intents(
    algorithm: Algorithm | Program,
    problem: Problem,
    network: Network,
    stop: StopRule | None,
    *,
    keys: Iterable[int | Array],
    steps: int,
    most: np.ndarray | None = None,
    derived: Sequence[str] = (),
    execution: tuple[Any, ...] = (),
) -> list[Intent]:
    """The runs of an algorithm with these keys before their first rounds, with all that each may release.

    Args:
        algorithm: The settings of the method, or these with what is planned for so many rounds.
        problem: The nodes' data and losses, of m nodes, all on this process.
        network: Who hears whom, of as many nodes.
        stop: The rule that may end a run; None: there is none.
        keys: Seeds or typed keys.
        steps: Rounds of every run.
        most: Releases that every node may make by a budget of the run's own, most [m]; None: all that are planned.
        derived: Names of `jdfl.privacy.DERIVED` that settings were computed from, beside the problem's own.
        execution: What else may end a run, or change its floats by rounding.
    """
    processes.check_whole(problem)
    program = algorithm if isinstance(algorithm, Program) else planned(algorithm, problem, network, steps)
    words, name = stepping.run_words(program, problem, network), type(program.algorithm).__name__
    title = f"{name} on {problem.name} over {getattr(network, 'name', 'a network')} with key"
    guarantee = exposing(guarantee_of(program, problem, stop), derived, problem.public)
    records, known = records_of(problem), versions()
    data = _hash(fingerprint(problem.dtype, data=problem.data, weight=problem.weight))
    terms = _hash(fingerprint(problem.dtype, terms=(int(steps), stop, most, execution)))
    found: list[Intent] = []
    for key in map(typed_key, keys):
        counts = np.asarray(loop.releases(stepping.setting(program, problem, network, None, key), jnp.int32(steps)))
        counts, own = counts if most is None else np.minimum(counts, most), key_data(key)
        run = f"{title} {key_digest(own)}", known, data, guarantee, counts, records, int(steps)
        found.append(Intent(_hash([*words, *own]), *run, terms))
    return found


class Room:
    """Keeps room in a ledger for runs that are made one after another, until the block that it is the context of ends.

    Every run then takes what is its own. What is left goes back, also where the block fails: runs that have not begun
    have released nothing.

    Args:
        ledger: The ledger of the data; None: there is none, and nothing is kept.
    """

    def __init__(self, ledger: DataLedger | None) -> None:
        self._ledger, self._hold = ledger, None

    def keep(self, find: Callable[[], Sequence[Intent]]) -> None:
        """Keep room for the runs that `find` gives, instead of what was kept; ValueError where there is none."""
        if self._ledger is not None:
            self._hold = self._ledger.reserve(find(), instead=self._hold)

    def standing(self) -> Standing | None:
        """What the ledger says now; None without one."""
        return None if self._ledger is None else self._ledger.standing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._hold is not None:
            self._hold.end({})


def booked(hold: Hold, runs: Sequence[tuple[Intent, Result]]) -> list[Result]:
    """These results, with what the ledger says of all its runs now that these have ended.

    Args:
        hold: What the ledger has kept for them.
        runs: All runs of the hold with what they have come to.
    """
    ended: dict[str, Ended] = {}
    for one, result in runs:
        ledger = Ledger.of(result.guarantee, result.releases, result.records)
        void = "" if result.guarantee.claimed else result.guarantee.reason
        ended[one.run] = Ended(ledger, result.ending in _THEMSELVES, void)
    try:
        found = hold.end(ended)
    except (OSError, ValueError) as error:
        warnings.warn(f"The run has ended, and counts in full in its ledger: {error}", stacklevel=2)
        return [result for _, result in runs]
    return [replace(result, standing=found) for _, result in runs]


def _hash(words: Iterable[int]) -> str:
    return hashlib.sha256(" ".join(map(str, words)).encode()).hexdigest()[:32]
