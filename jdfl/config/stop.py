# pyright: reportAssignmentType=false, reportUnknownMemberType=false
"""Stop rules: when a run ends before its last round."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jdfl import algorithms, stopping
from jdfl.config.defaults import defaults

_consensus = defaults(stopping.consensus_below)
_objective = defaults(stopping.objective_below)
_gradient = defaults(stopping.gradient_below)


@dataclass(frozen=True, kw_only=True)
class AutoStop:
    """What the algorithm's paper does: CEPS stops when the nodes agree, the others do all their rounds."""

    kind: ClassVar[str] = "auto"

    def build(self, algorithm: Any) -> stopping.StopRule | None:
        """The rule for this algorithm, if it has one."""
        return ConsensusStop().build(algorithm) if isinstance(algorithm, algorithms.CEPS) else None


@dataclass(frozen=True, kw_only=True)
class ConsensusStop:
    """Stop when the nodes agree: (1/m) sum_i ||w_i - average||^2 <= tolerance * per. Agreement is not progress."""

    kind: ClassVar[str] = "consensus"
    tolerance: float = 5e-3
    """The tolerance; 5e-3 is the CEPS paper's."""
    per: float | None = None
    """Its factor; None: the nonzeros s of the algorithm (1 where it has none), as in the CEPS paper."""
    after: int = _consensus.after
    """Rounds before the rule may fire."""

    def build(self, algorithm: Any) -> stopping.StopRule:
        """The rule for this algorithm."""
        per = float(getattr(algorithm, "s", 1)) if self.per is None else self.per
        return stopping.consensus_below(self.tolerance, per=per, after=self.after)


@dataclass(frozen=True, kw_only=True)
class ObjectiveStop:
    """Stop when the objective at the average of the nodes' parameters reaches a value."""

    kind: ClassVar[str] = "objective"
    value: float
    """The value to reach."""
    every: int = _objective.every
    """Rounds between two looks."""

    def build(self, algorithm: Any) -> stopping.StopRule:
        """The rule."""
        return stopping.objective_below(self.value, every=self.every)


@dataclass(frozen=True, kw_only=True)
class GradientStop:
    """Stop when the gradient at the average of the nodes' parameters is small; for methods without sparsity."""

    kind: ClassVar[str] = "gradient"
    tolerance: float
    """Largest norm of the gradient."""
    every: int = _gradient.every
    """Rounds between two looks."""

    def build(self, algorithm: Any) -> stopping.StopRule:
        """The rule."""
        return stopping.gradient_below(self.tolerance, every=self.every)
