"""The data of schema.json, made from the classes of settings and the functions that execute commands."""

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from jdfl import models
from jdfl.algorithms import GROUPS
from jdfl.base.arguments import marks, options_of
from jdfl.base.settings import documentation
from jdfl.cli.flags import POSITIONAL
from jdfl.cli.schema import COMMANDS, Node, find
from jdfl.config.families import ALL, NETWORKS
from jdfl.config.kinds import TRAITS, Family, Kind, described, first_line
from jdfl.config.yaml_text import plain
from jdfl.engine.metrics import REGISTRY as METRICS
from jdfl.events import REGISTRY as ASYNCHRONOUS
from jdfl.robust import ATTACKS

_VALUES = {int: "INT", float: "FLOAT", bool: "VALUE", str: "TEXT", Path: "PATH"}


def schema() -> Node:
    """All of it, as JSON has it."""
    own = {family: {name: kind for name, kind in family.kinds.items() if not kind.package} for family in ALL}
    families = {family.name: {name: _kind(family, kind) for name, kind in one.items()} for family, one in own.items()}
    found = {
        "commands": {name: command(find(name), f"jdfl {name.partition(' ')[0]}") for name in COMMANDS},
        "families": families,
        "groups": {name: kinds.split() for name, kinds in GROUPS.items()} | {"asynchronous": list(ASYNCHRONOUS)},
        "models": {one: {"about": first_line(getattr(models, one))} for one in models.NAMES},
        "attacks": {name: {"about": first_line(one), "provenance": one.provenance} for name, one in ATTACKS.items()},
        "metrics": {name: {"about": first_line(one)} for name, one in METRICS.items()},
    }
    return json.loads(json.dumps(found, default=str))


def add_kinds(families: Node) -> None:
    """Add the kinds that are missing, such as those of other installed packages."""
    for family in ALL:
        known = families[family.name]
        for name in family.sources:
            if name not in known:
                known[name] = _kind(family, family.kinds[name])


def _kind(family: Family, kind: type[Kind]) -> Node:
    found = {"about": described(kind), "nodes": _nodes(kind)}
    provenance = getattr(kind.source, "provenance", None)
    found |= {} if provenance is None else {"provenance": provenance}
    traits = [trait for trait, has in TRAITS.items() if has(kind.source)] if family is NETWORKS else []
    return found | {"traits": traits}


def command(function: Callable[..., Any], prog: str) -> Node:
    """A command, from the arguments of the function that executes it: `folder`, `config` and `options`."""
    hints = get_type_hints(function)
    found: Node = {"prog": prog, "about": inspect.cleandoc(hints["options"].__doc__ or "")}
    if "folder" in hints:
        found["folder"] = "RUN_DIR" if "config" in hints else "DIR"
        found["folder_optional"] = hints["folder"] is not Path
    parts = {name: one for name, one in hints.items() if name in ("config", "options")}
    found["nodes"] = [{"name": name, "inline": True, "nodes": _nodes(cls())} for name, cls in parts.items()]
    return found


def _nodes(settings: Any) -> list[Node]:
    """The nodes of settings, or of a class of settings, with their defaults."""
    cls = settings if isinstance(settings, type) else type(settings)
    hints, found = get_type_hints(cls, include_extras=True), list[Node]()
    for one in dataclasses.fields(cls):
        annotation, value = hints[one.name], getattr(settings, one.name, one.default)
        family = next((mark for mark in _marks(annotation) if isinstance(mark, Family)), None)
        if family is None and dataclasses.is_dataclass(value):
            inline = {"inline": True} if one.name == "base" else {}  # of a study
            found.append({"name": one.name, **inline, "nodes": _nodes(value)})
            continue
        source, name = one.metadata.get("source", (cls, one.name))
        node: Node = {"name": one.name, "about": one.metadata.get("about") or documentation(source).get(name, "")}
        node |= _chooser(family, annotation) if family else _leaf(annotation)
        if value is not dataclasses.MISSING:
            node["default"] = plain(value)
        found.append(node)
    return sorted(found, key=lambda node: not ("family" in node and "open" in node))


def _marks(annotation: Any) -> tuple[Any, ...]:
    """The marks of an annotation, or of the items of a tuple."""
    option = options_of(annotation)[0]
    return marks(get_args(option)[0]) if get_origin(option) is tuple else marks(annotation)


def _chooser(family: Family, annotation: Any) -> Node:
    """What a flag has that chooses a kind of a family."""
    options = options_of(annotation)
    found: Node = {"family": family.name, "types": ["KIND"]}
    found |= {} if family.only is None else {"only": family.only}
    found |= {"optional": True} if NoneType in options else {}
    return found | ({"open": True} if get_origin(options[0]) is tuple else {})


def _leaf(annotation: Any) -> Node:
    """What a flag has that takes numbers, truth values, words or paths."""
    allowed = options_of(annotation)
    options = [one for one in allowed if one is not NoneType]
    option = next((one for one in options if get_origin(one) is tuple), options[0])  # a number, or one for every node
    several = get_origin(option) is tuple
    items = [one for one in get_args(option) if one is not Ellipsis] if several else options[:1]
    choices = [one for item in items if get_origin(item) is Literal for one in get_args(item)]
    found: Node = {"types": [] if options == [bool] and NoneType not in allowed else [_word(one) for one in items]}
    marked = {
        "optional": NoneType in allowed,
        "open": several and Ellipsis in get_args(option),
        "alone": several and len(options) > 1,
        "positional": POSITIONAL in marks(annotation),
        "integers": int in map(type, choices),
    }
    found |= {name: True for name, holds in marked.items() if holds}
    return found | ({"choices": ["None"] * marked["optional"] + list(map(str, choices))} if choices else {})


def _word(option: Any) -> str:
    """The placeholder for a value of this type in help."""
    if get_origin(option) is Literal:
        return "{" + ",".join(map(str, get_args(option))) + "}"
    return _word(option.__origin__) if get_origin(option) is Annotated else _VALUES[option]
