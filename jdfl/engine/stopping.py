"""When to stop: rules evaluated on the device after every round, so that the reported round is exact.

A rule is a frozen pytree with `__call__(view) -> bool []`, `check()` and a `reason` in words. Tolerances are leaves.
Rules on agreement and rules on progress are told apart: nodes may agree long before they have learnt anything.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
from jax import Array

from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.arguments import settings
from jdfl.base.settings import Count, Natural, Number, Positive
from jdfl.devices import nodes
from jdfl.engine import metrics
from jdfl.problems import Problem


@struct.dataclass
class View:
    """What a rule may look at after a round."""

    rounds: Array  # int32 [] rounds done
    w: Array  # [m, n] parameters
    communications: Array  # [m] int32 how often each node has combined messages so far
    problem: Problem


class StopRule(Protocol):
    """Decides whether the run ends here.

    A rule that looks at parameters alone may say `reads_data = False`; others make the end of a run depend on data.
    """

    def check(self) -> None:
        """Raise ValueError if the settings make no sense."""
        ...

    def __call__(self, view: View) -> Array:
        """True [] to stop after this round."""
        ...

    @property
    def reason(self) -> str:
        """What it means when this rule fired, in words."""
        ...


def reads_data(stop: StopRule | None) -> bool:
    """Whether the rule looks at more than parameters, or does not say that it does not."""
    return stop is not None and getattr(stop, "reads_data", True)


@struct.dataclass
class ConsensusBelow:
    """(1/m) sum_i ||w_i - average||^2 <= tolerance * per, once all nodes have communicated and `after` rounds are done.

    With per = s this is the CEPS paper's test. Before every node has communicated the nodes agree trivially.
    """

    tolerance: Positive
    """The tolerance; 5e-3 is the CEPS paper's."""
    per: Positive = 1.0
    """Its factor, such as the nonzeros s of the algorithm, as in the CEPS paper."""
    after: Natural | Array = 0
    """Rounds before the rule may fire."""
    reads_data: ClassVar[bool] = False
    on_every_device: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse settings out of range."""
        settings(self)

    def __call__(self, view: View) -> Array:
        """Consensus, but not before it means something."""
        ready = nodes.every(view.communications > 0) & (view.rounds >= self.after)
        return ready & (metrics.consensus_error(view.w, view.problem) <= self.tolerance * self.per)

    @property
    def reason(self) -> str:
        """Agreement says nothing about progress."""
        return "the nodes agree (consensus); that says nothing about progress"


@struct.dataclass
class ObjectiveBelow:
    """Stop when the objective at the average of the nodes' parameters reaches a value.

    mean_i f_i at the average <= value, looked at every `every` rounds.
    """

    value: Number
    """The value to reach."""
    every: Count = struct.field(pytree_node=False, default=1)
    """Rounds between two looks."""
    on_every_device: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse settings out of range."""
        settings(self)

    def __call__(self, view: View) -> Array:
        """The objective is low enough."""

        def low(view: View, value: Any) -> Array:
            return metrics.objective(view.w, view.problem) <= value

        return _every(self.every, low, view, self.value)

    @property
    def reason(self) -> str:
        """Progress."""
        return "the objective fell below its target"


@struct.dataclass
class GradientBelow:
    """Stop when the gradient at the average of the nodes' parameters is small; for methods without sparsity.

    ||mean_i grad f_i|| at the average <= tolerance, looked at every `every` rounds.
    """

    tolerance: Positive
    """Largest norm of the gradient."""
    every: Count = struct.field(pytree_node=False, default=1)
    """Rounds between two looks."""
    on_every_device: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse settings out of range."""
        settings(self)

    def __call__(self, view: View) -> Array:
        """The average is nearly stationary."""

        def small(view: View, tolerance: Any) -> Array:
            average = jnp.broadcast_to(metrics.average(view.w), view.w.shape)
            return jnp.linalg.norm(nodes.mean(view.problem.gradients(average))) <= tolerance

        return _every(self.every, small, view, self.tolerance)

    @property
    def reason(self) -> str:
        """Progress."""
        return "the gradient at the average fell below its tolerance"


@struct.dataclass
class AllOf:
    """Stops where every one of its rules would."""

    rules: tuple[StopRule, ...]
    """The rules, at least one."""

    @property
    def reads_data(self) -> bool:
        """Whether one of the rules does."""
        return any(map(reads_data, self.rules))

    @property
    def on_every_device(self) -> bool:
        """Whether all rules are content with a device's rows."""
        return all(getattr(rule, "on_every_device", False) for rule in self.rules)

    def check(self) -> None:
        """Check every rule, and that there is one."""
        if not self.rules:
            raise ValueError("Expected at least one rule, got all_of(). Leave stop=None to run all steps.")
        for rule in self.rules:
            rule.check()

    def __call__(self, view: View) -> Array:
        """All at once."""
        return jnp.all(jnp.stack([rule(view) for rule in self.rules]))

    @property
    def reason(self) -> str:
        """All reasons."""
        return ", and ".join(rule.reason for rule in self.rules)


def consensus_below(tolerance: float, *, per: float = 1.0, after: int = 0) -> ConsensusBelow:
    """Stop on agreement: (1/m) ||W - average||^2 <= tolerance * per (the CEPS paper's rule with per = s).

    It looks at parameters alone, those that are common to all. Nodes may agree before they have learnt anything:
    combine it by `all_of`. Settings out of range raise ValueError when a run begins.

    Args:
        tolerance: The mean squared distance of the nodes from their average, above 0; 5e-3 is the CEPS paper's.
        per: Its factor, above 0, such as the nonzeros s of the algorithm.
        after: Rounds before the rule may fire, from 0; it never fires before every node has communicated.
    """
    return ConsensusBelow(tolerance, per, after)


def objective_below(value: float, *, every: int = 1) -> ObjectiveBelow:
    """Stop on progress: the objective at the average reaches `value`.

    It reads the data, so that nothing is claimed of a run's privacy unless its problem declares "stop" public. Settings
    out of range raise ValueError when a run begins.

    Args:
        value: The objective at which the run ends, regulariser included.
        every: Rounds between two looks, at least 1; each look takes a pass over all data.
    """
    return ObjectiveBelow(value, every)


def gradient_below(tolerance: float, *, every: int = 1) -> GradientBelow:
    """Stop on progress: the average is nearly stationary, its gradient no longer than `tolerance`.

    It need not fall for methods that keep parameters sparse. Reads the data, as `objective_below` does. Settings out of
    range raise ValueError when a run begins.

    Args:
        tolerance: The largest l2 norm of mean_i grad f_i at the average of the nodes' parameters, above 0.
        every: Rounds between two looks, at least 1; each look takes a gradient of all data.
    """
    return GradientBelow(tolerance, every)


def all_of(*rules: StopRule) -> AllOf:
    """Stop when all rules hold in the same round.

    For example `all_of(consensus_below(1e-3), objective_below(0.3))`. It reads the data where one of its rules does. No
    rule at all, or one whose settings are out of range, raises ValueError when a run begins.
    """
    return AllOf(rules)


def _every(every: int, test: Callable[..., Array], view: View, bound: Any) -> Array:
    """Evaluate an expensive test only in rounds that are multiples of `every`."""
    if every == 1:
        return test(view, bound)
    return ops.skipped_unless(view.rounds % every == 0, test, jnp.bool_(False), view, bound)
