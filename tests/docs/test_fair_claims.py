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


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_claims_of_all_papers_are_fair(check):
    assert [one for paper in PAPERS.values() for one in check(paper)] == []


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


@pytest.mark.parametrize(
    ("changes", "fair"),
    [
        ({"place": "Figure 1", "quotation": "A needs more rounds"}, True),
        ({"place": "Table III", "quotation": "A needs more rounds"}, False),
        ({"place": "V-D", "quotation": "A needs more rounds"}, False),
        ({"place": "Table III, rounds", "quotation": "no differences are seen"}, True),
        ({"place": "Figure 7", "quotation": "B is fastest"}, False),
        ({"place": "Figure 7", "quotation": "B is fastest", "context": "Fig. 7 compares times"}, True),
        ({"place": "Figure 7", "quotation": "B is fastest", "context": "Fig. 7 says"}, False),
        ({"place": "Tables IV and V", "quotation": "the rest holds"}, True),
    ],
)
def test_the_context_of_a_quotation_is_read(changes, fair):
    found = list(fairness.elsewhere(about(made(kind=4, **changes)), TEXT))
    assert (not found) == fair


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
