"""The words of help, and of `jdfl list`.

The help of a command is the docstring of its options. The overview adds a line for every general flag and the names of
all kinds. A flag that stands before --help is explained in full: `--network --help` describes the kinds of networks,
`--network ring --help` the flags of one of them.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from jdfl.base import suggest, terminal
from jdfl.base.terminal import READABLE
from jdfl.cli.schema import Flag, Node, prog_of
from jdfl.problems import places

_FEW = 5  # entries of a list that are shown in full
_MANY = 40  # kinds from which each has one line
_LONGEST_VALUE = 16  # characters of what follows a flag, in the overview


def help_text(command: Node, listed: Sequence[Flag], asked: Sequence[str]) -> str:
    """The help of a command with these flags, or of those of them that are `asked` for."""
    prog, width = prog_of(command), min(READABLE, terminal.width())
    wanted = [word.partition("=")[0] for word in asked if word.startswith("--")]
    found = [flag for name in dict.fromkeys(wanted) for flag in listed if name in flag.names]
    if not found:
        about, _, examples = command["about"].partition("\n\nExample")
        return "\n".join([*_overview(prog, about, listed, width), "", "examples:", *_examples(examples, width), ""])
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
        yield f"  {_head(flag)}".ljust(left) + _brief(f"{_default(flag)} {flag.about}".strip(), width - left)
    main = [flag for flag in choices if not _owned(flag, choices)]
    if not main:
        return
    yield ""
    yield "kinds, each with its own flags:"
    for flag in main:
        about = _brief(f"{_default(flag)} {flag.about}".strip(), width - len(flag.name) - 16)
        yield f"  --{flag.name} {flag.value}  {about}"
        yield from _wrapped(", ".join(flag.choices), width, 6)
    yield ""
    yield "A flag before --help is explained in full:"
    some = main[0 if len(main) == 1 else 1]
    first = next((one for one in general if one.types), general[0])
    kind = next(kind for kind in some.choices[::-1] if kind != "none")
    rows = {
        f"{prog} --{some.name} --help": "describes these kinds",
        f"{prog} --{some.name} {kind} --help": "explains one of them",
        f"{prog} --{first.name} --help": "explains a flag",
    }
    far = max(map(len, rows))
    yield from (f"  {command:<{far}}  {what}" for command, what in rows.items())


def _examples(text: str, width: int) -> Iterator[str]:
    """The examples of a command and what follows them, each below what it does where both do not fit on a line."""
    lines, *others = text.partition(":\n")[2].split("\n\n")
    lines = re.sub(r"\n {3,}(?!-)", "   ", re.sub(r"\n {3,}(?=-)", " ", lines))  # of an example in several lines
    found = [re.split(" {2,}", line.strip(), maxsplit=1) for line in lines.split("\n")]
    far = max(len(command) for command, *_ in found)
    beside = all(4 + far + len(about) <= width for _, *texts in found for about in texts or [""])
    for command, *texts in found:
        if beside:
            yield f"  {command:<{far}}  {''.join(texts)}".rstrip()
            continue
        yield from (line for about in texts for line in _wrapped(f"# {about}", width, 2))
        whole = re.sub(r" (?![-|])", "\0", command)  # it is broken before flags only
        *parts, last = textwrap.wrap(whole, width - 4, subsequent_indent="    ", break_on_hyphens=False)
        yield from (f"  {part}".replace("\0", " ") for part in (*(f"{part} \\" for part in parts), last))
    for part in others:
        yield ""
        head, *inner = part.split("\n") if "\n  " in part else [part]
        yield from [*textwrap.wrap(head, width), *inner]


def _owned(flag: Flag, choices: Iterable[Flag]) -> bool:
    """Whether a flag belongs to a kind that another flag chooses."""
    return any(flag.name.startswith(f"{one.name}.") for one in choices)


def _full(flag: Flag, width: int) -> Iterator[str]:
    """A flag in full; if it chooses a kind, with a line about every kind."""
    yield from _wrapped(f"{_head(flag, full=True)} {_default(flag)}".rstrip(), width, 2)
    yield from _wrapped(flag.about, width, 6)
    left = max(map(len, flag.kinds), default=0) + 10
    for name, kind in flag.kinds.items():
        about = _about_kind(kind)
        text = textwrap.wrap(about if len(flag.kinds) <= _MANY else _brief(about, width - left), width - left) or [""]
        yield f"        {name}".ljust(left) + text[0]
        yield from (" " * left + line for line in text[1:])


def _about_kind(kind: Node) -> str:
    """What is said about a kind, and what it was written from."""
    sources = ", ".join(kind.get("provenance", ()))
    return kind["about"] + f" [{sources}]" * bool(sources) if kind else "leaves it out"


def _kind(flag: Flag, listed: Sequence[Flag], width: int) -> Iterator[str]:
    """The flags of the chosen kind."""
    kind = flag.kinds.get(flag.default, {})
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


def _head(flag: Flag, full: bool = False) -> str:
    """The flag and what follows it."""
    if flag.positional:
        return flag.name.upper()
    if not flag.types:
        return " ".join(flag.names) if full or flag.default is True else f"--{flag.name}"
    value = flag.value
    if not full and len(value) > _LONGEST_VALUE:
        value = "WORD ..." if flag.several else "WORD"
    return f"--{flag.name} {value}"


def _default(flag: Flag) -> str:
    """The default in brackets; empty for one that is nothing."""
    value = flag.default
    if value is None or value is False or value in ("", []):
        return ""
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return f"[{'yes' if value is True else value}]"


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    space = " " * indent
    return textwrap.wrap(
        text, width, initial_indent=space, subsequent_indent=space, break_on_hyphens=False, break_long_words=False
    )


def _brief(text: str, room: int) -> str:
    """The first clause of a text, or the first sentence if there is room for it, without its full stop."""
    short = text.partition(". ")[0].removesuffix(".")
    if len(short) > room or "; none" in short:
        short = short.partition("; ")[0]
    for cut in (", ", ": "):
        while len(short) > room and cut in short:
            short = short.rpartition(cut)[0]
    return textwrap.shorten(short, room, placeholder=" ...")


def catalogue(schema: Node, words: Sequence[str] = ()) -> str:
    """A line for each kind, dataset, model, attack and metric, under headings, with some words if there are any.

    A word may stand in a heading, in a name or in what is said about it. Few that are found are shown in full, with
    what they were written from. Raises ValueError where nothing has all the words.
    """
    families = schema["families"]
    methods = dict(families["algorithms"])
    groups: dict[str, Node] = {}
    for group, kinds in schema["groups"].items():
        groups[f"algorithms (--algorithm): {group}"] = {name: methods.pop(name) for name in kinds}
    groups |= {
        "algorithms (--algorithm): settings of papers, other packages": methods,
        "problems (--problem)": families["problems"],
        "datasets (--problem classification --problem.data)": {
            name: {"about": places.status(name)} for name in places.NAMES
        },
        "datasets with natural clients (jdfl.problems.natural)": {
            name: {"about": places.status(name)} for name in places.NATURAL
        },
        "models (--problem neural --problem.model)": schema["models"],
        "networks (--network)": families["networks"],
        "codecs (--algorithm.codec)": families["codecs"],
        "noise (--algorithm.mechanism)": families["mechanisms"],
        "stop rules (--stop)": families["stop rules"],
        "robust rules (--algorithm.rule)": families["rules"],
        "attacks (jdfl.robust)": schema["attacks"],
        "metrics (--metrics)": schema["metrics"],
    }
    found = {
        heading: {name: node for name, node in nodes.items() if _has(words, name, f"{heading} {_about_kind(node)}")}
        for heading, nodes in groups.items()
    }
    shown, width = [(heading, nodes) for heading, nodes in found.items() if nodes], min(READABLE, terminal.width())
    if not shown:
        entries = [f"{name} {node['about']}" for nodes in groups.values() for name, node in nodes.items()]
        known = re.findall(r"[\w-]{6,}", " ".join([*groups, *entries]))
        hint = next(filter(None, (suggest.hint(word, known) for word in words)), "`jdfl list` shows all.")
        raise ValueError(f"Expected words that stand in the list, got {' '.join(words)!r}. {hint}")
    left = max(len(name) for _, nodes in shown for name in nodes) + 4
    entire = words and sum(len(nodes) for _, nodes in shown) <= _FEW
    lines: list[str] = []
    for heading, nodes in shown:
        lines += ["", heading]
        for name, node in nodes.items():
            text = [_line(name, node["about"], width - left)]
            if entire:
                text = _wrapped(_about_kind(node), width - left, 0)
            lines += (f"{'' if k else f'  {name}':<{left}}{line}" for k, line in enumerate(text))
    return "\n".join(lines[1:]) + "\n"


def _has(words: Sequence[str], name: str, text: str) -> bool:
    """Whether every word is in the name, however it is spelt, or in the text."""
    return all(suggest.plain(word) in suggest.plain(name) or word.casefold() in text.casefold() for word in words)


def _line(name: str, text: str, room: int) -> str:
    """The beginning of a text, without a title that only repeats the name."""
    title, _, rest = text.partition(": ")
    said = rest if rest and suggest.plain(title) == suggest.plain(name) else text
    return textwrap.shorten(said.removesuffix("."), room, placeholder=" ...", break_on_hyphens=False)
