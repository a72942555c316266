"""The size of the project: its rooms, and measures with goals, compared with an earlier commit.

    python -m tools.size [COMMIT] [--circles] [--trace]

A room is a folder of jdfl/. Python files are counted. Lines of code exclude blank lines, comments and docstrings, and
characters of code are those of these lines, with indentation. Public definitions are the classes and functions at the
top level of files of jdfl/ without a leading underscore; their methods are not counted. The lines of a file with
several algorithms are divided by their number.

A file imports another by an import statement, by a string that is the dotted name of a module, or by the stub that
lists a package's lazy exports. A name imported from such a package is an import of the file that the stub names.
Imports for types alone do not count, nor do the packages above a module, nor names of modules that are made in a run.
Imports at load are the statements outside of functions. Files or rooms that import one another are a circle. Floors are
the rooms of the longest chain of imports, where a circle is one room.

--trace counts calls of functions of jdfl in fresh processes: in the first trace of `STEP`, in a run after an equal one,
and in the first parsing. Their former values are those of commit 2aec6ec8 and do not follow COMMIT.
"""

import argparse
import ast
import functools
import io
import multiprocessing
import statistics
import subprocess
import sys
import tarfile
import textwrap
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import networkx

ROOT = Path(__file__).parent.parent
BEFORE = "1217f22a"  # until there is a release
FOLDERS = ("jdfl", "experiments", "tests", "benchmarks", "tools", "docs")
STEP = ("jdfl/algorithms/program.py", "step")  # file and name of the function that the loop calls for a round
Tree = dict[str, str]  # the texts of files by their paths
Measure = tuple[str, float, float | None]  # name, value, and the largest value that meets the goal
_HEADINGS = ("  files", "   lines", "   lines of code", "   characters of code")
_LAYOUT = {getattr(tokenize, name) for name in ("COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER")}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_parse = functools.cache(ast.parse)


def present_tree() -> Tree:
    """The Python files, stubs and pages of the working directory."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".pyi", ".md")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def former_tree(commit: str) -> Tree:
    """The same files of a commit."""
    made = subprocess.run(["git", "archive", commit, *FOLDERS], cwd=ROOT, capture_output=True)
    if made.returncode:
        raise SystemExit(f"Expected a commit of this repository, got {commit!r}: {made.stderr.decode().strip()}.")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as tar:
        files = {one.name: tar.extractfile(one) for one in tar if one.name.endswith((".py", ".pyi", ".md"))}
        return {path: file.read().decode() for path, file in files.items() if file}


def texts(tree: Tree, start: str, end: str = ".py") -> list[str]:
    """The texts of the files whose paths have this start and end."""
    return [text for path, text in tree.items() if path.startswith(start) and path.endswith(end)]


@functools.cache
def size(text: str) -> tuple[int, int, int, int]:
    """The size of a file: 1 for the file itself, its lines, lines of code and characters of code."""
    used = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(_parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            used.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = text.splitlines()
    return (1, len(lines), len(used), sum(len(lines[number - 1]) for number in used))


def total(tree: Tree, folder: str) -> list[int]:
    """The sums of the sizes of a folder's Python files."""
    return [sum(column) for column in zip((0, 0, 0, 0), *map(size, texts(tree, f"{folder}/")))]


def words(tree: Tree, start: str) -> int:
    """The number of words of the pages whose paths have this start."""
    return sum(len(text.split()) for text in texts(tree, start, ".md"))


def _module(path: str) -> str:
    return path.rpartition(".")[0].replace("/", ".").removesuffix(".__init__")


def _nodes(node: ast.AST, at_load: bool) -> Iterator[ast.AST]:
    """The nodes of a file, without imports for types and, at load, without the bodies of functions."""
    yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        children = node.orelse
    elif at_load and isinstance(node, _FUNCTIONS):
        children = ()
    for child in children:
        yield from _nodes(child, at_load)


def _imports(path: str, text: str, at_load: bool) -> Iterator[tuple[str, str]]:
    """The module and the name in it, or nothing, of everything that a file imports."""
    for node in _nodes(_parse(text), at_load):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):  # relative in stubs alone
            module = f"{_module(path)}.{node.module or ''}".rstrip(".") if node.level else node.module or ""
            yield from ((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and not at_load and "." in str(node.value):
            yield str(node.value), ""


def import_graph(tree: Tree, at_load: bool = False) -> "networkx.DiGraph[str]":
    """The graph with an edge from every module of jdfl to those that it imports, at load or at any time."""
    files = {_module(path): path for path in tree if path.startswith("jdfl/") and path.endswith(".py")}
    stubs = {_module(path): list(_imports(path, tree[path], False)) for path in tree if path.endswith("__init__.pyi")}
    exports = {(package, name): (module, name) for package, found in stubs.items() for module, name in found if name}

    def origin(module: str, name: str) -> str:
        inner = f"{module}.{name}"
        return inner if inner in files else origin(*exports[module, name]) if (module, name) in exports else module

    edges = dict[str, set[str]]()
    for module, path in files.items():
        found = [*_imports(path, tree[path], at_load), *([] if at_load else stubs.get(module, []))]
        edges[module] = {origin(*one) for one in found}.intersection(files) - {module}
    return networkx.DiGraph([(module, other) for module in edges for other in edges[module]])


def room_graph(files: "networkx.DiGraph[str]") -> "networkx.DiGraph[str]":
    """The graph with an edge from every room to those that it imports."""
    rooms = {module.split(".")[1] for module in files if module.count(".") > 1}
    pairs = {(f"{one}.".split(".")[1], f"{other}.".split(".")[1]) for one, other in files.edges}
    return networkx.DiGraph([pair for pair in pairs if pair[0] != pair[1] and rooms.issuperset(pair)])


def circles(graph: "networkx.DiGraph[str]") -> list[list[str]]:
    """The members of every circle, the largest circle first."""
    found = networkx.strongly_connected_components(graph)
    return sorted((sorted(one) for one in found if len(one) > 1), key=len, reverse=True)


def measures(tree: Tree) -> Iterator[Measure]:
    """The measures of a tree."""
    files, lines, code, characters = total(tree, "jdfl")
    imports, at_load = import_graph(tree), import_graph(tree, at_load=True)
    rooms, dpsgd = room_graph(imports), "jdfl.algorithms.dpsgd"
    top = [node for text in texts(tree, "jdfl/") for node in _parse(text).body]
    named = [node.name for node in top if isinstance(node, (ast.ClassDef, *_FUNCTIONS))]
    methods = [text for text in texts(tree, "jdfl/algorithms/") if "def step(" in text]
    yield "lines of jdfl", lines, 45_000
    yield "lines of code", code, 28_000
    yield "characters of code", characters, 1_350_000
    yield "files", files, 300
    yield "floors", networkx.dag_longest_path_length(networkx.condensation(rooms)) + 1, 12
    yield "circles of rooms", len(circles(rooms)), 0
    yield "circles of files", len(circles(imports)), 0
    yield "public definitions", sum(not name.startswith("_") for name in named), 1_100
    yield "experiments, lines", total(tree, "experiments")[1], 15_000
    yield "D-PSGD, direct imports", at_load.out_degree(dpsgd), 10
    yield "D-PSGD, files reached at load", len(networkx.descendants(at_load, dpsgd)), 50
    lengths: list[float] = []  # of a method in a file of several, its share
    for text in methods:
        count = text.count("    kind: ClassVar")
        lengths += [len(text.splitlines()) / max(1, count)] * count
    yield "a method's lines, median", round(statistics.median(lengths)), 80
    yield "docs, words", words(tree, "docs/"), 45_000
    yield "docs/benchmarks.md, words", words(tree, "docs/benchmarks.md"), 3_000


def calls(function: Callable[[], Any], inside: tuple[str, str] | None = None) -> Counter[str]:
    """The number of calls of functions of jdfl by file, of all or of those within the function (file, name)."""
    found, depth = Counter[str](), int(inside is None)

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal depth
        path = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if path.startswith("jdfl/") and event in ("call", "return"):
            is_named = (path, frame.f_code.co_name) == inside
            depth += is_named if event == "call" else -is_named
            if event == "call" and depth:
                found[path] += 1

    sys.setprofile(note)
    function()
    sys.setprofile(None)
    return found


def run_files() -> tuple[int, int]:
    """The numbers of files used in one traced step of noisy D-PSGD, and in three rounds of it that run again."""
    import jdfl

    algorithm = jdfl.DPSGD(gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))
    problem, network = jdfl.problems.example1(m=8, n=16), jdfl.network.ring(8)
    run = functools.partial(jdfl.run, algorithm, problem, network, steps=3)
    step, warm = calls(run, STEP), calls(run)
    if not step:
        raise ValueError(f"Expected STEP to name the function that the loop calls for a round, got {STEP}.")
    return len(step), len(warm)


def parse_command(command: str, *flags: str) -> tuple[int, int]:
    """The number of calls to parse a command, and of modules of jdfl loaded then."""
    cli = import_module("jdfl.cli")
    cli.find(command)
    found = calls(lambda: cli.parse(command, flags))
    return found.total(), sum(name.split(".")[0] == "jdfl" for name in sys.modules)


def traces() -> Iterator[Measure]:
    """The measures of running programs."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        step, warm = pool.submit(run_files).result()
        parsed, of_run = pool.submit(parse_command, "run", "--algorithm", "d-psgd", "--algorithm.lr", ".2").result()
        of_compare = pool.submit(parse_command, "compare").result()[1]
    yield "files, a traced step of D-PSGD", step, 20
    yield "files, a warm run of 3 rounds", warm, 40
    yield "calls to parse --algorithm.lr .2", parsed, 5_000
    yield "modules loaded by jdfl run", of_run, None
    yield "modules loaded by jdfl compare", of_compare, None


def print_rooms(now: Tree, former: Tree) -> None:
    """Print the sizes of all rooms and folders, and the number of words of the pages."""
    rooms = sorted({"/".join(path.split("/")[:2]) for path in (*now, *former) if path.count("/") > 1})
    print(f"{'':<15}" + "".join(f"{heading}{'before':>10}" for heading in _HEADINGS))
    for folder in [*(one for one in rooms if one.startswith("jdfl/")), *FOLDERS[:-1]]:
        cells = zip(_HEADINGS, total(now, folder), total(former, folder))
        print(f"{folder:<15}" + "".join(f"{value:>{len(head)},}{before:>10,}" for head, value, before in cells))
    print(f"{'docs, words':<15}{words(now, 'docs/'):>7,}{words(former, 'docs/'):>10,}\n")


def print_measures(found: Iterable[Measure], former: Iterable[float]) -> int:
    """Print measures, their former values and goals; returns the number of missed goals."""
    missed = 0
    for (name, value, goal), before in zip(found, former):
        verdict = "" if goal is None else f"  goal <= {goal:>9,}  {'met' if value <= goal else 'missed'}"
        print(f"{name:<34}{value:>11,}  before {before:>11,}{verdict}")
        missed += goal is not None and value > goal
    return missed


def main() -> int:
    """Print all of it; returns the number of missed goals."""
    parser = argparse.ArgumentParser(prog="python -m tools.size", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", nargs="?", help="the commit to compare with")
    parser.add_argument("--circles", action="store_true", help="list the members of the circles")
    parser.add_argument("--trace", action="store_true", help="measure running programs, too")
    flags = parser.parse_args()
    tag = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True).stdout
    now, former = present_tree(), former_tree(flags.commit or tag.strip() or BEFORE)
    print_rooms(now, former)
    missed = print_measures(measures(now), [value for _, value, _ in measures(former)])
    missed += print_measures(traces(), (36, 72, 27_852, 322, 341)) if flags.trace else 0
    files = import_graph(now)
    for circle in [*circles(room_graph(files)), *circles(files)] if flags.circles else ():
        print(textwrap.fill(f"circle of {len(circle)}: {', '.join(circle)}", 120, subsequent_indent="    "))
    return missed


if __name__ == "__main__":
    sys.exit(main() > 0)
