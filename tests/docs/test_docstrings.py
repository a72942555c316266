"""Docstrings of all that is public: names in `__all__` or without an underscore in a module, and public methods.

What holds for a family of classes is said once, in the protocol that they implement, and counts for their methods.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import jdfl
from jdfl import codecs, network
from jdfl.algorithms import REGISTRY, Algorithm
from jdfl.base.settings import documentation
from jdfl.codecs import Codec
from jdfl.codecs.sensing import Sensing
from jdfl.engine.stopping import StopRule
from jdfl.lab.trackers import Tracker
from jdfl.network import Network
from jdfl.network.timing import Times
from jdfl.privacy import Mechanism, mechanisms
from jdfl.problems import Problem
from tests.docs.blocks import ROOT

LISTED = (
    *("jdfl", "jdfl.algorithms", "jdfl.auditing", "jdfl.codecs", "jdfl.events", "jdfl.models", "jdfl.network"),
    *("jdfl.privacy", "jdfl.problems"),
)
WHOLE = (
    *("engine.accountant", "algorithms.choosing", "algorithms.algorithm"),
    *("algorithms.descent", "algorithms.dpps", "algorithms.gradients"),
    *("algorithms.program", "algorithms.push_descent", "algorithms.requests"),
    *("algorithms.round", "algorithms.step_sizes", "algorithms.updates"),
    *("engine.batch", "engine.callbacks", "engine.checkpoint", "results.checkpoints"),
    *("engine.progress", "base.keys", "lab.charts", "lab.drawing", "lab.overview", "lab.page", "results.folder"),
    *("lab.study", "results.summary", "lab.trackers", "engine.metrics", "devices.nodes", "arrays.ops"),
    *("arrays.projection", "engine.result", "engine.runner", "engine.stopping", "base.struct"),
)
CONTRACTS = (Algorithm, Codec, Mechanism, Network, Problem, Sensing, StopRule, Times, Tracker)
SHAPE = r"\[[\w+*/. ,()-]*\]"
SOURCE = re.compile(r"\b(19|20)\d\d\b|\b[A-Z]\. [A-Z][a-z]+|\bEq\. \d|\((Algorithms?|section) ", re.MULTILINE)
NOBODYS = {codecs.Codec, codecs.Wire, codecs.Dense, REGISTRY["local-only"]}
FAMILIES = (  # of networks that somebody has published
    *("barabasi_albert", "base_graph", "bursty_loss", "d_cliques", "d_out", "de_bruijn", "equi_rounds"),
    *("equi_static", "erdos_renyi", "erdos_renyi_rounds", "exponential", "k_regular", "matcha"),
    *("one_peer_exponential", "random_geometric", "random_matching", "stl_fw", "watts_strogatz"),
)


@dataclass(frozen=True)
class Name:
    """A public function, class or method."""

    path: str
    value: Any  # the function or class, unwrapped
    owner: type | None  # of a method

    def docs(self, *more: Any) -> str:
        """Its own docstring, those of its contract, and of `more`."""
        return "\n".join([*(inspect.cleandoc(one.__doc__ or "") for one in (self.value, *more)), *contracts(self)])

    @property
    def text(self) -> str:
        """All that is said of it: also in its class and module, and beside its fields."""
        around = [one for one in (self.owner, import_module(self.value.__module__)) if one is not None]
        return f"{self.docs(*around)}\n{beside(self.owner or self.value)}"


@cache
def names() -> tuple[Name, ...]:
    """All of them, each once."""
    found: dict[str, Name] = {}
    for module in [import_module(name) for name in [*LISTED, *(f"jdfl.{one}" for one in WHOLE)]]:
        mine = [name for name, one in vars(module).items() if getattr(one, "__module__", None) == module.__name__]
        for name in getattr(module, "__all__", None) or [name for name in mine if not name.startswith("_")]:
            for one in with_methods(getattr(module, name)):
                found.setdefault(one.path, one)
    return tuple(found.values())


def with_methods(value: Any) -> Iterator[Name]:
    """A function or class, and the methods that the class itself defines; other values have no docstrings."""
    value = inspect.unwrap(value) if callable(value) else value
    if not (inspect.isfunction(value) or inspect.isclass(value)) or not value.__module__.startswith("jdfl"):
        return
    path = f"{value.__module__}.{value.__qualname__}"
    yield Name(path, value, None)
    for name, held in vars(value).items() if inspect.isclass(value) else ():
        method = next((getattr(held, part) for part in ("__func__", "fget", "func") if hasattr(held, part)), held)
        own = inspect.isfunction(method) and method.__qualname__ == f"{value.__qualname__}.{name}"
        if own and (not name.startswith("_") or name == "__call__"):
            yield Name(f"{path}.{name}", method, value)


def contracts(name: Name) -> list[str]:
    """The docstrings of the same method in bases and in protocols that the class implements."""
    if name.owner is None:
        return []
    bases = [one for one in name.owner.__mro__[1:] if one.__module__.startswith("jdfl")]
    bases += [one for one in CONTRACTS if one is not name.owner and implements(name.owner, one)]
    found = [vars(one).get(name.value.__name__) for one in bases]
    return [inspect.getdoc(one) or "" for one in [*found, *bases] if one is not None]


def implements(kind: type, contract: type) -> bool:
    return all(hasattr(kind, one) for one, held in vars(contract).items() if not one.startswith("_") and callable(held))


@cache
def beside(kind: Any) -> str:
    """The lines of the fields of a class, with their comments, and the documentation of these or of arguments."""
    found = re.findall(r"(?m)^    (\w+): .*?#(.*)$", inspect.getsource(kind)) if inspect.isclass(kind) else []
    return "\n".join(f"{field} {text}" for field, text in (dict(found) | documentation(kind)).items())


def parameters(name: Name) -> tuple[list[tuple[str, str]], str]:
    """Names and annotations of a function's parameters, or of the fields of a dataclass; what is returned."""
    if inspect.isclass(name.value):
        mine = vars(name.value).get("__annotations__", {}) if is_dataclass(name.value) else {}
        own = [one for one in (fields(name.value) if mine else ()) if one.name in mine and one.init]
        return [(one.name, str(mine[one.name])) for one in own], ""
    tree: Any = ast.parse(textwrap.dedent(inspect.getsource(name.value))).body[0]
    every = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]
    told = [(one.arg, ast.unparse(one.annotation) if one.annotation else "") for one in every]
    returned = "" if tree.returns is None else ast.unparse(tree.returns)
    return [one for one in told if one[0] not in ("self", "cls") and not one[0].startswith("_")], returned


@cache
def conventional() -> dict[str, str]:
    """Names that mean the same everywhere, and their shape where they are arrays, from the table of the reference."""
    text = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    return dict(re.findall(rf"^\| `(\w+)` \| ({SHAPE})? ?\|", text, re.MULTILINE))


def is_array(annotation: str) -> bool:
    return "Callable" not in annotation and bool(re.search(r"(?<![\w.])Array\b|np\.ndarray", annotation))


def unnamed(name: Name) -> Iterator[str]:
    """Parameters and fields that are named nowhere."""
    for one, _ in parameters(name)[0]:
        if one not in conventional() and not re.search(rf"\b{re.escape(one)}\b", name.text):
            yield one


def unshaped(name: Name) -> Iterator[str]:
    """Arrays that come in without a shape beside their name, and those that come out without any."""
    given, returned = parameters(name)
    for one, annotation in given:
        shaped = rf"\b{re.escape(one)}\b`?( of them)?,? ?\(?(bool |int32 |float32 )?{SHAPE}"
        if is_array(annotation) and not re.search(shaped, name.text) and not conventional().get(one):
            yield one
    if is_array(returned) and not re.search(SHAPE, name.docs()):
        yield "what is returned"


def wanting(rule: Callable[[Name], Iterable[str]], chosen: Iterable[Name] = ()) -> dict[str, list[str]]:
    return {one.path: told for one in chosen or names() if (told := list(rule(one)))}


def test_docstrings_name_all_parameters_shapes_of_arrays_and_their_source():
    assert wanting(lambda one: [] if inspect.getdoc(one.value) or contracts(one) else ["a docstring"]) == {}
    assert wanting(unnamed) == {}
    assert wanting(unshaped) == {}
    known = {one.value for one in names()}
    public = [getattr(jdfl, name) for name in jdfl.__all__ if not inspect.ismodule(getattr(jdfl, name))]
    assert [one for one in public if inspect.unwrap(one) not in known] == []
    kinds = {getattr(codecs, name) for name in codecs.__all__ if inspect.isclass(getattr(codecs, name))}
    kinds |= {*REGISTRY.values(), mechanisms.Gaussian, mechanisms.Laplace}
    kinds = kinds - NOBODYS | {inspect.unwrap(getattr(network, name)) for name in FAMILIES}
    chosen = [one for one in names() if one.value in kinds]
    assert len(chosen) == len(kinds)
    assert wanting(lambda one: [] if SOURCE.search(one.text) else ["a source"], chosen) == {}
