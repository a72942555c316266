"""Where a result comes from: the code, the libraries, the settings and the data, told and summed up in one hash.

Of functions, and of objects that are no dataclasses, the name alone is told, not what they hold.
"""

import functools
import hashlib
import json
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

from jdfl import checks
from jdfl.distributed import Portion

LIBRARIES = ("jax", "jaxlib", "numpy", "optax")
DERIVED = ("curvature",)  # from the data, by an eigensolver that may differ between machines
_SHORT = 16  # hexadecimal digits of a checksum
_FEW = 4  # numbers that are told one by one

_listeners: list[Callable[[str], object]] = []
_sums: dict[int, tuple[weakref.ref[Any], str]] = {}  # of arrays that are still there, by id


@dataclass(frozen=True)
class Provenance:
    """What a result comes from."""

    versions: dict[str, str]  # of the code and of what it stands on
    settings: dict[str, str]  # by dotted path

    @property
    def hash(self) -> str:
        """One for everything that is told here; how many rounds there are, and what is recorded of them, is not."""
        return _hex(json.dumps([self.versions, self.settings], sort_keys=True).encode())

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"hash": self.hash, "versions": self.versions, "settings": self.settings}

    def differences(self, before: "Provenance") -> tuple[list[str], list[str]]:
        """In versions and in settings what both tell and not alike, in words."""
        return _differences(before.versions, self.versions), _differences(before.settings, self.settings)


def provenance(key: Sequence[int], **settings: Any) -> Provenance:
    """Of these settings, whatever they are, and of this process."""
    lines = {path: text for name, value in settings.items() for path, text in _lines(name, value)}
    made = Provenance(_versions(), {"key": " ".join(map(str, key)), **lines})
    for listener in _listeners:
        listener(made.hash)
    return made


def listen(function: Callable[[str], object]) -> None:
    """Call `function` with the hash of everything that comes to be from now on."""
    _listeners.append(function)


def total(hashes: Iterable[str]) -> str:
    """One hash for several results, in whatever order they came."""
    return _hex(" ".join(sorted(set(hashes))).encode())


def _versions() -> dict[str, str]:
    """The code and what it stands on."""
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
    return MappingProxyType({name: version(name) for name in LIBRARIES})


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What both tell and not alike, a line for each."""
    changed = [name for name, text in before.items() if not _same(text, now.get(name, text))]
    return [f"{name}: was {before[name]}, is {now[name]}" for name in changed]


def _same(one: str, other: str) -> bool:
    """Whether two texts are alike, or numbers that are, in float32."""
    try:
        return one == other or np.float32(one) == np.float32(other)
    except ValueError:
        return False


def _lines(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """A value's parts by dotted path; arrays by type, shape and checksum."""
    if isinstance(value, Portion):
        return  # data of this process's nodes, of which another number of processes would have others
    if is_dataclass(value) and not checks.is_a(value, type):
        yield path, type(value).__name__
        for one in fields(value):
            if one.name in DERIVED:
                continue
            yield from _lines(f"{path}.{one.name}", getattr(value, one.name))
    elif checks.is_a(value, Mapping):
        for name, one in cast(Mapping[str, Any], value).items():
            yield from _lines(f"{path}.{name}", one)
    elif checks.is_a(value, list | tuple):
        yield path, type(value).__name__
        for i, one in enumerate(cast(list[Any], value)):
            yield from _lines(f"{path}.{i}", one)
    elif isinstance(value, np.ndarray | jax.Array):
        yield path, _array(value)
    elif checks.is_a(value, np.generic | bool | int | float | str | None):
        yield path, str(value)
    else:
        yield path, getattr(value, "__qualname__", type(value).__qualname__)


def _array(x: Any) -> str:
    """An array's numbers, if they are few, else its type, shape and checksum; on this process's own memory."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return f"{x.dtype}{list(x.shape)}"
    if x.size <= _FEW:
        return " ".join(str(number) for number in np.asarray(x).ravel())  # .3 is .3 in every precision
    known = _sums.get(id(x))
    if known is None or known[0]() is not x:
        content = np.ascontiguousarray(np.asarray(x))
        text = f"{x.dtype}{list(x.shape)} {_hex(content.reshape(-1).view(np.uint8).data)}"
        if not isinstance(x, jax.Array):
            return text  # its numbers may change
        known = weakref.ref(x, functools.partial(_forget, id(x))), text
        _sums[id(x)] = known
    return known[1]


def _forget(place: int, _: object) -> None:
    _sums.pop(place, None)


def _hex(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:_SHORT]


@functools.cache
def _code() -> str:
    """The checksum of the package's files."""
    root = Path(__file__).parent
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        total.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()[:_SHORT]
