"""What a run may spend, and how its privacy is reported."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Budget and accounting."""

    epsilon: float | None = None
    """What all rounds together may spend: noise without a multiplier gets the least that does, and a run with a given
    multiplier ends before it would spend more. None: no budget. With accounting paper it decides the noise alone, by
    the paper's formula, and ends no run."""
    delta: float | None = None
    """The chance that the guarantee fails; none: the largest power of ten up to 1e-5 below a tenth of 1 / records."""
    accounting: Literal["sound", "paper"] = "sound"
    """sound: only what is enforced; paper: also what is merely assumed, labelled as no guarantee."""
