"""Which places of a module are not mutated, because no test could or should see it.

Left out are: annotations; decorators; docstrings; what is inside `raise ...` within the parts of an f-string, which
are texts of errors; type aliases, which are unions of types at the top of a module; `__all__`; blocks under
`if TYPE_CHECKING`; and lines marked `# pragma: no mutate`. So are mutants that are no Python, as when cosmic-ray takes
the star of `def f(*, x)` for a product. Everything else is mutated, defaults of arguments too.
"""

import ast
from collections.abc import Iterator

Place = tuple[int, int]  # line, from 1, and column, from 0 and in bytes
Span = tuple[Place, Place]  # from the first place to before the second


def left_out(source: str) -> list[Span]:
    """The spans of a module that are not mutated."""
    tree = ast.parse(source)
    spans = [_span(node) for node in (*_in_place(tree), *_at_the_top(tree))]
    marked = (i for i, line in enumerate(source.split("\n"), 1) if "# pragma: no mutate" in line)
    return spans + [((i, 0), (i + 1, 0)) for i in marked]


def inside(spans: list[Span], source: str, start: Place, end: Place) -> bool:
    """Whether a place, with its column in characters, is left out."""
    lines = source.split("\n")
    first, last = ((line, len(lines[line - 1][:column].encode())) for line, column in (start, end))
    return any(low <= first and last <= high for low, high in spans)


def _in_place(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from node.decorator_list
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            yield node.returns
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        if isinstance(node, ast.Raise):
            yield from (part for part in ast.walk(node) if isinstance(part, ast.JoinedStr))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from node.body


def _at_the_top(tree: ast.Module) -> Iterator[ast.AST]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            named = isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
            if named or _is_type(node.value):
                yield node.value


def _is_type(value: ast.expr) -> bool:
    """Whether an expression may be a type: a name, a generic type with its arguments, or a union of them."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return _is_type(value.left) and _is_type(value.right)
    if isinstance(value, ast.Name | ast.Attribute) or ast.unparse(value) == "None":
        return True
    return isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id[0].isupper()


def _span(node: ast.AST) -> Span:
    found = (getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))
    line, column, last, end = found
    return (line, column), (last, end)
