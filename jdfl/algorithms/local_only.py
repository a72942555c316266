"""LocalOnly: every node trains on its local data without communication; a lower baseline for every other method.

    x_i <- x_i - lr g_i(x_i)

With `train="local"` the parameters that are meant to be shared (`problem.shared`) keep their initial values, and only
the others are trained: the baseline for sharing them.

Missing neighbours: all are.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms import descent
from jdfl.algorithms.algorithm import Algorithm, Personal
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Channel, Round
from jdfl.base import struct
from jdfl.base.settings import Provenance, StepSize
from jdfl.network.graph import Network
from jdfl.problems import Problem


class State(NamedTuple):
    x: Array  # [m, n] parameters
    optimizer: Any  # state of the optimizer, leaves [m, ...]


@struct.dataclass
class LocalOnly(Algorithm):
    """LocalOnly: every node trains on its local data, without communication."""

    kind: ClassVar[str] = "local-only"
    provenance: ClassVar[Provenance] = ("no paper",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    optimizer: descent.Optimizer = struct.field(pytree_node=False, default=None)
    train: Literal["all", "local"] = struct.field(pytree_node=False, default="all")
    """Which parameters are trained: all, or those outside the problem's shared part."""
    title: ClassVar[str] = "LocalOnly"
    personal: ClassVar[Personal] = "models"
    channels: ClassVar[tuple[Channel, ...]] = ()
    mixes: ClassVar[bool] = False

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        if self.train == "local" and problem.n_shared == problem.n:
            raise ValueError(
                f"Expected parameters outside the shared part for train = 'local', got {problem.name}, all of whose "
                "parameters are shared. Give the problem a smaller shared part, or use train = 'all'."
            )

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, descent.begin(self.optimizer, self.lr, x))

    def step(self, state: State, round: Round) -> State:
        x, problem = state.x, round.problem
        move, optimizer = descent.update(self.optimizer, self.lr, self.gradients(x, round), state.optimizer, x)
        if self.train == "local":
            move = jnp.where(jnp.arange(problem.n)[None] < problem.n_shared, 0, move)
        return State(x + move, optimizer)
