"""Privacy statements under one neighbouring relation: what is refused, and how the rest is worded.

Axes: m nodes.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from typing import Any, cast

import numpy as np

from jdfl.privacy.accounting import epsilon, epsilon_pure, scheduled
from jdfl.privacy.analytic import check_delta
from jdfl.privacy.guarantee import NO_NOISE, Guarantee
from jdfl.privacy.ledger import Ledger
from jdfl.privacy.mechanisms import Event, GaussianEvent, GaussianSchedule, LaplaceEvent, LaplaceSchedule

SHARED = ("unit", "adjacency", "observer", "sensitivity", "enforced_by", "failure")  # by a guarantee and its report
_PROTECTED = {
    "record": "one record (%s)",
    "node": "a whole node's data (%s)",
    "node-swap": "one node's answer, swapped for another node's (node-swap, %s)",
    "none": "nobody (%s)",
}


def default_delta(records: int) -> float:
    """The largest power of ten that is at most 1e-5 and below 0.1 / records."""
    power = -5
    while 10.0**power >= 0.1 / records:
        power -= 1
    return 10.0**power


def counted(guarantee: Guarantee, records: np.ndarray) -> tuple[str, int]:
    """What delta is compared with: the total number of records, or of nodes where whole nodes are protected."""
    nodes = guarantee.unit in ("node", "node-swap")
    return ("nodes", len(records)) if nodes else ("records", int(records.sum()))


def check_relation(guarantee: Guarantee, records: np.ndarray, delta: float) -> None:
    """Refuse a delta that is meaningless for these records [m], and one that is used up beforehand: ValueError."""
    check_delta(delta)
    unit, total = counted(guarantee, records)
    if delta >= 1 / total:
        raise ValueError(
            f"Expected delta < 1 / {unit} = {1 / total:.3g}, got delta = {delta:g}. Publishing a {unit[:-1]} picked at "
            f"random has such a delta; use {default_delta(total):g}."
        )
    if guarantee.event is not None and delta <= guarantee.failure:
        raise ValueError(
            f"Expected delta > failure = {guarantee.failure:g}, got delta = {delta:g}. Failure is the probability that "
            f"the bound on the sensitivity ({guarantee.enforced_by}) fails, and a part of delta; make it smaller, or "
            "use a larger delta."
        )


def check_claim(guarantee: Guarantee, *, anyway: bool) -> None:
    """Refuse a report where there is no event to account for, and unless `anyway`, where nothing is claimed."""
    why = f"{guarantee.reason}. {guarantee.remedy}".strip()
    if guarantee.reason == NO_NOISE.reason:
        raise ValueError(f"Expected an algorithm with noise for a privacy report, got none: {why}")
    if guarantee.event is None or guarantee.sensitivity is None:
        raise ValueError(f"No epsilon can be given: {why}")
    if not (guarantee.claimed or anyway):
        raise ValueError(
            f"No epsilon can be given: {why} accounting = 'paper' shows what would follow if all assumptions held."
        )


def span(event: Event, releases: int) -> tuple[float, float]:
    """The smallest and largest noise multiplier of the first releases; of all of them if none were made."""
    if isinstance(event, LaplaceSchedule):
        told = event.multipliers[:releases] or event.multipliers
        return min(told), max(told)
    if isinstance(event, GaussianSchedule):
        alone = np.diff(np.square(event.shift(np.arange(max(releases, 1) + 1))))
        return float(1 / np.sqrt(alone.max())), float(1 / np.sqrt(alone[alone > 0].min()))
    return event.noise_multiplier, event.noise_multiplier


def spent(guarantee: Guarantee, ledger: Ledger, delta: float) -> dict[str, Any]:
    """The noise, and the epsilon of the most exposed node: in total, pure, and of its most revealing release.

    The keys are fields of a report. `guarantee` has an event.
    """
    event = guarantee.event
    assert event is not None
    node, total = ledger.worst(delta)
    count, (least, most) = int(ledger.releases[node]), span(event, int(ledger.releases[node]))
    loudest = event
    if scheduled(event) is not None:
        loudest = LaplaceEvent(least) if isinstance(event, LaplaceSchedule) else GaussianEvent(least)
    return {
        "noise_multiplier": least,
        "largest_multiplier": None if least == most else most,
        "epsilon": total,
        "epsilon_pure": epsilon_pure(event, count, sampled=ledger.sampled(node)),
        "epsilon_one_release": epsilon(loudest, min(count, 1), delta - guarantee.failure),
    }


def beside(
    guarantee: Guarantee, releases: np.ndarray, records: np.ndarray, delta: float, *, sound: bool
) -> dict[str, Any]:
    """The guarantee of the same releases under another relation, as plain data.

    It has no epsilon where nothing is claimed.
    """
    event = guarantee.event
    told = {name: getattr(guarantee, name) for name in (*SHARED[:-1], "claimed", "reason")} | {
        "mechanism": None if event is None else event.kind,
        "delta": delta,
        "failure": guarantee.failure,
    }
    if event is None or guarantee.sensitivity is None or not guarantee.claimed:
        numbers = ("noise_multiplier", "largest_multiplier", "epsilon", "epsilon_pure", "epsilon_one_release")
        whose = protected(guarantee.unit, guarantee.adjacency)
        statement = f"in addition, for {whose}: NO GUARANTEE: {guarantee.reason}"
        return told | dict.fromkeys(numbers) | {"statement": statement}
    check_relation(guarantee, records, delta)
    found = spent(guarantee, Ledger.of(guarantee, releases, records), delta)
    statement = (
        f"in addition{'' if sound else ', if all assumptions held'}: {promise(guarantee, delta, found['epsilon'])}; "
        f"{noise(event.kind, found, guarantee.sensitivity, guarantee.enforced_by)}; "
        + listed([("pure", found["epsilon_pure"]), ("of one release", found["epsilon_one_release"])], guarantee.failure)
    )
    return told | found | {"statement": statement}


def protected(unit: str, adjacency: str) -> str:
    """The unit of protection and the relation, in words."""
    return _PROTECTED[unit] % adjacency


def whom(unit: str, adjacency: str, observer: str) -> str:
    """Whose data are protected against which observer, in words."""
    return f"for {protected(unit, adjacency)} against an observer of {observer}"


def promise(told: Any, delta: float, total: float) -> str:
    """(epsilon, delta), whose data and against which observer, in words; `told` has unit, adjacency, observer."""
    return f"({upper(total)}, {delta:g})-differential privacy {whom(told.unit, told.adjacency, told.observer)}"


def worth(told: Mapping[str, Any]) -> str:
    """What the epsilon of a report, as plain data, protects against which observer and at which delta, in words."""
    if not told["sound"]:
        return "as published, no guarantee"
    return f"{whom(told['unit'], told['adjacency'], told['observer'])} at delta = {told['delta']:g}"


def noise(kind: str, told: Mapping[str, Any], sensitivity: float, enforced_by: str | None) -> str:
    """The noise and the sensitivity that scales it, in words; `told` is the result of `spent`."""
    least, most = short(told["noise_multiplier"]), short(told["largest_multiplier"] or told["noise_multiplier"])
    multiplier = least if least == most else f"{least} to {most}"
    bound = f"enforced by {enforced_by}" if enforced_by else "not enforced"
    return f"noise: {kind}, {multiplier} times the sensitivity, at most {short(sensitivity)}, {bound}"


def listed(bounds: Sequence[tuple[str, float | None]], failure: float) -> str:
    """Bounds on epsilon by name (None is left out), and the part of delta that does not concern noise, in words."""
    told = "; ".join(f"{name} {upper(value)}" for name, value in bounds if value is not None)
    if not failure:
        return told
    return (
        f"{told}; delta includes {failure:g}, the probability that the bound on the sensitivity fails; pure epsilons "
        "then fail too"
    )


def uncovered(local: str, delta: float | None = None) -> str:
    """A sentence that the final parameters are not covered, and why."""
    covered = "(epsilon, delta)" if delta is None else f"(epsilon, {delta:g})"
    return f"the saved parameters are not covered by {covered}, which covers only the messages: {local}"


def short(value: float) -> str:
    """A number with four significant digits."""
    return f"{value:.4g}"


def upper(value: float, digits: int = 4) -> str:
    """A number with this many significant digits, rounded up: it remains an upper bound."""
    if not math.isfinite(value):
        return f"{value:g}"
    found = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(found):.{digits}g}"


def plain(told: Any) -> Any:
    """The same for JSON: lists for tuples, and None for numbers that are not finite."""
    if isinstance(told, dict):
        return {name: plain(value) for name, value in cast(dict[str, Any], told).items()}
    if isinstance(told, list | tuple):
        return [plain(value) for value in cast(Sequence[Any], told)]
    return None if isinstance(told, float) and not math.isfinite(told) else told
