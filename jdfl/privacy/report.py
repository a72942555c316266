"""What is stated about privacy: the report of a run, under every neighbouring relation, and the joint cost of runs.

Axes: m nodes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from typing import Any, Literal, cast

import numpy as np

from jdfl.base import checks
from jdfl.base.display import LINES, Described
from jdfl.privacy.accounting import epsilon, epsilon_pure, epsilon_rdp, epsilons, noise_multiplier, scheduled
from jdfl.privacy.analytic import check_delta
from jdfl.privacy.guarantee import DERIVED, NO_NOISE, Guarantee
from jdfl.privacy.ledger import Ledger, compact, protected_units, total_epsilon
from jdfl.privacy.mechanisms import Event, GaussianEvent, GaussianSchedule, LaplaceEvent, LaplaceSchedule

Accounting = Literal["sound", "paper"]
KEYS = {
    "given": "it was given; another run with this key shares its noise: they have no joint epsilon",
    "operating system": "it comes from the operating system, for this run alone, and is recorded with it",
}
_EXACT = (
    "the key is secret; a seed is not, since all of its 32 bits can be tried (--key-file has 64): knowing it removes "
    "the noise, which is drawn by JAX's generator, which is not cryptographic (the noise itself is exact, for an "
    "observer of every bit that is sent; the probability that a record is in a sample is exact within 2^-23)"
)
ASSUMPTIONS = (
    "it holds in real arithmetic and for a secret key; a seed is not secret, since all of its 32 bits can be tried "
    "(--key-file has 64); it is void against an observer of the bits of floating-point numbers (noise is drawn in "
    "floating point, by JAX's generator, which is not cryptographic)",
    "numbers of records, weights, the network, the parameters that the problem was made with, single numbers in code "
    "and all settings are public and were not chosen by looking at the data",
    "code of your own does the same whenever it is traced",
    "not covered: this run's metrics, curves, summaries and node tables (nodes.csv, split.csv), which include exact "
    "objectives and label counts and are computed from private data without noise, and checkpoints, which hold the "
    "exact state of the nodes",
)


class Plain:
    """A dataclass that can be written as JSON."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, all fields by name; numbers that are not finite, as of no epsilon, become None."""
        return plain(asdict(cast(Any, self)))


@dataclass(frozen=True, repr=False)
class PrivacyReport(Plain, Described):
    """Epsilon at delta, what is protected against which observer, and by what.

    Under accounting = "sound" it is a guarantee under `assumptions`. Under "paper", `sound` is False, `reason` says
    why, and `epsilon` is what the composition would give if everything that the paper assumes held.
    """

    accounting: Accounting
    sound: bool
    reason: str
    unit: str  # whose data are protected: record, node, node-swap
    adjacency: str
    observer: str  # what the observer sees
    mechanism: str  # kind of noise
    noise_multiplier: float  # the smallest of the releases'
    sensitivity: float  # largest over nodes
    enforced_by: str | None  # what bounds it
    releases: dict[str, float]  # per node: least, median, most; total; node with the largest epsilon
    records: dict[str, int]  # per node: least; total
    sampling: dict[str, Any] | None  # kind, batch, largest rate
    delta: float
    epsilon: float  # of the worst node, the smallest of all bounds
    epsilon_nodes: dict[str, float]  # least and median over nodes
    epsilon_rdp: float | None  # of the worst node
    epsilon_pure: float | None  # at delta = failure, Laplace noise only
    epsilon_unamplified: float  # of the node with the most releases, without amplification by sampling
    epsilon_one_release: float  # of the most revealing release
    published: dict[str, Any] | None  # epsilon, delta, source, unsound, conditions; run: the same for all releases
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...] = ASSUMPTIONS
    largest_multiplier: float | None = None  # of the releases, where they differ
    failure: float = 0.0  # probability that the bound on the sensitivity fails, a part of delta
    beside: tuple[dict[str, Any], ...] = ()  # the same releases under other neighbouring relations
    sound_multiplier: float | None = None  # accounting = "paper": what the published epsilon requires at `delta`
    public: tuple[str, ...] = ()  # values from the data that enter without noise and are declared public
    local: str = ""  # why the final parameters are not covered; empty: they are
    method: str = "PLD"  # the bound that gives `epsilon`
    key: str = ""  # where the private key of the run comes from, in words; empty: it is not known

    def _described(self) -> tuple[str, list[tuple[str, str]]]:
        parts = (line.removeprefix("- ").partition(": ") for line in self.statement().splitlines())
        rows = [(name, text) if text and len(name) < 25 else ("", f"{name}{sep}{text}") for name, sep, text in parts]
        return "", [*rows[: LINES - 1], rows[-1]] if len(rows) > LINES else rows

    def statement(self) -> str:
        """The report in words, as Markdown list items; epsilons of the run are rounded up.

        The first item is the guarantee, with (epsilon, delta), whose data and against which observer, or NO GUARANTEE
        with the reason. The last one lists the assumptions.
        """
        releases, number = self.releases, _promise(self, self.delta, self.epsilon)
        lines = [f"privacy: {number}"] if self.sound else [f"privacy: NO GUARANTEE: {self.reason}"]
        if self.local:
            lines.append(uncovered(self.local, self.delta))
        if self.public:
            lines.append(f"declared public: {'; '.join(DERIVED[name] for name in self.public)}")
        if self.published is not None:
            claim = self.published
            lines.append(
                f"as published, unsound: epsilon = {claim['epsilon']:.4g} at delta = {claim['delta']:g} "
                f"({claim['source']}); {claim['unsound']}"
            )
            lines += [f"which requires {condition}" for condition in claim["conditions"]]
            if (run := claim["run"]) is not None:
                nothing = "; any algorithm satisfies a delta of 1 or more: no claim" if run["delta"] >= 1 else ""
                lines.append(
                    f"as published for {run['releases']} releases: epsilon = {run['epsilon']:.4g} at delta = "
                    f"{run['delta']:g} ({run['source']}){nothing}"
                )
            if self.sound_multiplier is not None:
                lines.append(
                    f"noise for epsilon = {claim['epsilon']:.4g}: as published {self.noise_multiplier:.4g} times "
                    f"the sensitivity; sound at delta = {self.delta:g}: {self.sound_multiplier:.4g} times"
                )
        if not self.sound:
            lines.append(f"if all assumptions held, it would be {number}")
        each = f"{releases['least']:g}"
        if releases["least"] != releases["most"]:
            each += f" to {releases['most']:g}"
        bounds = [
            ("by RDP", self.epsilon_rdp),
            ("pure", self.epsilon_pure),
            ("without sampling", self.epsilon_unamplified if self.sampling else None),
            ("of one release", self.epsilon_one_release),
        ]
        lines += [
            _noise(self.mechanism, vars(self), self.sensitivity, self.enforced_by),
            f"releases per node: {each}, median {releases['median']:g}; epsilon per node: minimum "
            f"{upper(self.epsilon_nodes['least'])}, median {upper(self.epsilon_nodes['median'])}, maximum "
            f"{upper(self.epsilon)} (node {int(releases['worst_node'])})",
            f"epsilon by {self.method}; {_listed(bounds, self.failure)}",
        ]
        if self.sampling is not None:
            lines.append(
                f"sampling: {self.sampling['kind']} of {self.sampling['batch']} records, at most a share "
                f"{self.sampling['rate']:.3g} of a node's, redrawn for every sample and kept secret"
            )
        lines += [other["statement"] for other in self.beside]
        lines += [f"key: {self.key}"] if self.key else []
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(f"- {line}" for line in lines) + f"\n- assumed: {'; '.join(self.assumptions)}\n"


def report(
    guarantee: Guarantee,
    releases: np.ndarray,
    records: np.ndarray,
    *,
    delta: float | None = None,
    accounting: Accounting = "sound",
    warnings: tuple[str, ...] = (),
) -> PrivacyReport:
    """The privacy report of numbers of `releases` [m] and `records` [m] of the nodes under a `guarantee`.

    `delta` and `accounting` are those of `jdfl.account`; delta includes the probability that the bound on the
    sensitivity fails. `warnings` are added to those of the guarantee.

    Raises ValueError for delta >= 1 / records, for delta <= the probability of that failure, for a run without noise,
    and, unless accounting is "paper", where nothing is claimed: for noise without clipping, for gradients without
    noise. For a heuristic sensitivity there is no event to account for, and no epsilon in either accounting.
    """
    checks.one_of(("sound", "paper"), accounting=accounting)
    ledger, event = Ledger.of(guarantee, releases, records), guarantee.event
    every = [_counted(one, ledger.records) for one in (guarantee, *guarantee.beside)]
    if delta is not None:
        check_delta(delta)
    delta = default_delta(max(total for _, total in every)) if delta is None else float(delta)
    check_relation(guarantee, ledger.records, delta)
    check_claim(guarantee, anyway=accounting == "paper")
    assert event is not None
    unit, total = every[0]
    if delta >= 0.1 / total:
        warnings = (f"delta = {delta:g} is not below a tenth of 1 / {unit} = {1 / total:.3g}", *warnings)
    if guarantee.published is not None and guarantee.published.epsilon > 1:
        warnings = (*warnings, f"the published formula requires epsilon <= 1, here {guarantee.published.epsilon:.4g}")
    reason = "" if guarantee.claimed else guarantee.reason
    if accounting == "paper" and guarantee.claimed:
        reason = guarantee.published.unsound if guarantee.published else "accounting = 'paper' was requested"
    node, left = ledger.worst(delta)[0], delta - guarantee.failure
    count, terms, order = int(ledger.releases[node]), ledger.terms(node), _ranked(ledger)
    bounds, sampling = epsilons(event, count, left, **terms), guarantee.sampling
    exact = isinstance(event, GaussianEvent) and event.slip > 0
    return PrivacyReport(
        **{name: getattr(guarantee, name) for name in (*_SHARED, "public", "local")},
        **_spent(guarantee, ledger, delta),
        accounting=accounting,
        sound=accounting == "sound",
        reason=reason,
        mechanism=f"{event.kind} on a grid" if exact else event.kind,
        assumptions=(_EXACT, *ASSUMPTIONS[1:]) if exact else ASSUMPTIONS,
        releases={
            "least": int(ledger.releases.min()),
            "median": float(np.median(ledger.releases)),
            "most": int(ledger.releases.max()),
            "total": int(ledger.releases.sum()),
            "worst_node": node,
        },
        records={"least": int(ledger.records.min()), "total": int(ledger.records.sum())},
        sampling=None
        if sampling is None
        else {"kind": sampling.kind, "batch": sampling.batch, "rate": sampling.batch / int(ledger.records.min())},
        delta=delta,
        epsilon_nodes={
            "least": ledger.epsilon(int(order[0]), delta),
            "median": ledger.epsilon(int(order[len(order) // 2]), delta),
        },
        epsilon_rdp=epsilon_rdp(event, count, left, **terms),
        epsilon_unamplified=epsilon(event, int(ledger.releases.max()), left),
        published=None if guarantee.published is None else guarantee.published.as_dict(count),
        warnings=(*guarantee.warnings, *warnings),
        sound_multiplier=_sound(guarantee, count, left, terms) if accounting == "paper" else None,
        method=min(bounds, key=bounds.__getitem__),
        beside=tuple(_beside(one, ledger, delta, sound=accounting == "sound") for one in guarantee.beside),
    )


def _ranked(ledger: Ledger) -> np.ndarray:
    """The nodes [m] from the least to the most exposed."""
    if ledger.sampling is None:
        return np.argsort(ledger.releases, kind="stable")
    # A heuristic where neither of two nodes exceeds the other both in releases and in rate; `worst` does not use it.
    return np.argsort(np.sqrt(ledger.releases) * ledger.sampling.batch / ledger.records, kind="stable")


def _sound(guarantee: Guarantee, count: int, delta: float, terms: dict[str, Any]) -> float | None:
    """The noise that the published epsilon requires; None where nothing is published, or nothing could be claimed."""
    claim = guarantee.published
    if claim is None or not guarantee.claimed or not isinstance(guarantee.event, GaussianEvent) or not count:
        return None
    return noise_multiplier("gaussian", claim.epsilon, delta, count, **terms) if 0 < claim.epsilon < math.inf else None


@dataclass(frozen=True)
class Together(Plain):
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
        adds_up = len(protected_units(known)) == 1 and (same_data or known[0].unit == "record")
        parts = known if same_data else [compact(ledger) for ledger in known]
        epsilon = total_epsilon(parts, delta) if adds_up else None
        return cls(len(known), len(ledgers) - len(known), epsilon, delta)

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


_SHARED = ("unit", "adjacency", "observer", "sensitivity", "enforced_by", "failure")  # by a guarantee and its report
_UNITS = {
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


def _counted(guarantee: Guarantee, records: np.ndarray) -> tuple[str, int]:
    """What delta is compared with: the total number of records, or of nodes where whole nodes are protected."""
    nodes = guarantee.unit in ("node", "node-swap")
    return ("nodes", len(records)) if nodes else ("records", int(records.sum()))


def check_relation(guarantee: Guarantee, records: np.ndarray, delta: float) -> None:
    """Refuse a delta that is meaningless for these records [m], and one that is used up beforehand: ValueError."""
    check_delta(delta)
    unit, total = _counted(guarantee, records)
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
        made = event.multipliers[:releases] or event.multipliers
        return min(made), max(made)
    if isinstance(event, GaussianSchedule):
        alone = np.diff(np.square(event.shift(np.arange(max(releases, 1) + 1))))
        return float(1 / np.sqrt(alone.max())), float(1 / np.sqrt(alone[alone > 0].min()))
    return event.noise_multiplier, event.noise_multiplier


def _spent(guarantee: Guarantee, ledger: Ledger, delta: float) -> dict[str, Any]:
    """Fields of a report: the noise, and the epsilon of the most exposed node: in total, pure, and of one release."""
    event: Any = guarantee.event
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


def _beside(guarantee: Guarantee, ledger: Ledger, delta: float, *, sound: bool) -> dict[str, Any]:
    """The guarantee of the same releases under another relation, as plain data; no epsilon where nothing is claimed."""
    event = guarantee.event
    fields = {name: getattr(guarantee, name) for name in (*_SHARED[:-1], "claimed", "reason")} | {
        "mechanism": None if event is None else event.kind,
        "delta": delta,
        "failure": guarantee.failure,
    }
    if event is None or guarantee.sensitivity is None or not guarantee.claimed:
        numbers = ("noise_multiplier", "largest_multiplier", "epsilon", "epsilon_pure", "epsilon_one_release")
        whose = _UNITS[guarantee.unit] % guarantee.adjacency
        statement = f"in addition, for {whose}: NO GUARANTEE: {guarantee.reason}"
        return fields | dict.fromkeys(numbers) | {"statement": statement}
    check_relation(guarantee, ledger.records, delta)
    found = _spent(guarantee, Ledger.of(guarantee, ledger.releases, ledger.records), delta)
    bounds = [("pure", found["epsilon_pure"]), ("of one release", found["epsilon_one_release"])]
    statement = (
        f"in addition{'' if sound else ', if all assumptions held'}: {_promise(guarantee, delta, found['epsilon'])}; "
        f"{_noise(event.kind, found, guarantee.sensitivity, guarantee.enforced_by)}; "
        f"{_listed(bounds, guarantee.failure)}"
    )
    return fields | found | {"statement": statement}


def whom(unit: str, adjacency: str, observer: str) -> str:
    """Whose data are protected against which observer, in words."""
    return f"for {_UNITS[unit] % adjacency} against an observer of {observer}"


def _promise(of: Guarantee | PrivacyReport, delta: float, total: float) -> str:
    return f"({upper(total)}, {delta:g})-differential privacy {whom(of.unit, of.adjacency, of.observer)}"


def worth(report: Mapping[str, Any]) -> str:
    """What the epsilon of a report, as plain data, protects against which observer and at which delta, in words."""
    if not report["sound"]:
        return "as published, no guarantee"
    return f"{whom(report['unit'], report['adjacency'], report['observer'])} at delta = {report['delta']:g}"


def _noise(kind: str, spent: Mapping[str, Any], sensitivity: float, enforced_by: str | None) -> str:
    """The noise and the sensitivity that scales it, in words, given the fields of a report."""
    least, most = (
        f"{spent[name] or spent['noise_multiplier']:.4g}" for name in ("noise_multiplier", "largest_multiplier")
    )
    multiplier = least if least == most else f"{least} to {most}"
    bound = f"enforced by {enforced_by}" if enforced_by else "not enforced"
    return f"noise: {kind}, {multiplier} times the sensitivity, at most {sensitivity:.4g}, {bound}"


def _listed(bounds: Sequence[tuple[str, float | None]], failure: float) -> str:
    """Bounds on epsilon by name (None is left out), and the part of delta that does not concern noise, in words."""
    text = "; ".join(f"{name} {upper(value)}" for name, value in bounds if value is not None)
    if not failure:
        return text
    return (
        f"{text}; delta includes {failure:g}, the probability that the bound on the sensitivity fails; pure epsilons "
        "then fail too"
    )


def uncovered(local: str, delta: float | None = None) -> str:
    """A sentence that the final parameters are not covered, and why."""
    covered = "(epsilon, delta)" if delta is None else f"(epsilon, {delta:g})"
    return f"the saved parameters are not covered by {covered}, which covers only the messages: {local}"


def upper(value: float, digits: int = 4) -> str:
    """A number with this many significant digits, rounded up: it remains an upper bound."""
    if not math.isfinite(value):
        return f"{value:g}"
    found = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(found):.{digits}g}"


def plain(data: Any) -> Any:
    """The same for JSON: lists for tuples and arrays, and None for numbers that are not finite."""
    data = data.tolist() if isinstance(data, np.ndarray) else data
    if isinstance(data, dict):
        return {name: plain(value) for name, value in cast(dict[str, Any], data).items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in cast(Sequence[Any], data)]
    return None if isinstance(data, float) and not math.isfinite(data) else data
