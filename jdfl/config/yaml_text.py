"""Frozen dataclasses to YAML and back, exactly.

A dataclass is a mapping of its fields; where a field may hold one of several dataclasses, the mapping begins with the
`kind` of the one it holds. Reading is strict: an unknown key or kind or a value of another type is a ValueError that
names the key, the value and what was expected. A missing key takes its default.
"""

import dataclasses
import math
import re
import reprlib
import sys
from collections.abc import Hashable, Mapping
from types import NoneType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import yaml

from jdfl.base import checks, suggest
from jdfl.base.arguments import options_of
from jdfl.config.kinds import members

Config = TypeVar("Config")
Number = TypeVar("Number", int, float)

_LONGEST = 2**18  # characters; a configuration has a few thousand, and PyYAML takes seconds for this number
_MESSAGE = 500  # characters of PyYAML's
_DIGITS = 2**13  # binary ones of a whole number: Python writes no much larger one in decimals


class _Dumper(yaml.SafeDumper):
    pass


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        found: Any = None
        if isinstance(node, yaml.ScalarNode) and node.tag in _WRITTEN and not _WRITTEN[node.tag].match(node.value):
            raise _no_value(node)  # it has a tag: !!float 1:30
        try:
            found = cast(Any, super()).construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:
            if not isinstance(node, yaml.ScalarNode):
                raise
            raise _no_value(node) from error
        if isinstance(found, int) and found.bit_length() > _DIGITS:
            raise _no_value(node)
        if isinstance(found, float) and math.isinf(found) and "inf" not in node.value.lower():
            raise _no_value(node, ": the largest is 1.8e308. Write .inf for infinity")
        return found

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Hashable] = set()
        for key in (self.construct_object(key, deep=True) for key, _ in node.value):
            if isinstance(key, Hashable):  # others are refused below
                if key in seen:
                    line = node.start_mark.line + 1
                    raise ValueError(
                        f"Expected every key once, got {_shown(key)} twice in line {line} or below. Drop one."
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def _no_value(node: yaml.Node, why: str = "") -> yaml.YAMLError:
    """The error for a scalar that its notation does not allow, such as a date of month 13."""
    what = f"{_shown(node.value)} is no {node.tag.rpartition(':')[2]}{why}"
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


# The scalars of YAML 1.2's core schema (section 10.3.2), in place of PyYAML's of YAML 1.1, in which 0100 is 64, 1:30 is
# 90 and `yes` is true. A whole number comes before a float, which its digits match too.
_CORE = (
    ("null", r"^(~|null|Null|NULL|)$", "~nN\0"),
    ("bool", r"^(true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        r"^([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$",
        "-+.0123456789",
    ),
)
_WRITTEN = {f"tag:yaml.org,2002:{kind}": re.compile(pattern) for kind, pattern, _ in _CORE}
cast(Any, _Loader).yaml_implicit_resolvers = {}
for _class in (_Loader, _Dumper):  # what is written has quotes where either version reads another type: `=`, yes, 1:30
    for _kind, _pattern, _first in _CORE:
        _letters = [letter if letter != "\0" else "" for letter in _first]
        cast(Any, _class).add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), _letters)
_OCTAL = re.compile("[-+]?0[0-7]+$")  # of YAML 1.1


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    """A whole number of the core schema; 0100, a hundred there and sixty-four in YAML 1.1, is refused."""
    text = str(loader.construct_scalar(node))
    found = int(text, 0 if text[:2] in ("0o", "0x") else 10)
    if _OCTAL.match(text) and (other := int(text, 8)) != found:
        raise _no_value(node, f", since it is {found} in YAML 1.2, and {other} in YAML 1.1. Write {found} or {other}")
    return found


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def dump(config: Any) -> str:
    """A dataclass as YAML, which loaders of YAML 1.1 and 1.2 read alike."""
    return yaml.dump(plain(config), Dumper=_Dumper, sort_keys=False)  # ASCII: PyYAML loses U+0085 otherwise


def load(kind: type[Config], text: str) -> Config:
    """The dataclass in a YAML text; missing keys take their defaults."""
    if len(text) > _LONGEST:
        raise ValueError(f"Expected YAML of at most {_LONGEST} characters, got {len(text)}. It is no configuration.")
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"Expected YAML, got {' '.join(str(error).split())[:_MESSAGE]}.") from error
    except RecursionError as error:
        raise ValueError("Expected YAML of a few levels, got lists or mappings nested too deeply.") from error
    return from_plain(kind, {} if data is None else data)


def scalar(text: str) -> Any:
    """A number, a truth value, a text or none, as YAML reads it; ValueError for anything else."""
    why = ""
    try:
        found = None if text.lower() == "none" else yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        found, why = [], str(getattr(error, "problem", ""))[:_MESSAGE]
    if not isinstance(found, str | int | float | bool | None):
        raise ValueError(f"Expected a single value, got {_shown(text)}." + (f" YAML says: {why}." if why else ""))
    return found


def number(kind: type[Number], text: str, where: str = "a value") -> Number:
    """A whole number or a float, as YAML reads it; ValueError for anything else."""
    return _value(kind, scalar(text), where)


def plain(value: Any) -> Any:
    """Dictionaries, lists and scalars for a dataclass, its `kind` first where it has one."""
    if dataclasses.is_dataclass(value):
        named = {"kind": getattr(value, "kind")} if hasattr(value, "kind") else {}  # noqa: B009 (a type checker's view)
        return named | {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [plain(item) for item in value] if checks.is_a(value, tuple) else value


def flat(settings: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Settings by dotted path."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{path}{name}.") if checks.is_a(value, Mapping) else {f"{path}{name}": value}
    return found


def from_plain(kind: Any, data: Any, where: str = "") -> Any:
    """The dataclass of type `kind` from the result of `plain`; ValueError that says where something does not fit it."""
    if not checks.is_a(data, dict):
        raise ValueError(_refusal("a mapping of settings", where or "the configuration", data))
    types = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in fields:
            name = getattr(kind, "kind", "")
            of = f" of {where} ({name})" if name else ""
            rest = suggest.hint(key, fields) or f"Known{of}: {', '.join(fields)}."
            raise ValueError(f"Unknown key {_join(where, key)} = {_shown(value)}. {rest}")
        values[key] = _value(types[key], value, _join(where, key), fields[key].default)
    for name, field in fields.items():
        if name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"Expected a value for {_join(where, name)}, which has no default, got none. Add it.")
    return kind(**values)


def _value(annotation: Any, data: Any, where: str, default: Any = None) -> Any:
    """One value of a field with this annotation."""
    choices, options = members(annotation), options_of(annotation)
    if data is None and NoneType in options:
        return None
    if choices:
        return _member(choices, data, where, default)
    several = [option for option in options if get_origin(option) is tuple]  # a number, or one for every node
    written = several if checks.is_a(data, list) and several else [one for one in options if one is not NoneType]
    annotation = written[0]
    origin, options = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        if not any(data == option and type(data) is type(option) for option in options):
            text = _refusal(f"one of {', '.join(map(repr, options))}", where, data)
            raise ValueError(f"{text} {suggest.hint(data, options)}".rstrip())
        return data
    if origin is tuple:
        return _items(options, data, where)
    if dataclasses.is_dataclass(annotation):
        return from_plain(annotation, data, where)
    if annotation is float and type(data) is int and abs(data) <= sys.float_info.max:
        return float(data)
    if type(data) is not annotation:
        raise ValueError(_refusal(_WORDS[annotation], where, data))
    return data


def _member(choices: Mapping[str, type], data: Any, where: str, default: Any) -> Any:
    """One of several dataclasses: a mapping with its kind, one without for the kind of the default, or a bare kind."""
    if isinstance(data, str):
        data = {"kind": data}
    if not checks.is_a(data, dict):
        raise ValueError(_refusal(f"a mapping with a kind ({', '.join(choices)})", where, data))
    kind = data.get("kind", getattr(default, "kind", None))
    if not isinstance(kind, str) or kind not in choices:
        rest = suggest.hint(kind, choices) or f"Known: {', '.join(choices)}."
        raise ValueError(f"Unknown kind {where}.kind = {_shown(kind)}. {rest}")
    return from_plain(choices[kind], {key: value for key, value in data.items() if key != "kind"}, where)


def _items(options: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not checks.is_a(data, list):
        raise ValueError(_refusal("a list", where, data))
    if options[-1] is Ellipsis:
        options = (options[0],) * len(data)
    if len(data) != len(options):
        raise ValueError(_refusal(f"a list of {len(options)}", where, data))
    return tuple(_value(option, item, f"{where}[{i}]") for i, (option, item) in enumerate(zip(options, data)))


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _refusal(expected: str, where: str, value: Any) -> str:
    return f"Expected {expected} for {where}, got {_shown(value)}."


def _join(where: str, key: Any) -> str:
    name = key if isinstance(key, str) and len(key) <= _NAME else _shown(key)
    return f"{where}.{name}" if where else name


_NAME = 60  # characters
_short = reprlib.Repr()
_short.maxlevel = 2
_short.maxlist = _short.maxdict = _short.maxset = _short.maxtuple = 6
_short.maxstring = _short.maxlong = _short.maxother = _NAME


def _shown(value: Any) -> str:
    """The value in a message: as it is written in Python, short, however large it is."""
    return _short.repr(value)
