"""What an algorithm may claim about privacy, as a value, before anything is run."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from jdfl.privacy.mechanisms import Event

Adjacency = Literal["replace-one", "add-remove"]
Unit = Literal["record", "node", "node-swap", "none"]  # node-swap: one node's answer, replaced by another node's


@dataclass(frozen=True)
class Sampling:
    """Gradients use fresh random samples of a node's records, kept secret from all others.

    It is a part of a `Guarantee`, the same for all nodes, and states what is done, never what is merely assumed.
    """

    kind: Literal["poisson", "subset"]  # each record independently, or `batch` distinct records
    batch: int  # expected or exact size
    looks: int = 1  # releases per sample


@dataclass(frozen=True)
class Published:
    """What a paper claims for these settings, and why the claim is unsound.

    Reports show it next to the sound epsilon, labelled as unsound, and `jdfl.audit` compares it with its attack.
    """

    epsilon: float  # as claimed
    delta: float
    source: str  # the paper, and the place in it
    unsound: str  # why the claim is unsound
    conditions: tuple[str, ...] = ()  # what it requires, with numbers, and whether that holds
    run: Callable[[int], tuple[float, float]] | None = None  # epsilon and delta that it claims for a number of releases
    run_source: str = ""  # the place in the paper for `run`

    def as_dict(self, releases: int) -> dict[str, Any]:
        """Plain data about a node with these `releases`; `run` has the claim for all of them, or is None."""
        run = None
        if self.run is not None and releases:
            epsilon, delta = self.run(releases)
            run = {"releases": releases, "epsilon": epsilon, "delta": delta, "source": self.run_source}
        names = ("epsilon", "delta", "source", "unsound", "conditions")
        return {**{name: getattr(self, name) for name in names}, "run": run}


@dataclass(frozen=True)
class Guarantee:
    """Which data are protected against which observer, and what enforces it.

    `claimed` is False as long as something between the data and the noise has no enforced bound; `reason` then says
    what. An epsilon is derived from such a value only under the assumption that the bound holds, and labelled so.

    A claim covers the messages, and the final parameters where `local` is empty: they are then a released model,
    computed from messages and noisy values only. It never covers metrics and node tables, which are exact functions of
    the data, nor the state of the nodes and its checkpoints.
    """

    unit: Unit  # what neighbouring datasets differ in
    adjacency: Adjacency | Literal["none"]
    observer: str  # what the observer sees
    sensitivity: float | None  # largest over nodes, in the mechanism's norm, assumed or enforced
    enforced_by: str | None  # what bounds it; None: nothing does
    claimed: bool
    reason: str
    remedy: str = ""  # what to change so that something may be claimed
    event: Event | None = None  # one release, for accounting
    sampling: Sampling | None = None  # performed, and hidden from the observer
    warnings: tuple[str, ...] = ()  # what the guarantee leaves out
    published: Published | None = field(default=None)  # what the paper claims, where that is unsound
    failure: float = 0.0  # probability that the bound on the sensitivity fails in a run; a part of delta
    beside: tuple["Guarantee", ...] = ()  # the same run under other neighbouring relations
    local: str = ""  # why the final parameters are not a released model, and not covered; empty: they are covered
    derived: tuple[str, ...] = ()  # values from the data that enter without noise and are not public (names of DERIVED)
    public: tuple[str, ...] = ()  # such values that the problem declares public

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: all fields by name; a published claim is given without a number of releases."""
        plain = asdict(replace(self, published=None))
        return plain | {"published": None if self.published is None else self.published.as_dict(0)}


DERIVED = {
    "standardise": "columns or channels are standardised by means and deviations of all records",
    "holdout": "the choice of records held out for testing depends on the records",
    "partition": "the assignment of records to nodes depends on the records' labels",
    "curvature": "step sizes (CEPS: sigma_i) are computed from the nodes' records",
    "start": "nodes begin at parameters that were set after the problem was made, and may have learnt from its records",
    "constants": "the step or the loss uses arrays of its own, or other values than its example, which may be records",
    "tuning": "hyper-parameters were chosen by looking at other runs on the same data",
    "stop": "a stop rule or a callback uses more than what is released, and everyone sees when it ends the run",
}
"""Values that may be computed from records without noise, by the name under which they may be declared public."""


def exposing(guarantee: Guarantee, names: Sequence[str], public: Sequence[str]) -> Guarantee:
    """The guarantee that remains in a run in which values with these `names` (of DERIVED) enter without noise.

    Values whose names are not among the problem's `public` ones invalidate the claim. A run without noise has no claim
    to lose, and one that claims nothing for another reason keeps that reason.
    """
    if guarantee.event is None:
        return guarantee
    every = dict.fromkeys((*guarantee.derived, *guarantee.public, *names))
    known, hidden = tuple(one for one in every if one in public), tuple(one for one in every if one not in public)
    if not guarantee.claimed and not guarantee.derived:
        return replace(guarantee, public=known)
    guarantee = replace(guarantee, derived=hidden, public=known)  # one message has all that is missing
    if not hidden:
        return guarantee
    reason = f"{'; '.join(DERIVED[name] for name in hidden)}, which enters without noise"
    names = ", ".join(map(repr, hidden))
    remedy = (
        f"If all of this is public: problem = problem.declared({names}), or --problem.public "
        f"{','.join((*known, *hidden))} on the command line."
    )
    return replace(guarantee, claimed=False, reason=reason, remedy=remedy)


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
