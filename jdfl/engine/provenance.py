"""The provenance of a result: code, libraries, settings and data, recorded and summarised in one hash."""

import functools
import hashlib
import inspect
import json
import math
import platform
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jdfl.base import checks
from jdfl.base.keys import key_digest
from jdfl.base.names import Alike
from jdfl.devices.processes import Portion, portion, summed
from jdfl.engine import contents

DERIVED = ("curvature", "optimum")  # by solvers that may differ between machines
_SHORT = 16  # hexadecimal digits of a checksum
_FEW = 4  # numbers that are recorded one by one
_WHOLE = 2**24  # whole numbers up to here are exact in float32
_WORDS = 2**22  # of 32 bits that are looked at together, 32 MB when multiplied

_UNASKED = {"kernels": "not asked for"}  # which is recorded of runs that ask for them alone

_listeners: list[Callable[[str], object]] = []
_sums: dict[tuple[str, int], tuple[weakref.ref[Any], str]] = {}  # of arrays that are still there, by id


@dataclass(frozen=True)
class Provenance:
    """The origin of a result."""

    versions: dict[str, str]  # of the code and of its dependencies
    settings: dict[str, str]  # by dotted path

    @property
    def hash(self) -> str:
        """The hash of all that is recorded here; the number of rounds and the choice of metrics do not enter."""
        return _hex(json.dumps([self.versions, self.settings], sort_keys=True).encode())

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"hash": self.hash, "versions": self.versions, "settings": self.settings}

    def differences(self, before: "Provenance") -> tuple[list[str], list[str]]:
        """The differences between versions and between settings that both record, in words; kernels always count."""
        versions, settings = (
            [_UNASKED | getattr(one, name) for one in (before, self)] for name in ("versions", "settings")
        )
        return _differences(*versions), _differences(*settings)


def recorded(versions: dict[str, str], settings: dict[str, str]) -> Provenance:
    """The provenance that a file records; older files have the words of the key."""
    key = settings.get("key", "").split(" ")
    if len(key) > 1:
        settings = settings | {"key": key_digest([int(word) for word in key])}
    return Provenance(versions, settings)


_FORMER = {  # fields that classes had, empty, when draws were recorded: they count on, so that runs keep their noise
    "CEPS": ("lengths",),
    "CPGT": ("scales",),
    "DOADP": ("steps", "activity"),
    "DPDDA": ("activity",),
    "DPDO": ("lengths", "noise"),
    "DPPS": ("schedule", "scales"),
    "Gradients": ("lengths", "order", "together"),
    "Graph": ("whole",),
    "OneBit": ("order",),
}


def provenance(key: str = "", **settings: Any) -> Provenance:
    """The provenance of a key's digest and of settings of any kind, in this process."""
    lines = {path: text for name, value in settings.items() for path, text in _lines(name, value)}
    made = Provenance(versions(), {"key": key, **lines})
    for listener in _listeners:
        listener(made.hash)
    return made


def fingerprint(dtype: Any, **settings: Any) -> tuple[int, ...]:
    """Four words of 32 bits that identify these settings: data, and floats as a run in `dtype` holds them.

    The names of problems and networks do not enter. Data that are spread over several processes give the same words
    as on one (`_digest`).
    """
    lines = {
        path: " ".join(_rounded(word, dtype) for word in text.split(" "))
        for name, value in settings.items()
        for path, text in _lines(name, value, digest=True)
    }
    content = hashlib.sha256(json.dumps(lines, sort_keys=True).encode()).digest()
    return tuple(int(word) for word in np.frombuffer(content[:16], ">u4"))


def _rounded(word: str, dtype: Any) -> str:
    """A word, or where it is a number that number in `dtype`; numbers that `dtype` may not hold stay.

    A digest that looks like a number beyond all of them stays, too: as infinity it would be that of others.
    """
    if word.lstrip("-").isdigit() and abs(int(word)) >= _WHOLE:
        return word
    try:
        value = float(word)
    except ValueError:
        return word
    return repr(float(np.asarray(value, dtype))) if abs(value) <= float(np.finfo(dtype).max) else word


def listen(function: Callable[[str], object]) -> None:
    """Call `function` with the hash of every provenance that is made from now on."""
    _listeners.append(function)


def total(hashes: Iterable[str]) -> str:
    """One hash of several results, in any order."""
    return _hex(" ".join(sorted(set(hashes))).encode())


def versions() -> dict[str, str]:
    """The versions of the code and of its dependencies, by name."""
    return {
        "jdfl": sys.modules["jdfl"].__version__,
        "code": _code(),
        **_libraries(),
        "python": platform.python_version(),
        "backend": jax.default_backend(),
    }


@functools.cache
def _libraries() -> Mapping[str, str]:
    """The versions of those that are installed."""
    return MappingProxyType({name: version(name) for name in contents.LIBRARIES})


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The differing entries that both have, one line each."""
    changed = [name for name, text in before.items() if not _same(text, now.get(name, text))]
    return [f"{name}: was {before[name]}, is {now[name]}" for name in changed]


def _same(one: str, other: str) -> bool:
    """Whether two texts are alike, or numbers that are, in float32."""
    try:
        return one == other or np.float32(one) == np.float32(other)
    except ValueError:
        return False


def _lines(
    path: str, value: Any, *, digest: bool = False, known: dict[int, tuple[str, Any]] | None = None
) -> Iterator[tuple[str, str]]:
    """A value's parts by dotted path; arrays by type, shape and checksum.

    Data that every process has for its own nodes only are left out or, with `digest`, replaced by their `_digest`, as
    all arrays with more than a few numbers are then. A value that is `known`, by identity, under another path is given
    by that path.
    """
    if isinstance(value, Alike) or (isinstance(value, Portion) and not digest):
        return
    known = {} if known is None else known
    within = functools.partial(_lines, digest=digest, known=known)

    def within_own() -> Iterator[tuple[str, str]]:
        """What a user's class adds to a built-in type."""
        if (own := contents.own_class(value)) is not None:
            yield from within(f"{path}.class", own)
            yield from within(f"{path}.attributes", dict(getattr(value, "__dict__", {})))

    if digest and checks.is_a(value, Portion | np.ndarray | jax.Array) and math.prod(value.shape) > _FEW:
        yield path, _digest(value)
    elif is_dataclass(value) and not checks.is_a(value, type):
        yield path, type(value).__name__
        if (own := contents.own_class(value)) is not None:
            yield from within(f"{path}.class", own)
        for one in fields(value):
            if one.name in DERIVED or (digest and one.name == "name" and _named(path, value)):
                continue
            yield from within(f"{path}.{one.name}", getattr(value, one.name))
        former = [
            name for kind in type(value).__mro__ if contents.ours(kind) for name in _FORMER.get(kind.__name__, ())
        ]
        yield from ((f"{path}.{name}", "None") for name in former if digest)
    elif checks.is_a(value, Mapping):
        for name, one in cast(Mapping[str, Any], value).items():
            yield from within(f"{path}.{name}", one)
        yield from within_own()
    elif checks.is_a(value, list | tuple):
        yield path, type(value).__name__
        yield from within_own()
        for i, one in enumerate(cast(list[Any], value)):
            yield from within(f"{path}.{i}", one)
    elif isinstance(value, np.ndarray | jax.Array):
        yield path, _array(value)
    elif checks.is_a(value, np.generic | np.dtype | bool | int | float | str | None):
        yield path, str(value)
        yield from within_own()
    elif id(value) in known:
        yield path, f"as {known[id(value)][0]}"
    else:
        known[id(value)] = path, value  # which keeps the value, and its id, for as long as they are looked for
        text, parts = contents.held(value)
        yield path, text
        for name, one in parts.items():
            yield from within(f"{path}.{name}", one)


def _named(path: str, value: Any) -> bool:
    """Whether the field `name` is what a problem or a network is called, which changes nothing."""
    ours = (kind for kind in type(value).__mro__ if contents.ours(kind))
    return path in ("problem", "network") or any("name" in inspect.get_annotations(kind) for kind in ours)


def _array(x: Any) -> str:
    """An array's numbers, if they are few, else its type, shape and checksum; on this process's own memory."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return f"{x.dtype}{list(x.shape)}"
    if x.size <= _FEW:
        return " ".join(str(number) for number in np.asarray(x).ravel())  # .3 is .3 in every precision
    return _remembered("checksum", x, _checksum)


def _checksum(x: Any) -> str:
    content = np.ascontiguousarray(np.asarray(x))
    return f"{x.dtype}{list(x.shape)} {_hex(content.reshape(-1).view(np.uint8).data)}"


def _digest(x: Any) -> str:
    """An array's type, shape, and a sum over its rows, to which processes that have some of them add what is theirs.

    Of every row counts a multilinear hash of its bytes, in 64 bits, mixed with its place.
    """
    if not isinstance(x, Portion):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            return f"{x.dtype}{list(x.shape)}"
        return _remembered("digest", x, lambda x: _row_sum(x.dtype, x.shape, np.asarray(x), np.arange(len(x))))
    places, first = np.unique(portion(x.shape[0]), return_index=True)
    own = _row_sum(x.dtype, x.shape, np.asarray(x.rows)[first], places)
    kind, _, number = own.rpartition(" ")
    return f"{kind} {summed(int(number, 16)):016x}"


def _row_sum(dtype: Any, shape: Sequence[int], rows: Any, places: Any) -> str:
    words = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    size = -(-words.shape[1] // 4)
    factors: Any = np.random.Generator(np.random.Philox(0)).integers(2**64, size=size, dtype=np.uint64) | 1
    total = 0
    some = max(1, _WORDS // max(1, size))
    for begin in range(0, len(words), some):
        block: Any = np.pad(words[begin : begin + some], ((0, 0), (0, -words.shape[1] % 4))).view(np.uint32)
        x: Any = (block * factors).sum(axis=1, dtype=np.uint64)
        x ^= (places[begin : begin + some].astype(np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> 30)) * np.uint64(0xBF58476D1CE4E5B9)  # splitmix64 (G. Steele, D. Lea, C. Flood, 2014)
        x = (x ^ (x >> 27)) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> 31)
        total += int(x.sum(dtype=np.uint64))
    return f"{dtype}{list(shape)} {total % 2**64:016x}"


def _remembered(kind: str, x: Any, find: Callable[[Any], str]) -> str:
    """What is found of an array; that of JAX's, whose numbers stay, once."""
    if not isinstance(x, jax.Array):
        return find(x)
    known = _sums.get((kind, id(x)))
    if known is None or known[0]() is not x:
        known = weakref.ref(x, functools.partial(_forget, (kind, id(x)))), find(x)
        _sums[kind, id(x)] = known
    return known[1]


def _forget(place: tuple[str, int], _: object) -> None:
    _sums.pop(place, None)


def _hex(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:_SHORT]


@functools.cache
def _code() -> str:
    """The checksum of the package's files."""
    root = Path(__file__).parents[1]  # jdfl/
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        total.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()[:_SHORT]
