"""All flags of a command as records, from which its help, its completion and its suggestions for typos are made."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from typing_extensions import Doc

from jdfl.base.arguments import marks, options_of
from jdfl.base.settings import documentation
from jdfl.config.kinds import members

_VALUES = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
(_POSITIONAL,) = get_args(tyro.conf.Positional[int])[1:]


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag, or one argument without a flag."""

    name: str
    """Its dotted path with dashes, without the leading --; of an argument without a flag, what help calls it."""
    about: str = ""
    """Its documentation."""
    value: str = ""
    """What is written after it; empty for a switch."""
    default: Any = None
    """Its value if it is not given."""
    choices: tuple[str, ...] = ()
    """The words that it takes; empty for numbers and free text."""
    several: bool = False
    """Whether it takes several values."""
    kinds: Mapping[str, type[Any] | None] = field(default_factory=dict)
    """The kinds that it chooses from, by name; empty for other flags."""
    positional: bool = False
    """Whether it is written without a flag."""

    @property
    def names(self) -> tuple[str, ...]:
        """The flag as it is written, and for a switch its opposite."""
        if self.positional:
            return ()
        above, dot, last = self.name.rpartition(".")
        return (f"--{self.name}", f"--{above}{dot}no-{last}") if not self.value else (f"--{self.name}",)


def kinds_of(annotation: Any) -> dict[str, type[Any] | None]:
    """The kinds that a setting may hold, by name, and "none" if it may be left out; empty for other settings."""
    found: dict[str, type[Any] | None] = dict(members(annotation))
    return found | {"none": None} if found and NoneType in options_of(annotation) else found


def flags_of(config: Any, path: str = "") -> Iterator[Flag]:
    """The flags of a configuration or of options, those of its kinds and parts after its own."""
    cls = config if isinstance(config, type) else type(config)
    hints, about = get_type_hints(cls, include_extras=True), documentation(cls)
    own: list[Flag] = []
    inner: list[Flag] = []
    for one in dataclasses.fields(cls):
        annotation, name = hints[one.name], f"{path}{one.name}".replace("_", "-")
        value = getattr(config, one.name, one.default)
        value = None if value is dataclasses.MISSING or value is tyro.MISSING else value
        text = next(
            (mark.documentation for mark in marks(annotation) if isinstance(mark, Doc)), about.get(one.name, "")
        )
        kinds = kinds_of(annotation)
        if kinds:
            several = get_origin(options_of(annotation)[0]) is tuple
            default = () if several else getattr(value, "kind", "none" if "none" in kinds else None)
            words = "KIND ..." if several else "KIND"
            given: dict[str, Any] = {"default": default, "choices": tuple(kinds), "kinds": kinds, "several": several}
            own.append(Flag(name=name, about=text, value=words, **given))
        if dataclasses.is_dataclass(value):
            inner += flags_of(value, f"{name}.")
        elif not kinds:
            own.append(_flag(name, text, annotation, value))
    yield from own
    yield from inner


def _flag(name: str, about: str, annotation: Any, default: Any) -> Flag:
    """The flag of a setting that holds numbers, truth values, words or paths."""
    options = [one for one in options_of(annotation) if one is not NoneType]
    option = next((one for one in options if get_origin(one) is tuple), options[0])  # a number, or one for every node
    optional, several = NoneType in options_of(annotation), get_origin(option) is tuple
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
    if get_origin(option) is Annotated:
        return _word(option.__origin__)
    return _VALUES.get(option, "VALUE")
