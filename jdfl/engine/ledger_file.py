"""The file of a dataset's ledger: its contents, its total, and how it is read and written.

It is JSON: version, budget, hash of the records, and for every run, by the digest of its private key, its releases, or
the reservation if it has not ended.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np

from jdfl.privacy import Ledger
from jdfl.privacy.accounting import scheduled
from jdfl.privacy.ledger import total_epsilon
from jdfl.privacy.report import plain, upper

_VERSION = 2


@dataclass(frozen=True)
class Standing:
    """The standing of all runs in a dataset's ledger."""

    path: str  # the file
    runs: int  # with a private key of their own each
    open: int  # of these, how many have not ended, or were killed
    epsilon: float  # of all of them together, infinite where one has none
    delta: float
    budget: float  # the epsilon that they may have together

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an epsilon that is infinite becomes None."""
        return plain(asdict(self))

    def statement(self) -> str:
        """The same in a sentence."""
        runs = f"1 run in the ledger {self.path} costs" if self.runs == 1 else f"{self._all} cost"
        spent = upper(self.epsilon) if math.isfinite(self.epsilon) else "no finite epsilon"
        unended = f", {self.open} not ended and counted in full" if self.open else ""
        return f"{runs} ({spent}, {self.delta:g}) of ({self.budget:g}, {self.delta:g}){unended}."

    @property
    def _all(self) -> str:
        return f"{self.runs} runs in the ledger {self.path} together"


@dataclass
class Entry:
    """The run with a private key, which may be resumed."""

    title: str
    run: str  # the token of the run, and a hash of what it is: no other may have its private key
    released: Ledger | None = None  # by runs that have ended; None: none has
    held: dict[str, tuple[Ledger, int]] = field(default_factory=dict[str, "tuple[Ledger, int]"])  # and by how many
    void: str = ""  # why a run that has ended has no epsilon; empty: all have one
    outputs: dict[str, str] = field(default_factory=dict[str, str])  # digests of what it released, by rounds

    def charge(self) -> Ledger:
        """The maximum of what may have been released."""
        known = [] if self.released is None else [self.released]
        return joined([*known, *(ledger for ledger, _ in self.held.values())])

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        held = {name: {"ledger": ledger.as_dict(), "runs": runs} for name, (ledger, runs) in self.held.items()}
        released = None if self.released is None else self.released.as_dict()
        state = "reserved" if self.held else "done"
        return {"state": state, **vars(self), "released": released, "held": held}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        held = {name: (Ledger.from_dict(one["ledger"]), int(one["runs"])) for name, one in told["held"].items()}
        released = None if told["released"] is None else Ledger.from_dict(told["released"])
        return cls(told["title"], told["run"], released, held, told["void"], dict(told["outputs"]))


@dataclass
class Content:
    """The content of the file."""

    epsilon: float
    delta: float
    data: str | None = None  # a hash of the records; None before the first run
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])  # by the digest of the private key of a run

    def total(self, more: Iterable[Ledger] = ()) -> float:
        """The epsilon of all entries together, and of `more` runs."""
        if any(one.void for one in self.entries.values()):
            return math.inf
        every = (*(one.charge() for one in self.entries.values()), *more)
        charges = [ledger for ledger in every if ledger.releases.any()]
        return total_epsilon(charges, self.delta) if charges else 0.0

    def standing(self, path: Path) -> Standing:
        """The standing of all entries."""
        unended = sum(bool(one.held) for one in self.entries.values())
        return Standing(str(path), len(self.entries), unended, self.total(), self.delta, self.epsilon)


def joined(ledgers: Sequence[Ledger]) -> Ledger:
    """The maximum over parts of one run: the most releases of every node, and the longest schedule."""
    first, *others = ledgers
    for one in others:
        first.check_same(one)
    longest = max(ledgers, key=lambda one: scheduled(one.event) or 0)
    return replace(first, event=longest.event, releases=np.max([one.releases for one in ledgers], axis=0))


@contextlib.contextmanager
def alone(path: Path) -> Generator[None]:
    """A lock against other threads and processes that use the same ledger: a file next to it, which stays."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Expected a ledger in a folder that is there, got {path}. Make its folder first.")
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the process, however that ends
        yield


def write(path: Path, content: Content) -> None:
    """Write the file atomically and durably."""
    told: dict[str, Any] = {
        "version": _VERSION,
        "budget": {"epsilon": content.epsilon, "delta": content.delta},
        "data": content.data,
        "runs": {run: entry.as_dict() for run, entry in content.entries.items()},
    }
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
    try:
        with partial.open("w", encoding="utf-8") as file:
            json.dump({**told, "sha256": _checksum(told)}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read(path: Path) -> Content:
    """The content of the file; FileNotFoundError where it is missing, ValueError where it is damaged."""
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected the ledger of a dataset at {path}, found none. No new one is made: look for the file, or "
            "make a first one by jdfl.DataLedger.create or jdfl account --new-ledger."
        )
    remedy = "What runs have released is not known without it: take a copy that is whole."
    try:
        told: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"Expected the ledger of a dataset at {path}, got a damaged file. {remedy}") from error
    if told.get("version") != _VERSION:
        raise ValueError(
            f"Expected a ledger of version {_VERSION} at {path}, got version {told.get('version')!r}. Use the jdfl "
            "that has written it."
        )
    if told.pop("sha256", None) != _checksum(told):
        raise ValueError(f"Expected a ledger as it was written at {path}, got another content. {remedy}")
    entries = {run: Entry.from_dict(one) for run, one in told["runs"].items()}
    return Content(**told["budget"], data=told["data"], entries=entries)


def _checksum(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
