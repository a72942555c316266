"""What may be said of a run's privacy, with everything that decides it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from jdfl import checks
from jdfl.privacy.accounting import epsilon, epsilon_pure, epsilon_rdp
from jdfl.privacy.analytic import check_delta
from jdfl.privacy.guarantee import Guarantee
from jdfl.privacy.ledger import Ledger

Accounting = Literal["sound", "paper"]
ASSUMPTIONS = (
    "noise is drawn by JAX's generator, which is not cryptographic, and in floating point, where its tails end",
    "numbers of records, weights and all settings are public and were not chosen by looking at the data",
    "metrics, curves and summaries of this run are the experimenter's view and are not covered",
)


@dataclass(frozen=True)
class PrivacyReport:
    """Epsilon at delta, and who is protected against whom by what.

    Under accounting = "sound" it is a guarantee under `assumptions`. Under "paper", `sound` is False, `reason` says
    why, and `epsilon` is what the composition would give if everything that the paper assumes held.
    """

    accounting: Accounting
    sound: bool
    reason: str
    unit: str
    adjacency: str
    observer: str
    mechanism: str  # kind of noise
    noise_multiplier: float
    sensitivity: float  # largest of any node
    enforced_by: str | None
    releases: dict[str, float]  # per node: least, median, most; total; node with the largest epsilon
    records: dict[str, int]  # per node: least; total
    sampling: dict[str, Any] | None  # kind, batch, largest rate
    delta: float
    epsilon: float  # of the worst node, by PLD
    epsilon_nodes: dict[str, float]  # least and median over nodes
    epsilon_rdp: float | None  # of the worst node
    epsilon_pure: float | None  # at delta = 0, Laplace noise only
    epsilon_unamplified: float  # without what sampling buys
    epsilon_one_release: float
    published: dict[str, Any] | None  # epsilon, delta, source, unsound
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...] = ASSUMPTIONS

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite become None."""
        return _plain(asdict(self))

    def statement(self) -> str:
        """The report in words, as Markdown list items."""
        releases, unit = self.releases, "a whole node's data" if self.unit == "node" else "one record"
        number = (
            f"({_short(self.epsilon)}, {self.delta:g})-differential privacy of {unit} ({self.adjacency}) against "
            f"an observer of {self.observer}"
        )
        lines = [f"privacy: {number}"] if self.sound else [f"privacy: NO GUARANTEE: {self.reason}"]
        if self.published is not None:
            told = self.published
            lines.append(
                f"as published, unsound: epsilon = {_short(told['epsilon'])} at delta = {told['delta']:g} "
                f"({told['source']}); {told['unsound']}"
            )
        if not self.sound:
            lines.append(f"if what is assumed held, it would be {number}")
        each = _range(releases["least"], releases["most"])
        bound = f"enforced by {self.enforced_by}" if self.enforced_by else "which nothing enforces"
        lines += [
            f"noise: {self.mechanism}, {self.noise_multiplier:.4g} times the sensitivity, at most "
            f"{self.sensitivity:.4g}, {bound}",
            f"releases of a node: {each}, median {releases['median']:g}; epsilon of nodes: least "
            f"{_short(self.epsilon_nodes['least'])}, median {_short(self.epsilon_nodes['median'])}, worst "
            f"{_short(self.epsilon)} (node {int(releases['worst_node'])})",
            "epsilon by PLD; "
            + "; ".join(
                f"{name} {_short(value)}"
                for name, value in (
                    ("by RDP", self.epsilon_rdp),
                    ("pure", self.epsilon_pure),
                    ("without sampling", self.epsilon_unamplified if self.sampling else None),
                    ("of one release", self.epsilon_one_release),
                )
                if value is not None
            ),
        ]
        if self.sampling is not None:
            lines.append(
                f"sampling: {self.sampling['kind']} of {self.sampling['batch']} records, at most "
                f"{self.sampling['rate']:.3g} of a node's, drawn anew and kept secret"
            )
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
    """The report of `releases` [m] under a guarantee, for nodes with so many `records` [m].

    `delta` None: the largest power of ten that is at most 1e-5 and below .1 / records, records being those of all nodes
    together (where whole nodes are protected, the nodes). accounting="paper" reports what is claimed without being
    enforced, labelled so.

    Raises ValueError for delta >= 1 / records, for a run without noise, and, unless accounting is "paper", where
    nothing is claimed: for noise without clipping, for a heuristic sensitivity, for gradients without noise.
    """
    checks.one_of(("sound", "paper"), accounting=accounting)
    ledger = Ledger.of(guarantee, releases, records)
    unit = "nodes" if guarantee.unit == "node" else "records"
    total = len(ledger.records) if unit == "nodes" else int(ledger.records.sum())
    delta = default_delta(total) if delta is None else float(delta)
    check_delta(delta)
    if delta >= 1 / total:
        raise ValueError(
            f"Expected delta < 1 / {unit} = {1 / total:.3g}, got delta = {delta:g}. Publishing a {unit[:-1]} picked at "
            f"random has such a delta; {default_delta(total):g} would do."
        )
    event = guarantee.event
    if event is None or guarantee.sensitivity is None:
        raise ValueError(
            f"Expected noise for a privacy report, got none: {guarantee.reason}. {guarantee.remedy}".strip()
        )
    if not guarantee.claimed and accounting == "sound":
        raise ValueError(
            f"No epsilon can be given: {guarantee.reason}. {guarantee.remedy} accounting = 'paper' shows what would "
            "follow if all that is assumed held.".replace("  ", " ")
        )
    if delta >= 0.1 / total:
        warnings = (f"delta = {delta:g} is not below a tenth of 1 / {unit} = {1 / total:.3g}", *warnings)
    if guarantee.published is not None and guarantee.published.epsilon > 1:
        warnings = (*warnings, f"the published formula asks for epsilon <= 1, here {guarantee.published.epsilon:.4g}")
    reason = "" if guarantee.claimed else guarantee.reason
    if accounting == "paper" and guarantee.claimed:
        reason = guarantee.published.unsound if guarantee.published else "accounting = 'paper' was asked for"
    node, worst = ledger.worst(delta)
    order, sampled, count = ledger.ranked(), ledger.sampled(node), int(ledger.releases[node])
    return PrivacyReport(
        accounting=accounting,
        sound=accounting == "sound",
        reason=reason,
        unit=guarantee.unit,
        adjacency=guarantee.adjacency,
        observer=guarantee.observer,
        mechanism=event.kind,
        noise_multiplier=event.noise_multiplier,
        sensitivity=guarantee.sensitivity,
        enforced_by=guarantee.enforced_by,
        releases={
            "least": int(ledger.releases.min()),
            "median": float(np.median(ledger.releases)),
            "most": int(ledger.releases.max()),
            "total": int(ledger.releases.sum()),
            "worst_node": node,
        },
        records={"least": int(ledger.records.min()), "total": int(ledger.records.sum())},
        sampling=None if sampled is None else {"kind": sampled.kind, "batch": sampled.batch, "rate": sampled.rate},
        delta=delta,
        epsilon=worst,
        epsilon_nodes={
            "least": ledger.epsilon(int(order[0]), delta),
            "median": ledger.epsilon(int(order[len(order) // 2]), delta),
        },
        epsilon_rdp=epsilon_rdp(event, count, delta, sampled=sampled, adjacency=ledger.relation),
        epsilon_pure=epsilon_pure(event, count, sampled=sampled),
        epsilon_unamplified=epsilon(event, count, delta),
        epsilon_one_release=epsilon(event, min(count, 1), delta),
        published=None if guarantee.published is None else asdict(guarantee.published),
        warnings=(*guarantee.warnings, *warnings),
    )


def default_delta(records: int) -> float:
    """The largest power of ten that is at most 1e-5 and below .1 / records."""
    power = -5
    while 10.0**power >= 0.1 / records:
        power -= 1
    return 10.0**power


def _short(value: float) -> str:
    return f"{value:.4g}"


def _range(least: float, most: float) -> str:
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


def _plain(told: Any) -> Any:
    if isinstance(told, Mapping):
        return {name: _plain(value) for name, value in told.items()}
    if isinstance(told, list | tuple):
        return [_plain(value) for value in told]
    return None if isinstance(told, float) and not math.isfinite(told) else told
