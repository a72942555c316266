"""Runs in the ledger of their dataset: reserved before they begin, and counted when they have ended.

Axes: m nodes.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import Program, planned
from jdfl.base.run_keys import RunKey
from jdfl.devices import processes
from jdfl.engine import stepping
from jdfl.engine.data_ledger import DataLedger, Ended, Hold, Intent, Standing
from jdfl.engine.provenance import checksums, computed, settings_of, versions
from jdfl.engine.result import BAD, Result
from jdfl.engine.spending import guarantee_of, records_of
from jdfl.engine.start import releases
from jdfl.engine.stopping import StopRule
from jdfl.network.graph import Network
from jdfl.privacy import Ledger, exposing
from jdfl.problems import Problem
from jdfl.store.jobs import name_of

RESERVED = "reserved.json"  # in the folder of work
_THEMSELVES = ("steps", "stop rule", *BAD, "budget")  # endings of runs that were not interrupted


def intents(
    algorithm: Algorithm | Program,
    problem: Problem,
    network: Network,
    stop: StopRule | None,
    *,
    keys: Iterable[int | Array | RunKey],
    steps: int,
    most: np.ndarray | None = None,
    derived: Sequence[str] = (),
    execution: tuple[Any, ...] = (),
    known: dict[Any, Any] | None = None,
) -> list[Intent]:
    """The planned runs of an algorithm, one per key, with the maximum number of releases of each."""
    processes.check_complete(problem)
    program = algorithm if isinstance(algorithm, Program) else planned(algorithm, problem, network, steps)
    known = {} if known is None else known
    name, links = type(program.algorithm).__name__, getattr(network, "name", "a network")
    guarantee, records = exposing(guarantee_of(program, problem, stop), derived, problem.public), records_of(problem)
    if ("data", id(problem)) not in known:
        plain = problem.padded()  # blocks say nothing of the records
        whole: dict[str, Any] = {"data": plain.data, "weight": plain.weight}
        known["data", id(problem)] = name_of(settings_of(**whole), checksums(**whole)), checksums(problem=problem)
    data, sums = known["data", id(problem)]
    bare = replace(problem, optimum=None)  # which metrics may have brought, and no step reads
    leaves, structure = jax.tree.flatten((program.algorithm, program.plan, bare, network))
    code = structure, tuple((np.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves)
    if code not in known:
        known[code] = computed(program, bare, network)
    built: dict[str, Any] = {"algorithm": program.algorithm, "network": network}
    about = settings_of(problem=problem, **built) | checksums(**built) | sums
    what = name_of(about, known[code], versions(), "kernels" in execution)
    terms = name_of(settings_of(terms=(int(steps), stop, most, execution)) | checksums(most=most))
    found: list[Intent] = []
    for key in map(RunKey.of, keys):
        counts = releases(stepping.setting(program, problem, network, None, key), int(steps))
        counts = counts if most is None else np.minimum(counts, most)
        run = key.digest, f"{key.token} {what}", f"{name} on {problem.name} over {links} with key {key.digest}"
        found.append(Intent(*run, data, guarantee, counts, records, int(steps), terms))
    return found


class Room:
    """A context manager that reserves budget in a ledger, if there is one, for runs that are made one after another.

    Every run takes its own part. The rest is returned when the block ends, also if it fails: runs that have not begun
    have released nothing. `reserved.json` in the folder of the work says what is reserved; that of a process that was
    killed is returned by the next one that has its folder.
    """

    def __init__(self, ledger: DataLedger | None, folder: Path | None = None) -> None:
        self._ledger, self._file = ledger, None if folder is None else folder / RESERVED
        self._hold: Hold | None = None

    def keep(self, find: Callable[[], Sequence[Intent]]) -> None:
        """Reserve budget for the runs that `find` gives, instead of the former ones; ValueError where it is spent."""
        if self._ledger is None:
            return
        file = self._file
        if self._hold is None and file is not None and file.is_file():
            self._hold = Hold.of(self._ledger, file)
        runs = find()
        self._hold = self._ledger.reserve(runs, instead=self._hold)
        if file is not None:  # a process that is killed just before leaves more reserved than there is to do
            self._hold.write(file)

    def standing(self) -> Standing | None:
        """The current standing of the ledger; None without one."""
        return None if self._ledger is None else self._ledger.standing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._hold is not None:
            self._hold.end({})
            if self._file is not None:
                self._file.unlink(missing_ok=True)


def booked(hold: Hold, runs: Sequence[tuple[Intent, Result]]) -> list[Result]:
    """The results with the standing of the ledger after these runs have ended."""
    ended: dict[str, Ended] = {}
    for one, result in runs:
        ledger = Ledger.of(result.guarantee, result.releases, result.records)
        void = "" if result.guarantee.claimed else result.guarantee.reason
        outputs = result.released[-1].rpartition(" ")[2]
        ended[one.key] = Ended(ledger, result.ending in _THEMSELVES, void, result.rounds, outputs)
    try:
        found = hold.end(ended)
    except (OSError, ValueError) as error:
        warnings.warn(f"The run has ended, and counts in full in its ledger: {error}", stacklevel=2)
        return [result for _, result in runs]
    return [replace(result, standing=found) for _, result in runs]
