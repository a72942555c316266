"""Calls of `jdfl`, in pages, notebooks, docstrings and messages of errors, are calls that the library accepts.

Every such call in inline code, or in a text without backticks, is resolved and its arguments are bound to the
signature. `...` among the arguments stands for all that is left out, and `jdfl.name()` for the function itself.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jdfl
from tests.docs.blocks import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = sorted(path for folder in ("jdfl", "notebooks") for path in (ROOT / folder).rglob("*.py"))
LEAST = 70  # calls that are bound
CALL = re.compile(r"(?<![\w./])jdfl(?:\.\w+)+\(")


def calls(text: str) -> Iterator[str]:
    """The calls of `jdfl` in a text, without those in fenced blocks, up to their last bracket."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    for found in CALL.finditer(text):
        depth = 0
        for i in range(found.end() - 1, len(text)):
            depth += (text[i] in "([{") - (text[i] in ")]}")
            if not depth:
                yield " ".join(text[found.start() : i + 1].split())
                break


def called(path: str) -> tuple[Any, bool]:
    """What a dotted name is, and whether its first argument is `self`; AttributeError where there is no such thing."""
    value: Any = jdfl
    owner, name = value, ""
    for name in path.split(".")[1:]:
        owner = value
        try:
            value = getattr(owner, name)
        except AttributeError:
            if not inspect.ismodule(owner):
                raise
            value = importlib.import_module(f"{owner.__name__}.{name}")
    own = inspect.isclass(owner) and not isinstance(inspect.getattr_static(owner, name), classmethod | staticmethod)
    return value, own


def _left_out(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred) or (isinstance(node, ast.Constant) and node.value is Ellipsis)


def fault(text: str) -> str:
    """Why a call, or one inside it, cannot be made; nothing where it can, or is no Python."""
    try:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    except SyntaxError:
        return ""
    for call in nodes:
        path = ast.unparse(call.func)
        if not re.fullmatch(r"jdfl(\.\w+)+", path):
            continue
        whole = [one for one in call.args if not _left_out(one)]
        named = [one.arg for one in call.keywords if one.arg and not _left_out(one.value)]
        partial = len(whole) < len(call.args) or len(named) < len(call.keywords) or not (call.args or call.keywords)
        named = [one.arg for one in call.keywords if one.arg]
        try:
            value, method = called(path)
            signature = inspect.signature(value)
            bind = signature.bind_partial if partial else signature.bind
            bind(*[None] * (method + len(whole)), **dict.fromkeys(named))
        except (AttributeError, ImportError, TypeError) as error:
            return f"{text}: {error}"
    return ""


def prose(path: Path) -> str:
    """A page; of a program the comments that are Markdown, docstrings and texts."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    cells = re.sub(r"(?m)^# ?", "", "\n".join(re.findall(r"# %% \[markdown\]\n((?:#.*\n)+)", text)))
    nodes = ast.walk(ast.parse(text))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n\n".join([cells, *map(inspect.cleandoc, texts)])


def test_calls_in_prose_can_be_made():
    found = [call for path in [*PAGES, *PROGRAMS] for call in calls(prose(path))]
    assert [told for call in found if (told := fault(call))] == []
    assert len(found) >= LEAST
    for wrong in ("jdfl.run(..., epsilon=2)", "jdfl.no_such_thing(3)", "jdfl.run(jdfl.DPSGD(no=1), ...)"):
        assert fault(wrong), wrong
