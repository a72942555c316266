"""The joint privacy cost of several runs on the same data.

Runs with identical releases are one longer run. Gaussian releases that use all records are together equivalent to one
with less noise: the inverses of the variances add up (J. Dong, A. Roth, W. Su, "Gaussian Differential Privacy", 2022,
Corollary 2). The rest follows basic composition, of epsilons and of deltas (C. Dwork and A. Roth, "The Algorithmic
Foundations of Differential Privacy", 2014, Theorem 3.16). All of it holds for noise that is independent between runs,
and for runs whose settings were fixed before the first was seen.

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
    """The privacy cost of publishing all runs of a table."""

    runs: int  # with a guarantee
    silent: int  # without one
    epsilon: float | None  # of the former; None where nothing adds up
    delta: float
    shared: bool = False  # some share a private key and have released different things

    @classmethod
    def of(cls, ledgers: Sequence[Ledger | None], delta: float, same_data: bool = True) -> "Together | None":
        """The joint cost of all runs; None if no run has a guarantee."""
        known = [ledger for ledger in ledgers if ledger is not None and ledger.claimed]
        if not known:
            return None
        adds_up = len(_protected(known)) == 1 and (same_data or known[0].unit == "record")
        parts = known if same_data else [compact(ledger) for ledger in known]
        epsilon = total_epsilon(parts, delta) if adds_up else None
        return cls(len(known), len(ledgers) - len(known), epsilon, delta)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an epsilon that is infinite becomes None."""
        return plain(asdict(self))

    def statement(self, which: str = "") -> str:
        """The same in a sentence or two."""
        which = f" {which}" if which else ""
        if self.shared:
            spent = "have no epsilon together: some share a private key, and so their noise"
        elif self.epsilon is None:
            spent = "have no epsilon together: they do not protect the same unit, or whole nodes with other records"
        elif math.isinf(self.epsilon):
            spent = f"have no epsilon together at delta = {self.delta:g}"
        else:
            spent = f"cost ({upper(self.epsilon)}, {self.delta:g}) together"
        if not self.silent:
            return f"All {self.runs} runs{which}, if they are published on the same data, {spent}."
        return (
            f"{self.silent} of the {self.runs + self.silent} runs{which} have no guarantee, so publishing all has no "
            f"epsilon. The other {self.runs}, on the same data, {spent}."
        )


def total_epsilon(ledgers: Sequence[Ledger], delta: float) -> float:
    """The epsilon at `delta` of all releases of these runs on the same data, for the most exposed node."""
    for place, ledger in enumerate(ledgers):
        if ledger.event is None or not ledger.claimed:
            raise ValueError(f"Expected runs with a guarantee, got ledgers[{place}] without one. Leave it out.")
    if len(protected := _protected(ledgers)) > 1:
        raise ValueError(f"Expected runs that protect the same unit, got {protected}. Their epsilons do not add up.")
    if len({len(ledger.releases) for ledger in ledgers}) > 1:  # the correspondence of nodes is unknown
        ledgers = [compact(ledger) for ledger in ledgers]
    whole = [isinstance(ledger.event, GaussianEvent) and ledger.sampling is None for ledger in ledgers]
    parts = _merged([ledger for ledger, one in zip(ledgers, whole) if not one])
    share = delta / max(1, len(parts) + any(whole))
    return _gaussian([ledger for ledger, one in zip(ledgers, whole) if one], share) + sum(
        part.worst(share)[1] for part in parts
    )


def compact(ledger: Ledger) -> Ledger:
    """A ledger of a single node, with the most releases and the fewest records of all: no node spends more."""
    most, fewest = ledger.releases.max(keepdims=True), ledger.records.min(keepdims=True)
    return replace(ledger, releases=most, records=fewest)


def _protected(ledgers: Sequence[Ledger]) -> list[tuple[str, str]]:
    """The units and relations that are protected."""
    return sorted({(ledger.unit, ledger.adjacency) for ledger in ledgers})


def _gaussian(ledgers: Sequence[Ledger], delta: float) -> float:
    """The epsilon of Gaussian releases that use all records."""
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
    """One ledger for all runs with identical releases; a sample that a run has not used up counts as used up."""
    found: dict[Any, Ledger] = {}
    for place, ledger in enumerate(ledgers):
        looks = 1 if ledger.sampling is None else ledger.sampling.looks
        one = replace(ledger, releases=-(-ledger.releases // looks) * looks)
        # Noise that follows a schedule starts over in each run.
        alike = place if isinstance(one.event, LaplaceSchedule) else (one.event, one.sampling, *one.records.tolist())
        if (other := found.get(alike)) is not None:
            one = replace(one, releases=other.releases + one.releases, failure=other.failure + one.failure)
        found[alike] = one
    return list(found.values())
