"""Average consensus: every node has a vector, and all are to know the mean; the simplest use of DPPS.

    eps_i^0 = -grad f_i(x^0), clipped;   eps_i^k = 0 afterwards

With f_i(x) = ||x - v_i||^2 / 2 (`problems.averaging`) and x^0 = 0 node i's vector is v_i. Without noise this is
push-sum: D. Kempe, A. Dobra, J. Gehrke: Gossip-Based Computation of Aggregate Information, 2003. With noise every round
adds to what the nodes agree on.

Missing neighbours: the columns of W must still sum to one, so that the sender keeps what does not arrive
(`weights="sender"`), and nothing of the sums is lost. What is late (`network.delays`) is added when it arrives.

Axes: m nodes, n entries of a vector.
"""

from dataclasses import replace
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import struct
from jdfl.algorithms.dpps import DPPS, PushSum
from jdfl.algorithms.exchange import heard
from jdfl.base import Info, Round, counts
from jdfl.network import Network
from jdfl.privacy import Guarantee, clipped
from jdfl.problems import Problem
from jdfl.settings import Positive


@struct.dataclass
class State:
    """What the next round needs."""

    sums: PushSum
    step: Array  # [m, n] what the node adds before it sends


@struct.dataclass
class AverageConsensus:
    """Push-sum of one vector per node, whose mean all are to know.

    Push-sum of the nodes' vectors. Raises ValueError (from `check` and `plan`) for settings out of range.
    """

    kind: ClassVar[str] = "average-consensus"
    clip: Positive | None = None
    """Largest l1 length of a node's vector; None: as it is."""
    dpps: DPPS = DPPS()
    """Noise on messages."""
    late: ClassVar[bool] = True
    columns: ClassVar[bool] = True  # what W's sums to one run over
    planned: ClassVar[tuple[str, ...]] = ("dpps.schedule", "dpps.scales")  # what `plan` fills in

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        self.dpps.check("AverageConsensus", network)

    def plan(self, problem: Problem, network: Network, steps: int) -> "AverageConsensus":
        """With the schedule of noise, on the host before a run."""
        scales = np.ones(steps)
        return replace(self, dpps=self.dpps.plan(network, self._bounds(steps), scales, problem.n, problem.start))

    def _bounds(self, steps: int) -> np.ndarray | None:
        return None if self.clip is None else np.where(np.arange(steps) == 0, float(self.clip), 0.0)

    def prepare(self, problem: Problem, round: Round) -> "AverageConsensus":
        """Nothing to prepare."""
        return self

    def init(self, problem: Problem, round: Round) -> tuple[State, Info]:
        """Look at the node's vector, which costs a gradient."""
        x = problem.begin()
        v = -problem.gradients(x)
        state = State(self.dpps.init(x, round), v if self.clip is None else clipped(v, "l1", self.clip))
        return state, counts(problem.m, dict.fromkeys(self.message_bits(problem), 0), grads=1)

    def step(self, state: State, problem: Problem, round: Round) -> tuple[State, Info]:
        """One round."""
        sums = self.dpps.step(state.sums, state.step, round)
        return State(sums, jnp.zeros_like(state.step)), counts(
            round.m,
            self.dpps.sent(round.graph),
            releases=0 if self.dpps.b is None else 1,
            communications=heard(round.graph),
        )

    def params(self, state: State) -> Array:
        """The nodes' estimates of the mean [m, n], with what they have not sent yet."""
        return (state.sums.s + state.step) * (1 / state.sums.a)[:, None]

    def visible(self, state: State) -> Array:
        """What others see of a state [m, n]: messages, without what has not been sent yet."""
        return state.sums.shown

    def examples(self, problem: Problem) -> Array:
        """All of a node's."""
        return problem.sizes

    def message_bits(self, problem: Problem) -> dict[str, int]:
        """Those of the protocol."""
        return self.dpps.message_bits(problem.n, problem.dtype)

    def privacy(self, problem: Problem) -> Guarantee:
        """That of the protocol: a node's vector enters in the first round alone.

        Before that round, where a run ends without one, the parameters hold the vector as it is.
        """
        steps = 0 if self.dpps.scales is None else self.dpps.scales.shape[0]
        clip = "" if self.clip is None else f"l1 clipping of every node's vector to {float(self.clip):g}"
        told = self.dpps.guarantee(self._bounds(steps), clip)
        return told if told.event is None else replace(told, local=_LOCAL)


_LOCAL = "those of a node that has not sent anything yet are its vector, without noise"
