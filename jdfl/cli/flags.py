"""Values of settings, from the words after flags and from files."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from jdfl.base import checks
from jdfl.cli.schema import Flag, Given, Node
from jdfl.config import Config, RunConfig, from_yaml, yaml_text
from jdfl.config.kinds import members
from jdfl.store.manifest import check_signed

POSITIONAL = "written without a flag"
Folders = Annotated[tuple[Path, ...], POSITIONAL]
Words = Annotated[tuple[str, ...], POSITIONAL]
_READ: dict[str, Any] = {"INT": int, "FLOAT": float, "VALUE": bool}  # types of words that are read as in YAML
_LONGEST = 2**20  # characters of a configuration that are read; the limit for one is lower
_DAMAGED = "It is damaged; the run can be made again from its config.yaml."


def initial(function: Callable[..., Any], file: str | None = None, folder: Path | None = None) -> dict[str, Any]:
    """The settings that flags start from, by the argument of a command's function.

    `config` is read from a file, or is that of the run in a folder. ValueError and FileNotFoundError for bad ones.
    """
    found = {name: one for name, one in get_type_hints(function).items() if name in ("config", "options")}
    values = {name: one() for name, one in found.items()}
    if file is not None:
        values["config"] = from_yaml(read(file), found["config"])
    elif folder is not None:
        values["config"] = config_of(folder)
    return values


def plain(initial: dict[str, Any]) -> Node:
    """Settings as plain data."""
    return {name: yaml_text.plain(one) for name, one in initial.items()}


def values(function: Callable[..., Any], typed: Given, initial: dict[str, Any]) -> dict[str, Any]:
    """The settings with what is typed, and the names of the flags if the function takes them as `given`."""
    changes: dict[str, Any] = {name: {} for name in initial}
    for flag, words in typed:
        *above, last = flag.path.split(".")
        place = changes
        for one in above:
            place = place.setdefault(one, {})
        place[last] = _value(flag, words)
    found = {name: _changed(one, changes[name]) for name, one in initial.items()}
    return found | ({"given": [flag.name for flag, _ in typed]} if "given" in get_type_hints(function) else {})


def _changed(settings: Any, changes: dict[str, Any]) -> Any:
    """Settings, or those of a class, with other values; a dictionary has those of a part or of a kind."""
    cls = settings if isinstance(settings, type) else type(settings)
    annotations = {one.name: one.type for one in dataclasses.fields(cls)} if changes else {}
    found: dict[str, Any] = {}
    for name, new in changes.items():
        if not checks.is_a(new, dict):
            several = members(get_args(annotations[name])[0]) if checks.is_a(new, tuple) else {}
            found[name] = tuple(several[one]() for one in new) if several else new
            continue
        part = getattr(settings, name, None)
        kind = new.pop("kind", getattr(part, "kind", None))
        if kind != getattr(part, "kind", None):
            part = None if kind == "none" else members(annotations[name])[kind]
        found[name] = part if part is None else _changed(part, new)
    return settings(**found) if isinstance(settings, type) else dataclasses.replace(settings, **found)


def _value(flag: Flag, words: Any) -> Any:
    """The value of a flag; ValueError for one of another type."""
    if not flag.types:
        return words
    if flag.optional and words == ["None"]:
        return None
    items = tuple(
        _item(flag, one, word) for one, word in zip(flag.types * len(words) if flag.open else flag.types, words)
    )
    return items if flag.several and not (flag.alone and len(items) == 1) else items[0]


def _item(flag: Flag, kind: str, word: str) -> Any:
    if kind in _READ:
        return yaml_text.number(_READ[kind], word, f"--{flag.name}")
    return Path(word) if kind == "PATH" else int(word) if flag.integers else word


def read(path: str) -> str:
    """The text of the file at --config."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"Expected a file at --config, got {path!r}. Check the path.")
    try:
        with Path(path).open(encoding="utf-8") as file:
            return file.read(_LONGEST)
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected text in UTF-8 at {path}, got other bytes: {error}. Save it as UTF-8.") from error


def config_of(folder: Path, kind: type[Config] = RunConfig) -> Config:
    """The settings of work in its folder; ValueError where somebody has changed the file."""
    file = folder / "config.yaml"
    text = read(str(file))
    check_signed(text, file)
    return from_yaml(text, kind)


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
