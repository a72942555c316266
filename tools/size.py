"""The size of the project: lines, units, import depth, names and docstrings, each with its goal.

    python -m tools.size

Lines of code exclude blank lines, comments and docstrings. A unit is a file or folder directly in jdfl/. Depth is the
longest chain of imports between units, where `TYPE_CHECKING` does not count, and a cycle is a set of units that import
one another. The names of a step are those a reader has to know: every name of modules, settings and other values that
`step`, and the functions of its file that it calls, use, except local variables and Python's own. A public name is an
exported class or function, or a method or property that an exported class defines outside of a contract: those in
`tests/public_names.txt`.
"""

import ast
import builtins
import inspect
import statistics
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import networkx

import jdfl
from tests.docs.test_public_names import public

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "jdfl"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTIONS)


def docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """The docstrings of a file, and the texts below fields that document them."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            yield from (
                one
                for one in node.body
                if isinstance(one, ast.Expr)
                and isinstance(one.value, ast.Constant)
                and isinstance(one.value.value, str)
            )


def count(path: Path) -> tuple[int, int, int]:
    """Lines, lines of code, lines of docstrings of a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    told = {at for one in docstrings(ast.parse(text)) for at in range(one.lineno, (one.end_lineno or 0) + 1)}
    code = [at for at, line in enumerate(lines, 1) if line.strip() and not line.strip().startswith("#")]
    return len(lines), len([at for at in code if at not in told]), len(told)


def unit_of(path: Path) -> str:
    """The file or folder of jdfl/ that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The units that a file imports on loading or in use, except for types."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    units = {unit_of(one) for one in PACKAGE.rglob("*.py")}
    found = set[str]()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "jdfl" else [f"jdfl.{one.name}" for one in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("jdfl.")}
    return (found & units) - {unit_of(path)}


def graph() -> "networkx.DiGraph[str]":
    """Which unit imports which."""
    made: networkx.DiGraph[str] = networkx.DiGraph()
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__init__.py" or path.parent != PACKAGE:
            made.add_edges_from((unit_of(path), other) for other in imported(path))
    return made


def _read(function: ast.AST) -> tuple[set[str], set[str]]:
    """Names of modules and others that a function reads, and attributes that it uses."""
    own = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    own |= {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    own |= {one.name for one in ast.walk(function) if isinstance(one, _FUNCTIONS)}
    notes = {id(inner) for one in ast.walk(function) for hint in _hints(one) for inner in ast.walk(hint)}
    nodes = [one for one in ast.walk(function) if id(one) not in notes]
    names = {one.id for one in nodes if isinstance(one, ast.Name) and one.id not in own | set(dir(builtins))}
    return names, {one.attr for one in nodes if isinstance(one, ast.Attribute)}


def _hints(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, _FUNCTIONS):
        return [node.returns] if node.returns else []
    if isinstance(node, ast.arg | ast.AnnAssign):
        return [node.annotation] if node.annotation else []
    return []


def step_names(path: Path) -> set[str]:
    """The names needed to read the step of an algorithm."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known = {one.name: one for one in ast.walk(tree) if isinstance(one, _FUNCTIONS)}
    left, seen, found = ["step"], set[str](), set[str]()
    while left:
        name = left.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        names, attributes = _read(known[name])
        found |= names | attributes
        left += names | attributes
    return found - seen


def public_docstrings() -> Iterator[str]:
    """The docstring of every public name, once, without those of values such as `jdfl.privacy.DERIVED`."""
    found = (attrgetter(line.partition("(")[0])(jdfl) for line in public())
    named = {one for one in found if inspect.isclass(one) or inspect.isroutine(one) or isinstance(one, property)}
    return (one.__doc__ or "" for one in named)


def _is_algorithm(text: str) -> bool:
    """Whether a file has the step of a registered kind."""
    return "def step(" in text and "kind: ClassVar" in text


def measures() -> Iterator[tuple[str, float, float, bool]]:
    """Name, value, goal, and whether a larger value is better."""
    counted = {path: count(path) for path in sorted(PACKAGE.rglob("*.py"))}
    total = [sum(one[i] for one in counted.values()) for i in range(3)]
    yield "lines", total[0], 20_000, False
    yield "lines of code", total[1], 12_500, False
    yield "files at the top", len(list(PACKAGE.glob("*.py"))), 8, False
    units = graph()
    whole = networkx.condensation(units)
    yield "floors", networkx.dag_longest_path_length(whole) + 1, 10, False
    yield "circles", sum(len(one) > 1 for one in networkx.strongly_connected_components(units)), 0, False
    yield "files over 300 lines", sum(one[0] > 300 for one in counted.values()), 0, False
    typings = ROOT / "typings"
    yield "typings, lines", sum(len(one.read_text().splitlines()) for one in typings.rglob("*.pyi")), 100, False
    files = [path for path in (PACKAGE / "algorithms").glob("*.py") if _is_algorithm(path.read_text())]
    yield "CEPS, lines", counted[PACKAGE / "algorithms" / "ceps.py"][0], 200, False
    yield "an algorithm's lines, median", statistics.median(counted[path][0] for path in files), 80, False
    yield "names in CEPS's step", len(step_names(PACKAGE / "algorithms" / "ceps.py")), 25, False
    yield "names in D-PSGD's step", len(step_names(PACKAGE / "algorithms" / "dpsgd.py")), 12, False
    yield "docstrings, % of lines", 100 * total[2] / total[0], 25, True
    words = statistics.median(len(text.split()) for text in public_docstrings())
    yield "words of a public docstring, median", words, 30, True


def main() -> int:
    """Print all of them; returns the number of missed goals."""
    missed = 0
    for name, value, goal, more in measures():
        met = value >= goal if more else value <= goal
        missed += not met
        print(f"{name:<36} {value:>9,.5g}  goal {'>=' if more else '<='} {goal:,.5g}  {'met' if met else 'missed'}")
    return missed


if __name__ == "__main__":
    sys.exit(main() > 0)
