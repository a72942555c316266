"""Rules that docstrings of public names keep; each gives what is wanting, in words.

What holds for a family of classes is said once, in the protocol that they implement, and counts for their methods.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

from jdfl.algorithms import Algorithm
from jdfl.base.settings import documentation
from jdfl.codecs import Codec
from jdfl.codecs.sensing import Sensing
from jdfl.engine.stopping import StopRule
from jdfl.lab.trackers import Tracker
from jdfl.network import Network
from jdfl.network.times import Times
from jdfl.privacy import Mechanism
from jdfl.problems import Problem
from tests.docs.public import Name, source, tree

_CONTRACTS = (Algorithm, Codec, Mechanism, Network, Problem, Sensing, StopRule, Times, Tracker)
_SHAPE = r"\[[\w+*/. ,()-]*\]"
_NAMED = Path("docs/reference/index.md")
_SOURCE = re.compile(r"\b(19|20)\d\d\b|\b[A-Z]\. [A-Z][a-z]+|\bEq\. \d|\((Algorithms?|section) ", re.MULTILINE)


def documented(name: Name) -> Iterator[str]:
    """There is a docstring."""
    if not name.doc:
        yield "a docstring"


def parameters_named(name: Name) -> Iterator[str]:
    """Every parameter and field is named in the docstring, around it, or in the page of conventional names."""
    text = _text(name)
    for parameter, _ in parameters(name):
        if parameter not in conventional() and not re.search(rf"\b{re.escape(parameter)}\b", text):
            yield parameter


def shapes_said(name: Name) -> Iterator[str]:
    """Every array that comes in has a shape beside its name; where arrays come out, there is a shape in the text."""
    text, own = _text(name), "\n".join([name.doc, *_contracts(name)])
    for parameter, annotation in parameters(name):
        shaped = rf"\b{re.escape(parameter)}\b`?( of them)?,? ?\(?(bool |int32 |float32 )?{_SHAPE}"
        if _is_array(annotation) and not re.search(shaped, text) and not conventional().get(parameter):
            yield parameter
    if _is_array(_returned(name)) and not re.search(_SHAPE, own):
        yield "what is returned"


def source_named(name: Name) -> Iterator[str]:
    """Algorithms, codecs, network families and mechanisms say whose they are."""
    if not _SOURCE.search(_text(name)):
        yield "a source"


RULES: dict[str, Callable[[Name], Iterable[str]]] = {
    "docstring": documented,
    "parameters": parameters_named,
    "shapes": shapes_said,
    "source": source_named,
}


@cache
def conventional() -> dict[str, str]:
    """Names that mean the same everywhere, and their shape where they are arrays, from the table of the reference."""
    rows = re.findall(rf"^\| `(\w+)` \| ({_SHAPE})? ?\|", _NAMED.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


def _text(name: Name) -> str:
    """All that is said of a name: its docstring, those around it, those of its contract, and beside its fields."""
    return "\n".join([name.doc, name.around, *_contracts(name), _beside(name)])


def _contracts(name: Name) -> list[str]:
    """The docstrings of the same method in bases and in protocols that the class implements."""
    if name.owner is None:
        return []
    bases = [one for one in name.owner.__mro__[1:] if one.__module__.startswith("jdfl")]
    bases += [one for one in _CONTRACTS if one is not name.owner and _implements(name.owner, one)]
    method = name.value.__name__
    found = [inspect.getdoc(vars(one)[method]) or "" for one in bases if method in vars(one)]
    return found + [inspect.getdoc(one) or "" for one in bases]


def _implements(kind: type, contract: type) -> bool:
    return all(hasattr(kind, one) for one, held in vars(contract).items() if not one.startswith("_") and callable(held))


def _beside(name: Name) -> str:
    """The lines of the fields of a class, or of a method's class, with their comments and documentation."""
    kind = name.owner or name.value
    if not inspect.isclass(kind):
        return ""
    lines = source(kind).splitlines()
    body = [line.split("#", 1) for line in lines if re.match(r"    \w+: .*#", line)]
    told = {line[0].split(":")[0].strip(): line[1].strip() for line in body} | documentation(kind)
    return "\n".join(f"{field} {text}" for field, text in told.items())


def parameters(name: Name) -> list[tuple[str, str]]:
    """Names and annotations of a function's parameters, or of the fields of a dataclass."""
    if inspect.isclass(name.value):
        if not is_dataclass(name.value):
            return []
        mine = vars(name.value).get("__annotations__", {})
        return [(one.name, str(mine[one.name])) for one in fields(name.value) if one.name in mine and one.init]
    found = tree(name).args
    every = [*found.posonlyargs, *found.args, *found.kwonlyargs]
    return [
        (one.arg, ast.unparse(one.annotation) if one.annotation else "")
        for one in every
        if one.arg not in ("self", "cls") and not one.arg.startswith("_")
    ]


def _returned(name: Name) -> str:
    found = None if inspect.isclass(name.value) else tree(name).returns
    return "" if found is None else ast.unparse(found)


def _is_array(annotation: str) -> bool:
    return "Callable" not in annotation and bool(re.search(r"(?<![\w.])Array\b|np\.ndarray", annotation))
