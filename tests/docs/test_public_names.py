"""What is public, compared with `public_names.txt`: a change of it is a decision, which the diff shows.

After a change that is meant: `python -m tests.docs.test_public_names`, and a line in CHANGELOG.md.
"""

import difflib
import inspect
import types
from collections.abc import Iterator
from inspect import Parameter
from pathlib import Path
from typing import Any

import jdfl
from jdfl import codecs, events, models, network, privacy, problems, results, robust

FILE = Path(__file__).parents[1] / "public_names.txt"
CONTRACTS = (jdfl.Algorithm, codecs.Codec, network.Network, problems.Problem)  # their methods are listed once
MARKS = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


def parameters(function: Any) -> str:
    """Their names, `name=` where there is a default."""
    told, named = [], False
    for one in inspect.signature(function).parameters.values():
        if one.kind is Parameter.KEYWORD_ONLY and not named:
            told.append("*")
        named = named or one.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
        told.append(f"{MARKS.get(one.kind, '')}{one.name}{'' if one.default is Parameter.empty else '='}")
    return f"({', '.join(told)})"


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def members(kind: type) -> Iterator[str]:
    """A class's own methods and properties, without those of a contract that it follows."""
    known = {"replace"}.union(*(names(one) for one in CONTRACTS if one is not kind and names(one) <= names(kind)))
    for name, member in vars(kind).items():
        if name.startswith("_") or name in known:
            continue
        if isinstance(member, property):
            yield f".{name}"
        elif isinstance(member, types.FunctionType | classmethod | staticmethod):
            yield f".{name}{parameters(getattr(kind, name)).replace('self, ', '').replace('self', '')}"


def lines(path: str, value: Any) -> Iterator[str]:
    """A public name, of a class its methods too."""
    if inspect.isclass(value):
        yield path if getattr(value, "_is_protocol", False) else path + parameters(value)
        yield from (path + member for member in members(value))
    else:
        yield path + (parameters(value) if inspect.isroutine(value) else "")


def public() -> list[str]:
    """All of it, in order; what `jdfl` has itself is listed there."""
    found = {line for name in jdfl.__all__ for line in lines(name, getattr(jdfl, name))}
    found |= {*lines("results.Run", results.Run), *lines("results.read_run", results.read_run)}
    own = {id(getattr(jdfl, name)) for name in jdfl.__all__}
    for module in (codecs, events, models, network, privacy, problems, robust):
        for name in module.__all__:
            value, path = getattr(module, name), f"{module.__name__.removeprefix('jdfl.')}.{name}"
            found |= {path} if id(value) in own else set(lines(path, value))
    return sorted(found)


def test_what_is_public_is_what_the_file_says():
    told = FILE.read_text(encoding="utf-8").splitlines()
    changed = "\n".join(difflib.unified_diff(told, public(), FILE.name, "now", lineterm="", n=0))
    assert not changed, (
        f"{changed}\n\nIf this is meant: python -m tests.docs.test_public_names, and a line in CHANGELOG.md."
    )


if __name__ == "__main__":
    FILE.write_text("\n".join(public()) + "\n", encoding="utf-8")
    print(f"wrote {FILE}")
