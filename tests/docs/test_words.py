"""The words that docs/glossary.md retires occur in no prose of the project.

Prose is Markdown, docstrings, comments and string literals with a space in them, except for text between backticks
and names of arguments.
"""

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from jdfl.algorithms import REGISTRY

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs/glossary.md"
CODE = ("jdfl", "experiments", "benchmarks", "tools", "notebooks", "docs")


@cache
def tables() -> tuple[tuple[str, ...], ...]:
    """The rows of the glossary's tables, each a tuple of its cells."""
    rows = [line for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]) for row in rows]
    return tuple(row for row in cells if not set(row[0]) <= {"-"} and row[-1] != "Not")


@cache
def retired() -> dict[str, str]:
    """Every retired phrase, with what is written instead."""
    return {phrase.strip(): row[0] for row in tables() for phrase in row[-1].split(",") if phrase.strip()}


def pattern(phrase: str) -> str:
    """The regular expression of a phrase, whose alternatives stand between slashes."""
    return r"\s+".join("(?:" + "|".join(map(re.escape, word.split("/"))) + ")" for word in phrase.split())


@cache
def search() -> re.Pattern[str]:
    """What finds any retired phrase."""
    return re.compile(r"(?<![\w-])(?:" + "|".join(map(pattern, retired())) + r")(?![\w-])", re.IGNORECASE)


def files() -> list[Path]:
    """All files with prose, but the glossary."""
    ends = ("py", "md", "js", "html", "ipynb")
    found = [path for folder in CODE for end in ends for path in (ROOT / folder).rglob(f"*.{end}")]
    return sorted({*found, *ROOT.glob("*.md")} - {GLOSSARY})


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The pieces of prose in a file, each with the line that it begins in."""
    text = path.read_text(encoding="utf-8")
    if path.name == "CHANGELOG.md":
        yield 1, "\n## ".join(re.split(r"\n## ", text)[:2])  # what was released stays as it was
    elif path.suffix == ".py":
        comments = ["."] * (text.count("\n") + 1)  # a line without one ends a phrase
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comments[token.start[0] - 1] = token.string.lstrip("#: ")
        yield 1, "\n".join(comments)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\s", node.value):
                yield node.lineno, node.value
    else:
        yield 1, text


def found(path: Path) -> list[tuple[int, str]]:
    """The retired phrases in a file: line and words."""
    hits = list[tuple[int, str]]()
    for line, text in prose(path):
        plain = re.sub(r"`[^`\n]*`|(?m:^ +\w+(?: \(.*?\))?: )", lambda name: " " * len(name[0]), text)
        hits += [(line + text[: hit.start()].count("\n"), " ".join(hit[0].split())) for hit in search().finditer(plain)]
    return sorted(hits)


@pytest.mark.parametrize("part", [*CODE, "*.md"])
def test_no_retired_word_is_left(part: str) -> None:
    mine = [path for path in files() if path.is_relative_to(ROOT / part) or (part == "*.md" and path.parent == ROOT)]
    assert mine, "nothing there to search"
    left = [f"{path.relative_to(ROOT)}:{line}: {words!r}" for path in mine for line, words in found(path)]
    assert not left, "\n".join(left)


def test_methods_have_one_spelling() -> None:
    listed = re.findall(r"(?m)^- ([^`\n]+): `\w+`, `([\w-]+)`$", GLOSSARY.read_text(encoding="utf-8"))
    titles = {kind: algorithm().title for kind, algorithm in REGISTRY.items()}
    assert {name: title for title, name in listed} == titles
    for kind, title in titles.items():
        about = inspect.getdoc(REGISTRY[kind]) or ""
        assert about.lower().startswith(f"{title.lower()}: "), f"{kind}: {about.splitlines()[0]}"
