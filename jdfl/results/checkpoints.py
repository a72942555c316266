"""A run in a folder while it goes on: its journal, its key, and checkpoints from which it is resumed."""

import contextlib
import json
import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import numpy as np
import pandas as pd

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.base import arguments
from jdfl.base.arguments import checked
from jdfl.base.keys import key_data, key_digest, typed_key
from jdfl.base.run_keys import RunKey, key_of_words
from jdfl.base.settings import Bound, Count
from jdfl.devices import processes
from jdfl.engine import loop, stepping
from jdfl.engine.callbacks import NEVER, Callback
from jdfl.engine.checkpoint import Checkpoint, check_leaves
from jdfl.engine.provenance import PRIVATE, Provenance
from jdfl.engine.result import BAD, Result, Snapshot
from jdfl.engine.start import Plan, fitted
from jdfl.network.graph import Network
from jdfl.privacy import Ledger
from jdfl.problems import Problem
from jdfl.store import files, journal, lease, manifest, snapshots
from jdfl.store.journal import Journal, Position
from jdfl.store.lease import Lease, LostError

JOURNAL, SNAPSHOTS, RECORD = "journal", "checkpoints", manifest.PRIVATE  # in the folder of a run
RECORDS = "records"  # the table of the journal with the history
FORMAT = 8
_STARTS = ("begun", "resumed")
_PLAIN = ("rounds", "key", "private_key", "token", "released", "warnings", "message_bits")
_ENDING = ("ending", "reason", "seconds", "compile_seconds")
_Minutes = Annotated[float, Bound("(0, inf)")]


def rows_of(table: pd.DataFrame | Mapping[str, Sequence[float]]) -> np.ndarray:
    """A `table` of columns [k] of whole numbers and floats as rows of a journal, a structured array [k]."""
    columns = {str(name): np.asarray(values) for name, values in table.items()}
    kinds = {
        name: "<f4" if one.dtype == np.float32 else "<f8" if one.dtype.kind == "f" else "<i8"
        for name, one in columns.items()
    }
    rows = np.empty(len(next(iter(columns.values()), ())), list(kinds.items()))
    for name, values in columns.items():
        rows[name] = values
    return rows


def history_of(rows: np.ndarray) -> pd.DataFrame:
    """The inverse of `rows_of`, of rows [k]."""
    return pd.DataFrame({name: rows[name] for name in rows.dtype.names or ()})


def _append(records: Journal, rows: np.ndarray) -> Position:
    """Append records [k] to a journal; returns the position before the last one, which a checkpoint has itself."""
    records.append(RECORDS, rows[:-1])
    place = records.position
    records.append(RECORDS, rows[-1:])
    return place


def _origin(key: str, provenance: Provenance | None) -> dict[str, str]:
    """What distinguishes the journal of a run: the digest of its public key, and the hash of its settings."""
    settings = {} if provenance is None else provenance.settings
    return {"key": key, "settings": Provenance({}, {k: v for k, v in settings.items() if k != PRIVATE}).hash}


def write_record(folder: Path, key: RunKey) -> None:
    """Write the record of a run's key into its folder, for its owner alone."""
    own = key.source == "operating system"
    words = {name: key_data(getattr(key, name)) if own else None for name in ("public", "private")}
    with files.placed(folder / RECORD, mode=0o600) as path:
        path.write_text(json.dumps({"token": key.token, **words}), encoding="ascii")


def read_record(folder: Path) -> tuple[str, RunKey | None] | None:
    """The token of the run in a folder, and its keys unless they were given; None where there is no record.

    Raises ValueError for a damaged file.
    """
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        content = dict(json.loads(path.read_text(encoding="ascii")))
        token, words = str(content["token"]), (content["public"], content["private"])
        if words == (None, None):
            return token, None
        public, private = (key_of_words((int(one[0]), int(one[1]))) for one in words)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"Expected the record of a run's key in {path}, got a damaged file. Put it back: without it the run cannot "
            "be continued."
        ) from error
    return token, RunKey(public, private, "operating system", token)


class Checkpoints(Callback):
    """Keeps a run in a folder while it is under way and when it ends: its records, and checkpoints to go on from.

    The folder has a `journal`, to which the records are appended chunk by chunk, and the two newest checkpoints, each
    complete, of a run that did not diverge. A checkpoint counts together with what the journal had when it was made. If
    something cannot be written, a warning is given, the run continues, and it is tried again. The folder is this run's
    alone: while it goes on, other processes are refused. If somebody removes or changes it all the same, the run ends
    as if it were interrupted, and `lost` says why. Read by `jdfl.read_checkpoint`, for another number of devices or
    processes also. Of several processes the first writes.

    Args:
        folder: The folder, which is made if its parent folder exists.
        every: Approximate number of rounds between two checkpoints; None: the minutes decide.
        minutes: Approximate number of minutes between two checkpoints; None: `every` decides.
    """

    reads_data: ClassVar[bool] = False
    keeps: ClassVar[bool] = True

    def __init__(self, folder: str | Path, every: Count | None = None, minutes: float | None = None) -> None:
        self.folder = Path(arguments.argument("folder", folder, str | Path))
        self.every = NEVER if every is None else int(arguments.argument("every", every, Count))
        self.minutes = None if minutes is None else float(arguments.argument("minutes", minutes, _Minutes))
        self.lost = ""
        self._lease: Lease | None = None

    def on_start(self, plan: Plan) -> None:
        """Take the folder.

        Raises FileNotFoundError where its parent folder is missing, HeldError, which names the other process, where one
        writes into it, and FileExistsError where it has another run, or a run that got further than the `plan`.
        """
        before = plan.before
        self._rounds, self._written, self._since = -1, -1, time.monotonic()
        self._late: list[tuple[str, np.ndarray]] = []
        self._failed = self.lost = ""
        if not processes.leads():
            return
        if not self.folder.parent.is_dir():
            raise FileNotFoundError(
                f"Expected a folder around the checkpoints' folder = {str(self.folder)!r}, found none. Make it first."
            )
        if self.folder.is_file():
            raise FileExistsError(f"Expected a folder, got folder = {str(self.folder)!r}, a file. Name another.")
        self.folder.mkdir(exist_ok=True)
        self._lease = Lease.take(self.folder)
        if self._lease.before:
            message = (
                f"The run in {self.folder} was not ended by {self._lease.before}; it goes on from what that has left"
            )
            warnings.warn(f"{message}.", stacklevel=2)
        try:
            self._journal = self._opened(plan)
            if plan.guarantee.event is not None:
                write_record(self.folder, plan.key)
            self._note("begun" if before is None else "resumed", 0 if before is None else before.rounds)
        except BaseException:
            self._lease.release()
            self._lease = None
            raise
        self._last, self._place = -1, self._journal.position  # of the records, and the place of the next checkpoint
        self._first: np.ndarray | None = None  # the last record of the run that is resumed, unless it was its end alone
        if before is not None:
            self._last = before.rounds
            self._first = rows_of(before.history[-1:]) if before.rounds % plan.every == 0 else None

    def on_chunk(self, now: Snapshot) -> str | None:
        """Append the records of a chunk, and write what was appended; returns `lost`, which ends the run."""
        if self._lease is not None and not self.lost:
            new = [row for row in now.rows if row["round"] > self._last]
            self._append(rows_of({name: [row[name] for row in new] for name in now.row}))
            with self._warned("the run goes on, and tries again at the next"):
                self._lease.check()
                self._journal.flush()
        return self.lost or None

    def record(self, table: str, rows: np.ndarray, now: Snapshot) -> None:
        """Append rows [k] of a structured type, which belong to `now`, to another table of the journal.

        What is recorded within a chunk, because the run ends there, is dropped if the run goes on later.
        """
        if self.lost:
            return
        if now.rounds % now.chunk:
            self._late.append((table, rows))
        else:
            self._again()
            self._journal.append(table, rows)

    def on_return(self, now: Snapshot) -> None:
        """Write a checkpoint of the run as it is `now`, if one is due.

        One is due when the rounds have passed a multiple of `every`, or after the given minutes. One that cannot be
        written causes a warning.
        """
        if self._rounds < 0:
            self._rounds = now.rounds
            if self._lease is not None and snapshots.newest(self.folder / SNAPSHOTS) == now.rounds:
                self._written = now.rounds
            return
        due = now.rounds // self.every > self._rounds // self.every
        if self.minutes is not None:
            late = time.monotonic() - self._since >= 60 * self.minutes
            due = bool(processes.highest(late)) or due
            self._since = time.monotonic() if late else self._since
        if due:
            self._write(now.result())

    def on_end(self, result: Result) -> None:
        """Write a checkpoint of the run as it ended, and the rest of the records.

        No checkpoint is written for a run that diverged or violated an invariant, whose last one stays, nor if these
        rounds are written already. The `result` must have a state.
        Raises ValueError where the journal is damaged, and nothing was done that has replaced the damage.
        """
        if self._lease is None or self.lost:
            return
        self._append(self._after(result.history))
        for table, rows in self._late:
            self._journal.append(table, rows)
        with self._warned("the last records are not kept"):
            self._lease.check()
            self._journal.sync()
        if self._journal.untouched and (damage := journal.read(self.folder / JOURNAL).damage):
            raise ValueError(
                f"Expected the journal in {self.folder} whole, since all rounds were done, got one in which {damage}. "
                f"Remove {self.folder / SNAPSHOTS / f'{result.rounds}.npz'}, and resume: the last rounds are then made "
                "again."
            )
        if result.ending not in BAD:
            self._write(result)
        with self._warned("it is not kept"):
            self._note(result.ending, result.rounds, said=result.reason)

    def close(self) -> None:
        """Give the folder back; it is called after a run that failed, too."""
        if self._lease is not None:
            self._journal.close()
            self._lease.release()
            self._lease = None

    def _opened(self, plan: Plan) -> Journal:
        """The journal of the run, with what was recorded before it."""
        path, before = self.folder / JOURNAL, plan.before
        key, settings = key_digest(key_data(plan.key.public)), plan.provenance
        origin = _origin(key, settings) if before is None else _origin(before.key, before.provenance)
        if before is not None and before.place is not None and path.is_file():
            return Journal.resume(path, before.place)
        fresh = before is None and snapshots.newest(self.folder / SNAPSHOTS) is None
        if fresh and _may_be_replaced(path, origin):
            path.unlink(missing_ok=True)
        elif before is None or path.is_file():
            raise FileExistsError(
                f"Expected no run in folder = {str(self.folder)!r}, or the one that is resumed, found another. Go on "
                "from its checkpoint with resume = jdfl.read_checkpoint(...), or name another folder."
            )
        made = Journal.create(path, origin)
        if before is not None:
            made.append(RECORDS, rows_of(before.history)[:-1])
        return made

    def _note(self, event: str, rounds: int, **about: str) -> None:
        """Log an event of the run, and who held its folder before and is gone."""
        before = {"before": self._lease.before} if self._lease and self._lease.before and event in _STARTS else {}
        lease.note(self.folder, event, rounds=rounds, **before, **about)

    def _append(self, rows: np.ndarray) -> None:
        """Append records [k] that come after those that were appended."""
        if rows.size:
            self._again()
            self._place = _append(self._journal, rows)
            self._last = int(rows["round"][-1])

    def _after(self, history: pd.DataFrame) -> np.ndarray:
        """The records of a history that are not yet appended."""
        return rows_of(history[history["round"] > self._last])

    def _again(self) -> None:
        """Append the last record of the run that is resumed, before anything else."""
        if self._first is not None:
            self._journal.append(RECORDS, self._first)
            self._first = None

    def _write(self, result: Result) -> None:
        """Write a checkpoint, after the records that belong to it."""
        self._rounds = result.rounds
        if self._lease is None or self.lost or self._written == result.rounds:
            return
        self._append(self._after(result.history))
        with self._warned("the run goes on, and tries again at the next"):
            self._lease.check()
            self._journal.sync()
            _write(self.folder, Checkpoint.of(result), self._place)
            self._written = result.rounds

    @contextlib.contextmanager
    def _warned(self, then: str) -> Generator[None]:
        """Warn of what cannot be written, once as long as it is the same, and note that the folder is lost."""
        try:
            yield
        except LostError as error:
            self.lost = str(error)
            warnings.warn(self.lost, stacklevel=4)
        except OSError as error:
            if str(error) != self._failed and not self.lost:
                warnings.warn(f"{error}; {then}.", stacklevel=4)
            self._failed = str(error)


def _may_be_replaced(path: Path, origin: dict[str, Any]) -> bool:
    """Whether a journal without a checkpoint is this run's, or has nothing in it yet."""
    try:
        return journal.read(path).origin == origin
    except FileNotFoundError:
        return True
    except ValueError:
        return b"\n" not in path.read_bytes()


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into a folder that has no journal yet, with a journal of the records so far."""
    folder.mkdir(parents=True, exist_ok=True)
    records = Journal.create(folder / JOURNAL, _origin(checkpoint.key, checkpoint.provenance))
    try:
        place = _append(records, rows_of(checkpoint.history))
        records.sync()
        if checkpoint.run_key is not None and checkpoint.ledger.event is not None:
            write_record(folder, checkpoint.run_key)
        _write(folder, checkpoint, place)
    finally:
        records.close()


def _write(folder: Path, checkpoint: Checkpoint, place: Position) -> None:
    """Write all of a checkpoint but for what the journal has, up to a place: leaf0, leaf1, ... of the state's tree."""
    arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(checkpoint.state))}
    plain: dict[str, Any] = {name: getattr(checkpoint, name) for name in (*_PLAIN, *_ENDING)}
    plain |= {
        "format": FORMAT,
        "leaves": len(arrays),
        "ledger": checkpoint.ledger.as_dict(),
        "sums": {name: str(value) for name, value in checkpoint.sums.items()},
        "provenance": None if checkpoint.provenance is None else asdict(checkpoint.provenance),
        "journal": list(place),
    }
    arrays |= {"communications": checkpoint.communications, "releases": checkpoint.releases}
    if checkpoint.clock is not None:
        arrays["clock"] = checkpoint.clock
    if checkpoint.moments:
        arrays["moments"] = np.fromiter(checkpoint.moments, np.int64)
        arrays["moments_releases"] = np.stack(list(checkpoint.moments.values()))
    last = rows_of(checkpoint.history[-1:])
    arrays |= {f"last {name}": last[name] for name in last.dtype.names or ()}
    snapshots.write(folder / SNAPSHOTS, checkpoint.rounds, arrays, plain)


@checked
def read_checkpoint(folder: str | Path, algorithm: Algorithm, problem: Problem, network: Network) -> Checkpoint:
    """The newest checkpoint in a folder, for a run of these; a damaged one causes a warning, and an older one is taken.

    Args:
        folder: The folder of a run, or that of `Checkpoints`.
        algorithm: That of the run, as are the problem and the network.
        problem: The problem.
        network: The network.

    Raises FileNotFoundError where there is none, ValueError for those of another run, and where all are damaged.
    """
    root, histories = Path(folder), list[pd.DataFrame]()
    if root.name == SNAPSHOTS and (root.parent / JOURNAL).is_file():
        root = root.parent

    def complete(found: snapshots.Stored) -> None:
        histories[:] = [_history(root, found)]

    found = snapshots.read(root / SNAPSHOTS if (root / SNAPSHOTS).is_dir() else root, complete)
    arrays, plain = found.arrays, found.plain
    network = stepping.paired(problem, network)
    program = planned(algorithm, problem, network, max(1, int(plain["rounds"])))
    setting = stepping.setting(program, problem, network, None, typed_key(0))
    state = jax.eval_shape(lambda setting: loop.start(setting, ()), setting)[1].state
    leaves = [arrays[f"leaf{i}"] for i in range(int(plain["leaves"]))]
    wanted, structure = jax.tree.flatten(state)
    if len(leaves) == len(wanted):
        stored = structure.unflatten(leaves)
        wanted = jax.tree.leaves(jax.eval_shape(lambda state: fitted(program, state, stored), state))
    check_leaves(leaves, wanted, str(folder))
    names: dict[str, Any] = {name: plain[name] for name in (*_PLAIN, *_ENDING)}
    names |= {name: tuple(plain[name]) for name in ("released", "warnings")}
    return Checkpoint(
        **names,
        state=jax.tree.unflatten(structure, leaves),
        communications=arrays["communications"],
        releases=arrays["releases"],
        clock=arrays.get("clock"),
        ledger=Ledger.from_dict(plain["ledger"]),
        sums={name: int(value) for name, value in plain["sums"].items()},
        history=histories[0],
        provenance=None if plain["provenance"] is None else Provenance(**plain["provenance"]),
        moments=dict(zip(map(int, arrays.get("moments", ())), arrays.get("moments_releases", ()))),
        place=Position(*plain["journal"]),
        run_key=(read_record(root) or ("", None))[1],
    )


def _history(root: Path, found: snapshots.Stored) -> pd.DataFrame:
    """The records that belong to a snapshot; ValueError where the journal does not have them as they were written."""
    if (format := found.plain.get("format")) != FORMAT:
        raise ValueError(f"Expected a checkpoint of format {FORMAT}, got {format!r}. Use the same jdfl.")
    before = history_of(journal.read(root / JOURNAL, Position(*found.plain["journal"])).rows(RECORDS))
    names = [name.removeprefix("last ") for name in found.arrays if name.startswith("last ")]
    last = pd.DataFrame({name: found.arrays[f"last {name}"] for name in names})
    return pd.concat([before, last], ignore_index=True) if len(before) else last
