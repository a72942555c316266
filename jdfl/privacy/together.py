"""What several runs on the same data add up to.

Runs whose releases are alike are one longer run. Releases of Gaussian noise that look at all records are together one
with less noise, whatever they are: the inverses of the variances add up (J. Dong, A. Roth, W. Su, "Gaussian
Differential Privacy", 2022, Corollary 2). What is left adds up by basic composition, of epsilons and of deltas
(C. Dwork and A. Roth, "The Algorithmic Foundations of Differential Privacy", 2014, Theorem 3.16). All of it holds for
noise that is independent from run to run, and for runs whose settings were fixed before the first was seen.

Axes: m nodes.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from jdfl.privacy.analytic import gaussian_epsilon
from jdfl.privacy.ledger import Ledger
from jdfl.privacy.mechanisms import GaussianEvent, LaplaceSchedule
from jdfl.privacy.relation import plain, upper
from jdfl.privacy.slips import left_after_slips


@dataclass(frozen=True)
class Together:
    """What publishing all runs of a table costs."""

    runs: int  # that claim something
    silent: int  # others, which claim nothing
    epsilon: float | None  # of the former; None where they do not protect the same, so that nothing adds up
    delta: float

    @classmethod
    def of(cls, ledgers: Sequence[Ledger | None], delta: float) -> "Together | None":
        """Those of all runs together; None if no run claims anything.

        Args:
            ledgers: Those of all runs on the same data, None for a run that has none. Those that claim nothing are
                counted, and left out of the sum.
            delta: That of all runs together, in (0, 1). There is no epsilon where runs protect different units or
                neighbours.
        """
        known = [ledger for ledger in ledgers if ledger is not None and ledger.claimed]
        if not known:
            return None
        epsilon = total_epsilon(known, delta) if len(_protected(known)) == 1 else None
        return cls(len(known), len(ledgers) - len(known), epsilon, delta)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an epsilon that is infinite becomes None."""
        return plain(asdict(self))

    def statement(self) -> str:
        """The same in a sentence or two."""
        if self.epsilon is None:
            spent = "have no epsilon together: they do not protect the same"
        elif math.isinf(self.epsilon):
            spent = f"have no epsilon together at delta = {self.delta:g}"
        else:
            spent = f"cost ({upper(self.epsilon)}, {self.delta:g}) together"
        if not self.silent:
            return f"All {self.runs} runs, if they are published on the same data, {spent}."
        return (
            f"Of {self.runs + self.silent} runs {self.silent} claim nothing, and publishing all has no epsilon. The "
            f"other {self.runs}, on the same data, {spent}."
        )


def total_epsilon(ledgers: Sequence[Ledger], delta: float) -> float:
    """The epsilon at `delta` of all releases of these runs on the same data, of the most exposed node.

    Args:
        ledgers: Those of the runs. Where they have different numbers of nodes, all runs' most exposed nodes count as
            one.
        delta: That of all runs together, in (0, 1), which is shared out among them.

    Raises:
        ValueError: Where a run claims nothing, and where runs protect different units or neighbours.
    """
    for place, ledger in enumerate(ledgers):
        if ledger.event is None or not ledger.claimed:
            raise ValueError(f"Expected runs that claim something, got ledgers[{place}] that does not. Leave it out.")
    if len(protected := _protected(ledgers)) > 1:
        raise ValueError(f"Expected runs that protect the same, got {protected}. Their epsilons do not add up.")
    if len({len(ledger.releases) for ledger in ledgers}) > 1:  # nobody knows which node is which
        ledgers = [compact(ledger) for ledger in ledgers]
    whole = [isinstance(ledger.event, GaussianEvent) and ledger.sampling is None for ledger in ledgers]
    parts = _merged([ledger for ledger, one in zip(ledgers, whole) if not one])
    share = delta / max(1, len(parts) + any(whole))
    return _gaussian([ledger for ledger, one in zip(ledgers, whole) if one], share) + sum(
        part.worst(share)[1] for part in parts
    )


def compact(ledger: Ledger) -> Ledger:
    """A ledger of one node, with the most releases and the fewest records of all: no node spends more."""
    most, fewest = ledger.releases.max(keepdims=True), ledger.records.min(keepdims=True)
    return replace(ledger, releases=most, records=fewest)


def _protected(ledgers: Sequence[Ledger]) -> list[tuple[str, str]]:
    """The units and neighbours that are protected."""
    return sorted({(ledger.unit, ledger.adjacency) for ledger in ledgers})


def _gaussian(ledgers: Sequence[Ledger], delta: float) -> float:
    """That of Gaussian releases which look at all records."""
    squares: Any = sum(
        ledger.event.shift(ledger.releases) ** 2 for ledger in ledgers if isinstance(ledger.event, GaussianEvent)
    )
    mu, left = math.sqrt(np.max(squares)), delta - sum(ledger.failure for ledger in ledgers)
    if mu == 0 or left <= 0:
        return 0.0 if mu == 0 else math.inf
    least = gaussian_epsilon(mu, left)
    for ledger in ledgers:
        assert ledger.event is not None
        left = left_after_slips(ledger.event, int(ledger.releases.max()), left, least)
    found = gaussian_epsilon(mu, left) if left > 0 else math.inf
    return found if found <= least + math.log(2) else math.inf


def _merged(ledgers: Sequence[Ledger]) -> list[Ledger]:
    """A ledger for all those whose releases are alike; a sample that a run has not used up counts as used up."""
    found: dict[Any, Ledger] = {}
    for place, ledger in enumerate(ledgers):
        looks = 1 if ledger.sampling is None else ledger.sampling.looks
        one = replace(ledger, releases=-(-ledger.releases // looks) * looks)
        # Noise that follows a schedule begins anew in each run.
        alike = place if isinstance(one.event, LaplaceSchedule) else (one.event, one.sampling, *one.records.tolist())
        if (other := found.get(alike)) is not None:
            one = replace(one, releases=other.releases + one.releases, failure=other.failure + one.failure)
        found[alike] = one
    return list(found.values())
