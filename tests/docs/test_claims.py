"""The ledger of claims about the papers, the pages that are made from it, and their quotations."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import claim, fairness, gallery, ledger, pages
from experiments.common import Row

ROOT = Path(__file__).parents[2]
CLAIMS = ledger.claims()
TEXTS = Path(os.environ.get("JDFL_DATA", "/nowhere")).parent / "papers"


def plain(text: str) -> str:
    """Without what breaks lines."""
    return " ".join(text.split())


def test_claims_are_true_of_what_is_recorded_and_every_table_and_figure_has_one():
    assert {one.name: told for one in CLAIMS if (told := one.faults(ledger.rows_of(one.run)))} == {}
    assert {one.name: told for one in CLAIMS if (told := one.strangers(ledger.script_of(one.run)))} == {}
    paper = ledger.papers()["ceps"]
    named = replace(paper, claims=tuple(one for one in paper.claims if not one.place.startswith("Table IV")))
    assert named.missing == {"Table IV": "ceps_table4"} | paper.missing
    assert "Table IV (`python -m experiments.ceps_table4`)" in pages.Pages({"ceps": named}).reproduction("ceps")
    known = {one.name for one in gallery.experiments()}
    assert all(run in known for one in ledger.papers().values() for run in one.artefacts.values())


def test_the_tests_that_claims_name_exist():
    for one in (one for one in CLAIMS if one.test):
        path, _, name = one.test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), one.name


def test_quotations_stand_in_the_papers_beside_what_they_are_about():
    texts = [path.read_text(encoding="utf-8") for path in sorted(TEXTS.glob("*.txt"))]
    if not texts:
        pytest.skip("the papers are not here")
    wrong = list[object]()
    for paper in ledger.papers().values():
        for text in [one for one in texts if paper.title.lower() in plain(one)[:2000].lower()][:1]:
            wrong += [one.name for one in paper.claims if plain(one.quotation) not in plain(text)]
            wrong += fairness.elsewhere(paper, text)
    assert wrong == []


def test_claims_judge_the_papers_statements_in_their_own_context():
    checks = (fairness.misplaced, fairness.opposed, fairness.untested, fairness.unread)
    assert [one for check in checks for paper in ledger.papers().values() for one in check(paper)] == []


@pytest.mark.parametrize("path", pages.pages(), ids=lambda path: path.name)
def test_a_page_is_what_the_ledger_makes_of_it(path):
    text = path.read_text(encoding="utf-8")
    made = pages.Pages()
    assert made.filled(text) == text, "python -m experiments pages"
    place = next(pages.PLACE.finditer(text))
    by_hand = text[: place.start(3)] + place[3].replace(".", ".1", 1) + text[place.end(3) :]
    assert made.filled(by_hand) == text


GOOD = {"id": "one", "place": "Theorem 1", "quotation": "holds", "kind": 3, "found": "it is {x}"}
GOOD |= {"run": "errata_checks", "numbers": {"x": "case -> value"}}
ROWS = [Row("case", "value", 4.0, 2.0, 0.5, 5), Row("case b", "value", None, 3.0, 0.0, 1)]


def made(**changes) -> claim.Claim:
    """The claim above, with changes of its text."""
    return ledger._claim("one", GOOD | changes)


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
