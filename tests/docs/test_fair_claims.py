"""Claims judge the papers' statements in their own context."""

from dataclasses import replace

import pytest

from experiments import fairness, ledger
from tests.docs.test_claims import TEXTS, made, plain

PAPERS = ledger.papers()
CHECKS = (fairness.misplaced, fairness.opposed, fairness.untested, fairness.unread)


def about(*claims, runs=None):
    """A paper with these claims."""
    return ledger.Paper("one", "A. Author", "A paper", claims, (), {}, runs or {})


def test_the_claims_of_all_papers_are_fair():
    assert [one for check in CHECKS for paper in PAPERS.values() for one in check(paper)] == []


def test_quotations_are_about_the_table_or_figure_of_their_place():
    texts = [path.read_text(encoding="utf-8") for path in sorted(TEXTS.glob("*.txt"))]
    if not texts:
        pytest.skip("the papers are not here")
    wrong = []
    for paper in PAPERS.values():
        mine = [one for one in texts if paper.title.lower() in plain(one)[:2000].lower()]
        wrong += [one for text in mine[:1] for one in fairness.elsewhere(paper, text)]
    assert wrong == []


TEXT = """Fig. 1 shows the effect of m. With few nodes A needs more rounds. From Table III, no differences are seen.
Fig. 7 compares times, and Fig. 5 shows the same. B is fastest. Tables IV and V: the rest holds."""


def test_the_context_of_a_quotation_is_read():
    for place, quotation, context, fair in (
        ("Figure 1", "A needs more rounds", None, True),
        ("Table III", "A needs more rounds", None, False),
        ("V-D", "A needs more rounds", None, False),
        ("Table III, rounds", "no differences are seen", None, True),
        ("Figure 7", "B is fastest", None, False),
        ("Figure 7", "B is fastest", "Fig. 7 compares times", True),
        ("Figure 7", "B is fastest", "Fig. 7 says", False),
        ("Tables IV and V", "the rest holds", None, True),
    ):
        given = {"place": place, "quotation": quotation} | ({"context": context} if context else {})
        assert (not list(fairness.elsewhere(about(made(kind=4, **given)), TEXT))) == fair


def test_planted_claims_are_unfair():
    other = made(kind=4, place="Table III", holds=["x > 1"])
    assert list(fairness.misplaced(about(other, runs={"Table III": ("ceps_table3",)})))
    assert not list(fairness.misplaced(about(other, runs={"Table III": ("ceps_table3", other.run)})))
    both = about(replace(other, kind="Reproduced"), other)
    assert list(fairness.opposed(both))
    assert not list(fairness.opposed(about(replace(other, kind="Partly"), other)))
    assert list(fairness.untested(about(replace(other, holds=()))))
    shown = made(kind="Reproduced", found="{x}, {x:paper} in the paper", holds=["x > 1"])
    assert list(fairness.untested(about(shown)))
    assert not list(fairness.untested(about(replace(shown, holds=("0.4 * paper(x) < x < 2 * paper(x)",)))))
    silent = replace(made(kind=3), kind=1, quotation="")
    assert list(fairness.unread(about(silent)))
