"""The ledger of a dataset: one file for all runs on it, and their joint privacy budget.

The maximum of what a run may release is recorded before its first round, and lowered to its actual releases when it
has ended. A run that was killed therefore counts as if it had released everything. A private key is for one run: a
second one with it is refused before its first round, and a run that is resumed continues its own entry.
"""

import contextlib
import fcntl
import hashlib
import json
import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from jdfl.base import checks
from jdfl.privacy import Guarantee, Ledger
from jdfl.privacy.accounting import scheduled
from jdfl.privacy.analytic import check_delta
from jdfl.privacy.ledger import total_epsilon
from jdfl.privacy.report import Plain, check_claim, check_relation, upper, whom
from jdfl.store.files import placed, sync_path

_VERSION = 2


@dataclass(frozen=True)
class Standing(Plain):
    """The standing of all runs in a dataset's ledger."""

    path: str  # the file
    runs: int  # with a private key of their own each
    open: int  # of these, how many have not ended, or were killed
    epsilon: float  # of all of them together, infinite where one has none
    delta: float
    budget: float  # the epsilon that they may have together

    def statement(self) -> str:
        """The same in a sentence."""
        some = f"{self.runs} runs in the ledger {self.path} together cost"
        runs = f"1 run in the ledger {self.path} costs" if self.runs == 1 else some
        spent = upper(self.epsilon) if math.isfinite(self.epsilon) else "no finite epsilon"
        unended = f", {self.open} not ended and counted in full" if self.open else ""
        return f"{runs} ({spent}, {self.delta:g}) of ({self.budget:g}, {self.delta:g}){unended}."


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
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        held = {name: (Ledger.from_dict(one["ledger"]), int(one["runs"])) for name, one in values["held"].items()}
        released = None if values["released"] is None else Ledger.from_dict(values["released"])
        return cls(values["title"], values["run"], released, held, values["void"], dict(values["outputs"]))


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
    values: dict[str, Any] = {
        "version": _VERSION,
        "budget": {"epsilon": content.epsilon, "delta": content.delta},
        "data": content.data,
        "runs": {run: entry.as_dict() for run, entry in content.entries.items()},
    }
    with placed(path) as place:
        place.write_text(json.dumps({**values, "sha256": _checksum(values)}), encoding="utf-8")
    sync_path(path.parent)


def read(path: Path) -> Content:
    """The content of the file; FileNotFoundError where it is missing, ValueError where it is damaged."""
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected the ledger of a dataset at {path}, found none. No new one is made: look for the file, or "
            "make a first one by jdfl.DataLedger.create or jdfl account --new-ledger."
        )
    remedy = "What runs have released is not known without it: take a copy that is whole."
    try:
        values: dict[str, Any] = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"Expected the ledger of a dataset at {path}, got a damaged file. {remedy}") from error
    if values.get("version") != _VERSION:
        raise ValueError(
            f"Expected a ledger of version {_VERSION} at {path}, got version {values.get('version')!r}. Use the jdfl "
            "that has written it."
        )
    if values.pop("sha256", None) != _checksum(values):
        raise ValueError(f"Expected a ledger as it was written at {path}, got another content. {remedy}")
    entries = {run: Entry.from_dict(one) for run, one in values["runs"].items()}
    return Content(**values["budget"], data=values["data"], entries=entries)


def _checksum(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class Intent(NamedTuple):
    """A planned run, and the maximum of what it may release."""

    key: str  # the digest of its private key
    run: str  # its token, and a hash of settings, data, what is computed, code and libraries
    title: str  # algorithm, problem, network and key in words
    data: str  # a hash of the nodes' records
    guarantee: Guarantee
    releases: np.ndarray  # [m] in all rounds, those before the first included
    records: np.ndarray  # [m]
    rounds: int
    terms: str  # a hash of what may end it, and how it is executed: runs that share it, too, end in the same round

    @property
    def ledger(self) -> Ledger:
        """The ledger of the run after all its rounds."""
        return Ledger.of(self.guarantee, self.releases, self.records)


@dataclass(frozen=True)
class DataLedger:
    """A file that all runs on one dataset share, which refuses runs that could exceed the budget before they begin.

    `jdfl.run`, `sweep`, `repeat` and `compare` take it as `ledger`, in any number of processes at once. The first run
    binds it to its nodes' records: another partition of them counts as other data. `create` makes the file.
    Where it is missing FileNotFoundError is raised, and where it is damaged ValueError.

    Args:
        path: The file.
    """

    path: Path

    def __init__(self, path: str | Path) -> None:
        object.__setattr__(self, "path", _file(path))
        read(self.path)

    @classmethod
    def create(cls, path: str | Path, *, epsilon: float, delta: float) -> Self:
        """Create an empty ledger in a file at `path`, which must not exist, in a folder that exists.

        All runs on the data together may spend `epsilon` > 0; `delta` in (0, 1) is the probability that this guarantee
        fails. Raises FileExistsError if the file exists, since a ledger is never started again, and ValueError for a
        budget that makes no sense.
        """
        checks.positive("It is what all runs may spend together.", epsilon=epsilon)
        check_delta(delta)
        file = _file(path)
        with alone(file):
            if file.exists():
                raise FileExistsError(
                    f"Expected a place for a new ledger, got {file}, which is there. What runs have released stays "
                    "released: go on with that file, or name another for other data."
                )
            write(file, Content(float(epsilon), float(delta)))
        return cls(file)

    def standing(self) -> Standing:
        """The joint cost of all runs in it, and how many of them have not ended; `statement` has it in words."""
        return read(self.path).standing(self.path)

    def lines(self) -> list[str]:
        """A line for every run: its settings, the most releases of a node, its state, and who is protected."""
        found: list[str] = []
        for one in read(self.path).entries.values():
            state = f"{'reserved' if one.held else 'done'}{f', no epsilon: {one.void}' if one.void else ''}"
            most = one.charge()
            promised = whom(most.unit, most.adjacency, most.observer)
            found.append(f"{one.title}: {int(most.releases.max())} releases, {state}; {promised}")
        return found

    def check(self, runs: Sequence[Intent]) -> float:
        """The epsilon of all entries with these runs; ValueError where `reserve` raises it. The file stays."""
        content = read(self.path)
        for run in runs:
            self._enter(content, run)
        return self._within(content, runs)

    def reserve(self, runs: Sequence[Intent], *, instead: "Hold | None" = None) -> "Hold":
        """Record the maximum of what these runs may release, or refuse all of them and leave the file unchanged.

        The runs have not begun, or will be resumed; a reservation that they stand for, `instead`, is returned with
        it. Raises ValueError for runs that claim nothing, on other data, with another relation of neighbours than the
        entries', with the private key of another run, or beyond the budget.
        """
        hold = Hold(self, [(run.key, run.terms) for run in runs])
        with alone(self.path):
            content = read(self.path)
            if instead is not None:
                instead.give_back(content, {})
            for run in runs:
                self._enter(content, run)
            self._within(content, runs)
            write(self.path, content)
        return hold

    def _enter(self, content: Content, run: Intent) -> None:
        """Add the releases of a planned run; ValueError if it does not belong to the others."""
        try:
            check_claim(run.guarantee, anyway=False)
            check_relation(run.guarantee, run.records, content.delta)
        except ValueError as error:
            raise ValueError(f"Expected runs with an epsilon in the ledger {self.path}. {error}") from error
        content.data = content.data or run.data
        if content.data != run.data:
            raise ValueError(
                f"Expected the data of the ledger {self.path}, got others, or another split of the same records over "
                "nodes. Every dataset has its own ledger; a record that is in several of them spends from each."
            )
        entry = content.entries.setdefault(run.key, Entry(run.title, run.run))
        if entry.run != run.run:
            raise ValueError(
                f"Expected a private key that no other run in the ledger {self.path} has, got that of {entry.title}: "
                "two runs with one private key share their noise, and have no joint epsilon. Give it another key, or "
                "none for a new one; a run that was cut off is resumed."
            )
        before, runs = entry.held.get(run.terms, (run.ledger, 0))
        entry.held[run.terms] = joined([before, run.ledger]), runs + 1

    def _within(self, content: Content, runs: Sequence[Intent]) -> float:
        """The epsilon of all entries; ValueError where it is beyond the budget."""
        if void := [one for one in content.entries.values() if one.void]:
            raise ValueError(
                f"Expected a ledger whose runs all have an epsilon, got {self.path} with {void[0].title}: "
                f"{void[0].void}. Nothing can be claimed of all runs together any more."
            )
        try:
            found = content.total()
        except ValueError as error:
            raise ValueError(f"Of the runs in the ledger {self.path} and this one: {error}") from error
        if found <= content.epsilon:
            return found
        before = read(self.path)
        spent = before.total()
        what = f"{len(runs)} runs" if len(runs) > 1 else f"a run of {runs[0].rounds} rounds"
        fit = f" About {_fitting(before, runs[0])} of its rounds would fit." if len(runs) == 1 else ""
        raise ValueError(
            f"Expected runs that cost at most epsilon = {content.epsilon:g} at delta = {content.delta:g} together in "
            f"the ledger {self.path}, got {what} with which they would cost {upper(found)}, after "
            f"{upper(spent)} before.{fit} Make fewer rounds or fewer runs, or add more noise."
        )


class Hold:
    """The reservation of a ledger for runs that have not ended."""

    def __init__(self, book: DataLedger, runs: Iterable[tuple[str, str]]) -> None:
        self._book, self._runs = book, list(runs)

    @classmethod
    def of(cls, book: DataLedger, file: Path) -> Self:
        """The reservation that a process which was killed has written; ValueError for a damaged file."""
        try:
            return cls(book, [(str(run), str(terms)) for run, terms in json.loads(file.read_text(encoding="utf-8"))])
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"Expected the reservations of this work in {file}, got a damaged file. Remove it: what was reserved "
                f"then stays so in the ledger {book.path}."
            ) from error

    def write(self, file: Path) -> None:
        """Write it for `of`, whole or not at all."""
        with placed(file) as place:
            place.write_text(json.dumps(self._runs), encoding="utf-8")

    def end(self, ended: "Mapping[str, Ended]") -> Standing:
        """Lower a reservation to the actual releases of the runs."""
        path = self._book.path
        with alone(path):
            content = read(path)
            self.give_back(content, ended)
            write(path, content)
            return content.standing(path)

    def give_back(self, content: Content, ended: "Mapping[str, Ended]") -> None:
        """`end` in what a file holds."""
        for run, terms in self._runs:
            if (entry := content.entries.get(run)) is None:
                continue
            one = ended.get(run)
            if one is not None:
                entry.released = one.ledger if entry.released is None else joined([entry.released, one.ledger])
                entry.void = entry.void or one.void
                if entry.outputs.setdefault(str(one.rounds), one.outputs) != one.outputs:
                    entry.void = "two runs with its private key have released different things"
            kept, runs = entry.held.pop(terms, (None, 0))
            if kept is not None and runs > 1 and (one is None or not one.whole):
                entry.held[terms] = kept, runs - 1  # of another process, or of one that was killed
            if entry.released is None and not entry.held:
                del content.entries[run]  # it never began


class Ended(NamedTuple):
    """The releases of a run that has ended."""

    ledger: Ledger
    whole: bool  # it ended by itself, so that runs with the same `Intent.terms` release no more
    void: str  # why there is no epsilon of it after all; empty: there is
    rounds: int
    outputs: str  # the digest of what it has released


def _file(path: Any) -> Path:
    """The file at `path`; ValueError for what names none."""
    if not isinstance(path, str | Path) or not Path(path).name:
        checks.refuse("the path of a file", "path", path, "For example 'hospital.ledger.json'.")
    return Path(path)


def _fitting(content: Content, run: Intent) -> int:
    """About how many rounds of a run are within the budget, if all of them release alike."""
    low, high = 0, run.rounds
    content.entries.pop(run.key, None)  # its rounds are among these
    while high - low > 1:
        middle = (low + high) // 2
        part = replace(run.ledger, releases=-(-run.ledger.releases * middle // run.rounds))  # int64: no overflow
        low, high = (middle, high) if content.total([part]) <= content.epsilon else (low, middle)
    return low
