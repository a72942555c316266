"""The privacy report of a run, with everything that it depends on."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from jdfl.base import checks
from jdfl.privacy.accounting import epsilon, epsilon_rdp, epsilons
from jdfl.privacy.analytic import check_delta
from jdfl.privacy.calibration import noise_multiplier
from jdfl.privacy.guarantee import DERIVED, Guarantee
from jdfl.privacy.ledger import Ledger
from jdfl.privacy.mechanisms import GaussianEvent
from jdfl.privacy.relation import (
    SHARED,
    beside,
    check_claim,
    check_relation,
    counted,
    default_delta,
    listed,
    noise,
    plain,
    promise,
    short,
    spent,
    uncovered,
    upper,
)

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


@dataclass(frozen=True)
class PrivacyReport:
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

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite become None.

        All fields by name, tuples as lists, as in the summaries of runs and `jdfl account --json`. An epsilon of None
        is therefore an infinite one; where nothing can be stated there is no report at all.
        """
        return plain(asdict(self))

    def statement(self) -> str:
        """The report in words, as Markdown list items.

        The first item is the guarantee, with (epsilon, delta), whose data and against which observer, or NO GUARANTEE
        with the reason. The next ones state what is declared public, what a paper claims, the noise and its bound,
        releases, sampling, and warnings; the last one lists the assumptions. Epsilons of the run are rounded up.
        """
        releases, number = self.releases, promise(self, self.delta, self.epsilon)
        lines = [f"privacy: {number}"] if self.sound else [f"privacy: NO GUARANTEE: {self.reason}"]
        if self.local:
            lines.append(uncovered(self.local, self.delta))
        if self.public:
            lines.append(f"declared public: {'; '.join(DERIVED[name] for name in self.public)}")
        if self.published is not None:
            told = self.published
            lines.append(
                f"as published, unsound: epsilon = {short(told['epsilon'])} at delta = {told['delta']:g} "
                f"({told['source']}); {told['unsound']}"
            )
            lines += [f"which requires {condition}" for condition in told["conditions"]]
            if (run := told["run"]) is not None:
                nothing = "; any algorithm satisfies a delta of 1 or more: no claim" if run["delta"] >= 1 else ""
                lines.append(
                    f"as published for {run['releases']} releases: epsilon = {short(run['epsilon'])} at delta = "
                    f"{run['delta']:g} ({run['source']}){nothing}"
                )
            if self.sound_multiplier is not None:
                lines.append(
                    f"noise for epsilon = {short(told['epsilon'])}: as published {short(self.noise_multiplier)} times "
                    f"the sensitivity; sound at delta = {self.delta:g}: {short(self.sound_multiplier)} times"
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
            noise(self.mechanism, vars(self), self.sensitivity, self.enforced_by),
            f"releases per node: {each}, median {releases['median']:g}; epsilon per node: minimum "
            f"{upper(self.epsilon_nodes['least'])}, median {upper(self.epsilon_nodes['median'])}, maximum "
            f"{upper(self.epsilon)} (node {int(releases['worst_node'])})",
            f"epsilon by {self.method}; {listed(bounds, self.failure)}",
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
    """The privacy report of a number of releases under a guarantee.

    Args:
        guarantee: What the algorithm guarantees, and what enforces it.
        releases ([m]): Number of releases per node.
        records ([m]): Number of records per node.
        delta: The total, which includes the probability that the bound on the sensitivity fails. None: the largest
            power of ten that is at most 1e-5 and below 0.1 / records, where records counts those of all nodes together
            (or the nodes, where whole nodes are protected).
        accounting: "sound", or "paper" to report what is claimed without being enforced, labelled so.
        warnings: Warnings in addition to those of the guarantee.

    Raises ValueError for delta >= 1 / records, for delta <= the probability of that failure, for a run without noise,
    and, unless accounting is "paper", where nothing is claimed: for noise without clipping, for gradients without
    noise. For a heuristic sensitivity there is no event to account for, and no epsilon in either accounting.
    """
    checks.one_of(("sound", "paper"), accounting=accounting)
    ledger, event = Ledger.of(guarantee, releases, records), guarantee.event
    every = [counted(one, ledger.records) for one in (guarantee, *guarantee.beside)]
    if delta is not None:
        check_delta(delta)
    delta = default_delta(max(total for _, total in every)) if delta is None else float(delta)
    check_relation(guarantee, ledger.records, delta)
    check_claim(guarantee, anyway=accounting == "paper")
    assert event is not None
    assert guarantee.sensitivity is not None
    unit, total = every[0]
    if delta >= 0.1 / total:
        warnings = (f"delta = {delta:g} is not below a tenth of 1 / {unit} = {1 / total:.3g}", *warnings)
    if guarantee.published is not None and guarantee.published.epsilon > 1:
        warnings = (*warnings, f"the published formula requires epsilon <= 1, here {guarantee.published.epsilon:.4g}")
    reason = "" if guarantee.claimed else guarantee.reason
    if accounting == "paper" and guarantee.claimed:
        reason = guarantee.published.unsound if guarantee.published else "accounting = 'paper' was requested"
    node, left = ledger.worst(delta)[0], delta - guarantee.failure
    count, terms, order = int(ledger.releases[node]), ledger.terms(node), ledger.ranked()
    bounds, sampling = epsilons(event, count, left, **terms), guarantee.sampling
    exact = isinstance(event, GaussianEvent) and event.slip > 0
    return PrivacyReport(
        **{name: getattr(guarantee, name) for name in (*SHARED, "public", "local")},
        **spent(guarantee, ledger, delta),
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
        published=None if guarantee.published is None else guarantee.published.told(count),
        warnings=(*guarantee.warnings, *warnings),
        sound_multiplier=_sound(guarantee, count, left, terms) if accounting == "paper" else None,
        method=min(bounds, key=bounds.__getitem__),
        beside=tuple(
            beside(one, ledger.releases, ledger.records, delta, sound=accounting == "sound") for one in guarantee.beside
        ),
    )


def _sound(guarantee: Guarantee, count: int, delta: float, terms: dict[str, Any]) -> float | None:
    """The noise that the published epsilon requires; None where nothing is published, or nothing could be claimed."""
    told = guarantee.published
    if told is None or not guarantee.claimed or not isinstance(guarantee.event, GaussianEvent) or not count:
        return None
    return noise_multiplier("gaussian", told.epsilon, delta, count, **terms) if 0 < told.epsilon < math.inf else None
