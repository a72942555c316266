"""Files as decompressed streams of bytes: complete, of the kind that their names say, and of a bounded size."""

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from jdfl.base import checks

PathLike = str | os.PathLike[str]

_MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00", ".zip": b"PK"}
_DECOMPRESSOR = {".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}
_PIECE = 2**17  # bytes
_UNPACKED, _TIMES = 2**26, 100  # bytes that every file may unpack to; larger files may unpack to 100 times their size
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)  # or a zip with a password
AGAIN = "Download it again."


def existing(path: PathLike) -> Path:
    """The path of an existing file; FileNotFoundError otherwise."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file at {path}, found none. Check the path, or download the data there.")
    return path


def need(holds: bool, expected: str, place: object, got: object, remedy: str = AGAIN) -> None:
    """Refuse a file without the expected content at a place in it: ValueError."""
    if not holds:
        raise ValueError(f"Expected {expected} in {place}, got {got}. {remedy}")


@contextmanager
def opened(path: Path) -> Generator[IO[bytes]]:
    """The decompressed content of `path` as a stream of bytes.

    ValueError for a file of another kind than its name says, and for content beyond `most_unpacked(path)` bytes.
    """
    with path.open("rb") as file:
        head = file.read(6)
    kind = next((suffix for suffix, magic in _MAGIC.items() if head.startswith(magic)), "")
    named = path.suffix if path.suffix in _MAGIC else ""
    if kind != named:
        said = f"{named} data" if named else "plain text"
        got = f"{kind} data" if kind else "something else"
        raise ValueError(f"Expected {said} in {path}, as its name says, got {got}. Rename it, or download it again.")
    try:
        with ExitStack() as stack:
            begin: Any = gzip.open if kind == ".gz" else open
            file: Any = stack.enter_context(begin(path, "rb"))
            if kind == ".zip":
                archive = stack.enter_context(zip_file(path))
                file = stack.enter_context(archive.open(_only_table(archive, path)))
            pieces = _unpacked(file, kind) if kind in _DECOMPRESSOR else iter(lambda: file.read(_PIECE), b"")
            yield io.BufferedReader(_Pieces(pieces, most_unpacked(path)), _PIECE) if kind else file
    except DAMAGE as error:
        raise ValueError(
            f"Expected a whole {kind or 'text'} file at {path}: {checks.said(error)}. It is damaged. {AGAIN}"
        ) from error


def most_unpacked(path: Path) -> int:
    """The maximum number of bytes that a compressed file may unpack to; larger ones are built to fill the memory."""
    return max(_UNPACKED, _TIMES * path.stat().st_size)


def zip_file(path: Path) -> zipfile.ZipFile:
    """An archive with its directory; OSError for one that cannot be read, whatever the cause."""
    try:
        return zipfile.ZipFile(path)
    except Exception as error:  # names, dates and offsets that make no sense each fail in ways of their own
        raise OSError(str(error) or repr(error)) from error


def _unpacked(file: IO[bytes], kind: str) -> Iterator[bytes]:
    """The content of consecutive .bz2 or .xz streams; an error of `DAMAGE` for anything else in the file.

    `bz2.open` and `lzma.open` mistake a stream that is damaged at its beginning for the end of the file. Zeros may
    separate two streams of .xz.
    """
    packed = file.read(_PIECE)
    while packed:
        one = _DECOMPRESSOR[kind]()
        while not one.eof:
            if one.needs_input and not (packed := packed or file.read(_PIECE)):
                raise EOFError("it ends within its data")
            yield one.decompress(packed, _PIECE)
            packed = b""
        packed = one.unused_data or file.read(_PIECE)
        while kind == ".xz" and packed and not (packed := packed.lstrip(b"\0")):
            packed = file.read(_PIECE)


class _Pieces(io.RawIOBase):
    """The stream of consecutive pieces with at most `most` bytes in total; OSError beyond them."""

    def __init__(self, pieces: Iterator[bytes], most: int) -> None:
        self._pieces, self._most, self._left, self._held = pieces, most, most, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if not self._held:
            self._held = next(filter(None, self._pieces), b"")
            self._left -= len(self._held)
        if self._left < 0:
            raise OSError(f"it unpacks to more than {self._most} bytes")
        data, self._held = self._held[: len(buffer)], self._held[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _only_table(archive: zipfile.ZipFile, path: Path) -> str:
    tables = [name for name in archive.namelist() if name.endswith(".csv")]
    if len(tables) != 1:
        raise ValueError(f"Expected one .csv in {path}, got {len(tables)}. Leave the table alone in it.")
    return tables[0]
