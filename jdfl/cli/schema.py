"""All commands, their flags, and the kinds that flags choose, as plain data, and what was typed, read by it.

Help, lists, completion and suggestions for what was mistyped work on this data alone, so that they answer without JAX.
The data are in schema.json, which `python -m tools.register` writes from the classes of settings
(`jdfl.cli.describing`). Kinds of other installed packages are added when the file is read.

A command has a list of nodes. A node is a flag, or a part: settings with nodes of their own, whose names follow the
part's name and a dot, or are written without it (`inline`). A flag with a `family` chooses one of its kinds. The nodes
of that kind then follow in the same way.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from jdfl.base import suggest

COMMANDS = {  # with the module of the function that executes each; folders of jobs have further ones
    "run": "runs",
    "resume": "runs",
    "resume compare": "compare",
    "resume sweep": "sweep",
    "verify": "verify",
    "verify jobs": "verify",
    "export": "looking",
    "compare": "compare",
    "sweep": "sweep",
    "account": "account",
    "choose": "looking",
    "audit": "audit",
    "report": "looking",
    "data": "looking",
}
NAMES = tuple(name for name in COMMANDS if " " not in name)
Node = dict[str, Any]
FILE = Path(__file__).with_name("schema.json")
_FLAG = re.compile("-[A-Za-z-]")  # how a flag begins, unlike a negative number
# What a node and its flag have in common.
_SAME = ("about", "types", "open", "alone", "optional", "choices", "integers", "positional")
_NAMED = 3  # kinds that have a flag and are named in an error
_LISTED = 8  # words of a list that is shown in addition to a suggestion


@dataclass(kw_only=True)
class Flag:
    """One flag, or one argument without a flag."""

    name: str  # its dotted path with dashes, without --; of an argument without a flag, what help calls it
    path: str = ""  # of the setting, from the arguments of the command's function on
    about: str = ""
    types: list[str] = field(default_factory=list)  # placeholders of the values after it; none: a switch
    open: bool = False  # whether it takes any number of values, all of the first type
    alone: bool = False  # whether one value stands for itself, and several for a list
    optional: bool = False  # whether it may be None
    default: Any = None
    required: bool = False
    choices: Sequence[str] = ()  # the words that it takes; empty for numbers and free text
    integers: bool = False  # whether these words stand for integers
    kinds: Mapping[str, Node] = field(default_factory=dict)  # that it chooses from; empty nodes for "none"
    positional: bool = False  # whether it is written without a flag

    @property
    def several(self) -> bool:
        """Whether it takes several values."""
        return self.open or len(self.types) > 1

    @property
    def value(self) -> str:
        """What is written after it, in help; empty for a switch."""
        return " ".join([*self.types, *["..."] * self.open])

    @property
    def names(self) -> tuple[str, ...]:
        """The flag as it is written, and for a switch its opposite."""
        if self.positional:
            return ()
        above, dot, last = self.name.rpartition(".")
        return (f"--{self.name}",) if self.types else (f"--{self.name}", f"--{above}{dot}no-{last}")


Given = list[tuple[Flag, Any]]  # flags with their words, or of a switch with what it says


def find(command: str) -> Callable[..., int]:
    """The function that executes a command, imported now."""
    return getattr(import_module(f"jdfl.cli.{COMMANDS[command]}"), command.replace(" ", "_"))


def _kinds_of(node: Node, families: Node) -> dict[str, Node]:
    """The kinds that a flag chooses from, and "none" if it may be left out."""
    found = families.get(node.get("family", ""), {})
    if "only" in node:
        found = {kind: one for kind, one in found.items() if node["only"] in one["traits"]}
    return found | ({"none": {}} if found and node.get("optional") else {})


def flags_of(command: Node, families: Node, words: Sequence[str] = (), start: Node | None = None) -> list[Flag]:
    """The flags of a command and of the kinds that the words choose, those of kinds and parts after the others.

    `start` has values in place of defaults, by the arguments of the command's function.
    """
    return list(_flags(command["nodes"], families, words, start or {}, "", ""))


def _flags(
    nodes: list[Node], families: Node, words: Sequence[str], start: Node, above: str, path: str
) -> Iterator[Flag]:
    inner: list[Iterator[Flag]] = []
    for node in nodes:
        key = node["name"]
        name, place = above + key.replace("_", "-"), path + key
        value = start[key] if key in start else node.get("default")
        if "nodes" in node:
            before = above if node.get("inline") else f"{name}."
            inner.append(_flags(node["nodes"], families, words, value or {}, before, f"{place}."))
            continue
        more: Node = {one: node[one] for one in _SAME if one in node}
        if kinds := _kinds_of(node, families):
            more |= {"kinds": kinds, "choices": tuple(kinds)}
            if node.get("open"):
                value = None
            else:
                place += ".kind"
                typed = given(words, name)
                chosen = value["kind"] if value else "none" if "none" in kinds else None
                if typed in kinds and typed != chosen:
                    chosen, value = typed, {}
                if chosen is not None and chosen != "none":
                    inner.append(
                        _flags(kinds[chosen]["nodes"], families, words, value or {}, f"{name}.", f"{path}{key}.")
                    )
                value = chosen
        required = "default" not in node and key not in start and value is None
        yield Flag(name=name, path=place, default=value, required=required, **more)
    for one in inner:
        yield from one


def given(words: Sequence[str], name: str) -> str | None:
    """The value of the last `--name value` or `--name=value`."""
    found = None
    for i, word in enumerate(words):
        if word == f"--{name}" and i + 1 < len(words) and not words[i + 1].startswith("--"):
            found = words[i + 1]
        elif word.startswith(f"--{name}="):
            found = word.partition("=")[2]
    return found


def prog_of(command: Node) -> str:
    """How a command is called: its words, and what help calls its folder."""
    return f"{command['prog']} {command['folder']}" if "folder" in command else command["prog"]


def read(words: Sequence[str], listed: Sequence[Flag], prog: str) -> Given:
    """Every flag that is given, the last time if it is given twice, with its words.

    ValueError for a flag that the command does not have, for a word that a flag does not take, and for a missing one.
    """
    known = {name: flag for flag in listed for name in flag.names}
    places = [flag for flag in listed if flag.positional]
    found: dict[str, tuple[Flag, Any]] = {one.name: (one, []) for one in places}
    i = 0
    while i < len(words):
        word, i = words[i], i + 1
        if not _FLAG.match(word):
            if not places:
                raise ValueError(f"Expected a flag of {prog}, got {word!r}. See {prog} --help.")
            found[places[0].name][1].append(word)
            continue
        name, equals, value = word.partition("=")
        if name not in known:
            raise ValueError(_unknown(name, listed, prog))
        flag, end = known[name], i
        most = 0 if equals or not flag.types else len(words) if flag.several else 1
        while end < min(i + most, len(words)) and not _FLAG.match(words[end]):
            end += 1
        values = [value] if equals else list(words[i:end])
        i = end
        for one in values if flag.choices else ():
            _check_choice(flag, one)
        count = len(flag.types)
        if not (flag.open or len(values) == count or (flag.optional and values == ["None"])):
            wanted = "no value" if count == 0 else "a value" if count == 1 else f"{count} values"
            raise ValueError(f"Expected {wanted} after {name}, got {' '.join(values) or 'none'}. See {prog} --help.")
        found[flag.name] = flag, values if flag.types else name == flag.names[0]
    for flag in listed:
        if flag.required and flag.name not in found:
            raise ValueError(f"Expected a value for --{flag.name}, which has no default, got none. {flag.about}")
    return list(found.values())


def _check_choice(flag: Flag, word: str) -> None:
    """Refuse a word that a flag does not take: ValueError."""
    if word not in flag.choices:
        hint = suggest.hint(word, flag.choices)
        many = f"{len(flag.choices)} names" if hint and len(flag.choices) > _LISTED else ""
        listed = many or ", ".join(map(repr, flag.choices))
        raise ValueError(f"Expected --{flag.name} to be one of {listed}, got --{flag.name} = {word!r}. {hint}".rstrip())
    if flag.kinds and flag.several and any(_required(node) for node in flag.kinds[word]["nodes"]):
        raise ValueError(
            f"Expected kinds with defaults for all settings at --{flag.name}, got {word!r}. Give its settings in a "
            "file, with --config."
        )


def _required(node: Node) -> bool:
    return "nodes" not in node and "default" not in node


def _unknown(name: str, listed: Sequence[Flag], prog: str) -> str:
    """The message about a flag that is not there: of another kind, or mistyped."""
    typed = name.removeprefix("--")
    here = [flag.name for flag in listed if not flag.positional]
    there: dict[str, list[str]] = {}  # flags of kinds that are not chosen, each with the kinds that have it
    for flag in listed:
        for kind, node in flag.kinds.items() if not flag.several else ():
            for one in node.get("nodes", ()):
                there.setdefault(f"{flag.name}.{one['name'].replace('_', '-')}", []).append(kind)
    there = {path: kinds for path, kinds in there.items() if path not in here}
    meant = typed if typed in there else _closest_flag(typed, [*here, *there])
    if meant is None:
        return f"Unknown flag {name} of {prog}. See {prog} --help."
    if meant in here:
        return f"Unknown flag {name} of {prog}. Did you mean --{meant}?"
    kinds = there[meant]
    more = f" and {len(kinds) - _NAMED} more" if len(kinds) > _NAMED else ""
    owner = f"--{meant.rpartition('.')[0]} {', '.join(kinds[:_NAMED])}{more}"
    if meant == typed:
        above = typed.rpartition(".")[0]
        chosen = next(flag.default for flag in listed if flag.name == above)
        return f"Expected {name} with {owner} only, got --{above} {chosen}. See {prog} --help."
    return f"Unknown flag {name} of {prog}. Did you mean --{meant}, a flag of {owner}?"


def _closest_flag(name: str, known: Sequence[str]) -> str | None:
    """The flag that was probably meant, by its end, next to the mistyped one first, or by its spelling; or None."""
    above, _, last = name.rpartition(".")
    beside = [flag for flag in known if flag.rpartition(".")[0] == above]
    for flags in (beside, sorted(known, key=lambda flag: flag.count("."))):
        ends = {flag.rpartition(".")[2]: flag for flag in reversed(flags)}
        if (closest := suggest.closest(last, ends)) is not None:
            return ends[closest]
    return suggest.closest(name, known)
