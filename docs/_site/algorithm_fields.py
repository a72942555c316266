"""Fields of a class as in its source: name, annotation, default and documentation."""

import ast
import inspect
import io
import textwrap
import tokenize
from dataclasses import dataclass
from typing import Any

from jdfl.base.settings import documentation


@dataclass(frozen=True)
class Field:
    """One field of a class."""

    name: str
    annotation: str
    default: str | None  # source text; None: it must be given
    comment: str


def comments(source: str) -> dict[int, str]:
    """The comments of a file by their line, from 1, without the sign; those for tools are left out."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    return {line: text for line, text in found.items() if not text.startswith(("noqa", "pyright:"))}


def fields(kind: Any) -> list[Field]:
    """The fields of a dataclass, those of its bases first; ClassVars are none."""
    found: dict[str, Field] = {}
    for one in reversed(kind.__mro__[:-1]):
        if one.__module__.startswith("jdfl"):
            found |= {field.name: field for field in _own(one)}
    return [field for name, field in found.items() if name in kind.__dataclass_fields__]


def _own(kind: type) -> list[Field]:
    source = textwrap.dedent(inspect.getsource(kind))
    body, beside, about = ast.parse(source).body[0], comments(source), documentation(kind)
    assert isinstance(body, ast.ClassDef)
    found = []
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            annotation = ast.unparse(node.annotation)
            if not annotation.startswith("ClassVar"):
                said = beside.get(node.end_lineno or 0, "") or about.get(node.target.id, "")
                found.append(Field(node.target.id, annotation, _default(node.value), said))
    return found


def _default(value: ast.expr | None) -> str | None:
    """The default as it is written, `struct.field(..., default=X)` being X."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("struct.field", "field"):
        given: dict[Any, ast.expr] = {one.arg: one.value for one in value.keywords}
        value = given.get("default")
    return None if value is None else ast.unparse(value)
