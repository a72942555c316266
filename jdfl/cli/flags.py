"""Flags from frozen dataclasses: kinds first, then tyro.

If a setting has several kinds, a flag with its name chooses one (`--network ring`), and the flags below it set the
fields of that kind (`--network.weights uniform`), in any order: the kinds are read first, and tyro then parses the
configuration that has them.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_type_hints

import tyro
from typing_extensions import Doc
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from jdfl.base import checks, suggest
from jdfl.cli.helping import help_text
from jdfl.cli.listing import Flag, flags_of, kinds_of
from jdfl.config import Family, RunConfig, from_yaml, yaml_text
from jdfl.engine.records import check_settings

Field = tuple[str, Any, Any]  # of dataclasses.make_dataclass
Folders = Annotated[tuple[Path, ...], tyro.conf.Positional]
Words = Annotated[tuple[str, ...], tyro.conf.Positional]
Options = TypeVar("Options")
Parsed = TypeVar("Parsed")
_LONGEST = 2**20  # characters of a configuration that are read; the limit for one is lower
_DAMAGED = "It is damaged; the run can be made again from its config.yaml."


class HelpAsked(SystemExit):
    """Raised where a command is asked for its help; `text` writes it."""

    def __init__(self, text: Callable[[], str], listed: Sequence[Flag]) -> None:
        super().__init__(0)
        self.text = text
        self.listed = listed


def parse(
    args: list[str], config: Any, options: Any, *, prog: str, about: str, examples: str, more: Sequence[Field] = ()
) -> Any:
    """A value with the attributes `config` and `options` as the flags set them, and those of `more`."""
    start = _with_kinds(config, args, "")
    kinds = [
        (f"kind_{i}", Annotated[choices, tyro.conf.arg(name=path)], dataclasses.field(default=default))
        for i, (path, choices, default) in enumerate(_kinds(start, ""))
    ]
    both = [
        ("options", Annotated[type(options), tyro.conf.arg(name="")], dataclasses.field(default=options)),
        ("config", Annotated[type(start), tyro.conf.arg(name="")], dataclasses.field(default=start)),
    ]
    flags = dataclasses.make_dataclass("Flags", [*more, *kinds, *both], frozen=True)
    listed = [*flags_of(dataclasses.make_dataclass("More", more)()), *flags_of(start), *flags_of(options)]
    _look(args, listed, prog, about, examples)
    return _parsed(args, flags, prog, default=flags(), config=(tyro.conf.AvoidSubcommands,))


def parse_options(args: list[str], kind: Callable[..., Parsed], *, prog: str, about: str, examples: str) -> Parsed:
    """A dataclass of this kind as the flags set it; raises as `parse` does."""
    _look(args, list(flags_of(kind)), prog, about, examples)
    return _parsed(args, kind, prog)


def _look(args: list[str], listed: list[Flag], prog: str, about: str, examples: str) -> None:
    """Raise HelpAsked where help is asked for, and ValueError for unknown words."""
    if {"-h", "--help"} & set(args):
        asked = [word for word in args if word not in ("-h", "--help")]
        raise HelpAsked(lambda: help_text(prog, about, examples, listed, asked), listed)
    refuse_typos(args, listed, prog)


def _parsed(args: list[str], kind: Callable[..., Parsed], prog: str, **how: Any) -> Parsed:
    return cast(Parsed, tyro.cli(kind, args=args, prog=prog, add_help=False, registry=_numbers(), **how))


@cache
def _numbers() -> ConstructorRegistry:
    """The rule by which flags take whole numbers and floats that are written as in YAML: no 1_000, and no inf."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(asked: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        if asked.type not in (int, float):
            return None
        kinds = int if asked.type is int else int | float
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar=asked.type.__name__.upper(),
            instance_from_str=lambda words: yaml_text.number(asked.type, words[0]),
            is_instance=lambda value: isinstance(value, kinds) and not isinstance(value, bool),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def parse_run(
    args: list[str], options: Options, *, prog: str, about: str, examples: str, run: str | None = None
) -> tuple[RunConfig, Options]:
    """The configuration of a run and the options, as the flags set them.

    They start from the file at --config, or else from the config.yaml in the folder of a `run`, or else from the
    defaults. Raises as `parse` does, and ValueError and FileNotFoundError for a bad or missing file.
    """
    file = given(args, "config")
    if file is None and run is not None:
        start = config_of(Path(run))
    else:
        start = RunConfig() if file is None else from_yaml(read(file))
    parsed = parse(args, start, options, prog=prog, about=about, examples=examples)
    return parsed.config, parsed.options


def parse_of_run(
    args: list[str], options: Options, *, prog: str, about: str, examples: str
) -> tuple[Path, RunConfig, Options]:
    """The folder of a run, which is the first argument, and the results of `parse_run` for the flags after it.

    Raises ValueError without a folder, and as `parse_run` does.
    """
    given = bool(args) and not args[0].startswith("-")
    if not given and not {"-h", "--help"} & set(args):
        raise ValueError(f"Expected the folder of a run after `{prog}`, got {args[0] if args else 'nothing'!r}.")
    folder, flags = (args[0], args[1:]) if given else (None, args)
    config, options = parse_run(flags, options, prog=f"{prog} RUN_DIR", about=about, examples=examples, run=folder)
    return Path(folder or ""), config, options


def several(name: str, family: Family, text: str) -> Field:
    """A flag that takes the names of several kinds of a family."""
    kinds = Literal[tuple(family.sources)]  # pyright: ignore[reportInvalidTypeForm]
    about = (family, Doc(text), tyro.conf.arg(name=name))
    return (name, Annotated[(tuple[kinds, ...], *about)], dataclasses.field(default=()))


def given(args: list[str], name: str) -> str | None:
    """The value of the last `--name value` or `--name=value`."""
    found = None
    for i, word in enumerate(args):
        if word == f"--{name}" and i + 1 < len(args) and not args[i + 1].startswith("--"):
            found = args[i + 1]
        elif word.startswith(f"--{name}="):
            found = word.partition("=")[2]
    return found


def read(path: str) -> str:
    """The text of the file at --config."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"Expected a file at --config, got {path!r}. Check the path.")
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(_LONGEST)
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected text in UTF-8 at {path}, got other bytes: {error}. Save it as UTF-8.") from error


def config_of(folder: Path) -> RunConfig:
    """The settings of a run in its folder; ValueError where somebody has changed the file."""
    file = folder / "config.yaml"
    text = read(str(file))
    check_settings(text, file)
    return from_yaml(text)


def changed(folder: Path, config: RunConfig, *free: str) -> list[str]:
    """The names of the settings that differ from those in the run's folder, except for `free` ones."""
    was = config_of(folder)
    names = (one.name for one in dataclasses.fields(was) if one.name not in free)
    return [name for name in names if getattr(was, name) != getattr(config, name)]


def read_json(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file of a run's folder; ValueError for a damaged file."""
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Expected JSON in {file}, got something else: {str(error)[:200]}. {_DAMAGED}") from error
    if not checks.is_a(found, dict):
        raise ValueError(f"Expected a mapping in {file}, got a {type(found).__name__}. {_DAMAGED}")
    return found


def _choices(config: Any, path: str) -> Iterator[tuple[str, str, dict[str, type | None], Any]]:
    """Fields that may hold several kinds: name, dotted path, the kinds, the value."""
    for name, annotation in get_type_hints(config.__class__, include_extras=True).items():
        if classes := kinds_of(annotation):
            yield name, f"{path}{name}", classes, getattr(config, name)


def _with_kinds(config: Any, args: list[str], path: str) -> Any:
    """`config` with the kinds that the flags name; settings without a default are left for tyro to ask for."""
    for name, place, classes, value in _choices(config, path):
        kind = given(args, place)
        if kind in classes and (kind or "none") != getattr(value, "kind", "none"):
            value = blank(classes[kind])
        config = dataclasses.replace(config, **{name: _with_kinds(value, args, f"{place}.") if value else None})
    return config


def blank(kind: type | None) -> Any:
    """A value of this kind with its defaults."""
    if kind is None:
        return None
    missing = dataclasses.MISSING
    needed = [f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]
    return kind(**dict.fromkeys(needed, tyro.MISSING))


def _kinds(config: Any, path: str) -> Iterator[tuple[str, Any, str]]:
    """For every flag that chooses a kind: its path, its type, its default."""
    for _, place, classes, value in _choices(config, path):
        yield place, Literal[tuple(classes)], getattr(value, "kind", "none")
        if value is not None:
            yield from _kinds(value, f"{place}.")


_SHOWN = 3  # kinds that are named


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
        values = [value] if equals else list(_following(args[i + 1 :], flag.several))
        for one in values:
            checks.one_of(flag.choices, **{f"--{flag.name}": one})


def _following(words: Sequence[str], several: bool) -> Iterator[str]:
    """The values that follow a flag."""
    for word in words if several else words[:1]:
        if word.startswith("-"):
            return
        yield word


def _unknown(given: str, listed: Sequence[Flag], prog: str) -> str:
    """The message about a flag that is not there."""
    name = given.removeprefix("--").replace("_", "-")
    here = {flag.name: "" for flag in listed if not flag.positional}
    there = {path: kinds for path, kinds in _of_other_kinds(listed).items() if path not in here}
    all_of_them = here | there
    meant = name if name in there else closest_flag(name, list(here), list(there))
    if meant is None:
        return f"Unknown flag {given} of {prog}. See {prog} --help."
    owner = all_of_them[meant]
    if not owner:
        return f"Unknown flag {given} of {prog}. Did you mean --{meant}?"
    if meant == name:
        return f"Expected {given} with {owner} only, got it without. See {prog} {given.rpartition('.')[0]} --help."
    return f"Unknown flag {given} of {prog}. Did you mean --{meant}, a flag of {owner}?"


def _of_other_kinds(listed: Sequence[Flag]) -> dict[str, str]:
    """Flags of kinds that are not chosen, each with the kinds that have it, in words."""
    found: dict[str, list[str]] = {}
    for flag in listed:
        for kind, cls in flag.kinds.items() if not flag.several else ():
            fields: Any = () if cls is None else dataclasses.fields(cls)
            for one in fields:
                found.setdefault(f"{flag.name}.{one.name.replace('_', '-')}", []).append(kind)
    words: dict[str, str] = {}
    for path, kinds in found.items():
        more = f" and {len(kinds) - _SHOWN} more" if len(kinds) > _SHOWN else ""
        words[path] = f"--{path.rpartition('.')[0]} {', '.join(kinds[:_SHOWN])}{more}"
    return words


def closest_flag(name: str, here: Sequence[str], there: Sequence[str]) -> str | None:
    """The flag that was probably meant, without its dashes; None where no flag is close."""
    above, _, last = name.rpartition(".")
    for flags in (here, there):
        exact = [flag for flag in flags if suggest.plain(flag) == suggest.plain(name)]
        words = [suggest.plain(one) for one in (last, *suggest.meanings(last))]
        same = [flag for flag in flags if flag.rpartition(".")[0] == above]
        for place in (same, flags):
            for word in words:
                exact += sorted((one for one in place if suggest.plain(one.rpartition(".")[2]) == word), key=_depth)
        if exact:
            return exact[0]
    for flags in (here, there):
        ends = {flag.rpartition(".")[2]: flag for flag in flags if flag.rpartition(".")[0] == above}
        if (found := suggest.closest(last, ends)) is not None:
            return ends[found]
    return suggest.closest(name, here) or suggest.closest(name, there)


def _depth(flag: str) -> int:
    return flag.count(".")
