"""What a run may say about privacy, as a value."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Guarantee:
    """Who is protected against whom, and what enforces it.

    `claimed` is False as long as something between the data and the noise has no enforced bound; `reason` then says
    what. No epsilon is derived from such a value.
    """

    unit: Literal["record", "node", "none"]  # what neighbouring data sets differ in
    adjacency: Literal["replace-one", "add-remove", "none"]
    observer: str  # who sees what
    sensitivity: float | None  # the l2 sensitivity that the noise is scaled by, assumed or enforced
    enforced_by: str | None  # what bounds it; None: nothing does
    claimed: bool
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


NO_NOISE = Guarantee(
    unit="none",
    adjacency="none",
    observer="everyone sees exact messages",
    sensitivity=None,
    enforced_by=None,
    claimed=False,
    reason="no noise is added",
)
