"""A run's progress: everything that goes from one round to the next, and what has been counted so far.

A file holds the state's arrays by position, so that reading one needs the run's algorithm, problem and network, whose
state tells the shapes; there is no code in it. The ledger of releases is part of it.
"""

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax
import numpy as np
import pandas as pd

from jdfl import checks, distributed, loop
from jdfl.base import Algorithm
from jdfl.keys import typed_key
from jdfl.metrics import COUNTS
from jdfl.network.graph import Network
from jdfl.privacy import Ledger
from jdfl.problems import Problem
from jdfl.result import Result, Tally

_FORMAT = 1
_NEVER = 2**31  # rounds, more than a run has
_REMEDY = "Resume with the algorithm, problem and network of that run."


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stands after `rounds` rounds."""

    rounds: int
    state: Any  # the algorithm's
    communications: np.ndarray  # [m]
    releases: np.ndarray  # [m]
    ledger: Ledger
    key: list[int]  # data of the run's key
    sums: dict[str, int]  # exact totals by counter
    message_bits: dict[str, int]  # size of one message, by channel
    warnings: tuple[str, ...]  # what these rounds did that a guarantee does not cover
    history: pd.DataFrame
    seconds: float
    compile_seconds: float

    @classmethod
    def of(cls, result: Result) -> "Checkpoint":
        """Where a finished run stands. Raises ValueError for one without a state, or one that diverged."""
        if result.state is None:
            raise ValueError("Expected a result of jdfl.run, got one of runs side by side, whose states are not kept.")
        if result.diverged is not None:
            raise ValueError(f"Expected a run to go on with, got one that diverged: {result.reason}.")
        return cls(
            result.rounds,
            result.state,
            result.communication_rounds,
            result.releases,
            Ledger.of(result.guarantee, result.releases, result.records),
            list(result.key),
            dict(result.sums),
            dict(result.totals.message_bits),
            tuple(dict.fromkeys((*result.guarantee.warnings, *result.privacy_warnings))),
            result.history,
            result.seconds,
            result.compile_seconds,
        )

    def check(self, ledger: Ledger, key: list[int], steps: int, metrics: Sequence[str] | None = None) -> None:
        """Refuse to go on with other noise, randomness or metrics, or to where the run has been: ValueError."""
        self.ledger.check_same(ledger)
        if key != self.key:
            raise ValueError(
                f"Expected the key of the run that is resumed, {self.key}, got {key}. Leave key as it was; what comes "
                "next is drawn from it and from the number of the round."
            )
        if steps <= self.rounds:
            raise ValueError(
                f"Expected steps > {self.rounds}, the rounds that are done, got steps = {steps}. It counts all rounds."
            )
        recorded = sorted(set(map(str, self.history.columns)) - set(COUNTS))
        if metrics is not None and sorted(metrics) != recorded:
            raise ValueError(
                f"Expected the metrics of the run that is resumed, {recorded}, got {sorted(metrics)}. A history has "
                "the same columns in all its rows."
            )

    def carry(self, fresh: loop.Carry) -> loop.Carry:
        """What the next round starts from, on the device; `fresh` is the start of the same run.

        Raises ValueError where the state is not one of this run's.
        """
        jnp = jax.numpy
        wanted, structure = jax.tree.flatten(fresh.state)
        if jax.tree.structure(self.state) != structure:
            raise ValueError(
                f"Expected a state of {type(fresh.state).__name__} with {len(wanted)} arrays, got one of "
                f"{type(self.state).__name__}: it is another algorithm's. {_REMEDY}"
            )
        _check_leaves(jax.tree.leaves(self.state), wanted, "the run that is resumed")
        copied = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), self.state)
        return fresh.replace(  # pyright: ignore[reportAttributeAccessIssue]
            state=copied,
            rounds=jnp.int32(self.rounds),
            communications=jnp.array(self.communications, jnp.int32),
            releases=jnp.array(self.releases, jnp.int32),
        )

    def tally(self, message_bits: dict[str, int], every: int) -> Tally:
        """The records so far; one that was made because the run ended there is dropped when a later one comes.

        Raises ValueError where messages had other sizes, which would be added up wrongly.
        """
        if message_bits != self.message_bits:
            raise ValueError(
                f"Expected the messages of the run that is resumed, {self.message_bits} bits, got {message_bits}. "
                f"{_REMEDY}"
            )
        tally = _Onward(message_bits)
        tally.every, tally.base = every, dict(self.sums)
        tally.rows = [dict(row) for row in self.history.to_dict("records")]
        tally.sift()
        return tally

    def write(self, path: str | Path) -> Path:
        """Write one file, whole or not at all; returns its path."""
        path = Path(path)
        leaves = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.state))}
        table = io.BytesIO()
        self.history.to_parquet(table, index=False)
        told = {
            "format": _FORMAT,
            "rounds": self.rounds,
            "leaves": len(leaves),
            "ledger": self.ledger.as_dict(),
            "key": self.key,
            "sums": {name: str(value) for name, value in self.sums.items()},
            "message_bits": self.message_bits,
            "warnings": list(self.warnings),
            "seconds": self.seconds,
            "compile_seconds": self.compile_seconds,
        }
        partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
        try:
            with partial.open("wb") as file:
                np.savez(
                    file,
                    communications=self.communications,
                    releases=self.releases,
                    history=np.frombuffer(table.getvalue(), np.uint8),
                    told=np.frombuffer(json.dumps(told).encode(), np.uint8),
                    **leaves,  # pyright: ignore[reportArgumentType]
                )
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        return path


class _Onward(Tally):
    """Records that go on where others end."""

    every = 1

    def add(self, rounds: Any, metrics: dict[str, Any], counts: dict[str, Any]) -> None:
        """Append the records of a chunk, and drop what is then no longer the end."""
        super().add(rounds, metrics, counts)
        self.sift()

    def sift(self) -> None:
        """Leave records of multiples of `every`, and the last."""
        self.rows = [row for row in self.rows[:-1] if row["round"] % self.every == 0] + self.rows[-1:]


class Keeper:
    """Writes a run's checkpoints, where and when it was asked to; of several processes only the first writes and looks.

    Raises ValueError for rounds without a path, FileNotFoundError where its folder is missing, and FileExistsError
    where a run from the start would write over what another has kept.
    """

    def __init__(self, path: str | Path | None, every: int | None, resumed: bool) -> None:
        if every is not None:
            checks.whole(1, remedy="It is a number of rounds.", checkpoint_every=every)
        self.path, self.every, self.rounds = None if path is None else Path(path), int(every or _NEVER), 0
        if self.path is None and every is not None:
            raise ValueError(f"Expected checkpoint, a file, beside checkpoint_every = {every!r}, got None.")
        if self.path is None or not distributed.leads():
            return
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"Expected a folder for checkpoint = {str(self.path)!r}, found none. Make it first."
            )
        if self.path.exists() and not resumed:
            raise FileExistsError(
                f"Expected no file at checkpoint = {str(self.path)!r}, found one. Go on from it with "
                "resume = jdfl.read_checkpoint(...), or name another."
            )

    def start(self, rounds: int) -> None:
        """The run begins after so many rounds."""
        self.rounds = rounds

    def due(self, rounds: int) -> bool:
        """Whether it is time for a checkpoint, so many rounds being done."""
        return self.path is not None and rounds // self.every > self.rounds // self.every

    def keep(self, result: Result) -> None:
        """Write where a run stands."""
        self.rounds = result.rounds
        if self.path is not None and distributed.leads():
            Checkpoint.of(result).write(self.path)


def read_checkpoint(path: str | Path, algorithm: Algorithm, problem: Problem, network: Network) -> Checkpoint:
    """Read a file of `Checkpoint.write` for a run of these. ValueError for one that is damaged or of another run."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a checkpoint at {path}, found none. Give the state.npz of a run's folder.")
    setting = loop.setting(algorithm, problem, network, None, typed_key(0))
    state = jax.eval_shape(lambda setting: loop.start(setting, ()), distributed.shaped(setting))[1].state
    with _reading(path), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        held = {name: arrays[name] for name in arrays.files}
        told = dict(json.loads(held["told"].tobytes()))
    if told.get("format") != _FORMAT:
        raise ValueError(f"Expected a checkpoint of format {_FORMAT}, got {told.get('format')!r}. Use the same jdfl.")
    with _reading(path):
        leaves = [held[f"leaf{i}"] for i in range(int(told["leaves"]))]
        checkpoint = Checkpoint(
            int(told["rounds"]),
            leaves,
            held["communications"],
            held["releases"],
            Ledger.from_dict(told["ledger"]),
            [int(word) for word in told["key"]],
            {name: int(value) for name, value in told["sums"].items()},
            {name: int(value) for name, value in told["message_bits"].items()},
            tuple(str(warning) for warning in told["warnings"]),
            pd.read_parquet(io.BytesIO(held["history"].tobytes())),
            float(told["seconds"]),
            float(told["compile_seconds"]),
        )
    wanted, structure = jax.tree.flatten(state)
    leaves = [_typed(leaf, like) for leaf, like in zip(leaves, wanted)] + leaves[len(wanted) :]
    _check_leaves(leaves, wanted, str(path))
    return replace(checkpoint, state=jax.tree.unflatten(structure, leaves))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside is a damaged file: ValueError."""
    try:
        yield
    except Exception as error:  # archives, arrays, tables and text each fail in ways of their own
        raise ValueError(f"Expected a checkpoint at {path}, got a file that cannot be read: {error!r}.") from error


def _typed(leaf: np.ndarray, like: Any) -> np.ndarray:
    """The array as it was: a NumPy file gives back bytes where it does not know the type (bfloat16)."""
    untyped = leaf.dtype.kind == "V" and leaf.dtype.itemsize == like.dtype.itemsize
    return leaf.view(like.dtype) if untyped else leaf


def _check_leaves(leaves: list[Any], wanted: list[Any], place: str) -> None:
    """Refuse a state of other arrays: ValueError naming the first that differs."""
    for leaf, like in zip(leaves, wanted):
        if leaf.shape != like.shape or leaf.dtype != like.dtype:
            raise ValueError(
                f"Expected a state with {like.dtype.name}{list(like.shape)}, got {leaf.dtype.name}{list(leaf.shape)} "
                f"from {place}. {_REMEDY}"
            )
    if len(leaves) != len(wanted):
        raise ValueError(
            f"Expected a state of {len(wanted)} arrays, got {len(leaves)} from {place}: it is another algorithm's. "
            f"{_REMEDY}"
        )
