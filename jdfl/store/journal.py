"""A journal: tables that grow, in one file to which entries are only appended.

The file begins with a line of JSON about its origin. An entry follows another: a head with the number of bytes, the
table, the number of the entry and a digest, and the rows as they lie in memory. The digest covers the entry and
everything before it, so that a damaged, missing or foreign entry is found, and what stands before it can be used.
The first entry of a table has the names and types of its columns. There are no times in it: two runs that do the same
have the same bytes.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from jdfl.store.files import sync_path
from jdfl.store.lease import LostError

_HEAD = struct.Struct("<IIQ16s")  # bytes of the content, table, number of the entry, digest
_SHAPE = 2**31  # added to the table of an entry that has its columns
_MOST = 2**30  # bytes of an entry; what claims more is damaged
_FORMAT = 1
_TYPES = ("<i8", "<f8", "<f4")  # of columns


class Position(NamedTuple):
    """A place in a journal, between two entries."""

    number: int  # entries before it
    offset: int  # bytes before it
    digest: str  # of everything before it


@dataclass(frozen=True)
class Content:
    """What a journal holds, up to a position."""

    origin: dict[str, Any]
    tables: dict[str, np.ndarray]  # by name, rows [k] of a structured type
    end: Position
    damage: str  # what stands after `end`, in words; empty: nothing

    def rows(self, table: str) -> np.ndarray:
        """The rows [k] of a table; none, without columns, for one that was never written."""
        return self.tables.get(table, np.zeros(0, []))


class Journal:
    """The writer of a journal. Nothing is written before `flush`, and nothing is sure to stay before `sync`.

    After a failed `flush` everything that is not yet written is kept, and written by the next one.
    """

    def __init__(self, path: Path, at: Position, tables: Mapping[str, np.dtype]) -> None:
        self._path, self._at = path, at
        self._tables: dict[str, tuple[int, np.dtype]] = {
            name: (number, kind) for number, (name, kind) in enumerate(tables.items())
        }
        self._pending, self._written, self._file = bytearray(), at.offset, -1
        there = path.stat()
        self._inode = there.st_dev, there.st_ino

    @classmethod
    def create(cls, path: Path, origin: Mapping[str, Any]) -> Self:
        """Create the file, which must not exist, and make it durable; FileExistsError where it exists."""
        first = _first(origin)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        made = cls(path, _start(first), {})
        made._file, made._written, made._pending = file, 0, bytearray(first)
        try:
            made.sync()
            sync_path(path.parent)
        except OSError:
            made.close()
            path.unlink(missing_ok=True)  # so that it can be created later
            raise
        return made

    @classmethod
    def resume(cls, path: Path, until: Position) -> Self:
        """Go on from a position, which must be in the file; what stands after it goes when something is written."""
        content = read(path, until)
        return cls(path, until, {name: rows.dtype for name, rows in content.tables.items()})

    @property
    def position(self) -> Position:
        """After everything that was appended."""
        return self._at

    @property
    def untouched(self) -> bool:
        """Whether nothing has been written, so that everything stands there that stood after the position."""
        return self._file < 0

    def append(self, table: str, rows: np.ndarray) -> None:
        """Append rows [k] of a structured type, which all rows of a table share; ValueError for others.

        Columns are whole numbers of 64 bits, and floats of 64 or 32.
        """
        if table not in self._tables:
            columns = [(name, rows.dtype[name].str) for name in rows.dtype.names or ()]
            if not {kind for _, kind in columns} <= set(_TYPES) or not columns or rows.dtype != np.dtype(columns):
                raise ValueError(
                    f"Expected rows of columns of the types {', '.join(_TYPES)}, without gaps, in the table {table} of "
                    f"{self._path}, got {rows.dtype}."
                )
            self._tables[table] = len(self._tables), rows.dtype
            self._enter(_SHAPE + self._tables[table][0], json.dumps([table, columns]).encode())
        number, kind = self._tables[table]
        if kind != rows.dtype:
            raise ValueError(f"Expected rows of {kind} in the table {table} of {self._path}, got {rows.dtype}.")
        most = max(1, _MOST // kind.itemsize)
        for start in range(0, len(rows), most):
            self._enter(number, rows[start : start + most].tobytes())

    def flush(self) -> None:
        """Hand everything to the operating system.

        Raises OSError where it cannot be written, and LostError for a file that is not what was written.
        """
        if self._file < 0 and not self._pending:
            return
        self._check()
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            os.ftruncate(self._file, self._written)
        if not self._pending:
            return
        done = 0
        try:
            while done < len(self._pending):
                done += os.pwrite(self._file, bytes(self._pending[done:]), self._written + done)
        except OSError as error:
            os.ftruncate(self._file, self._written)  # no part of an entry stays
            raise OSError(f"Could not write the journal {self._path}: {error.strerror}.") from error
        self._written += len(self._pending)
        self._pending.clear()

    def sync(self) -> None:
        """`flush`, and wait until the disk has it."""
        self.flush()
        if self._file >= 0:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file, without a `flush`."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _enter(self, table: int, content: bytes) -> None:
        digest = _digest(bytes.fromhex(self._at.digest), table, self._at.number, content)
        self._pending += _HEAD.pack(len(content), table, self._at.number, digest) + content
        self._at = Position(self._at.number + 1, self._at.offset + _HEAD.size + len(content), digest.hex())

    def _check(self) -> None:
        """LostError unless the path leads to the file, and that is as long as what was written, or longer at first."""
        try:
            there = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise LostError(f"Expected the journal of this run at {self._path}, found it removed.") from None
        if (there.st_dev, there.st_ino) != self._inode:
            raise LostError(f"Expected the journal of this run at {self._path}, found another file in its place.")
        if there.st_size < self._written or (self._file >= 0 and there.st_size > self._written):
            raise LostError(
                f"Expected {self._written} bytes in {self._path}, which this run has written, found {there.st_size}: "
                "somebody else has changed it, or the folder was put back to an earlier state."
            )


def read(path: Path, until: Position | None = None) -> Content:
    """What a journal holds: up to a position, or as far as it is whole.

    Raises FileNotFoundError where there is none, and ValueError for a file that is no journal, has another format, or
    is not what was written before `until`.
    """
    try:
        file = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"Expected a journal at {path}, found none.") from None
    head, line, _ = file.partition(b"\n")
    try:
        origin = dict(json.loads(head))
        found = origin.pop("jdfl journal")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"Expected the journal of a run at {path}, got a file that is none, or is damaged.") from None
    if found != _FORMAT or not line:
        raise ValueError(
            f"Expected a journal of format {_FORMAT} at {path}, got {found!r}. Use the jdfl that wrote it."
        )
    end = _start(file[: len(head) + 1])
    names: dict[int, tuple[str, np.dtype]] = {}
    parts: dict[int, list[memoryview]] = {}
    damage = ""
    try:
        for after, table, content in _entries(memoryview(file), end, until):
            if table >= _SHAPE:
                name, columns = json.loads(bytes(content))
                if not columns:
                    raise ValueError(f"at byte {end.offset} there is a table without columns")
                names[table - _SHAPE] = str(name), np.dtype([_column(one) for one in columns])
                parts[table - _SHAPE] = []
            else:
                if table not in names or len(content) % names[table][1].itemsize:
                    raise ValueError(f"at byte {end.offset} there are no rows of a table")
                parts[table].append(content)
            end = after
    except (ValueError, TypeError, RecursionError) as error:
        damage = str(error)
    if until is not None and end != until:
        raise ValueError(
            f"Expected {until.number} entries in {path} as they were written, got {end.number}: {damage or 'others'}."
        )
    tables = {name: np.frombuffer(b"".join(parts[number]), kind) for number, (name, kind) in names.items()}
    return Content(origin, tables, end, damage)


def _entries(file: memoryview, at: Position, until: Position | None) -> Iterator[tuple[Position, int, memoryview]]:
    """The entries from a position on, each with the position after it; ValueError where one is not whole."""
    last = len(file) if until is None else until.offset
    while at.offset < last:
        begin = at.offset + _HEAD.size
        if begin > len(file):
            raise ValueError(f"{len(file) - at.offset} bytes at its end are no whole entry")
        size, table, number, digest = _HEAD.unpack_from(file, at.offset)
        if number != at.number or size > _MOST:
            raise ValueError(f"at byte {at.offset} there is no entry {at.number}")
        if begin + size > len(file):
            raise ValueError(f"{len(file) - at.offset} bytes at its end are no whole entry")
        content = file[begin : begin + size]
        if digest != _digest(bytes.fromhex(at.digest), table, number, content):
            raise ValueError(f"entry {number} at byte {at.offset} is not what was written")
        at = Position(number + 1, begin + size, digest.hex())
        yield at, table, content


def _first(origin: Mapping[str, Any]) -> bytes:
    return json.dumps({"jdfl journal": _FORMAT, **origin}, sort_keys=True).encode() + b"\n"


def _start(first: bytes) -> Position:
    return Position(0, len(first), hashlib.blake2b(first, digest_size=16).hexdigest())


def _digest(before: bytes, table: int, number: int, content: bytes | memoryview) -> bytes:
    total = hashlib.blake2b(before, digest_size=16)
    total.update(struct.pack("<IQ", table, number))
    total.update(content)
    return total.digest()


def _column(column: Any) -> tuple[str, str]:
    """The name and the type of a column; ValueError for one that is no number."""
    name, kind = map(str, column)
    if kind not in _TYPES:
        raise ValueError(f"a table has the column {name} of the type {kind}")
    return name, kind
