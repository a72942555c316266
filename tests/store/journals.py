"""A small journal for tests, and its entries, found without the reader that is tested."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np

from jdfl.store.journal import Journal, Position

HEAD = struct.Struct("<IIQ16s")
COLUMNS = 2**31  # added to the table of an entry that has its columns
ORIGIN = {"key": "k", "settings": "s"}
A, B = np.dtype([("x", "<i8")]), np.dtype([("y", "<f8"), ("z", "<f4")])
APPENDED = [  # of two tables, by turns
    ("a", np.array([(1,), (-(2**63),)], A)),
    ("b", np.array([(np.nan, -np.inf)], B)),
    ("a", np.array([(3,)], A)),
    ("b", np.array([(-0.0, 1e-45), (5e-324, 2.0)], B)),
]


def small(path: Path, origin: dict[str, str] = ORIGIN, first: int = 1) -> Journal:
    """A journal of `APPENDED`, which is written; `first` is the first number in it."""
    made = Journal.create(path, origin)
    for place, (table, rows) in enumerate(APPENDED):
        rows = rows.copy()
        if not place:
            rows["x"][0] = first
        made.append(table, rows)
    made.sync()
    return made


def split(file: bytes) -> tuple[bytes, list[bytes]]:
    """The first line of a whole journal, and its entries."""
    at = file.index(b"\n") + 1
    first, entries = file[:at], []
    while at < len(file):
        end = at + HEAD.size + HEAD.unpack_from(file, at)[0]
        entries.append(file[at:end])
        at = end
    return first, entries


def positions(file: bytes) -> list[Position]:
    """The positions in a whole journal, before, between and after its entries."""
    first, entries = split(file)
    found = [Position(0, len(first), hashlib.blake2b(first, digest_size=16).hexdigest())]
    for entry in entries:
        found.append(Position(len(found), found[-1].offset + len(entry), HEAD.unpack_from(entry)[3].hex()))
    return found


def expected(entries: list[bytes]) -> dict[str, tuple[np.dtype, bytes]]:
    """The type and the rows of every table in entries that are whole."""
    names: dict[int, str] = {}
    tables: dict[str, tuple[np.dtype, bytes]] = {}
    for entry in entries:
        table, content = HEAD.unpack_from(entry)[1], entry[HEAD.size :]
        if table >= COLUMNS:
            name, columns = json.loads(content)
            names[table - COLUMNS], tables[name] = name, (np.dtype([tuple(one) for one in columns]), b"")
        else:
            kind, rows = tables[names[table]]
            tables[names[table]] = kind, rows + content
    return tables


def held(tables: dict[str, np.ndarray]) -> dict[str, tuple[np.dtype, bytes]]:
    """The type and the bytes of the rows of every table."""
    return {name: (rows.dtype, rows.tobytes()) for name, rows in tables.items()}


def entry(at: Position, table: int, content: bytes) -> bytes:
    """An entry with a digest that is right, whatever is in it."""
    told = struct.pack("<IQ", table, at.number) + content
    digest = hashlib.blake2b(bytes.fromhex(at.digest) + told, digest_size=16).digest()
    return HEAD.pack(len(content), table, at.number, digest) + content


def move(path: Path) -> None:
    """A file's folder is moved."""
    path.parent.rename(path.parent.with_name("moved"))


def put_a_file(path: Path) -> None:
    """A file is put where a file's folder was."""
    move(path)
    path.parent.write_bytes(b"")
