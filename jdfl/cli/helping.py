"""All flags of a command as records, and the words about them: help, and what was meant by a mistyped flag.

The help of a command is the docstring of its options. The overview adds a line for every general flag and the names of
all kinds. A flag that stands before --help is explained in full: `--network --help` describes the kinds of networks,
`--network ring --help` the flags of one of them.
"""

import dataclasses
import inspect
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from typing_extensions import Doc

from jdfl.base import checks, suggest
from jdfl.base.settings import documentation, marks, options_of
from jdfl.config.kinds import Kinds, described, members

_VALUES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
_WIDEST = 100  # columns
_MANY = 40  # kinds from which each has one line
_LONGEST_VALUE = 16  # characters of what follows a flag, in the overview
_NAMED = 3  # kinds that have a flag and are named in an error
(_POSITIONAL,) = get_args(tyro.conf.Positional[int])[1:]


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag, or one argument without a flag."""

    name: str  # its dotted path with dashes, without --; of an argument without a flag, what help calls it
    about: str = ""
    value: str = ""  # what is written after it; empty for a switch
    default: Any = None
    choices: tuple[str, ...] = ()  # the words that it takes; empty for numbers and free text
    several: bool = False  # whether it takes several values
    kinds: Mapping[str, type[Any] | None] = field(default_factory=dict)  # that it chooses from
    positional: bool = False  # whether it is written without a flag

    @property
    def names(self) -> tuple[str, ...]:
        """The flag as it is written, and for a switch its opposite."""
        if self.positional:
            return ()
        above, dot, last = self.name.rpartition(".")
        return (f"--{self.name}", f"--{above}{dot}no-{last}") if not self.value else (f"--{self.name}",)


def kinds_of(annotation: Any) -> Mapping[str, type[Any] | None]:
    """The kinds that a setting may hold, and "none" if it may be left out; empty for other settings."""
    found = members(annotation)
    return Kinds(found.makers | {"none": lambda: None}) if found and NoneType in options_of(annotation) else found


def flags_of(config: Any, path: str = "") -> Iterator[Flag]:
    """The flags of a configuration or of options, those of its kinds and parts after its own."""
    cls = config if isinstance(config, type) else type(config)
    hints, about = get_type_hints(cls, include_extras=True), None
    inner: list[Flag] = []
    for one in dataclasses.fields(cls):
        annotation, name = hints[one.name], f"{path}{one.name}".replace("_", "-")
        value = getattr(config, one.name, one.default)
        value = None if value is dataclasses.MISSING or value is tyro.MISSING else value
        text = next((mark.documentation for mark in marks(annotation) if isinstance(mark, Doc)), None)
        if text is None:
            about = documentation(cls) if about is None else about
            text = about.get(one.name, "")
        if dataclasses.is_dataclass(value):
            inner += flags_of(value, f"{name}.")
        if kinds := kinds_of(annotation):
            several = get_origin(options_of(annotation)[0]) is tuple
            default = () if several else getattr(value, "kind", "none" if "none" in list(kinds) else None)
            words: dict[str, Any] = {"value": "KIND ..." if several else "KIND", "choices": tuple(kinds)}
            yield Flag(name=name, about=text, default=default, kinds=kinds, several=several, **words)
        elif not dataclasses.is_dataclass(value):
            yield _flag(name, text, annotation, value)
    yield from inner


def _flag(name: str, about: str, annotation: Any, default: Any) -> Flag:
    """The flag of a setting that holds numbers, truth values, words or paths."""
    allowed = options_of(annotation)
    optional, options = NoneType in allowed, [one for one in allowed if one is not NoneType]
    option = next((one for one in options if get_origin(one) is tuple), options[0])  # a number, or one for every node
    several = get_origin(option) is tuple
    items = [one for one in get_args(option) if one is not Ellipsis] if several else options[:1]
    words = " ".join(map(_word, items)) + (" ..." if several and Ellipsis in get_args(option) else "")
    choices = tuple(str(one) for item in items if get_origin(item) is Literal for one in get_args(item))
    return Flag(
        name=name,
        about=about,
        value="" if options == [bool] and not optional else words,
        default=default,
        choices=("None", *choices) if choices and optional else choices,
        several=several,
        positional=any(mark is _POSITIONAL for mark in marks(annotation)),
    )


def _word(option: Any) -> str:
    """The placeholder for a value of this type in help."""
    if get_origin(option) is Literal:
        return "{" + ",".join(map(str, get_args(option))) + "}"
    return _word(option.__origin__) if get_origin(option) is Annotated else _VALUES.get(option, "VALUE")


# ---------------------------------------------------------------- mistyped flags and words


def refuse_typos(args: Sequence[str], listed: Sequence[Flag], prog: str) -> None:
    """Raise ValueError for a flag that a command does not have, and for a word that a flag does not take."""
    known = {name: flag for flag in listed for name in flag.names}
    for i, word in enumerate(args):
        if not word.startswith("--") or word == "--":
            continue
        name, equals, value = word.partition("=")
        flag = known.get(name.replace("_", "-"))
        if flag is None:
            raise ValueError(_unknown(name, listed, prog))
        if not flag.choices:
            continue
        values = [value] if equals else list(args[i + 1 :] if flag.several else args[i + 1 : i + 2])
        end = next((j for j, one in enumerate(values) if one.startswith("-") and not equals), len(values))
        for one in values[:end]:
            checks.one_of(flag.choices, **{f"--{flag.name}": one})


def _unknown(given: str, listed: Sequence[Flag], prog: str) -> str:
    """The message about a flag that is not there: of another kind, or mistyped."""
    name = given.removeprefix("--").replace("_", "-")
    here = [flag.name for flag in listed if not flag.positional]
    there: dict[str, list[str]] = {}  # flags of kinds that are not chosen, each with the kinds that have it
    for flag in listed:
        for kind, cls in flag.kinds.items() if not flag.several else ():
            for one in dataclasses.fields(cls) if cls is not None else ():
                there.setdefault(f"{flag.name}.{one.name.replace('_', '-')}", []).append(kind)
    there = {path: kinds for path, kinds in there.items() if path not in here}
    meant = name if name in there else closest_flag(name, here, list(there))
    if meant is None:
        return f"Unknown flag {given} of {prog}. See {prog} --help."
    if meant in here:
        return f"Unknown flag {given} of {prog}. Did you mean --{meant}?"
    kinds = there[meant]
    more = f" and {len(kinds) - _NAMED} more" if len(kinds) > _NAMED else ""
    owner = f"--{meant.rpartition('.')[0]} {', '.join(kinds[:_NAMED])}{more}"
    if meant == name:
        return f"Expected {given} with {owner} only, got it without. See {prog} {given.rpartition('.')[0]} --help."
    return f"Unknown flag {given} of {prog}. Did you mean --{meant}, a flag of {owner}?"


def closest_flag(name: str, here: Sequence[str], there: Sequence[str]) -> str | None:
    """The flag that was probably meant, without its dashes; None where no flag is close.

    First flags of the same name but for dashes, then those that end alike or in another library's word for it, the
    outermost first, then similar spellings; each first among the flags that are `here`.
    """
    above, _, last = name.rpartition(".")
    beside = [[flag for flag in flags if flag.rpartition(".")[0] == above] for flags in (here, there)]
    words = [suggest.plain(one) for one in (last, *suggest.meanings(last))]
    for flags, same in zip((here, there), beside):
        found = [flag for flag in flags if suggest.plain(flag) == suggest.plain(name)]
        for place in (same, sorted(flags, key=lambda flag: flag.count("."))):
            found += [flag for word in words for flag in place if suggest.plain(flag.rpartition(".")[2]) == word]
        if found:
            return found[0]
    for same in beside:
        ends = {flag.rpartition(".")[2]: flag for flag in same}
        if (closest := suggest.closest(last, ends)) is not None:
            return ends[closest]
    return suggest.closest(name, here) or suggest.closest(name, there)


# ---------------------------------------------------------------- help


def help_text(prog: str, told: str, listed: Sequence[Flag], asked: Sequence[str]) -> str:
    """The help of a command: `told` is the docstring of its options, with a section of examples."""
    width = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    wanted = [word.partition("=")[0].replace("_", "-") for word in asked if word.startswith("--")]
    found = [flag for name in dict.fromkeys(wanted) for flag in listed if name in flag.names]
    if not found:
        about, _, examples = inspect.cleandoc(told).partition("\n\nExample")
        return "\n".join(_overview(prog, about, listed, width)) + f"\n\nexample{examples}\n"
    lines = [f"The overview of all flags: {prog} --help", ""]
    for flag in found:
        lines += _kind(flag, listed, width) if _chosen(flag, asked) else _full(flag, width)
    return "\n".join(lines) + "\n"


def _chosen(flag: Flag, asked: Sequence[str]) -> bool:
    """Whether one of the kinds of a flag stands after it."""
    pairs = [word.partition("=")[::2] if "=" in word else (word, after) for word, after in zip(asked, [*asked[1:], ""])]
    return not flag.several and any(name in flag.names and kind in flag.kinds for name, kind in pairs)


def _overview(prog: str, about: str, listed: Sequence[Flag], width: int) -> Iterator[str]:
    places = [f"{flag.name.upper()}{' ...' if flag.several else ''}" for flag in listed if flag.positional]
    yield f"usage: {' '.join([prog, *places])} [FLAGS]"
    yield ""
    for part in about.split("\n\n"):
        yield from textwrap.wrap(" ".join(part.split()), width)
        yield ""
    choices = [flag for flag in listed if flag.kinds]
    general = [flag for flag in listed if not flag.kinds and not _owned(flag, choices)]
    yield "flags, with their defaults in brackets:"
    left = max(len(_head(flag)) for flag in general) + 4
    for flag in general:
        yield f"  {_head(flag)}".ljust(left) + brief(f"{_default(flag)} {flag.about}".strip(), width - left)
    main = [flag for flag in choices if not _owned(flag, choices)]
    if not main:
        return
    yield ""
    yield "kinds, each with its own flags:"
    for flag in main:
        about = brief(f"{_default(flag)} {flag.about}".strip(), width - len(flag.name) - 16)
        yield f"  --{flag.name} {flag.value}  {about}"
        yield from _wrapped(", ".join(flag.choices), width, 6)
    yield ""
    yield "A flag before --help is explained in full:"
    some = main[0 if len(main) == 1 else 1]
    first = next((one for one in general if one.value), general[0])
    kind = next(kind for kind in some.choices[::-1] if kind != "none")
    rows = {
        f"{prog} --{some.name} --help": "describes these kinds",
        f"{prog} --{some.name} {kind} --help": "explains the flags of one of them",
        f"{prog} --{first.name} --help": "explains a flag",
    }
    far = max(map(len, rows))
    yield from (f"  {command:<{far}}  {what}" for command, what in rows.items())


def _owned(flag: Flag, choices: Iterable[Flag]) -> bool:
    """Whether a flag belongs to a kind that another flag chooses."""
    return any(flag.name.startswith(f"{one.name}.") for one in choices)


def _full(flag: Flag, width: int) -> Iterator[str]:
    """A flag in full; if it chooses a kind, with a line about every kind."""
    yield from _wrapped(f"{_head(flag, whole=True)} {_default(flag)}".rstrip(), width, 2)
    yield from _wrapped(flag.about, width, 6)
    left = max(map(len, flag.kinds), default=0) + 10
    for name, kind in flag.kinds.items():
        about = _about_kind(kind)
        text = textwrap.wrap(about if len(flag.kinds) <= _MANY else brief(about, width - left), width - left) or [""]
        yield f"        {name}".ljust(left) + text[0]
        yield from (" " * left + line for line in text[1:])


def _about_kind(kind: Any) -> str:
    return "leaves it out" if kind is None else described(kind)


def _kind(flag: Flag, listed: Sequence[Flag], width: int) -> Iterator[str]:
    """The flags of the chosen kind."""
    kind = flag.kinds.get(str(flag.default))
    yield from _wrapped(f"--{flag.name} {flag.default}: {_about_kind(kind)}", width, 0)
    yield ""
    inner = [one for one in listed if one.name.startswith(f"{flag.name}.")]
    if not inner:
        yield "  It has no flags."
    for one in inner:
        if one.kinds:
            yield from _wrapped(f"--{one.name} KIND {_default(one)}", width, 2)
            yield from _wrapped(f"{one.about} One of {', '.join(one.choices)}.".strip(), width, 6)
        else:
            yield from _full(one, width)


def _head(flag: Flag, whole: bool = False) -> str:
    """The flag and what follows it."""
    if flag.positional:
        return flag.name.upper()
    if not flag.value:
        return " ".join(flag.names) if whole or flag.default is True else f"--{flag.name}"
    value = flag.value
    if not whole and len(value) > _LONGEST_VALUE:
        value = "WORD ..." if flag.several else "WORD"
    return f"--{flag.name} {value}"


def _default(flag: Flag) -> str:
    """The default in brackets; empty for one that is nothing."""
    value = flag.default
    if value is None or value == () or value == "" or value is False:
        return ""
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    return f"[{'yes' if value is True else value}]"


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    space = " " * indent
    return textwrap.wrap(
        text, width, initial_indent=space, subsequent_indent=space, break_on_hyphens=False, break_long_words=False
    )


def brief(text: str, room: int) -> str:
    """The first clause of a text, or the first sentence if there is room for it, without its full stop."""
    short = text.partition(". ")[0].removesuffix(".")
    if len(short) > room or "; none" in short:
        short = short.partition("; ")[0]
    for cut in (", ", ": "):
        while len(short) > room and cut in short:
            short = short.rpartition(cut)[0]
    return textwrap.shorten(short, room, placeholder=" ...")
