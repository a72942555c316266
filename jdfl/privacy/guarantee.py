"""What an algorithm may say about privacy, as a value, before anything is run."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from jdfl.privacy.accounting import Adjacency
from jdfl.privacy.mechanisms import Event

Unit = Literal["record", "node", "node-swap", "none"]  # node-swap: a node's answer, replaced by another node's


@dataclass(frozen=True)
class Sampling:
    """Gradients look at fresh random samples of a node's records, which nobody else gets to know.

    It is a part of a `Guarantee`, the same for all nodes, and says what is done, never what is merely assumed.
    `jdfl.privacy.Sampled` is that of one node, with the number of its records.
    """

    kind: Literal["poisson", "subset"]  # each record by chance, or `batch` different ones
    batch: int  # expected or exact size
    looks: int = 1  # releases from one sample


@dataclass(frozen=True)
class Published:
    """What a paper claims for these settings, and why that is not so.

    Reports show it beside the sound epsilon, labelled as unsound, and `jdfl.audit` holds it against its attack. No
    epsilon of `jdfl.account` is ever computed from it. A guarantee has one only where an algorithm's paper claims
    something else.
    """

    epsilon: float  # as claimed
    delta: float
    source: str  # the paper, and where in it
    unsound: str  # why it is not so
    conditions: tuple[str, ...] = ()  # what it asks for, with numbers, and whether that holds
    run: Callable[[int], tuple[float, float]] | None = None  # epsilon and delta that it claims for so many releases
    run_source: str = ""  # where in the paper that is

    def told(self, releases: int) -> dict[str, Any]:
        """Plain data for a report about a node with so many `releases`.

        A dictionary of epsilon, delta, source, unsound and conditions, and in `run` of what the paper claims for all of
        these releases together, with its source; None where it says nothing of them, or there are none.
        """
        whole = None
        if self.run is not None and releases:
            epsilon, delta = self.run(releases)
            whole = {"releases": releases, "epsilon": epsilon, "delta": delta, "source": self.run_source}
        plain = {name: getattr(self, name) for name in ("epsilon", "delta", "source", "unsound", "conditions")}
        return plain | {"run": whole}


@dataclass(frozen=True)
class Guarantee:
    """Who is protected against whom, and what enforces it.

    `claimed` is False as long as something between the data and the noise has no enforced bound; `reason` then says
    what. No epsilon is derived from such a value but under the assumption that the bound holds, and labelled so.

    What is claimed covers the messages, and the final parameters where `local` is empty: they are then a released
    model, computed from messages and noisy values alone. It never covers metrics and tables of nodes, exact
    functions of the data, nor the state of the nodes and its checkpoints.
    """

    unit: Unit  # what neighbouring data sets differ in
    adjacency: Adjacency | Literal["none"]
    observer: str  # who sees what
    sensitivity: float | None  # largest of any node, in the mechanism's norm, assumed or enforced
    enforced_by: str | None  # what bounds it; None: nothing does
    claimed: bool
    reason: str
    remedy: str = ""  # what to change so that something may be claimed
    event: Event | None = None  # what one release adds
    sampling: Sampling | None = None  # performed, and hidden from the observer
    warnings: tuple[str, ...] = ()  # what is left out of the guarantee
    published: Published | None = field(default=None)  # what the paper claims, where that is not so
    failure: float = 0.0  # chance that what enforces the sensitivity fails in a run; a part of delta
    beside: tuple["Guarantee", ...] = ()  # the same run under other neighbouring relations
    local: str = ""  # why the final parameters are no released model, and not covered; empty: they are covered
    derived: tuple[str, ...] = ()  # values from the data that enter without noise and are not public (names of DERIVED)
    public: tuple[str, ...] = ()  # such values that are taken as public, as the problem declares

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: all fields by name, those that are dataclasses as dictionaries.

        What is published is told without regard to a number of releases. It is for reading, and there is no way back;
        what a run has to keep for its accountant is a `jdfl.privacy.Ledger`.
        """
        plain = asdict(replace(self, published=None))
        return plain | {"published": None if self.published is None else self.published.told(0)}


DERIVED = {
    "standardise": "columns or channels are standardised by means and deviations of all records",
    "holdout": "which records are held out for testing depends on the records",
    "partition": "which node has which record depends on the records' labels",
    "curvature": "step sizes (CEPS: sigma_i) are computed from the nodes' records",
    "tuning": "hyper-parameters were chosen by looking at other runs on the same data",
    "stop": "a stop rule or a callback looks at more than what is released, and all see when it ends the run",
}
"""What may be computed from records without noise, by the name under which it may be declared public."""


def exposing(told: Guarantee, names: Sequence[str], public: Sequence[str]) -> Guarantee:
    """What is left of what is `told` of a run in which values of these `names` (of DERIVED) enter without noise.

    Those that are not `public` take the claim away. A run without noise has none to lose.

    Args:
        told: The guarantee of the noise.
        names: Names of DERIVED that enter, beside those that `told` has already.
        public: Names that are declared public, of the problem; the others take the claim away.
    """
    if told.event is None:
        return told
    every = dict.fromkeys((*told.derived, *told.public, *names))
    known, hidden = tuple(one for one in every if one in public), tuple(one for one in every if one not in public)
    told = replace(told, derived=hidden, public=known)
    if not hidden or not told.claimed:
        return told
    reason = f"{'; '.join(DERIVED[name] for name in hidden)}: this enters without noise"
    declared = ",".join((*known, *hidden))
    remedy = f"If this is public, declare it: public = {declared!r} of the problem (--problem.public {declared})."
    return replace(told, claimed=False, reason=reason, remedy=remedy)


NO_NOISE = Guarantee(
    unit="none",
    adjacency="none",
    observer="everyone sees exact messages",
    sensitivity=None,
    enforced_by=None,
    claimed=False,
    reason="no noise is added",
    remedy="Give a mechanism, for example Gaussian(multiplier), and a clip.",
)

NOTHING_SENT = Guarantee(
    unit="none",
    adjacency="none",
    observer="nobody sees any message",
    sensitivity=None,
    enforced_by=None,
    claimed=False,
    reason="no messages are sent; the parameters themselves hide nothing",
)
