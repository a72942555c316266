"""LocalOnly: every node learns from its own data, and nobody sends anything; what talking to others must improve on.

    x_i <- x_i - lr g_i(x_i)

With `train="local"` the parameters that are meant to be shared (`problem.shared`) stay as they begin, and only the
others learn: what sharing them must improve on.

Missing neighbours: all are.

Axes: m nodes, n parameters.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import descent
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import Channel
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import StepLength
from jdfl.network.graph import Network
from jdfl.problems import Problem


class State(NamedTuple):
    """What the next round needs."""

    x: Array  # [m, n] parameters
    optimizer: Any  # the optimizer's, leaves [m, ...]


@struct.dataclass
class LocalOnly(Algorithm):
    """No communication: every node learns from its own data.

    Descent without communication. Raises ValueError (from `check`) for settings out of range.
    """

    kind: ClassVar[str] = "local-only"
    lr: StepLength = 0.1
    gradients: Gradients = Gradients()
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    train: Literal["all", "local"] = struct.field(pytree_node=False, default="all")
    """Which parameters learn: all, or those that the problem does not mean to be shared."""
    title: ClassVar[str] = "LocalOnly"
    channels: ClassVar[tuple[Channel, ...]] = ()

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        super().check(problem, network)
        if self.train == "local" and problem.n_shared == problem.n:
            raise ValueError(
                f"Expected parameters that stay with the nodes for train = 'local', got {problem.name}, all of whose "
                "are shared. Give the problem a shared part, or train all."
            )

    def init(self, round: Round) -> State:
        """Start where the problem says."""
        x = round.problem.begin()
        return State(x, descent.begin(self.optimizer, self.lr, x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, problem = state.x, round.problem
        move, optimizer = descent.update(self.optimizer, self.lr, self.gradients(x, round), state.optimizer, x)
        if self.train == "local":
            move = jnp.where(jnp.arange(problem.n)[None] < problem.n_shared, 0, move)
        return State(x + move, optimizer)
