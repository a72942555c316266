"""The fenced blocks of a Markdown page."""

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
_OPEN = re.compile(r'(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]*)")?$')
_MARK = re.compile(r"<!-- (slow|parsed|output) -->$")


@dataclass(frozen=True)
class Block:
    """One block, and what stands around it."""

    language: str
    text: str
    line: int  # of its first line in the page, from 1
    mark: str  # slow, parsed or output, if a comment before it says so
    title: str  # the file that it is, if it is one


def blocks(page: Path) -> list[Block]:
    """All blocks of a page; ValueError for a fence that is never closed or says more than it may."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    mark, i = "", 0
    while i < len(lines):
        line = lines[i].rstrip()
        if line.lstrip().startswith("```"):
            opened = _OPEN.fullmatch(line)
            if opened is None:
                raise ValueError(f"{page.name}:{i + 1}: {line}")
            end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == "```"), None)
            if end is None:
                raise ValueError(f"{page.name}:{i + 1}: never closed")
            text = dedent("".join(f"{one}\n" for one in lines[i + 1 : end]))
            found.append(Block(opened["language"], text, i + 2, mark, opened["title"] or ""))
            i = end
        if line:
            marked = _MARK.search(line)
            mark = marked[1] if marked else ""
        i += 1
    return found
