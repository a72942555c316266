"""A run's progress: everything that goes from one round to the next, and what has been counted so far."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from jdfl.base.absent import Absent
from jdfl.base.keys import key_data, key_digest
from jdfl.base.run_keys import RunKey
from jdfl.engine import loop
from jdfl.engine.metrics import COUNTS
from jdfl.engine.provenance import COMPUTED, Provenance
from jdfl.engine.result import BAD, Ending, Result, Tally
from jdfl.privacy import Ledger
from jdfl.store.journal import Position
from jdfl.store.manifest import PRIVATE

_SHOWN = 5  # differences
_REMEDY = "Resume with the algorithm, problem, network and kernels of that run."


@dataclass(frozen=True)
class Checkpoint:
    """The progress of a run after `rounds` rounds.

    It has everything that `jdfl.run(..., resume=...)` needs to continue as if the run had not been interrupted.
    `read_checkpoint` reads one from the folder of a run, `Checkpoint.of` makes one of a result. It contains the exact
    `state` of the nodes, which no privacy guarantee covers.
    """

    rounds: int
    state: Any  # the algorithm's
    communications: np.ndarray  # [m]
    releases: np.ndarray  # [m]
    clock: np.ndarray | None  # [2, m] simulated seconds, and what rounding has left out of them
    ledger: Ledger
    key: str  # the digest of the public key
    private_key: str  # the digest of the private key
    token: str  # what distinguishes the run from others with the same private key
    released: tuple[str, ...]  # digests of what was released where the run ended
    sums: dict[str, int]  # exact totals by counter
    message_bits: dict[str, int]  # size of one message, by channel
    warnings: tuple[str, ...]  # what these rounds did that a guarantee does not cover
    history: pd.DataFrame  # the records so far
    ending: Ending  # why the run ended
    reason: str  # the ending in words
    seconds: float  # wall time so far, without compilation
    compile_seconds: float  # of tracing and compiling
    provenance: Provenance | None  # None: of whatever code, libraries and settings
    moments: dict[int, np.ndarray]  # [m] releases after some rounds
    place: Position | None = None  # in the journal of its folder, behind what belongs to it; None: it is in no folder
    over: bool = False  # the run is over, whatever its ending and `steps`; only its result is assembled
    data: str = ""  # what the arrays of the data are distinguished by, in this process; empty: it is not known
    run_key: RunKey | None = None  # its keys; None: they are not recorded, so that the key has to be given again

    @classmethod
    def of(cls, result: Result) -> "Checkpoint":
        """The checkpoint of a finished run; `jdfl.run` takes a result to resume as it is.

        Raises ValueError for one without a state, such as of `sweep` and `repeat`, and for one that diverged or
        violated an invariant.
        """
        if isinstance(result.state, Absent):
            raise ValueError(str(result.state))
        if result.state is None:
            raise ValueError("Expected a result of jdfl.run, got one of runs side by side, whose states are not kept.")
        if result.ending in BAD:
            raise ValueError(f"Expected a run to go on with, got one that {BAD[result.ending]}: {result.reason}.")
        return cls(
            result.rounds,
            result.state,
            result.communication_rounds,
            result.releases,
            None if result.clock is None else np.stack([result.clock, np.asarray(result.clock_rest)]),
            Ledger.of(result.guarantee, result.releases, result.records),
            key_digest(result.key),
            result.private_digest,
            result.token,
            result.released,
            dict(result.sums),
            dict(result.totals.message_bits),
            tuple(dict.fromkeys((*result.guarantee.warnings, *result.privacy_warnings))),
            result.history,
            result.ending,
            result.reason,
            result.seconds,
            result.compile_seconds,
            _with_computed(result),
            dict(result.moments),
            data=result.data,
            run_key=result.run_key,
        )

    def check(
        self,
        ledger: Ledger,
        key: RunKey,
        steps: int,
        metrics: Sequence[str] | None = None,
        origin: Provenance | None = None,
    ) -> None:
        """Refuse to continue with other noise, randomness, metrics, settings or code, or to an earlier round.

        The ValueError lists the differences; `origin` is the code and settings of the run that continues.
        """
        self.ledger.check_same(ledger)
        digests = key_digest(key_data(key.public)), key.digest
        if digests != (self.key, self.private_key):
            raise ValueError(
                f"Expected the key of the run that is resumed, whose digest is {self.private_key}, got one of "
                f"{key.digest}. Leave key as it was, and keep the file {PRIVATE} of a folder; what comes next is drawn "
                "from the key and from the number of the round."
            )
        if steps < self.rounds:
            raise ValueError(
                f"Expected steps >= {self.rounds}, the rounds that are done, got steps = {steps}. It counts all rounds."
            )
        recorded = sorted(set(map(str, self.history.columns)) - set(COUNTS))
        if metrics is not None and sorted(metrics) != recorded:
            raise ValueError(
                f"Expected the metrics of the run that is resumed, {recorded}, got {sorted(metrics)}. A history has "
                "the same columns in all its rows."
            )
        if self.provenance is None or origin is None:
            return
        versions, settings = origin.differences(self.provenance)
        if settings and not (versions and all(one.startswith(COMPUTED) for one in settings)):
            named = [one for one in settings if not one.startswith(COMPUTED)] or settings  # from which that follows
            raise ValueError(f"Expected the settings of the run that is resumed. {_listed(named)}. {_REMEDY}")
        if versions:
            raise ValueError(
                f"Expected the code and libraries of the run that is resumed. {_listed(versions)}. Install those, or "
                "go on with other ones, whose bits may differ: jdfl resume --any-version, or "
                "dataclasses.replace(checkpoint, provenance=None)."
            )

    def carry(self, fresh: loop.RunState) -> loop.RunState:
        """The carry from which the next round starts, on the device; `fresh` is the start of the same run.

        All arrays are copies, since a run donates the memory of its carry; the checkpoint may be used again. Raises
        ValueError where the state is not one of this run's.
        """
        jnp = jax.numpy
        wanted, structure = jax.tree.flatten(fresh.state)
        if jax.tree.structure(self.state) != structure:
            raise ValueError(
                f"Expected a state of {type(fresh.state).__name__} with {len(wanted)} arrays, got one of "
                f"{type(self.state).__name__}: it is another algorithm's. {_REMEDY}"
            )
        check_leaves(jax.tree.leaves(self.state), wanted, "the run that is resumed")
        copied = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), self.state)
        clock = None if self.clock is None or fresh.clock is None else jnp.array(self.clock, fresh.clock[0].dtype)
        return replace(
            fresh,
            state=copied,
            rounds=jnp.int32(self.rounds),
            communications=jnp.array(self.communications, jnp.int32),
            releases=jnp.array(self.releases, jnp.int32),
            clock=None if clock is None else (clock[0], clock[1]),
        )

    def tally(self, message_bits: dict[str, int], every: int) -> Tally:
        """The records so far; one that was made because the run ended there is dropped when a later one comes.

        `every` is how many rounds there are from record to record. Raises ValueError for another than before, whose
        records would be dropped or missing, and where messages had other sizes, which would be added up wrongly.
        """
        if message_bits != self.message_bits:
            raise ValueError(
                f"Expected the messages of the run that is resumed, {self.message_bits} bits, got {message_bits}. "
                f"{_REMEDY}"
            )
        recorded = [int(done) for done in self.history["round"]]
        if recorded != [*range(0, self.rounds, every), self.rounds]:
            raise ValueError(
                f"Expected every, the rounds between two records, as in the run that is resumed, whose records are of "
                f"rounds {', '.join(map(str, recorded[:4]))}{', ...' * (len(recorded) > 4)}, got every = {every}. "
                "Leave it as it was: a history has records of all rounds alike."
            )
        tally = Tally(message_bits, every)
        tally.base, tally.rows = dict(self.sums), [dict(row) for row in self.history.to_dict("records")]
        return tally


def _with_computed(result: Result) -> Provenance:
    origin = result.provenance
    if COMPUTED in origin.settings or result.computed is None:
        return origin
    return replace(origin, settings=origin.settings | {COMPUTED: result.computed()})


def _listed(differences: list[str]) -> str:
    more = len(differences) - _SHOWN
    return "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def check_leaves(leaves: list[Any], wanted: list[Any], place: str) -> None:
    """Refuse `leaves` unlike `wanted`, arrays or shapes: ValueError naming the first, and the `place` it is from."""
    for leaf, like in zip(leaves, wanted):
        if leaf.shape != like.shape or leaf.dtype != like.dtype:
            raise ValueError(
                f"Expected a state with {like.dtype.name}{list(like.shape)}, got {leaf.dtype.name}{list(leaf.shape)} "
                f"from {place}. {_REMEDY}"
            )
    if len(leaves) != len(wanted):
        raise ValueError(f"Expected a state of {len(wanted)} arrays, got {len(leaves)} from {place}. {_REMEDY}")
