"""The ledger of claims about the papers, the pages that are made from it, and that nothing is said outside it."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks import common as benchmark
from benchmarks.page import RESULTS
from experiments import claim, gallery, ledger, pages
from experiments.common import Row

ROOT = Path(__file__).parents[2]
CLAIMS = ledger.claims()
TEXTS = Path(os.environ.get("JDFL_DATA", "/nowhere")).parent / "papers"
LEAST = 60
# What a sentence about a paper is: it names one or a part of one, and has a number that is not such a name.
PART = re.compile(
    r"(?i)\b(?:Theorems?|Lemmas?|Corollar(?:y|ies)|Tables?|Figures?|Fig\.|Eqs?\.|Assumptions?|Remarks?|Algorithms?"
    r"|Definitions?|Sections?|Examples?|Appendi(?:x|ces))\s+\(?(?:[IVX]+(?:-[A-Z])?|[A-Z](?:\.\d)?|\d+)\b"
    r"(?:\s*(?:,|and|to|or)\s*(?:[IVX]+|\d+|[A-Z])\b)*\)?"
)
ABOUT = re.compile(
    r"(?i)\bpapers?\b|\bauthors'|\bTheorem \d|\bLemma \d|\bCorollary \d|\bTable [IVX]+\b|\bAppendix [A-Z]\b"
)
NAMES = re.compile(r"\b(?:\w*1BCS|int\d+|\w*float\d+|(?:19|20)\d\d|[a-zA-Z]+_\w+|l[12]|\d+-Out|[A-Za-z]+-\d+|\dx\d)\b")
WRITTEN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def plain(text: str) -> str:
    """Without what breaks lines."""
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """The sentences and table rows of a page by hand: without code, headings and what the ledger fills in."""
    text = pages.PLACE.sub("", text)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^#.*$", "", re.sub(r"`[^`]*`", "", text), flags=re.MULTILINE)
    found = []
    for part in re.split(r"\n\s*\n", text):
        lines = part.splitlines()
        if re.match(r"\s*(?:- |\d+\. )", part):
            part = re.sub(r"(?m)^\s*(?:- |\d+\. )", ".\nX ", part)  # every item begins a sentence
        table = any(line.lstrip().startswith("|") for line in lines)
        found += lines if table else re.split(r"(?<=[.:;])\s+(?=[A-Z*(])", plain(part))
    return found


def outside(text: str) -> list[str]:
    """Sentences about a paper, with a number, that the ledger does not make."""
    found = [one for one in sentences(text) if ABOUT.search(one)]
    return [one for one in found if re.search(r"\d", NAMES.sub("", PART.sub("", re.sub(r"\(\d\)|\]\(\S*\)", "", one))))]


def unquoted(known: dict[str, ledger.Paper], texts: list[str]) -> list[str]:
    """Claims whose quotation is not in the text of their paper; papers without a text are left out."""
    found = []
    for paper in known.values():
        mine = [text for text in map(plain, texts) if paper.title.lower() in text[:2000].lower()]
        found += [one.name for one in paper.claims if mine and plain(one.quotation) not in mine[0]]
    return found


def test_claims_are_true_of_what_is_recorded_and_have_no_number_by_hand():
    assert {one.name: told for one in CLAIMS if (told := one.faults(ledger.rows_of(one.run)))} == {}
    assert {one.name: told for one in CLAIMS if (told := one.strangers(ledger.script_of(one.run)))} == {}


def test_a_table_or_figure_without_a_claim_is_named():
    paper = ledger.papers()["ceps"]
    named = replace(paper, claims=tuple(one for one in paper.claims if not one.place.startswith("Table IV")))
    assert named.missing == {"Table IV": "ceps_table4"} | paper.missing
    assert "Table IV (`python -m experiments.ceps_table4`)" in pages.Pages({"ceps": named}).reproduction("ceps")
    known = {one.name for one in gallery.experiments()}
    assert all(run in known for one in ledger.papers().values() for run in one.artefacts.values())


def test_there_are_many_of_all_kinds_and_their_tests_exist():
    assert len(CLAIMS) >= LEAST
    assert {one.kind for one in CLAIMS} >= {1, 2, 3, 4, "Reproduced", "Contradicts itself", "Reading"}
    for one in (one for one in CLAIMS if one.test):
        path, _, name = one.test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), one.name


def test_quotations_stand_in_the_papers():
    texts = [path.read_text(encoding="utf-8") for path in sorted(TEXTS.glob("*.txt"))]
    if not texts:
        pytest.skip("the papers are not here")
    known = ledger.papers()
    assert unquoted(known, texts) == []
    first = known["ceps"].claims[0]
    wrong = replace(known["ceps"], claims=(replace(first, quotation="each step of Algorithm 2 achieves"),))
    assert unquoted({"ceps": wrong}, texts) == [first.name]


@pytest.mark.parametrize("path", pages.pages(), ids=lambda path: path.name)
def test_a_page_is_what_the_ledger_makes_of_it(path):
    text = path.read_text(encoding="utf-8")
    made = pages.Pages()
    assert made.filled(text) == text, "python -m experiments pages"
    place = next(pages.PLACE.finditer(text))
    by_hand = text[: place.start(3)] + place[3].replace(".", ".1", 1) + text[place.end(3) :]
    assert made.filled(by_hand) == text


def test_nothing_is_said_about_a_paper_outside_the_ledger():
    assert {path.name: told for path in WRITTEN if (told := outside(path.read_text(encoding="utf-8")))} == {}


def test_what_a_sentence_about_a_paper_is():
    for text, found in (
        ("The paper reports an objective of 0.126.", 1),
        ("Theorem 3 has a delta of 5.5 there.", 1),
        ("| CEPS | 0.5 | Table III has 28 |", 1),
        ("In Table III and Theorem 2 the paper speaks of CEPS.", 0),
        ("Here it is 0.126.\n\nThe paper's preset is `CEPS.paper(10)`.", 0),
        ("<!-- claims: ceps c0 -->\nTheorem 1 has 5.\n<!-- end -->", 0),
    ):
        assert len(outside(text)) == found


GOOD = """
title: A paper
cite: A. Author
claims:
  - id: one
    place: Theorem 1
    quotation: holds
    kind: 3
    found: it is {x}
    run: errata_checks
    numbers: {x: "case -> value"}
"""


def test_a_claim_needs_a_command_and_all_its_parts(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text(GOOD)
    (made,) = ledger.claims(tmp_path)
    assert made.command == "python -m experiments.errata_checks"
    for old, new, said in (
        ("    run: errata_checks\n", "", "`run` in claim one.one"),
        ("errata_checks", "no_such_script", "name of an experiment"),
        ("errata_checks", "benchmarks.no_such_script", "name of an experiment"),
        ('    numbers: {x: "case -> value"}\n', "", "`numbers`"),
        ("holds", "''", "`quotation`"),
        ("kind: 3", "kind: 5", "a kind from"),
        ("kind: 3", "kind: 1", "`test`"),
        ("it is {x}", "it is {y}", "a number for every name"),
        ("case -> value", "case", "CASE -> COLUMN"),
        ("    kind: 3", "    kind: 3\n    proof: none", "keys of a claim"),
    ):
        assert old in GOOD
        path.write_text(GOOD.replace(old, new))
        with pytest.raises(ValueError) as refused:
            ledger.claims(tmp_path)
        assert said in str(refused.value)


ROWS = [Row("case", "value", 4.0, 2.0, 0.5, 5), Row("case b", "value", None, 3.0, 0.0, 1)]


def made(**changes) -> claim.Claim:
    """The claim above, with changes of its text."""
    given = yaml.safe_load(GOOD)["claims"][0] | changes
    return ledger._claim("one", given)


def test_a_claim_may_be_about_the_figures_of_a_benchmark():
    one = made(run="benchmarks.sweep", found="it is {x:.2f}", numbers={"x": "max of .* -> side by side"})
    assert one.command == "python -m benchmarks.sweep"
    (said,) = [row.value for row in benchmark.read(RESULTS / "sweep.json").rows if row.measure == "side by side"]
    assert one.sentence(ledger.rows_of(one.run)) == f"it is {said:.2f}"
    assert replace(one, found="it is 7.25").strangers(ledger.script_of(one.run)) == ["7.25"]


def test_a_false_claim_is_noticed():
    assert made(holds=["x > 1", "paper(x) > high(x)", "low(x) < 2 * x"]).faults(ROWS) == []
    assert len(made(holds=["x > 2"]).faults(ROWS)) == 1
    assert len(made(numbers={"x": "other -> value"}).faults(ROWS)) == 1
    other = [replace(ROWS[0], mean=2.3), ROWS[1]]
    assert made().faults(other, ROWS) != []
    assert made(quick=0.2).faults(other, ROWS) == []
    assert made(quick=None, holds=["x < 2.2"]).faults(other, ROWS) != []
    assert made(quick=None).faults([], ROWS) == []
    assert made(small=False, holds=["x > 2"]).faults(ROWS, ROWS) == []
    assert made(small=False, holds=["x > 2"]).faults(ROWS) != []
    for text in ("x + 1", "x > open(x)"):
        with pytest.raises(ValueError):
            claim.true(text, {"x": claim.Value(1.0)})


def test_a_number_by_hand_is_noticed():
    assert made(found="it is {x} in 3.17 of Theorem 2").strangers("") == ["3.17"]
    assert made(found="it is {x} in 3.17").strangers("LEVEL = 3.17") == []


def test_sentences_show_numbers_as_asked():
    several = {"x": "case -> value", "y": "max of case.* -> value", "z": "max of case.* -> value : off"}
    one = made(found="{x:ci}, {x:paper}, {x:.1f}, {y}, {z}", numbers=several)
    assert one.sentence(ROWS) == "2.00 ± 0.62, 4, 2.0, 3, 2"


def test_recorded_tables_at_equal_budgets_mark_what_ended_early():
    """The recorded rows have the round of every value: the last one at a budget that a smaller one reaches, too."""
    marked = 0
    for path in sorted(ledger.RESULTS.glob("*.json")):
        cells = {(one.case, one.column): one for one in ledger.rows_of(path.stem)}
        marked += sum(bool(pages.used(row, cells)) for row in cells.values())
    assert marked > 50
    values = {"round at 10 kB": 5.0, "round at 1,000 kB": 50.0, "objective at 10 kB": 2.0, "objective at 1,000 kB": 1.0}
    rows = [Row("a", what, None, value, 0.0, 1) for what, value in values.items()]
    cells = {(one.case, one.column): one for one in rows}
    assert [pages.used(one, cells) for one in rows] == ["", "", "", " (≤ 10 % used)"]
