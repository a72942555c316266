"""The contents of functions, classes and objects, so that provenance distinguishes those that behave differently.

Of Python's own and of installed packages the name, the version and the bound arguments are recorded; of everything else
also the code, and the values of the global names that it reads.
"""

import dis
import functools
import hashlib
import inspect
import pickle
import re
import sys
import sysconfig
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, cast

LIBRARIES = ("jax", "jaxlib", "numpy", "optax")  # whose versions every result records
_OURS = __name__.partition(".")[0]
_INSTALLED = tuple(Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib"))
_ROOMS = re.compile(r"^jdfl\.(?:arrays|base|engine)\.(\w+)$")  # whose modules lay in jdfl/ itself
_FORMER = {
    "jdfl.algorithms.moment": "jdfl.base",
    "jdfl.cli.catalogue": "jdfl.catalogue",
    "jdfl.engine.placement": "jdfl.devices.placement",
    "jdfl.lab.settings": "jdfl.config.compare",
}
_PROCESS = uuid.uuid4().hex
_kept: dict[int, Any] = {}  # whose ids distinguish them and must not be reused
_MEMBERS: Any = (FunctionType, staticmethod, classmethod, property, functools.cached_property)
_BOUND: Any = (staticmethod, classmethod)
_DESCRIBED: Any = (MemberDescriptorType, GetSetDescriptorType)  # slots, whose values are taken from the objects
_COMPARED = {"__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"}
_WRITTEN = {"__init__", "__new__", "__repr__", "__setattr__", "__delattr__", "__replace__"} | _COMPARED  # by dataclass


def held(value: Any) -> tuple[str, dict[str, Any]]:
    """A function, a class or any object in one text, and the values that it contains, by name."""
    if isinstance(value, FunctionType):
        return _function(value)
    if isinstance(value, type):
        return _class(value)
    if isinstance(value, ModuleType):
        return _former(value.__name__), {}
    if isinstance(value, MethodType):
        return "method", {"function": value.__func__, "self": value.__self__}
    if isinstance(value, functools.partial):
        return "partial", {"function": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, set | frozenset):  # in a different order in every process
        members = sorted(cast(set[Any], value), key=repr)
        return "set", {str(i): one for i, one in enumerate(members)}
    if isinstance(value, property):
        return "property", {"get": value.fget}
    if isinstance(value, functools.cached_property):
        return "property", {"get": value.func}
    if isinstance(value, _BOUND):
        return type(value).__name__, {"function": value.__func__}
    if (wrapped := inspect.getattr_static(value, "__wrapped__", None)) is not None:  # jit, custom_jvp, cache, ...
        theirs = isinstance(wrapped, FunctionType) and _installed(wrapped.__module__) is not None
        return _name(type(value)), {"function": wrapped} | ({} if theirs else _given(value))
    return _object(value)


def own_class(value: object) -> type[Any] | None:
    """The class of a value where its code is not that of an installed package."""
    kind: type[Any] = type(value)
    return None if _installed(kind.__module__) is not None else kind


def ours(kind: type[Any]) -> bool:
    """Whether a class is of this package."""
    return kind.__module__.partition(".")[0] == _OURS


def _function(value: FunctionType) -> tuple[str, dict[str, Any]]:
    parts: dict[str, Any] = {}
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
        try:
            parts[name] = cell.cell_contents
        except ValueError:  # not filled yet
            parts[name] = None
    for i, default in enumerate(value.__defaults__ or ()):
        parts[f"default {i}"] = default
    parts |= value.__kwdefaults__ or {}
    version = _installed(value.__module__)
    if version is not None:
        return f"{_name(value)}{version}", parts
    known = value.__globals__
    read = {name: known[name] for name in _globals(value.__code__) if name in known}
    inner = _within(read | parts, _names(value.__code__))
    return f"{_name(value)} {_code(value.__code__)}", {**read, **inner, **_given(value), **parts}


def _class(value: type) -> tuple[str, dict[str, Any]]:
    """Of a class its members, whatever they are, and its bases; what `dataclass` wrote follows from the fields."""
    version = _installed(value.__module__)
    if version is not None:
        return f"{_name(value)}{version}", {}
    given: dict[str, Any] = dict(vars(value))
    members = {f"member {name}" if name == "bases" else name: one for name, one in given.items() if _counts(name, one)}
    return _name(value), {**members, "bases": tuple(one for one in value.__bases__ if one is not object)}


def _object(value: Any) -> tuple[str, dict[str, Any]]:
    kind = cast(type[Any], type(value))
    slots = [name for one in kind.__mro__ for name in _slots(one)]
    if hasattr(value, "__dict__") or slots:
        state: dict[str, Any] = {name: getattr(value, name) for name in slots if hasattr(value, name)}
        state |= getattr(value, "__dict__", {})
        computed = functools.cached_property  # later than the object, or never
        state = {name: one for name, one in state.items() if not isinstance(getattr(kind, name, None), computed)}
        return _name(kind), ({} if (own := own_class(value)) is None else {"class": own}) | state
    try:
        return f"{_name(kind)} {_hex(pickle.dumps(value))}", {}
    except Exception:  # a foreign class may raise anything: its contents are unknown
        _kept[id(value)] = value
        return f"{_name(kind)} {id(value):x} of process {_PROCESS}", {}


def _slots(kind: type[Any]) -> tuple[str, ...]:
    found = vars(kind).get("__slots__", ())
    return tuple(name for name in ((found,) if isinstance(found, str) else found) if not name.startswith("__"))


def _name(value: Any) -> str:
    return f"{_former(value.__module__)}.{value.__qualname__}"


def _former(module: str | None) -> str:
    """The former name of a module, which is hashed, so that runs keep their private noise."""
    told = str(module)  # a function may have none
    return _FORMER.get(told) or _ROOMS.sub(r"jdfl.\1", told)


def _counts(name: str, member: Any) -> bool:
    """Whether a member of a class is its own: not what Python, `abc` or `dataclass` keep there."""
    if name.startswith("__"):
        written = isinstance(member, FunctionType) and member.__code__.co_filename == "<string>" and name in _WRITTEN
        return not written and (isinstance(member, _MEMBERS) or hasattr(member, "__wrapped__"))
    return name != "_abc_impl" and not isinstance(member, _DESCRIBED)


def _given(value: Any) -> dict[str, Any]:
    """The attributes that a function has been given."""
    found: dict[str, Any] = getattr(value, "__dict__", {})
    return {f"attribute {name}": one for name, one in found.items() if not name.startswith("__")}


def _within(read: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What code that has these `names` may read of the modules that it reads, but those of installed packages."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    left = list(read.items())
    while left:
        path, module = left.pop()
        if not isinstance(module, ModuleType) or id(module) in seen or _installed(module.__name__) is not None:
            continue
        seen.add(id(module))
        inner = {f"{path}.{name}": vars(module)[name] for name in names if name in vars(module)}
        found |= inner
        left += inner.items()
    return found


@functools.cache
def _installed(module: str | None) -> str | None:
    """The version of the package that a module is from, "" where it is recorded anyway; None: it is from no package."""
    root = (module or "").partition(".")[0]
    if root in (_OURS, *LIBRARIES) or root in sys.stdlib_module_names:
        return ""
    file = getattr(sys.modules.get(root), "__file__", None) or getattr(sys.modules.get(module or ""), "__file__", None)
    if file is None or not any(Path(file).resolve().is_relative_to(place) for place in _INSTALLED):
        return None
    try:
        return f" {metadata.version(root)}"
    except metadata.PackageNotFoundError:
        return ""


@functools.lru_cache(maxsize=1024)
def _code(code: CodeType) -> str:
    """A checksum of what a function does."""
    return _hex("\n".join(_told(code)).encode())


def _told(code: CodeType) -> Iterator[str]:
    yield from (code.co_code.hex(), *code.co_names, *code.co_varnames)
    consts: tuple[Any, ...] = code.co_consts
    for one in consts:
        if isinstance(one, CodeType):
            yield from _told(one)
        else:
            yield repr(sorted(map(repr, cast(frozenset[Any], one))) if isinstance(one, frozenset) else one)


@functools.lru_cache(maxsize=1024)
def _globals(code: CodeType) -> tuple[str, ...]:
    """The global names that a function, or one within it, reads."""
    found = {one.argval: None for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found |= dict.fromkeys(_globals(one))
    return tuple(sorted(found))


@functools.lru_cache(maxsize=1024)
def _names(code: CodeType) -> tuple[str, ...]:
    """All names of attributes and globals in a function, or in one within it."""
    inner = (name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one))
    return tuple(sorted({*code.co_names, *inner}))


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
