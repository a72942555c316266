"""Readable pages: a short README, code without sideways scrolling, links between pages, formulas as mathematics."""

import re
import sys

import pytest

from jdfl.algorithms import REGISTRY
from tests.docs.blocks import ROOT, blocks
from tools import register

sys.path.insert(0, str(ROOT / "docs" / "_site"))  # as mkdocs does for its hooks

import pages

COLUMNS = 88  # of code that fits beside the navigation at 1,280 pixels
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_numbers_of_methods_are_those_that_are_registered():
    """`python -m tools.register` fills them in; a number in words would be missed."""
    for page in register.FRONT:
        text = page.read_text(encoding="utf-8")
        assert register.counted(text) == text
        assert re.search(r"\b\d+ methods\b", text)
        tens = "ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
        assert re.findall(rf"(?i)\b(?:{tens})\b(?: more| methods| kinds| published| asynchronous)", text) == []
        assert re.findall(r"\b\d+ (?:published|algorithms|networks|asynchronous)", text) == []


def test_code_fits_into_its_column():
    code = {page.name: [one.text for one in blocks(page) if one.language not in ("text", "diff")] for page in PAGES}
    code |= {name: re.findall(r"```(?:python|bash)\n(.*?)```", pages.page(name), re.DOTALL) for name in REGISTRY}
    lines = [(name, line) for name, texts in code.items() for text in texts for line in text.splitlines()]
    assert [one for one in lines if len(one[1]) > COLUMNS] == []


def test_links_of_the_readme_lead_somewhere():
    for link in re.findall(r"\]\(([\w./-]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / link).exists(), link


def test_updates_are_mathematics():
    convert = pytest.importorskip("latex2mathml.converter").convert
    for name in REGISTRY:
        (formula,) = re.findall(r"\$\$\n(.*?)\n\$\$", pages.page(name), re.DOTALL)
        shown = re.sub(r"<[^>]+>", "", convert(formula, display="block"))
        assert not set(shown) & set("\\_^{}") - set("{}" if "\\{" in formula else ""), name
