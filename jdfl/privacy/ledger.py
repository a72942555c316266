"""The number of releases of each node, in a form that can be stored, and what several runs cost together.

Runs with identical releases are one longer run. Gaussian releases that use all records are together equivalent to one
with less noise: the inverses of the variances add up (J. Dong, A. Roth, W. Su, "Gaussian Differential Privacy", 2022,
Corollary 2). The rest follows basic composition, of epsilons and of deltas (C. Dwork and A. Roth, "The Algorithmic
Foundations of Differential Privacy", 2014, Theorem 3.16). All of it holds for noise that is independent between runs,
and for runs whose settings were fixed before the first was seen.

Axes: m nodes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from jdfl.privacy.accounting import Sampled, epsilon, left_after_slips, most_releases
from jdfl.privacy.analytic import gaussian_epsilon
from jdfl.privacy.guarantee import Adjacency, Guarantee, Sampling
from jdfl.privacy.mechanisms import Event, GaussianEvent, GaussianSchedule, LaplaceEvent, LaplaceSchedule

_MOST_SEARCHES = 4
_EVENTS = {"gaussian": GaussianEvent, "laplace": LaplaceEvent}


@dataclass(frozen=True)
class Ledger:
    """The releases of all nodes, which differ only in their number and in the number of records sampled from.

    It is everything that an accountant needs of a run, and what checkpoints store. Epsilons from it are upper bounds,
    and guarantee something only where it is `claimed`.
    """

    event: Event | None  # None: nothing noisy is released
    adjacency: str
    sampling: Sampling | None  # performed, and hidden from the observer
    releases: np.ndarray  # [m] integers
    records: np.ndarray  # [m] integers: sizes of the pools that samples are drawn from
    unit: str  # whose data are protected
    observer: str  # what the observer sees
    claimed: bool  # whether the sensitivity is enforced
    failure: float = 0.0  # probability that its bound fails, a part of every delta

    @classmethod
    def of(cls, guarantee: Guarantee, releases: np.ndarray, records: np.ndarray) -> "Ledger":
        """The ledger of `releases` [m] of nodes with `records` [m] under a guarantee of one release, claimed or not.

        In the ledger `claimed` concerns the noise only: it stays true where the guarantee's claim is lost only because
        values enter without noise (`derived`).
        """
        counts = np.asarray(releases, np.int64), np.asarray(records, np.int64)
        enforced = guarantee.claimed or bool(guarantee.derived and guarantee.enforced_by)  # of the noise only
        terms = guarantee.unit, guarantee.observer, enforced, guarantee.failure
        return cls(guarantee.event, guarantee.adjacency, guarantee.sampling, *counts, *terms)

    def sampled(self, node: int) -> Sampled | None:
        """How releases of a node sample its records, with their number; None where they use all of them."""
        one = self.sampling
        return None if one is None else Sampled(one.kind, one.batch, int(self.records[node]), one.looks)

    def terms(self, node: int) -> dict[str, Any]:
        """The keyword arguments `sampled` and `adjacency`, for example of `jdfl.privacy.epsilon`.

        The ledger's `failure` has to be subtracted from delta first. Where nothing is claimed, the relation is
        replace-one.
        """
        relation: Adjacency = "add-remove" if self.adjacency == "add-remove" else "replace-one"
        return {"sampled": self.sampled(node), "adjacency": relation}

    def worst(self, delta: float) -> tuple[int, float]:
        """The most exposed node and its epsilon at `delta`, of the `candidates`: no other node has a larger one."""
        found = {node: self.epsilon(node, delta) for node in self.candidates()}
        node = max(found, key=found.__getitem__)
        return node, found[node]

    def epsilon(self, node: int, delta: float) -> float:
        """The epsilon of a node's releases: the smallest of all bounds in `jdfl.privacy.epsilons` at `delta`.

        It is 0 for a node without releases, and infinite without any noise, and where subtracting `failure` leaves no
        delta.
        """
        if self.event is None or delta <= self.failure:
            return np.inf
        return epsilon(self.event, int(self.releases[node]), delta - self.failure, **self.terms(node))

    def limits(self, target: float, delta: float) -> np.ndarray:
        """The maximum number of releases per node within the epsilon `target` > 0 and `delta` [m]; 0 without noise.

        With samples from pools of different sizes, every node gets the limit of the smallest pool, since each search
        takes seconds. Noise that follows a schedule limits releases to its length.
        """
        if self.event is None or delta <= self.failure:
            return np.zeros_like(self.releases)
        pools = self.records if self.sampling else np.zeros_like(self.records)
        if len(np.unique(pools)) > _MOST_SEARCHES:
            pools = np.full_like(pools, self.records.min())
        kinds, which = np.unique(pools, return_inverse=True)
        nodes = [int(np.argmax(self.records == kind)) if self.sampling else 0 for kind in kinds]
        found = [most_releases(self.event, target, delta - self.failure, **self.terms(node)) for node in nodes]
        return np.array(found, np.int64)[which]

    def check_same(self, other: "Ledger") -> None:
        """Refuse to continue a run with other noise, records or claims: ValueError naming what differs.

        Multipliers may differ by the rounding of a float32. Two schedules are compared only as far as both extend.
        """
        for name in ("event", "adjacency", "sampling", "unit", "observer", "claimed", "failure"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and (where := _difference(mine, theirs)) is not None:
                raise ValueError(
                    f"Expected the noise of the run that is resumed, {name} = {mine!r}, got {theirs!r}{where}. What "
                    "was released keeps the noise it had; resume with the same mechanism, or start a new run."
                )
        if not np.array_equal(self.records, other.records):
            raise ValueError("Expected the records of the run that is resumed, got other numbers of records per node.")

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, all fields by name; `from_dict` reads it."""
        event = None if self.event is None else {"kind": self.event.kind, **asdict(self.event)}
        counts = {"releases": self.releases.tolist(), "records": self.records.tolist()}
        return asdict(self) | {"event": event} | counts

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Ledger":
        """The ledger from the `data` of `as_dict`; other data may fail with KeyError or TypeError."""
        known: dict[str, Any] = {name: np.asarray(data[name], np.int64) for name in ("releases", "records")}
        known["event"] = None if data["event"] is None else _event(data["event"])
        known["sampling"] = None if data["sampling"] is None else Sampling(**data["sampling"])
        return cls(**{**data, **known})

    def candidates(self) -> list[int]:
        """Nodes that no other exceeds both in releases and in rate: one of them has the largest epsilon."""
        if self.sampling is None:
            return [int(np.argmax(self.releases))]
        order = np.lexsort((self.records, -self.releases))  # most releases first; among equals, fewest records first
        fewest = np.minimum.accumulate(self.records[order])
        return [int(order[i]) for i in range(len(order)) if i == 0 or fewest[i] < fewest[i - 1]]


def _event(data: Mapping[str, Any]) -> Event:
    numbers: dict[str, Any] = {name: value for name, value in data.items() if name != "kind"}
    if "mu" in numbers:
        return GaussianSchedule(**{**numbers, "mu": tuple(numbers["mu"])})
    return LaplaceSchedule(**numbers) if "multipliers" in numbers else _EVENTS[data["kind"]](**numbers)


def _difference(one: Any, other: Any) -> str | None:
    """Where two events differ by more than the rounding of a float32, as text; None where they do not."""
    if type(one) is not type(other) or not isinstance(one, GaussianEvent | LaplaceEvent | LaplaceSchedule):
        return ""
    if isinstance(one, GaussianSchedule):
        known = min(len(one.mu), len(other.mu))
        return None if np.allclose(one.mu[:known], other.mu[:known], rtol=1e-6, atol=0) else ""
    if not isinstance(one, LaplaceSchedule):
        return None if math.isclose(one.noise_multiplier, other.noise_multiplier, rel_tol=1e-6) else ""
    for i, (mine, theirs) in enumerate(zip(one.multipliers, other.multipliers)):
        if not math.isclose(mine, theirs, rel_tol=1e-6):
            return f" (release {i + 1}: {mine:.6g}, got {theirs:.6g})"
    return None


def total_epsilon(ledgers: Sequence[Ledger], delta: float) -> float:
    """The epsilon at `delta` of all releases of these runs on the same data, for the most exposed node."""
    for place, ledger in enumerate(ledgers):
        if ledger.event is None or not ledger.claimed:
            raise ValueError(f"Expected runs with a guarantee, got ledgers[{place}] without one. Leave it out.")
    if len(protected := protected_units(ledgers)) > 1:
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


def protected_units(ledgers: Sequence[Ledger]) -> list[tuple[str, str]]:
    """The units and relations that are protected."""
    return sorted({(ledger.unit, ledger.adjacency) for ledger in ledgers})


def _gaussian(ledgers: Sequence[Ledger], delta: float) -> float:
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
