"""The help of a command: an overview of its flags, or some of them in full.

The overview has a line for every general flag and the names of all kinds. A flag that stands before --help is explained
in full: `--network --help` describes the kinds of networks, `--network ring --help` the flags of one of them.
"""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from jdfl.cli.listing import Flag
from jdfl.config.kinds import Kind, described

_WIDEST = 100  # columns
_MANY = 40  # kinds from which each has one line
_LONGEST_VALUE = 16  # characters of what follows a flag, in the overview


def help_text(prog: str, about: str, examples: str, listed: Sequence[Flag], asked: Sequence[str]) -> str:
    """The help of a command."""
    width = min(_WIDEST, shutil.get_terminal_size((_WIDEST, 24)).columns)
    wanted = [word.partition("=")[0].replace("_", "-") for word in asked if word.startswith("--")]
    found = [flag for name in dict.fromkeys(wanted) for flag in listed if name in flag.names]
    if not found:
        return "\n".join(_overview(prog, about, listed, width)) + "\n\n" + examples
    lines = [f"The overview of all flags: {prog} --help", ""]
    for flag in found:
        chosen = bool(flag.kinds) and any(_chooses(flag, asked, i) for i in range(len(asked)))
        lines += _kind(flag, listed, width) if chosen else _full(flag, width)
    return "\n".join(lines) + "\n"


def _chooses(flag: Flag, asked: Sequence[str], i: int) -> bool:
    """Whether word number i is the flag and is followed by one of its kinds."""
    name, equals, kind = asked[i].partition("=")
    kind = kind if equals else (asked[i + 1] if i + 1 < len(asked) else "")
    return name in flag.names and kind in flag.kinds and not flag.several


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
        room = width - left
        default = _default(flag)
        yield f"  {_head(flag)}".ljust(left) + brief(f"{default} {flag.about}".strip(), room)
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
    name = main[-1].name if len(main) == 1 else main[1].name
    first = next((one for one in general if one.value), general[0])
    some = next(flag for flag in main if flag.name == name)
    kind = next(kind for kind in some.choices[::-1] if kind != "none")
    rows = [
        (f"{prog} --{name} --help", "describes these kinds"),
        (f"{prog} --{name} {kind} --help", "explains the flags of one of them"),
        (f"{prog} --{first.name} --help", "explains a flag"),
    ]
    far = max(len(command) for command, _ in rows)
    for command, what in rows:
        yield f"  {command:<{far}}  {what}"


def _owned(flag: Flag, choices: Iterable[Flag]) -> bool:
    """Whether a flag belongs to a kind that another flag chooses."""
    return any(flag.name.startswith(f"{one.name}.") for one in choices)


def _full(flag: Flag, width: int) -> Iterator[str]:
    """A flag in full; if it chooses a kind, with a line about every kind."""
    yield from _wrapped(f"{_head(flag, whole=True)} {_default(flag)}".rstrip(), width, 2)
    yield from _wrapped(flag.about, width, 6)
    if flag.kinds:
        left = max(map(len, flag.kinds)) + 10
        for name, kind in flag.kinds.items():
            about = _about_kind(kind)
            text = textwrap.wrap(about if len(flag.kinds) <= _MANY else brief(about, width - left), width - left) or [
                ""
            ]
            yield f"        {name}".ljust(left) + text[0]
            yield from (" " * left + line for line in text[1:])


def _about_kind(kind: type[Kind] | None) -> str:
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
