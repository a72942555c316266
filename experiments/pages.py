"""What the documentation says about the papers, filled in from the ledger by `python -m experiments pages`.

A page has places of the form

    <!-- errata: ceps -->
    <!-- end -->

and what stands between the two lines is made from `papers/*.yaml` and `results/`: change those. There are `errata`, a
list of what is wrong in a paper; `reproduction`, the verdicts on its tables and figures; `claims`, a list of some
claims by their names; `sentences`, those of some claims; `advice`, what to use by what one has; `figures`, what was
measured; `table`, one of a paper's tables; `methods`, every registered method with its properties and what it reached.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path

from experiments.claim import READING, VERDICTS, Claim, Value
from experiments.common import Row
from experiments.every_method import DENSE
from experiments.ledger import FOLDER, RESULTS, Paper, papers, record_of, rows_of, time_of
from jdfl.algorithms import REGISTRY

ROOT = FOLDER.parent
PAGES = ("README.md", "docs/*.md", "docs/papers/*.md")
PLACE = re.compile(r"<!-- (\w+): ([^>]*?) -->\n(.*?)<!-- end -->", re.DOTALL)
_ARTEFACT = re.compile(r"(?:Tables?|Figures?|Example) ")


class Pages:
    """What fills the places of pages.

    Args:
        known: The papers of the ledger.
        results: The folder of recorded output.
    """

    def __init__(self, known: dict[str, Paper] | None = None, results: Path = RESULTS) -> None:
        self._papers = papers() if known is None else known
        self._results = results
        self._parts: dict[str, Callable[..., str]] = {
            "errata": self.errata,
            "reproduction": self.reproduction,
            "claims": self.claims,
            "table": self.table,
            "advice": self.advice,
            "figures": self.figures,
            "sentences": self.sentences,
            "methods": self.methods,
        }

    def filled(self, text: str) -> str:
        """A page with all its places filled in. KeyError for a place, paper, claim or table that does not exist."""

        def fill(found: re.Match[str]) -> str:
            part, words = found[1], found[2].split()
            return f"<!-- {part}: {found[2]} -->\n{self._parts[part](*words)}\n<!-- end -->"

        return PLACE.sub(fill, text)

    def errata(self, paper: str) -> str:
        """The findings of kinds 1 to 3 in a paper, and where it contradicts itself."""
        kinds = (1, 2, 3, "Contradicts itself")
        return "\n".join(self._item(one) for one in self._papers[paper].claims if one.kind in kinds)

    def reproduction(self, paper: str) -> str:
        """The verdicts on every table, figure and stated number of a paper, with seeds, script and time."""
        verdicts: dict[tuple[str, str], list[str]] = {}
        for one in self._papers[paper].claims:
            if one.kind in VERDICTS or (one.kind == 4 and _ARTEFACT.match(one.place)):
                verdicts.setdefault((one.place, one.run), []).append(one.verdict)
        rows = [["Place", "Verdict", "Seeds", "Script", "Processor time"]]
        for (place, run), found in verdicts.items():
            said = record_of(run, self._results)
            seeds = max(row.seeds for row in rows_of(run, self._results))
            verdict = ", ".join(dict.fromkeys(found))
            command = run if said["command"].endswith(f".{run}") else said["command"]
            rows.append([place, verdict, str(seeds), f"`{command}`", _duration(time_of(said))])
        missing = [f"{name} (`python -m experiments.{run}`)" for name, run in self._papers[paper].missing.items()]
        return _table(rows) + (f"\n\nWithout a recorded run: {', '.join(missing)}." if missing else "")

    def claims(self, paper: str, *names: str) -> str:
        """A list of some claims."""
        known = {one.id: one for one in self._papers[paper].claims}
        return "\n".join(self._item(known[name]) for name in names)

    def advice(self, paper: str, *names: str) -> str:
        """A table of some claims: what one has, what to use, and what was measured."""
        rows = [["you have", "use", "measured", "script"]]
        known = {one.id: one for one in self._papers[paper].claims}
        rows += [[one.place, one.jdfl, self._found(one), f"`{one.run}`"] for one in map(known.__getitem__, names)]
        return _table(rows)

    def figures(self, paper: str, *names: str) -> str:
        """A list of some claims: what was measured, what came out, and the script."""
        known = {one.id: one for one in self._papers[paper].claims}
        return "\n".join(
            f"- **{known[name].place}:** {self._found(known[name])} (`{known[name].run}`)" for name in names
        )

    def sentences(self, paper: str, *names: str) -> str:
        """The sentences of some claims, a list from three on; the command stands after the last that it has shown."""
        known = {one.id: one for one in self._papers[paper].claims}
        alike = groupby(map(known.__getitem__, names), key=lambda one: one.command)
        return "\n".join(self._told([*map(self._found, some)], command) for command, some in alike)

    @staticmethod
    def _told(found: list[str], command: str) -> str:
        start, between = ("- ", ".\n- ") if len(found) > 2 else ("", ". ")
        return f"{start}{between.join(found)} (`{command}`)."

    def table(self, paper: str, name: str) -> str:
        """One of a paper's tables; † marks a value that is the same in every seed."""
        (made,) = [one for one in self._papers[paper].tables if one.id == name]
        cells = {(one.case, one.column): one for one in rows_of(made.run, self._results)}
        heads, columns = [made.head], [[made.published, *made.rows] if made.published else list(made.rows)]
        for column in made.columns:
            found = [cells.get((column.case.format(row=head), column.column)) for head in made.rows]
            shown = ["" if one is None else format(_value(one), column.show) + used(one, cells) for one in found]
            if made.lowest:
                lowest = min((one for one in found if one), key=lambda one: one.mean)
                best = format(_value(lowest), column.show) + used(lowest, cells)
                shown = [f"**{one}**" if one == best else one or "–" for one in shown]
            published = [format(_value(found[0]), "paper")] if made.published and found[0] else []
            spread = column.show in ("ci", "both") and any(one and one.seeds > 1 for one in found)
            heads.append(f"{column.head} ±" if spread else column.head)
            columns.append(published + shown)
        text = _table([heads, *map(list, zip(*columns, strict=True))])
        return text.replace(" (in every seed)", "†")

    def methods(self, run: str) -> str:
        """Every registered method: its properties, what is tuned, and what it reached on one problem."""
        cells = {(one.case, one.column): one.mean for one in rows_of(run, self._results)}
        has = list(dict.fromkeys(column for _, column in cells if column.startswith("has ")))
        measured = {"suboptimality": ".1e", "rate": ".3f", "bytes a round": ",.0f", "gradients a round": ".3g"}
        rows = [["method", "accepts, is or has", "tuned, if not lr", *measured]]
        for name, kind in REGISTRY.items():
            marks = [one.removeprefix("has ").replace("_", " ") for one in has if cells.get((name, one))]
            found = [cells.get((name, column)) for column in measured]
            shown = ["" if one is None else format(one, show) for one, show in zip(found, measured.values())]
            title = f"{kind().title}, dense" if name in DENSE else kind().title
            tuned = "" if kind.tuned == ("lr",) else ", ".join(kind.tuned) or "none"
            rows.append([f"[{title}](algorithms/{name}.md)", ", ".join(marks), tuned, *shown])
        return _table(rows)

    def _item(self, claim: Claim) -> str:
        """A claim in a list: quotation, verdict, what was found, what jdfl does about it, and its script."""
        verdict = "" if claim.kind == READING else f" {claim.verdict}."
        here = f" In jdfl: {claim.jdfl}." if claim.jdfl and claim.kind not in VERDICTS else ""
        return f"- **{_quoted(claim)}.**{verdict} {self._found(claim)}{here} (`{claim.run}`)"

    def _found(self, claim: Claim) -> str:
        return claim.sentence(rows_of(claim.run, self._results))


def used(row: Row, cells: Mapping[tuple[str, str], Row]) -> str:
    """A mark for a value at a budget that is larger than what the run spent in all its rounds; empty for others.

    It has the largest share of the budget that the run may have used, as far as that follows from smaller budgets.
    """
    rounds = {
        column.removeprefix("round at "): one.mean
        for (case, column), one in cells.items()
        if case == row.case and column.startswith("round at ")
    }
    budget, last = row.column.partition(" at ")[2], max(rounds.values(), default=0.0)
    if budget.endswith("rounds") or rounds.get(budget) != last or row.column.startswith("round at"):
        return ""

    def amount(budget: str) -> float:
        return float(budget.partition(" ")[0].replace(",", ""))

    unit = budget.partition(" ")[2]
    smaller = {amount(one): done for one, done in rounds.items() if one.partition(" ")[2] == unit and done}
    smaller = {less: done for less, done in smaller.items() if less < amount(budget)}
    most = min((last / done * less / amount(budget) for less, done in smaller.items()), default=1.0)
    return f" (≤ {math.ceil(100 * most)}%)" if most < 1 else " (done)"


def pages(root: Path = ROOT) -> list[Path]:
    """All pages that have places."""
    found: Iterable[Path] = (path for pattern in PAGES for path in sorted(root.glob(pattern)))
    return [path for path in found if PLACE.search(path.read_text(encoding="utf-8"))]


def write(root: Path = ROOT) -> list[Path]:
    """Fill in all pages; returns them."""
    made, found = Pages(), pages(root)
    for path in found:
        path.write_text(made.filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    return found


def _value(row: Row) -> Value:
    return Value(row.mean, row.sd, row.seeds, row.paper)


def _quoted(claim: Claim) -> str:
    return f"{claim.place}: “{claim.quotation}”" if claim.quotation else claim.place


def _table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "not timed"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
