"""Checkpoints out of the folder of a run."""

from pathlib import Path

import jax
import pandas as pd

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.base.arguments import checked
from jdfl.base.keys import typed_key
from jdfl.engine import loop, stepping, waves
from jdfl.engine.checkpoint import FORMAT, Checkpoint, check_leaves
from jdfl.engine.provenance import Provenance
from jdfl.engine.records import JOURNAL, RECORDS, SNAPSHOTS, history_of
from jdfl.engine.run_record import read_record
from jdfl.network.graph import Network
from jdfl.privacy import Ledger
from jdfl.problems import Problem
from jdfl.store import journal, snapshots
from jdfl.store.journal import Position


def root_of(folder: str | Path) -> Path:
    """The folder with the journal, of this folder or of that of the snapshots in it."""
    folder = Path(folder)
    return folder.parent if folder.name == SNAPSHOTS and (folder.parent / JOURNAL).is_file() else folder


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
    root, records = root_of(folder), list[pd.DataFrame]()

    def complete(found: snapshots.Stored) -> None:
        records[:] = [_history(root, found)]

    kept = root / SNAPSHOTS if (root / SNAPSHOTS).is_dir() else root
    found = snapshots.read(kept, complete)
    held, told = found.arrays, found.told
    network = stepping.paired(problem, network)
    program = planned(algorithm, problem, network, max(1, int(told["rounds"])))
    setting = stepping.setting(program, problem, network, None, typed_key(0))
    state = jax.eval_shape(lambda setting: loop.start(setting, ()), setting)[1].state
    leaves = [held[f"leaf{i}"] for i in range(int(told["leaves"]))]
    wanted, structure = jax.tree.flatten(state)
    if len(leaves) == len(wanted):
        stored = structure.unflatten(leaves)
        wanted = jax.tree.leaves(jax.eval_shape(lambda state: waves.fitted(program, state, stored), state))
    check_leaves(leaves, wanted, str(folder))
    return Checkpoint(
        int(told["rounds"]),
        jax.tree.unflatten(structure, leaves),
        held["communications"],
        held["releases"],
        held.get("clock"),
        Ledger.from_dict(told["ledger"]),
        told["key"],
        told["private key"],
        told["token"],
        tuple(told["released"]),
        {name: int(value) for name, value in told["sums"].items()},
        {name: int(value) for name, value in told["message_bits"].items()},
        tuple(str(warning) for warning in told["warnings"]),
        records[0],
        told["ending"],
        str(told["reason"]),
        float(told["seconds"]),
        float(told["compile_seconds"]),
        None if told["provenance"] is None else Provenance(**told["provenance"]),
        dict(zip(map(int, held.get("moments", ())), held.get("moments_releases", ()))),
        Position(*told["journal"]),
        run_key=(read_record(root) or ("", None))[1],
    )


def _history(root: Path, found: snapshots.Stored) -> pd.DataFrame:
    """The records that belong to a snapshot; ValueError where the journal does not have them as they were written."""
    if (format := found.told.get("format")) != FORMAT:
        raise ValueError(f"Expected a checkpoint of format {FORMAT}, got {format!r}. Use the same jdfl.")
    before = history_of(journal.read(root / JOURNAL, Position(*found.told["journal"])).rows(RECORDS))
    names = [name.removeprefix("last ") for name in found.arrays if name.startswith("last ")]
    last = pd.DataFrame({name: found.arrays[f"last {name}"] for name in names})
    return pd.concat([before, last], ignore_index=True) if len(before) else last
