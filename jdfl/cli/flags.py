"""Flags from frozen dataclasses: kinds first, then tyro.

If a setting has several kinds, a flag with its name chooses one (`--network ring`), and the flags below it set the
fields of that kind (`--network.weights uniform`), in any order: the kinds are read first, and tyro then parses the
configuration that has them.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from jdfl.base import checks
from jdfl.cli.helping import Flag, flags_of, help_text, kinds_of, refuse_typos
from jdfl.config import RunConfig, from_yaml, yaml_text
from jdfl.engine.records import check_settings

Folders = Annotated[tuple[Path, ...], tyro.conf.Positional]
Words = Annotated[tuple[str, ...], tyro.conf.Positional]
_LONGEST = 2**20  # characters of a configuration that are read; the limit for one is lower
_DAMAGED = "It is damaged; the run can be made again from its config.yaml."


class HelpAsked(SystemExit):
    """Raised where a command is asked for its help; `text` writes it."""

    def __init__(self, text: Callable[[], str], listed: Sequence[Flag]) -> None:
        super().__init__(0)
        self.text = text
        self.listed = listed


def parse(args: list[str], prog: str, *parts: Any) -> list[Any]:
    """Values of dataclasses as the flags set them.

    Args:
        args: The words after the command.
        prog: The command.
        parts: Values that the flags start from. The last one's docstring is the help of the command; it may be a class.

    Raises HelpAsked where help is asked for, ValueError for unknown flags and words, and SystemExit for values of
    other types, which tyro describes.
    """
    started = [part if isinstance(part, type) else _with_kinds(part, args, "") for part in parts]
    listed = [flag for part in started for flag in flags_of(part)]
    if {"-h", "--help"} & set(args):
        asked = [word for word in args if word not in ("-h", "--help")]
        told = (parts[-1] if isinstance(parts[-1], type) else type(parts[-1])).__doc__ or ""
        raise HelpAsked(lambda: help_text(prog, told, listed, asked), listed)
    refuse_typos(args, listed, prog)
    if isinstance(parts[-1], type):
        return [_parsed(args, parts[-1], prog)]
    fields: list[tuple[str, Any, Any]] = []
    for i, flag in enumerate(listed):
        if flag.kinds and not flag.several:  # the kind is read already, and tyro has to know its flag
            annotation = Annotated[Literal[flag.choices], tyro.conf.arg(name=flag.name)]
            fields.append((f"kind_{i}", annotation, dataclasses.field(default=flag.default)))
    for i, part in enumerate(started):
        fields.append((f"part_{i}", Annotated[type(part), tyro.conf.arg(name="")], dataclasses.field(default=part)))
    flags = dataclasses.make_dataclass("Flags", fields, frozen=True)
    found = _parsed(args, flags, prog, default=flags(), config=(tyro.conf.AvoidSubcommands,))
    return [getattr(found, f"part_{i}") for i in range(len(parts))]


def _parsed(args: list[str], kind: Any, prog: str, **how: Any) -> Any:
    return tyro.cli(kind, args=args, prog=prog, add_help=False, registry=_numbers(), **how)


def parsed(function: Callable[..., Any], prog: str, args: list[str]) -> list[Any]:
    """The arguments of a command's function, by their names, as the flags set them.

    `folder` is the first word, which may be left out where it may be None. `config` starts from the file at --config,
    or from config.yaml in the `folder`, or in that at --run. Raises as `parse` does, and ValueError and
    FileNotFoundError for a bad or missing file or folder.
    """
    names = get_type_hints(function)
    kind, folder, found = names["options"], None, list[Any]()
    if "folder" in names:
        if args and not args[0].startswith("-"):
            folder, args = Path(args[0]), args[1:]
        elif names["folder"] is Path and not {"-h", "--help"} & set(args):
            raise ValueError(f"Expected the folder of a run after `{prog}`, got {args[0] if args else 'nothing'!r}.")
        prog, found = f"{prog} {'RUN_DIR' if 'config' in names else 'DIR'}", [folder]
    if "config" not in names:
        return [*found, *parse(args, prog, kind)]
    file = given(args, "config")
    if folder is None and "run" in kind.__dataclass_fields__ and (run := given(args, "run")) is not None:
        folder = Path(run)
    start = from_yaml(read(file)) if file is not None else RunConfig() if folder is None else config_of(folder)
    return [*found, *parse(args, prog, start, kind())]


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


def given(args: list[str], name: str) -> str | None:
    """The value of the last `--name value` or `--name=value`."""
    found = None
    for i, word in enumerate(args):
        if word == f"--{name}" and i + 1 < len(args) and not args[i + 1].startswith("--"):
            found = args[i + 1]
        elif word.startswith(f"--{name}="):
            found = word.partition("=")[2]
    return found


def _with_kinds(config: Any, args: list[str], path: str) -> Any:
    """`config` with the kinds that the flags name; settings without a default are left for tyro to ask for."""
    for name, annotation in get_type_hints(type(config), include_extras=True).items():
        kinds = kinds_of(annotation)
        if not kinds or isinstance(value := getattr(config, name), tuple):
            continue
        kind = given(args, f"{path}{name}")
        if kind in list(kinds) and (kind or "none") != getattr(value, "kind", "none"):
            value = blank(kinds[str(kind)])
        if value is not None:
            value = _with_kinds(value, args, f"{path}{name}.")
        config = dataclasses.replace(config, **{name: value})
    return config


def blank(kind: type | None) -> Any:
    """A value of this kind with its defaults."""
    if kind is None:
        return None
    missing = dataclasses.MISSING
    needed = [f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]
    return kind(**dict.fromkeys(needed, tyro.MISSING))


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
