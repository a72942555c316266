"""Average consensus: the nodes compute the mean of their vectors; the simplest use of DPPS.

    eps_i^0 = -grad f_i(x^0), clipped;   eps_i^k = 0 afterwards

With f_i(x) = ||x - v_i||^2 / 2 (`problems.averaging`) and x^0 = 0 node i's vector is v_i. Without noise this is
push-sum: D. Kempe, A. Dobra, J. Gehrke: Gossip-Based Computation of Aggregate Information, 2003. With noise, every
round adds noise to the value that the nodes reach.

Missing neighbours: the columns of W must still sum to one, so the sender keeps what does not arrive
(`weights="sender"`), and the sums lose nothing. Delayed messages (`network.delays`) are added when they arrive.

Axes: m nodes, n entries of a vector.
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.dpps import DPPS, PushSum, Schedule
from jdfl.algorithms.round import Channel, Round
from jdfl.base import struct
from jdfl.base.marking import bounded
from jdfl.base.settings import Positive, Provenance
from jdfl.network import Network
from jdfl.privacy import Guarantee, clipped
from jdfl.problems import Problem


class State(NamedTuple):
    sums: PushSum
    step: Array  # [m, n] what the node adds before it sends


@struct.dataclass
class AverageConsensus(Algorithm):
    """AverageConsensus: push-sum with which all nodes compute the mean of their vectors."""

    kind: ClassVar[str] = "average-consensus"
    provenance: ClassVar[Provenance] = ("paper read", "authors' code read")
    clip: Positive | None = None
    """Largest l1 norm of a node's vector; None: no clipping."""
    dpps: DPPS = DPPS()
    """Noise on messages."""
    unsent: ClassVar[str] = "a node that has not sent anything yet still holds its vector without noise"
    title: ClassVar[str] = "AverageConsensus"
    tuned: ClassVar[tuple[str, ...]] = ()
    late: ClassVar[bool] = True
    columns: ClassVar[bool] = True

    def minimises(self, problem: Problem, network: Network) -> str:
        """Nothing is minimised."""
        return "nothing: all nodes compute the mean of their initial gradients"

    @property
    def channels(self) -> tuple[Channel, ...]:
        return self.dpps.channels

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        self.dpps.check("AverageConsensus", network)

    def plan(self, problem: Problem, network: Network, steps: int) -> Schedule:
        return self.dpps.plan(network, self._bounds(steps), np.ones(steps), problem.n, problem.start)

    def _bounds(self, steps: int) -> np.ndarray | None:
        return None if self.clip is None else np.where(np.arange(steps) == 0, float(self.clip), 0.0)

    def init(self, round: Round) -> State:
        """Read the nodes' vectors, which costs one gradient."""
        x = round.problem.initial_params()
        round.trace.grads = 1
        v = -round.problem.gradients(x)
        return State(self.dpps.init(x, round), v if self.clip is None else bounded(clipped(v, "l1", self.clip)))

    def step(self, state: State, round: Round) -> State:
        sums = self.dpps.step(state.sums, state.step, round, partial(self._guarantee, round.ready))
        return State(sums, jnp.zeros_like(state.step))

    def mass(self, state: State) -> Array:
        return state.sums.a

    def params(self, state: State) -> Array:
        """The nodes' estimates of the mean [m, n], including what they have not sent yet."""
        return (state.sums.s + state.step) * (1 / state.sums.a)[:, None]

    def visible(self, state: State) -> Array:
        """What others see of a state [m, n]: the messages, without what has not been sent yet."""
        return state.sums.shown

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        return self.dpps.message_bits(problem.n, problem.dtype)

    def _guarantee(self, schedule: Schedule, problem: Problem, _: int) -> Guarantee:
        """The protocol's guarantee, given that a node's vector enters in the first round only."""
        clip = "" if self.clip is None else f"l1 clipping of every node's vector to {float(self.clip):g}"
        return self.dpps.guarantee(schedule, self._bounds(schedule.scales.shape[0]), clip)
