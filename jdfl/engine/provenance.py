"""The provenance of a result: code, libraries and settings, recorded and summarised in one hash.

Settings are recorded by value, users' own functions and classes by name, and data by type and shape. Where runs are
kept in a folder, checksums of the data and of what a round computes are recorded as well. No key depends on any of it.
"""

import functools
import hashlib
import json
import platform
import re
import sys
import uuid
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
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from jdfl.algorithms.program import Program, planned
from jdfl.algorithms.round import Round, in_round
from jdfl.algorithms.statement import some_context
from jdfl.base import checks, marking
from jdfl.base.keys import key_data, key_digest
from jdfl.base.names import Alike
from jdfl.base.run_keys import RunKey
from jdfl.base.struct import StepSizeSchedule
from jdfl.devices.processes import Portion
from jdfl.network.graph import Network
from jdfl.problems import Problem

DERIVED = ("curvature", "optimum")  # by solvers that may differ between machines
LIBRARIES = ("jax", "jaxlib", "numpy", "optax")  # whose versions every result records
KEY, PRIVATE = "key", "private key"  # the settings that are digests of the keys of a run
_SHORT = 16  # hexadecimal digits of a checksum
_FEW = 4  # numbers that are recorded one by one
_ROWS = 2**24  # bytes that are fetched at a time for a checksum

_UNASKED = {"kernels": "not asked for"}  # which is recorded of runs that ask for them alone

_listeners: list[Callable[[str], object]] = []
_identities: dict[int, tuple[weakref.ref[Any], str]] = {}  # of arrays that are still there, by id


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


def provenance(key: RunKey | None = None, **settings: Any) -> Provenance:
    """The provenance of settings of any kind, in this process, and of the keys of a run."""
    keys = {} if key is None else digests(key)
    made = Provenance(versions(), keys | settings_of(**settings))
    for listener in _listeners:
        listener(made.hash)
    return made


def digests(key: RunKey) -> dict[str, str]:
    """The digests of a run's keys, by the names of the settings that record them."""
    return {KEY: key_digest(key_data(key.public)), PRIVATE: key.digest}


def settings_of(**settings: Any) -> dict[str, str]:
    """Settings of any kind by dotted path, in words and numbers."""
    return {path: text for name, value in settings.items() for path, text in _lines(name, value, {})}


def checksums(**settings: Any) -> dict[str, str]:
    """The checksums of the larger arrays of settings of any kind, such as data, by dotted path.

    Arrays that this process has some rows of have none.
    """
    found: dict[str, str] = {}
    for name, value in settings.items():
        for path, leaf in jax.tree.flatten_with_path(value)[0]:
            place = f"{name}.{jax.tree_util.keystr(path, simple=True, separator='.')}".rstrip(".")
            derived = any(getattr(part, "name", "") in DERIVED for part in path)
            if not derived and _large(leaf):
                found[f"{place} checksum"] = _checksum(leaf)
    return found


def _large(leaf: Any) -> bool:
    """Whether it is an array that this process has, of more than a few numbers."""
    kinds = isinstance(leaf, np.ndarray | jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return kinds and leaf.size > _FEW and is_integral(leaf)


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
    return MappingProxyType({name: version(name) for name in LIBRARIES})


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


def identity(tree: Any) -> str:
    """What these very arrays have in common with no others: nothing of what is in them is looked at."""
    return " ".join(_identified(leaf) for leaf in jax.tree.leaves(tree))


def _identified(leaf: Any) -> str:
    place = id(leaf)
    known = _identities.get(place)
    if known is None or known[0]() is not leaf:
        try:
            where = weakref.ref(leaf, lambda _: _identities.pop(place, None))
        except TypeError:  # a number
            return str(leaf)
        known = _identities[place] = where, uuid.uuid4().hex[:_SHORT]
    return known[1]


def _lines(path: str, value: Any, known: dict[int, tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """A value's parts by dotted path; one that is `known`, by identity, under another path is given by that path."""
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Alike | Portion):  # of a portion every process has its own nodes' rows
        return
    if isinstance(value, StepSizeSchedule):
        text = f"{_name(type(value))}, with the checksum {_digest(jax.make_jaxpr(value)(jnp.int32(0)))}"
        inner = [("function", value.function)]
    elif isinstance(value, np.ndarray | jax.Array):
        text = _array(value)
    elif checks.is_a(value, np.generic | np.dtype | bool | int | float | str | None):
        text = str(value)
    elif hasattr(value, "__qualname__"):  # functions and classes
        text = _name(value)
    elif id(value) in known:
        text = f"as {known[id(value)][0]}"
    else:
        if not is_dataclass(value) and not checks.is_a(value, Mapping | list | tuple):  # which may contain itself
            known[id(value)] = path, value
        text, inner = _name(type(value)), _parts(value)
    yield path, text
    for name, one in inner:
        yield from _lines(f"{path}.{name}", one, known)


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    if is_dataclass(value):
        return [(one.name, getattr(value, one.name)) for one in fields(value) if one.name not in DERIVED]
    if checks.is_a(value, Mapping):
        return [(str(name), one) for name, one in cast(Mapping[Any, Any], value).items()]
    if checks.is_a(value, list | tuple):
        return [(str(i), one) for i, one in enumerate(cast(list[Any], value))]
    if isinstance(value, functools.partial):
        return [("function", value.func), ("args", value.args), ("keywords", value.keywords)]
    if checks.is_a(value, set | frozenset):
        return [(str(i), one) for i, one in enumerate(sorted(map(str, cast(set[Any], value))))]
    return list(getattr(value, "__dict__", {}).items())


def _name(value: Any) -> str:
    """The name of a function or a class, with its module unless it is this package's."""
    module = str(value.__module__)
    return value.__qualname__ if module.partition(".")[0] in ("jdfl", "builtins") else f"{module}.{value.__qualname__}"


def _array(x: Any) -> str:
    """An array's numbers, if they are few, else its type and shape."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if x.size > _FEW or not is_integral(x):
        return f"{x.dtype}{list(x.shape)}"
    return " ".join(str(number) for number in np.asarray(x).ravel())  # .3 is .3 in every precision


def is_integral(x: Any) -> bool:
    """Whether this process has all of an array."""
    return not isinstance(x, jax.Array) or x.is_fully_addressable


def _checksum(x: Any) -> str:
    """The SHA-256 of an array, a part of whose rows are fetched at a time."""
    total, rows = hashlib.sha256(f"{x.dtype}{list(x.shape)}".encode()), max(1, _ROWS // max(1, x.nbytes // len(x)))
    for first in range(0, len(x), rows):
        part = x if len(x) <= rows else x[first : first + rows]
        total.update(np.ascontiguousarray(np.asarray(part)).reshape(-1).view(np.uint8).data)
    return total.hexdigest()[:_SHORT]


def _hex(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()[:_SHORT]


@functools.cache
def _code() -> str:
    root = Path(__file__).parents[1]  # jdfl/
    total = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        total.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()[:_SHORT]


COMPUTED = "what is computed"  # the setting of a provenance that records the digest
_NAMES = ("name", "debug_info", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd", "fwd_jaxpr_thunk", "bwd")  # change nothing
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def computed(program: Program, problem: Problem, network: Network, others: Sequence[Any] = ()) -> str:
    """The digest of a program's start and rounds on a problem, of the network's graphs, and of `others`.

    Settings and data are arguments of what is traced, so that their values do not enter; constants of functions do.
    `others` are functions of (parameters [m, n], problem), such as metrics.
    """
    if jax.tree.leaves(program.plan):  # whose shapes may follow the number of rounds, which a resumed run may change
        program = planned(program.algorithm, problem, network, 1)
    method, plan, data, links = jax.tree.map(_shape, (program.algorithm, program.plan, problem, network))

    def round(algorithm: Any, plan: Any, problem: Problem) -> Round:
        context = some_context(problem)
        return Round(context=context, problem=problem, prepared=algorithm.prepared(problem, context, plan))

    def begin(algorithm: Any, plan: Any, problem: Problem) -> Any:
        here = round(algorithm, plan, problem)
        return in_round(algorithm, here).init(here)

    def advance(state: Any, algorithm: Any, plan: Any, problem: Problem) -> Any:
        here = round(algorithm, plan, problem)
        new = in_round(algorithm, here).traced_step(state, here)
        return new, algorithm.params(new)

    def links_of(network: Network) -> Any:
        return network.at(jnp.int32(0), jax.random.key(0))

    started, state = jax.make_jaxpr(begin, return_shape=True)(method, plan, data)
    going, (_, params) = jax.make_jaxpr(advance, return_shape=True)(state, method, plan, data)
    value = jax.make_jaxpr(lambda problem, w: problem.values(w))(data, params)
    made = [started, going, value, jax.make_jaxpr(links_of)(links)]
    return _digest(*made, *(jax.make_jaxpr(function)(params, data) for function in others))


def _digest(*programs: ClosedJaxpr) -> str:
    total = hashlib.sha256()
    for one in programs:
        for const in one.consts:
            x: Any = jax.random.key_data(const) if jnp.issubdtype(const.dtype, jax.dtypes.prng_key) else const
            total.update(np.ascontiguousarray(np.asarray(x)).tobytes())
        for word in _words(one.jaxpr):
            total.update(f"{word}\n".encode())
    return total.hexdigest()[:_SHORT]


def _shape(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf), weak_type=isinstance(leaf, float | int))


def _words(jaxpr: Jaxpr) -> Iterator[str]:
    """The equations of a program, with its variables numbered in their order."""
    number: dict[Var, int] = {}

    def named(one: Any) -> str:
        if isinstance(one, Literal):
            return f"{one.val!r}:{one.aval}"
        return f"{number.setdefault(one, len(number))}:{one.aval}"

    yield " ".join(named(one) for one in (*jaxpr.constvars, *jaxpr.invars))
    for equation in jaxpr.eqns:
        before = " ".join(map(named, equation.invars))
        yield f"{equation.primitive.name} {before} -> {' '.join(map(named, equation.outvars))}"
        for name, value in sorted(equation.params.items()):
            if name not in _NAMES and equation.primitive not in marking.MARKS:
                yield from _parameter(name, value)
    yield " ".join(map(named, jaxpr.outvars))


def _parameter(name: str, value: Any) -> Iterator[str]:
    """A parameter of an operation; programs in it as they are."""
    if isinstance(value, ClosedJaxpr):
        for const in value.consts:
            yield f"{name} {hashlib.sha256(np.ascontiguousarray(np.asarray(const)).tobytes()).hexdigest()}"
        yield from _words(value.jaxpr)
    elif isinstance(value, Jaxpr):
        yield from _words(value)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _parameter(name, one)
    elif callable(value):
        yield f"{name} {getattr(value, '__qualname__', type(value).__qualname__)}"
    else:
        yield f"{name} {_ADDRESS.sub('', repr(value))}"
