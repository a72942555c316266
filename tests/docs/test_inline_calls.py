"""Calls between backticks, in pages, notebooks and docstrings, are calls that the library accepts.

Every call in a span of inline code is resolved and its arguments are bound to the signature. `...` among the arguments
stands for all that is left out, and `name()` for the function itself. A name without dots may be any public function,
class or method of that name, or one of the module whose docstring it is in; names of other packages are left alone.
"""

import ast
import builtins
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jdfl
from tests.docs.blocks import ROOT, blocks
from tests.docs.public import names

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
MODULES = [one for one in sorted((ROOT / "jdfl").rglob("*.py")) if one.name != "__main__.py"]
VALUES = {  # what variables of prose are
    "result": jdfl.Result,
    "comparison": jdfl.Comparison,
    "experiment": jdfl.Experiment,
    "problem": jdfl.problems.Problem,
    "round": jdfl.algorithms.Round,
}
LEAST = 150  # calls that are bound
REMEDY = re.compile(r"jdfl(?:\.\w+)+\(")  # how a call begins in a message


@cache
def public() -> dict[str, list[Any]]:
    """All public functions, classes and methods by their last name."""
    found: dict[str, list[Any]] = defaultdict(list)
    for one in names():
        found[one.path.rpartition(".")[2]].append(one)
    return found


def spans(text: str) -> Iterator[str]:
    """Inline code outside of fenced blocks, lines joined."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    for one in re.findall(r"(?<!`)`([^`]+)`(?!`)", text):
        yield " ".join(one.split())


def messages(text: str) -> Iterator[str]:
    """The calls of `jdfl` in a text without backticks, such as the message of an error, up to their last bracket."""
    for found in REMEDY.finditer(text):
        depth = 0
        for i in range(found.end() - 1, len(text)):
            depth += (text[i] in "([{") - (text[i] in ")]}")
            if not depth:
                yield " ".join(text[found.start() : i + 1].split())
                break


def calls(span: str) -> list[ast.Call]:
    """The calls of a span that is Python; none of other spans, such as formulas and commands."""
    try:
        tree = ast.parse(span.strip().removesuffix(":"), mode="exec")
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def dotted(node: ast.expr) -> str:
    """The name that is called; empty where it is none, such as the result of another call."""
    try:
        return ast.unparse(node) if re.fullmatch(r"\w+(\.\w+)*", ast.unparse(node)) else ""
    except ValueError:
        return ""


def candidates(name: str, space: dict[str, Any]) -> list[tuple[Any, bool]] | None:
    """What a name may be, and whether its first argument is `self`; None where it is nothing of this library.

    An empty list: it begins with `jdfl`, and there is no such thing.
    """
    root, *rest = name.split(".")
    if root == "jdfl" or (root in space and rest):
        value: Any = jdfl if root == "jdfl" else space[root]
        for i, part in enumerate(rest):
            try:
                owner, value = value, getattr(value, part)
            except AttributeError:
                path = f"jdfl.{'.'.join(rest[: i + 1])}"
                try:
                    value = importlib.import_module(path)
                except ImportError:
                    return [] if root == "jdfl" else None
                continue
            if inspect.isclass(owner) and inspect.isfunction(inspect.unwrap(value)):
                return [(value, not isinstance(inspect.getattr_static(owner, part), classmethod | staticmethod))]
        return [(value, False)] if callable(value) else None
    if root in VALUES and len(rest) == 1:
        return [(getattr(kind, rest[0]), True) for kind in heirs(VALUES[root]) if hasattr(kind, rest[0])]
    if rest or hasattr(builtins, root):
        return None
    local = [(space[root], False)] if root in space and callable(space[root]) else []
    known = [(one.value, one.owner is not None and "self" in inspect.signature(one.value).parameters)
             for one in public().get(root, [])]  # fmt: skip
    return [*local, *known] or None


@cache
def heirs(kind: type) -> tuple[type, ...]:
    """A class, and all that inherit from it."""
    return (kind, *(one for heir in kind.__subclasses__() for one in heirs(heir)))


def bound(call: ast.Call, value: Any, method: bool) -> bool:
    """Whether the arguments fit the signature."""
    given = [one for one in call.args if not isinstance(one, ast.Starred)]
    whole = [one for one in given if not _left_out(one)]
    partial = len(whole) < len(call.args) or any(one.arg is None or _left_out(one.value) for one in call.keywords)
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return True  # of C, which has none
    bind = signature.bind_partial if partial or not (call.args or call.keywords) else signature.bind
    try:
        bind(*[None] * (method + len(whole)), **{one.arg: None for one in call.keywords if one.arg})
    except TypeError:
        return False
    return True


def _left_out(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def faults(text: str, space: dict[str, Any]) -> tuple[list[str], int]:
    """Calls of a text that cannot be, and how many were looked at."""
    wrong, seen = list[str](), 0
    for span in dict.fromkeys([*spans(text), *messages(re.sub(r"(?ms)^ *```.*?^ *```|`[^`]*`", "", text))]):
        for call in calls(span):
            found = candidates(dotted(call.func), space) if dotted(call.func) else None
            if found is not None:
                seen += 1
                if not any(bound(call, *one) for one in found):
                    wrong.append(span)
    return wrong, seen


def prose(path: Path) -> str:
    """The Markdown cells of a notebook, or the docstrings of a module."""
    text = path.read_text(encoding="utf-8")
    if path in NOTEBOOKS:
        return re.sub(r"(?m)^# ?", "", "\n".join(re.findall(r"# %% \[markdown\]\n((?:#.*\n)+)", text)))
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = list(ast.walk(ast.parse(text)))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    docs = [ast.get_docstring(node) for node in nodes if isinstance(node, kinds)]
    docs += [node.value.value for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
             and isinstance(node.value.value, str)]  # fmt: skip
    docs += [one for one in texts if REMEDY.search(one)]
    return "\n\n".join(dict.fromkeys(inspect.cleandoc(one) for one in docs if one))


def namespace(path: Path) -> dict[str, Any]:
    """The names of a module, or those that the code of a page defines; what a variable is may be anything."""
    if path.suffix == ".md":
        code = "\n".join(block.text for block in blocks(path) if block.language == "python")
        own = {node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        return dict.fromkeys(own, lambda *_, **__: None)
    if path in NOTEBOOKS:
        return {}
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    variables = {node.arg if isinstance(node, ast.arg) else getattr(node.target, "id", "") for node in tree
                 if isinstance(node, ast.arg | ast.AnnAssign)}  # fmt: skip
    return vars(importlib.import_module(name)) | dict.fromkeys(variables - {*VALUES}, lambda *_, **__: None)


def told(paths: list[Path]) -> tuple[dict[str, list[str]], int]:
    """The faults of files, by file, and how many calls were looked at."""
    wrong, seen = dict[str, list[str]](), 0
    for path in paths:
        text = path.read_text(encoding="utf-8") if path.suffix == ".md" else prose(path)
        if "(" in text:
            found, number = faults(text, namespace(path))
            seen += number
            if found:
                wrong[str(path.relative_to(ROOT))] = found
    return wrong, seen


def test_calls_in_prose_can_be_made():
    wrong, seen = told([*PAGES, *NOTEBOOKS, *MODULES])
    assert wrong == {}
    assert seen >= LEAST


def test_a_call_that_cannot_be_made_is_seen():
    for text in (
        "`jdfl.run(..., epsilon=2, delta=1e-5)`",
        "`jdfl.no_such_thing(3)`",
        "`DPSGD(rate=3)`",
        "`result.plot(z=3)`",
        "`ring(8, 9, 10, 11)`",
        "`jdfl.run(\njdfl.DPSGD(no=1), ...)`",
    ):
        assert faults(text, {})[0], text
    assert not faults("`jdfl.run(..., callbacks=[jdfl.Budget(epsilon=2, delta=1e-5)])`, `jdfl.run()`", {})[0]
    assert not faults("`result.plot(...)`, `optax.adam(1e-3)`, `f(x)`", {})[0]
