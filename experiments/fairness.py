"""Whether the claims about a paper judge its statements in their own context.

A quotation speaks about one table or figure, a claim about a table or figure is measured by its experiment, rows about
one statement do not pull opposite ways, and a verdict follows from the numbers that are shown.
"""

import re
from collections.abc import Iterator

from experiments.claim import VERDICTS, Claim
from experiments.ledger import Paper

_FOR, _AGAINST = {"Reproduced"}, {1, 2, 3, 4, "Contradicts itself"}
_OWN_NUMBERS = "published_sums"  # adds up numbers that the paper prints
_BEFORE = 900  # characters in which a sentence's figure or table is looked for
_MENTION = re.compile(r"(?i)\b(fig(?:ure)?s?\.?|tables?)\s+([ivx]+\b|\d+)(?:\s*(?:-|–|to|and|,)\s*([ivx]+\b|\d+))?")
_ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7}


def plain(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


def judged(claim: Claim) -> bool:
    """Whether a claim judges what a table, a figure or a sentence about one says."""
    return claim.kind in VERDICTS or claim.kind == 4


def mentions(text: str) -> list[set[tuple[str, int]]]:
    """The tables and figures that a text names, one after another: {("figure", 1)}, or two of "Tables IV and V"."""
    found = []
    for one in _MENTION.finditer(text):
        numbers = [_ROMAN.get(part.upper()) or int(part) for part in one.groups()[1:] if part and _number(part)]
        found.append({("table" if one[1].lower().startswith("t") else "figure", number) for number in numbers})
    return [one for one in found if one]


def _number(part: str) -> bool:
    return part.isdigit() or part.upper() in _ROMAN


def misplaced(paper: Paper) -> Iterator[str]:
    """Claims that another experiment than that of their table or figure measures."""
    for claim in filter(judged, paper.claims):
        for name, runs in paper.experiments.items():
            if re.match(rf"{name}\b", claim.place) and claim.run not in (*runs, _OWN_NUMBERS):
                yield f"{claim.name}: {claim.run} does not measure {name}"


def elsewhere(paper: Paper, text: str) -> Iterator[str]:
    """Claims whose quotation speaks about another table or figure than their place names.

    It is the last one that the paper names before the quotation's end, or the one in `context`, words of the paper
    before the quotation that introduce what it speaks about.
    """
    text = plain(text)
    for claim in filter(judged, paper.claims):
        here = mentions(claim.place)
        spoken = []
        for one in re.finditer(re.escape(plain(claim.quotation)), text):
            before = text[max(0, one.start() - _BEFORE) : one.end()]
            if claim.context and plain(claim.context) not in before:
                continue
            spoken.append((mentions(claim.context or before) or [set()])[-1])
        if not spoken:
            yield f"{claim.name}: {claim.context!r} does not stand before the quotation"
        elif not any(one <= set().union(*here) for one in spoken):
            yield f"{claim.name}: the quotation is about {spoken}, the place is {claim.place}"


def opposed(paper: Paper) -> Iterator[str]:
    """Statements that one claim confirms and another refutes."""
    kinds: dict[str, set[int | str]] = {}
    for claim in paper.claims:
        kinds.setdefault(plain(claim.quotation) or claim.place, set()).add(claim.kind)
    for said, found in kinds.items():
        if found & _FOR and found & _AGAINST:
            yield f"{paper.name}: {said!r} is {sorted(map(str, found))}"


def untested(paper: Paper) -> Iterator[str]:
    """Verdicts that no comparison of numbers decides, or that leave a shown number of the paper out."""
    for claim in filter(judged, paper.claims):
        tests = " ".join(claim.holds)
        if not claim.holds:
            yield f"{claim.name}: no comparison"
        elif claim.kind == "Reproduced":
            shown = re.findall(r"\{(\w+):paper\}", claim.found)
            yield from (
                f"{claim.name}: paper({name}) is shown, not compared" for name in shown if f"paper({name})" not in tests
            )


def unread(paper: Paper) -> Iterator[str]:
    """Statements that are called false, or a proof that is called wrong, of a paper whose text was not read."""
    for claim in paper.claims:
        if not claim.quotation and claim.kind in (1, 2):
            yield f"{claim.name}: {claim.verdict}, without the paper's words"
