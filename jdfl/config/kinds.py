"""Kinds of the command line and of YAML, derived from the library's own classes and functions.

A kind is a frozen dataclass of numbers, truth values, text and other kinds. It has the fields of a class of settings,
or the arguments of a function, with their documentation and defaults. Values that only Python can express, such as an
array with a number for every node, are left out. `build` makes the library's object.
"""

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from jdfl.base import checks
from jdfl.base.arguments import marks, options_of
from jdfl.base.settings import As, Only

Source = Callable[..., Any]
FAMILIES: dict[Any, "Family"] = {}  # by the type of the settings that hold one of the family
TRAITS: dict[str, Callable[[Source], bool]] = {}  # what a family may require of the source of a kind, by name
_SCALARS = (int, float, bool, str)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of a family, with its settings."""

    if TYPE_CHECKING:
        kind: ClassVar[str]  # of the kinds of a family; parts of a kind have none
    source: ClassVar[Source]
    parts: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], Any]]]
    given: ClassVar[tuple[str, ...]]
    package: ClassVar[str]
    """The installed package that it comes from; empty for jdfl's own."""

    def build(self, **given: Any) -> Any:
        """The object of the kind, made by the class or function that it was derived from.

        Args:
            **given: Arguments that are no settings: the number of nodes `m` of a network, the `algorithm` of a stop
                rule.

        Raises ValueError for invalid values.
        """
        made = {name: make(self, given) for name, make in self.parts.items()}
        return self.source(**{name: given[name] for name in self.given}, **made)


class Kinds(Mapping[str, type]):
    """Kinds by their names; each is derived when it is asked for, since their documentation takes long to read."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self.makers = dict(makers)

    def __getitem__(self, name: str) -> type:
        return self.makers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


@dataclass(frozen=True)
class Family:
    """The kinds that a setting may hold: those of the library and those of installed packages."""

    name: str  # packages add kinds by the entry points `jdfl.NAME`
    own: Callable[[], Mapping[str, Source]]  # the library's, in the order in which they are shown
    default: str | None = None  # the kind of a setting for which there is no other default
    given: tuple[str, ...] = ()  # names of arguments that are no settings and that `build` receives
    only: str | None = None  # the one of `TRAITS` that kinds must have to be allowed here; None: all are

    @property
    def sources(self) -> dict[str, Source]:
        """The class or function of every kind, by the kind's name."""
        return {kind: source for kind, (source, _) in self._found().items()}

    @property
    def kinds(self) -> Kinds:
        """All kinds by their names."""
        found = self._found()
        return Kinds({kind: partial(derive, kind, one, self.given, by) for kind, (one, by) in found.items()})

    def __call__(self, kind: str | None = None, /, **settings: Any) -> Any:
        """A kind, or the default one, with some of its settings; ValueError for an unknown name."""
        kind = str(self.default if kind is None else kind)
        own = self.own()
        found = {kind: (own[kind], "")} if kind in own else self._found()  # others are imported for their kinds alone
        checks.one_of(found, kind=kind)
        source, by = found[kind]
        return derive(kind, source, self.given, by)(**settings)

    def _found(self) -> dict[str, tuple[Source, str]]:
        """The class or function of every kind, and the package that it comes from (empty: jdfl)."""
        own = {kind: (source, "") for kind, source in self.own().items()}
        found = own | _installed(self.name, self.own, self.given)
        return {kind: one for kind, one in found.items() if self.only is None or TRAITS[self.only](one[0])}


@cache
def _installed(
    name: str, own: Callable[[], Mapping[str, Source]], given: tuple[str, ...]
) -> dict[str, tuple[Source, str]]:
    """The kinds of installed packages, each with its package; one that cannot be used is left out with a warning."""
    found: dict[str, tuple[Source, str]] = {}
    points = dict.fromkeys(entry_points(group=f"jdfl.{name}"))  # one may be found by two entries of sys.path
    entries = [("an unknown package" if one.dist is None else one.dist.name, one) for one in points]
    for by, entry in sorted(entries, key=lambda one: (one[0], one[1].name)):
        other = found[entry.name][1] if entry.name in found else "jdfl" if entry.name in own() else None
        problem = f", but {other} has one of that name, which is used. Rename its entry point."
        try:
            if other is None:
                source = entry.load()
                if not callable(source):
                    raise TypeError(f"expected a class or a function, got {checks.text(source)}")
                derive(entry.name, source, given, by)
                found[entry.name] = source, by
                continue
        except Exception as error:
            why = f"{type(error).__name__}: {checks.message(error)}"
            problem = f", which cannot be used and is left out: {why}. Update or uninstall the package."
        what = f"The package {by} adds the kind {entry.name!r} to jdfl.{name} ({entry.value})"
        warnings.warn(f"{what}{problem}", RuntimeWarning, stacklevel=2)
    return found


def first_line(source: Source) -> str:
    """The first line of a docstring: the help of a kind."""
    return (inspect.getdoc(source) or "").partition("\n")[0]


def described(kind: type[Kind]) -> str:
    """A line about a kind, with the package that it comes from if it is not jdfl's own."""
    line = kind.__doc__ or ""
    return f"{line} (from {kind.package})".strip() if kind.package else line


def members(annotation: Any) -> Kinds:
    """The dataclasses that a field may hold, by their `kind`; empty for a field without kinds."""
    found: dict[str, Callable[[], type]] = {}
    for mark in marks(annotation):
        found |= mark.kinds.makers if isinstance(mark, Family) else {}
    return Kinds(found | {one.kind: lambda one=one: one for one in options_of(annotation) if hasattr(one, "kind")})


def shown(value: Any, family: Family | None = None) -> Any:
    """Settings of the library as the kind that builds them; other values unchanged."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type | Kind):
        return value
    source = type(value)
    kind = "" if family is None else next(name for name, one in family.sources.items() if one is source)
    written = derive(kind, source, (), "")
    return written(**{field.name: shown(getattr(value, field.name)) for field in dataclasses.fields(written)})


@cache  # by all four arguments, or a kind would have several classes
def derive(kind: str, source: Source, given: tuple[str, ...], package: str) -> type[Kind]:
    """The kind of this name, with the settings of a class or the arguments of a function; empty: a part of a kind."""
    fields: list[tuple[str, Any, Any]] = []
    parts: dict[str, Callable[[Kind, dict[str, Any]], Any]] = {}
    arguments = _arguments(source)
    for name, (annotation, default) in arguments.items():
        inner = next((option for option in options_of(annotation) if getattr(option, "flat", None) is True), None)
        if name in given:
            continue
        if inner is not None:
            more, parts[name] = _flat(derive("", inner, (), ""), annotation, default)
            fields += more
        elif (found := _written(annotation, default)) is not None:
            type_, default, how = found
            about = {"source": (source, name), "about": how.about}  # for help: reading it takes long
            fields.append((name, type_, dataclasses.field(default=default, metadata=about)))
            parts[name] = _maker(name, how.make)
    space: dict[str, Any] = {"__doc__": first_line(source), "source": staticmethod(source), "parts": parts}
    space |= {"given": tuple(name for name in given if name in arguments), "package": package}
    space |= {"kind": kind} if kind else {}
    name = "".join(word.capitalize() for word in kind.split("-")) or getattr(source, "__name__", "Settings")
    return dataclasses.make_dataclass(name, fields, bases=(Kind,), namespace=space, frozen=True, kw_only=True)


def _arguments(source: Source) -> dict[str, tuple[Any, Any]]:
    """The annotation and the default (or MISSING) of every field or argument, by name."""
    if dataclasses.is_dataclass(source):
        hints = get_type_hints(source, include_extras=True)
        return {field.name: (hints[field.name], field.default) for field in dataclasses.fields(source)}
    empty, found = inspect.Parameter.empty, inspect.signature(source, eval_str=True).parameters
    return {one.name: (one.annotation, MISSING if one.default is empty else one.default) for one in found.values()}


def _flat(inner: type[Kind], annotation: Any, default: Any) -> tuple[list[tuple[str, Any, Any]], Any]:
    """The fields of settings that are written next to those of their owner, and the function that rebuilds them."""
    only = next((mark.names for mark in marks(annotation) if isinstance(mark, Only)), None)
    fields = [field for field in dataclasses.fields(inner) if only is None or field.name in only]

    def make(owner: Kind, given: dict[str, Any]) -> Any:
        return dataclasses.replace(default, **{field.name: inner.parts[field.name](owner, given) for field in fields})

    values = shown(default)
    found = {one: dataclasses.field(default=getattr(values, one.name), metadata=one.metadata) for one in fields}
    return [(one.name, one.type, new) for one, new in found.items()], make


def _written(annotation: Any, default: Any) -> tuple[Any, Any, As] | None:
    """The type and default of a setting as it is written, and how it is built; None if only Python can express it."""
    marked, all_options = marks(annotation), options_of(annotation)
    how = next((mark for mark in marked if isinstance(mark, As)), As())
    options, optional = [one for one in all_options if one is not NoneType], NoneType in all_options
    family = next((mark for mark in marked if isinstance(mark, Family)), None)
    narrowed = [mark for mark in marked if isinstance(mark, type)]  # Annotated[Network, Static]
    family = family or next((FAMILIES[option] for option in (*narrowed, *options) if option in FAMILIES), None)
    nested: Any = next((option for option in options if dataclasses.is_dataclass(option)), None)
    if default is MISSING and family is not None and family.default is not None:
        default = family()
    default = shown(default if how.default is ... else how.default, family)
    plain = next((one for one in map(_plain, options) if one is not None), None)
    if how.type is not None:
        return how.type, default, how
    if family is not None:
        return Annotated[Kind | None if optional else Kind, family], default, how
    if plain is not None:
        return (plain | None if optional else plain), default, how
    return None if nested is None else (derive("", nested, (), ""), default, how)


def _plain(option: Any) -> Any:
    """The written form of one type that an annotation allows; None if only Python can express it."""
    origin, inside = get_origin(option), get_args(option)
    if option in _SCALARS or origin is Literal:
        return option
    if origin in (tuple, Sequence):
        items = [one if one is Ellipsis else _plain(options_of(one)[0]) for one in inside]
        items = items if origin is tuple else [*items, Ellipsis]
        return None if None in items else tuple[tuple(items)]
    return None


def _maker(name: str, make: Callable[[Any], Any] | None) -> Callable[[Kind, dict[str, Any]], Any]:
    """The function that makes the argument of this name from a kind."""

    def made(owner: Kind, given: dict[str, Any]) -> Any:
        value = getattr(owner, name)
        value = value.build(**given) if isinstance(value, Kind) and make is not unbuilt else value
        return value if make is None else make(value)

    return made


def unbuilt(value: Any) -> Any:
    """Marks an argument that takes the kind itself and not its object: `Annotated[Any, FAMILY, As(make=unbuilt)]`."""
    return value
