"""LocalOnly: every node learns from its own data, and nobody sends anything; what talking to others must improve on.

    x_i <- x_i - lr g_i(x_i)

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.algorithms import descent
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Info, Round, counts
from jdfl.network.graph import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters
    optimizer: Any  # the optimizer's, leaves [m, ...]


@struct.dataclass
class LocalOnly:
    """Descent without communication. Raises ValueError (from `check`) for settings out of range."""

    lr: Any = 0.1  # length of the steps; not used by an optimizer that has its own
    gradients: Gradients = Gradients()
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        descent.check_rate(self.lr, self.optimizer)
        self.gradients.check(problem)

    def prepare(self, problem: Problem, round: Round) -> "LocalOnly":
        """Let the gradients prepare what they need."""
        return replace(self, gradients=self.gradients.prepare(problem))

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start from x = 0."""
        x = jnp.zeros((problem.m, problem.n), problem.dtype)
        return State(x, descent.begin(self.optimizer, self.lr, x)), counts(problem.m, {})

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        g = self.gradients(state.x, problem, round)
        move, optimizer = descent.update(self.optimizer, self.lr, g, state.optimizer, state.x)
        return State(state.x + move, optimizer), counts(round.m, {}, grads=1)

    def params(self, state: State) -> Array:
        """The parameters x [m, n]."""
        return state.x

    def examples(self, problem: Problem) -> Array:
        """Those of a gradient."""
        return self.gradients.examples(problem)

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """No channels."""
        return {}

    def privacy(self, problem: Problem) -> Guarantee:
        """Nobody sees anything."""
        return NOTHING_SENT


NOTHING_SENT = Guarantee(
    unit="none",
    adjacency="none",
    observer="nobody sees any message",
    sensitivity=None,
    enforced_by=None,
    claimed=False,
    reason="no messages are sent; the parameters themselves hide nothing",
)
