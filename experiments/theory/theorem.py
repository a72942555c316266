"""Theorems of papers as values: their conditions, whether a run satisfies these, and what they then say. On the host.

A constant that cannot be known is None, with what is needed to know it, and is never guessed. Numbers that floats may
not hold, such as the c_0 of CEPS, are given by their decimal logarithm and named so.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

_ANSWERS = {True: "yes", False: "NO", None: "unknown"}


@dataclass(frozen=True)
class Condition:
    """A hypothesis of a theorem, and whether it holds."""

    name: str  # as in the paper, such as "Assumption 4"
    text: str  # what it requires
    holds: bool | None  # None: unknown
    needs: str = ""  # what is missing, where it does not hold or is unknown
    value: float | None = None  # the number that is compared with `limit`
    limit: float | None = None

    def __str__(self) -> str:
        """The condition in one line, with its numbers."""
        numbers = "" if self.value is None else f" [{self.value:.6g}"
        numbers += "" if self.value is None or self.limit is None else f" against {self.limit:.6g}"
        missing = f"; needs {self.needs}" if self.needs and not self.holds else ""
        return f"{_ANSWERS[self.holds]:8}{self.name}: {self.text}{numbers}{']' if numbers else ''}{missing}"


@dataclass(frozen=True)
class Theorem:
    """A theorem or corollary of a paper for one setting: its conditions, and the numbers of its conclusion."""

    name: str  # as in `--theorem`
    source: str  # the paper, and the place in it
    claim: str  # its conclusion, in words or as a formula
    conditions: tuple[Condition, ...]
    says: dict[str, float | None]  # the terms of the conclusion and its bound; None: unknown
    note: str = ""  # what is known about its proof
    measured: dict[str, float] = field(default_factory=dict)  # by a run, in the units of `says`
    unmeasured: str = ""  # what to record, where nothing was measured

    @property
    def holds(self) -> bool | None:
        """Whether all conditions hold: True, False if one does not, and None if none fails and some are unknown."""
        answers = [one.holds for one in self.conditions]
        return False if False in answers else None if None in answers else True

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the conditions that do not hold."""
        return tuple(one.name for one in self.conditions if one.holds is False)

    def given(self, *conditions: Condition) -> "Theorem":
        """The theorem with these conditions of a run, which are listed first."""
        return replace(self, conditions=(*conditions, *self.conditions))

    def statement(self) -> str:
        """The theorem in words: a line with the verdict, the conditions, its conclusion, and what was measured."""
        unknown = [one.name for one in self.conditions if one.holds is None]
        verdict = "all conditions hold"
        if self.missing:
            verdict = f"does not speak of this run: missing {'; '.join(self.missing)}"
        elif unknown:
            verdict = f"not known to speak of this run: unknown {'; '.join(unknown)}"
        lines = [f"{self.source} ({self.name}): {verdict}", *(f"  {one}" for one in self.conditions)]
        would = "says" if self.holds else "would say"
        lines.append(f"  {would}: {self.claim}")
        lines += [f"    {name} = {_shown(value)}" for name, value in self.says.items()]
        lines += [f"  measured: {name} = {_shown(value)}" for name, value in self.measured.items()]
        lines += [f"  measured: nothing; {self.unmeasured}"] if self.unmeasured and not self.measured else []
        return "\n".join([*lines, *([f"  note: {self.note}"] if self.note else [])]) + "\n"


def below(
    name: str, text: str, value: float | None, limit: float | None, needs: str, *, equal: bool = False
) -> Condition:
    """The condition that a number is below a limit; unknown where one of the two is.

    Args:
        name: The name of the condition in the paper.
        text: What it requires, in words or as a formula.
        value: The number; None: unknown.
        limit: What it has to be below; None: unknown.
        needs: What is missing where it is not, or where it is unknown.
        equal: Whether the limit itself is allowed.
    """
    if value is None or limit is None:
        return Condition(name, text, None, needs, value, limit)
    return Condition(name, text, value <= limit if equal else value < limit, needs, value, limit)


def total(terms: Iterable[float | None]) -> float | None:
    """The sum of terms; None where one is unknown."""
    found = list(terms)
    return None if None in found else float(sum(one for one in found if one is not None))


def log10(value: float | None) -> float | None:
    """The decimal logarithm of a `value` >= 0: minus infinity for zero, and None for None."""
    return None if value is None else math.log10(value) if value > 0 else -math.inf


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"
