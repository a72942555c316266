"""Stop rules, evaluated on the device after every round, so that the reported round is exact.

A rule is a frozen pytree with `__call__(view) -> bool []`, `check()` and a `reason` in words. Tolerances are leaves.
Rules on consensus and rules on progress are separate: nodes may agree long before they have learnt anything.
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
    """The values that a rule may read after a round."""

    rounds: Array  # int32 [] rounds done
    w: Array  # [m, n] parameters
    communications: Array  # [m] int32 how often each node has combined messages so far
    problem: Problem


class StopRule(Protocol):
    """Decides whether the run ends here.

    A rule that reads parameters only may declare `reads_data = False`; others make the end of a run depend on data.
    """

    def check(self) -> None:
        """Raise ValueError if the settings make no sense."""
        ...

    def __call__(self, view: View) -> Array:
        """True [] to stop after this round."""
        ...

    @property
    def reason(self) -> str:
        """What it means that this rule fired, in words."""
        ...


def reads_data(stop: StopRule | None) -> bool:
    """Whether the rule `stop` reads more than parameters; it does unless it declares otherwise."""
    return stop is not None and getattr(stop, "reads_data", True)


class _Rule:
    """A rule whose settings are checked one by one."""

    on_every_device: ClassVar[bool] = True

    def check(self) -> None:
        """Refuse settings out of range."""
        settings(self)


@struct.dataclass
class ConsensusBelow(_Rule):
    """Stop when the consensus error (1/m) sum_i ||w_i - xbar||^2 is at most tolerance * per.

    It may fire once all nodes have communicated and `after` rounds are done: before that the nodes agree trivially. It
    reads the shared parameters only. Nodes may agree before they have learnt anything: combine it with a rule on
    progress by `all_of`. With per = s this is the CEPS paper's test.
    """

    tolerance: Positive
    """The tolerance; 5e-3 is the CEPS paper's."""
    per: Positive = 1.0
    """Factor of the tolerance, such as the number of nonzeros s of the algorithm, as in the CEPS paper."""
    after: Natural | Array = 0
    """Rounds before the rule may fire."""
    reads_data: ClassVar[bool] = False
    reason = "the nodes agree (consensus); that says nothing about progress"

    def __call__(self, view: View) -> Array:
        """Whether the consensus error is small, once all nodes have communicated."""
        ready = nodes.every(view.communications > 0) & (view.rounds >= self.after)
        return ready & (metrics.consensus_error(view.w, view.problem) <= self.tolerance * self.per)


@struct.dataclass
class ObjectiveBelow(_Rule):
    """Stop when the objective at the mean of the nodes' parameters reaches a value, regulariser included.

    The rule is evaluated every `every` rounds. It reads the data, so that no privacy guarantee is claimed unless the
    problem declares "stop" public.
    """

    value: Number
    """The value to reach."""
    every: Count = struct.field(pytree_node=False, default=1)
    """Rounds between two evaluations; each takes a pass over all data."""
    reason = "the objective fell below its target"

    def __call__(self, view: View) -> Array:
        """Whether the objective is low enough."""
        return _every(self.every, metrics.objective, view, self.value)


@struct.dataclass
class GradientBelow(_Rule):
    """Stop when the gradient at the mean of the nodes' parameters is small; for methods without sparsity.

    The metric `gradient_norm` is compared with the tolerance every `every` rounds. It reads the data, as
    `objective_below` does.
    """

    tolerance: Positive
    """Largest norm of the gradient."""
    every: Count = struct.field(pytree_node=False, default=1)
    """Rounds between two evaluations; each takes a pass over all data."""
    reason = "the gradient at the average fell below its tolerance"

    def __call__(self, view: View) -> Array:
        """Whether the mean is nearly stationary."""
        return _every(self.every, metrics.gradient_norm, view, self.tolerance)


@struct.dataclass
class AllOf:
    """Stop when all of its rules hold in the same round."""

    rules: tuple[StopRule, ...]
    """The rules, at least one."""

    @property
    def reads_data(self) -> bool:
        """Whether one of the rules reads data."""
        return any(map(reads_data, self.rules))

    @property
    def on_every_device(self) -> bool:
        """Whether all rules work on the rows of one device."""
        return all(getattr(rule, "on_every_device", False) for rule in self.rules)

    def check(self) -> None:
        """Check every rule, and that there is one."""
        if not self.rules:
            raise ValueError("Expected at least one rule, got all_of(). Leave stop=None to run all steps.")
        for rule in self.rules:
            rule.check()

    def __call__(self, view: View) -> Array:
        """Whether all rules hold."""
        return jnp.all(jnp.stack([rule(view) for rule in self.rules]))

    @property
    def reason(self) -> str:
        """The reasons of all rules."""
        return ", and ".join(rule.reason for rule in self.rules)


consensus_below, objective_below, gradient_below = ConsensusBelow, ObjectiveBelow, GradientBelow


def all_of(*rules: StopRule) -> AllOf:
    """Stop when all rules hold in the same round.

    For example `all_of(consensus_below(1e-3), objective_below(0.3))`. It reads the data where one of its rules does.
    No rules, or settings out of range, raise ValueError when a run begins.
    """
    return AllOf(rules)


def _every(every: int, metric: Callable[[Array, Problem], Array], view: View, bound: Any) -> Array:
    """Whether an expensive metric is at most a bound, looked at only in rounds that are multiples of `every`."""

    def test(view: View, bound: Any) -> Array:
        return metric(view.w, view.problem) <= bound

    if every == 1:
        return test(view, bound)
    return ops.skipped_unless(view.rounds % every == 0, test, jnp.bool_(False), view, bound)
