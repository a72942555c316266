"""Readable pages: a short README, code without sideways scrolling, links between pages, formulas as mathematics."""

import re
import sys

import pytest

from jdfl.algorithms import REGISTRY
from tests.docs.blocks import ROOT, blocks
from tools import register

sys.path.insert(0, str(ROOT / "docs" / "_site"))  # as mkdocs does for its hooks

import formulas
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


def test_formulas_of_docstrings_become_tex():
    tex = formulas.tex("    k = 0, T, ...:  x_i+ <- sum_j W_ij x_j - lr g_i(x_i-)      (sent to all neighbours)\n    y")
    first, second = tex.splitlines()[1:3]
    for part in (r"x_{i}^{+} \leftarrow", r"\sum _{j} W_{ij} x_{j}", r"g_{i}(x_{i}^{-})", r"\dots"):
        assert part in first
    assert r"(\text{sent to all neighbours}) \\" in first
    assert second == "y"
    assert r"\sqrt{t + 1}" in formulas.tex("sqrt(t + 1)")
    assert r"\langle z_{i}, x\rangle" in formulas.tex("<z_i, x>")
    assert formulas.tex("S = a random set, a_t").count(r"\text{") == 1


def test_formulas_of_pages_become_mathml():
    pytest.importorskip("latex2mathml")
    inline = r'<span class="arithmatex">\(x_i &lt; 1\)</span>'
    made = formulas.mathml(rf'<p>{inline}</p><div class="arithmatex">\[\frac12\]</div>')
    assert made.count("<math") == 2
    assert "<mfrac>" in made
    assert "arithmatex" not in made
