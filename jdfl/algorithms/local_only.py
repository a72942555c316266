"""LocalOnly: every node learns from its own data, and nobody sends anything; what talking to others must improve on.

    x_i <- x_i - lr g_i(x_i)

With `train="local"` the parameters that are meant to be shared (`problem.shared`) stay as they begin, and only the
others learn: what sharing them must improve on.

Missing neighbours: all are.

Axes: m nodes, n parameters.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jdfl import struct
from jdfl.algorithms import descent
from jdfl.algorithms.gradients import Gradients
from jdfl.base import Info, Round, counts
from jdfl.network.graph import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem
from jdfl.settings import Positive


@struct.dataclass
class State:
    """What the next round needs."""

    x: Array  # [m, n] parameters
    optimizer: Any  # the optimizer's, leaves [m, ...]


@struct.dataclass
class LocalOnly:
    """No communication: every node learns from its own data.

    Descent without communication. Raises ValueError (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "local-only"
    lr: Positive = 0.1
    """Length of the steps."""
    gradients: Gradients = Gradients()
    """How nodes take gradients: of which examples, clipped, with which noise."""
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    """An optax optimizer, or a function that makes one of `lr`; None: plain gradient steps."""
    train: Literal["all", "local"] = struct.field(pytree_node=False, default="all")
    """Which parameters learn: all, or those that the problem does not mean to be shared."""
    tuned: ClassVar[tuple[str, ...]] = ("lr",)

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        descent.check_optimizer(self.optimizer)
        self.gradients.check(problem)
        if self.train == "local" and problem.n_shared == problem.n:
            raise ValueError(
                f"Expected parameters that stay with the nodes for train = 'local', got {problem.name}, all of whose "
                "are shared. Give the problem a shared part, or train all."
            )

    def prepare(self, problem: Problem, round: Round) -> "LocalOnly":
        """Let the gradients prepare what they need."""
        return replace(self, gradients=self.gradients.prepare(problem, round))

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Start where the problem says."""
        x = problem.begin()
        return State(x, descent.begin(self.optimizer, self.lr, x)), counts(problem.m, {})

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        g = self.gradients(state.x, problem, round)
        move, optimizer = descent.update(self.optimizer, self.lr, g, state.optimizer, state.x)
        if self.train == "local":
            move = jnp.where(jnp.arange(problem.n)[None] < problem.n_shared, 0, move)
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
