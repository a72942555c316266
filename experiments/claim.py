"""A claim about a paper: a quotation, a sentence with places of numbers in a command's output, and what makes it true.

Kinds 1 to 4 are findings: false as stated, proof fails, constants fail, not reproduced. The other kinds say how far a
table, figure or statement is reproduced, or what a reader should know.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from experiments.common import Row, number
from jdfl.lab.table import rounded

FINDINGS = {1: "False as stated", 2: "Proof fails", 3: "Constants fail", 4: "Not reproduced"}
VERDICTS = ("Reproduced", "Partly", "Order only", "Contradicts itself", "Not reproducible")
READING = "Reading"
PLACE = re.compile(r"\{(\w+)(?::[^}]*)?\}")  # of a number in a sentence
_COMPARISONS: dict[type, Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
_SUMS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_TAKE: dict[str, Callable[[Any], Any]] = {"min": np.min, "max": np.max, "mean": np.mean, "median": np.median}
_REFERENCE = re.compile(
    r"\b(?:Eqs?\.|Theorem|Lemma|Corollary|Figures?|Assumption|Remark|Algorithm|Definition) \d+|[A-Za-z]-\d+"
)
_NUMBER = re.compile(r"(?<![\w.])(?:\d[\d,]*\d|\d)?(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}


@dataclass(frozen=True)
class Value:
    """A number that a sentence shows.

    `{name}` has three digits, `{name:ci}` the half-width of the 95 % interval of the mean, `{name:paper}` the paper's
    number, `{name:both}` the two with the paper's in square brackets, and any other format is one of Python's.
    """

    value: float
    sd: float = math.nan
    seeds: int = 1
    paper: float | None = None

    @property
    def half(self) -> float:
        """Half of Student's 95 % interval of the mean; 0 for a single value."""
        return Row("", "", self.paper, self.value, self.sd, self.seeds).half

    def __format__(self, form: str) -> str:
        if form == "both":
            return f"{self:ci}" if self.paper is None else f"{self:ci} [{self:paper}]"
        if form == "paper":
            return "–" if self.paper is None else f"{self.paper:g}"
        if form == "ci" and self.seeds > 1:
            return rounded(self.value, self.half, "in every seed")
        return number(self.value) if form in ("", "ci") else format(self.value, form)


@dataclass(frozen=True)
class Cell:
    """The place of a number: the cases and the column of an experiment's rows, and how several become one."""

    cases: re.Pattern[str]
    column: str
    take: str  # `one`, of a single case; or `min`, `max`, `mean`, `median` or `count` of all cases that match
    field: str
    """`mean` is our value and `paper` the paper's, `sd` and `seeds` are those of ours, `off` is |ours - paper|, `ratio`
    ours / paper, and `apart` |ratio - 1|."""

    def value(self, rows: Sequence[Row]) -> Value:
        """The number in the rows of a run. KeyError where there is none, or where several are and one is wanted."""
        found = [one for one in rows if one.column == self.column and self.cases.fullmatch(one.case)]
        numbers = [value for one in found if (value := self._of(one)) is not None]
        if self.take == "count":
            return Value(float(len(numbers)))
        if not numbers or (self.take == "one" and len(numbers) > 1):
            raise KeyError(f"Expected a row of {self.cases.pattern!r} in {self.column!r}, got {len(numbers)}.")
        if self.take == "one":
            return Value(numbers[0], found[0].sd, found[0].seeds, found[0].paper)
        return Value(float(_TAKE[self.take](numbers)))

    def _of(self, row: Row) -> float | None:
        if self.field not in ("off", "ratio", "apart"):
            return getattr(row, self.field)
        if row.paper is None:
            return None
        if self.field == "off":
            return abs(row.mean - row.paper)
        ratio = row.mean / row.paper
        return ratio if self.field == "ratio" else abs(ratio - 1)


@dataclass(frozen=True)
class Claim:
    """One claim. Every claim has a command; there is no other way to make one."""

    paper: str  # the name of the file that has it
    id: str
    place: str
    quotation: str  # words of the paper as they stand in its text; "" where the text is not available
    kind: int | str
    found: str  # what was found, with `{name}` where a number is
    run: str  # the name of the experiment, or `benchmarks.NAME`
    numbers: Mapping[str, Cell]
    holds: tuple[str, ...]  # comparisons of numbers that the claim consists of
    quick: float | None
    """The largest relative difference of numbers in a quick run; None: its size differs, and `holds` alone is asked."""
    small: bool  # whether a quick run can show it; an attack with few runs may not
    jdfl: str  # what jdfl does about it
    context: str
    """Words of the paper before the quotation that name the table or figure it is about; "": the last one before it."""
    test: str  # the test that fails if the claim is false, PATH::NAME, of findings of kind 1 and 2

    @property
    def name(self) -> str:
        """Its name among all papers'."""
        return f"{self.paper}.{self.id}"

    @property
    def command(self) -> str:
        """The command whose output has its numbers."""
        return f"python -m {self.run}" if "." in self.run else f"python -m experiments.{self.run}"

    @property
    def verdict(self) -> str:
        return FINDINGS[self.kind] if isinstance(self.kind, int) else self.kind

    def values(self, rows: Sequence[Row]) -> dict[str, Value]:
        """Its numbers in the rows of a run. KeyError where a row is missing."""
        return {name: cell.value(rows) for name, cell in self.numbers.items()}

    def sentence(self, rows: Sequence[Row]) -> str:
        """What was found, with its numbers."""
        return self.found.format(**self.values(rows)).strip()

    def faults(self, rows: Sequence[Row], recorded: Sequence[Row] | None = None) -> list[str]:
        """What of the claim is not true of the rows of a run.

        Args:
            rows: The rows of a full run, or of a quick one.
            recorded: Given with a quick run: the rows of the full one, with the same numbers up to `quick`. A claim
                without `quick` may have numbers that only a full run has.
        """
        if recorded is not None and not self.small:
            return []
        try:
            values = self.values(rows)
        except KeyError as error:
            return [] if recorded is not None and self.quick is None else [f"{self.name}: {error.args[0]}"]
        shown = {name: one.value for name, one in values.items()}
        found = [f"{self.name}: not {one}: {shown}" for one in self.holds if not true(one, values)]
        if recorded is not None and self.quick is not None:
            for name, known in self.values(recorded).items():
                if not math.isclose(shown[name], known.value, rel_tol=self.quick, abs_tol=1e-9):
                    found.append(f"{self.name}: {name} is {shown[name]:g}, recorded {known.value:g}")
        return found

    def strangers(self, script: str) -> list[str]:
        """Numbers of its sentence that are written by hand and stand neither in the script nor in the quotation."""
        cases = [f"{cell.cases.pattern} {cell.column}".replace("\\", "") for cell in self.numbers.values()]
        known = set(_numbers(" ".join([script, self.quotation, self.place, *cases])))
        known |= {"95"}  # the confidence of all intervals, in per cent
        known |= {f"{value:g}" for word, value in _WORDS.items() if word in script}
        return [one for one in _numbers(PLACE.sub("", self.found)) if one not in known]


def true(comparison: str, values: Mapping[str, Value]) -> bool:
    """Whether a comparison holds, such as "0 < one < 2 * other" or "high(one) < low(other)", of 95 % intervals.

    Raises:
        ValueError: For anything but a comparison of numbers and of names in `values`.
    """
    node = ast.parse(comparison, mode="eval").body
    if not isinstance(node, ast.Compare):
        raise ValueError(f"Expected a comparison in `holds`, got {comparison!r}.")
    found = [_value(one, values) for one in (node.left, *node.comparators)]
    return all(_COMPARISONS[type(sign)](*pair) for sign, pair in zip(node.ops, pairwise(found), strict=True))


def _value(node: ast.expr, values: Mapping[str, Value]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return values[name].value
        case ast.Call(func=ast.Name(id="low" | "high" as end), args=[ast.Name(id=name)]):
            return values[name].value + (values[name].half if end == "high" else -values[name].half)
        case ast.Call(func=ast.Name(id="paper"), args=[ast.Name(id=name)]):
            published = values[name].paper
            return math.nan if published is None else published
        case ast.BinOp(left=left, op=sign, right=right):
            return _SUMS[type(sign)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case _:
            raise ValueError(f"Expected numbers, names and + - * / in `holds`, got {ast.unparse(node)!r}.")


def _numbers(text: str) -> list[str]:
    """All numbers of a text, each written in one way."""
    found = _NUMBER.findall(_REFERENCE.sub("", text))
    return [f"{float(one.replace(',', '')):g}" for one in found if one]
