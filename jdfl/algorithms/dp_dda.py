"""DP-DDA: distributed dual averaging, where some nodes at a time add noisy gradients and all nodes mix.

C. Liu, K. H. Johansson, Y. Shi: Distributed empirical risk minimization with differential privacy, 2024. Every node is
active in a round t = 0, 1, ... with probability p.

    z_i <- sum_j W_ij z_j + (a_t / p) (g_i(x_i) + noise - mu x_i)    the second term where i is active
    x_i <- argmin_x <z_i, x> + A_t mu / 2 ||x||^2 + ||x - x_0||^2 / (2 c_t),    A_t = a_0 + ... + a_t
         = (x_0 - c_t z_i) / (1 + mu c_t A_t)

    convex:            mu = 0,  a_t = 1,      c_t = lr / sqrt(t + 1)
    strongly convex:   mu > 0,  a_t = t + 1,  c_t = lr / (t + 1)

from z_i = 0, x_0 where the problem starts. W is doubly stochastic, so that the average of the z_i is the sum of what
active nodes have added, over m. `order="adapt first"` mixes that, too, z_i <- sum_j W_ij (z_j + ...); on a complete
network with p = 1 all nodes then make the steps of centralised dual averaging.

Of the paper its abstract and introduction were at hand, and how others describe it: active nodes perturb stochastic
subgradients of single samples, inactive ones send and mix all the same, all nodes share a regulariser h, sampling of
nodes is said to amplify, and without noise the rate is O(1 / t). The rest is derived here and was not checked against
it: the weights a_t and steps c_t, the division by p, which makes the sum right in expectation, and whether gradients
are added before or after mixing (J. Duchi, A. Agarwal, M. Wainwright: Dual averaging for distributed optimization,
2012, add them after, with c_t of the order of 1 / sqrt(t)). Without mu the division by p is a longer lr. With mu the
argmin has the lower bound f(x_i) + <g, x - x_i> + mu / 2 ||x - x_i||^2 of a strongly convex f instead of a plane; where
f has the regulariser h = mu / 2 ||x||^2 that is A_t h beside gradients of the data alone. Steps end as 2 / (mu t p),
and none is longer than lr / p.

Privacy: what is sent is computed from noisy gradients of active nodes, which are all that has to be accounted for. That
a node is active now and then makes nothing stronger against those who see all messages: z_i minus the mixture of the
last z_j is zero where i was not active. `amplified_epsilon` is what node sampling would buy if that could be hidden.

Missing neighbours: their weight goes where the network says, by default to the node's own row, and a node that hears
nobody adds up its own gradients. W must stay doubly stochastic, so that both ways of a link are missing together.

Axes: m nodes, n parameters.
"""

import math
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.activation import ACTIVE, active
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, Positive, StepLength
from jdfl.codecs import Codec, Dense
from jdfl.privacy import Sampled, epsilon
from jdfl.problems import Problem

_PARTS = 10**9  # of which a rate is a whole number, rounded up


class State(NamedTuple):
    """What the next round needs."""

    z: Array  # [m, n] duals: mixed sums of weighted gradients
    x: Array  # [m, n] parameters
    start: Array  # [m, n] x_0, where the proximal term is zero


@struct.dataclass
class DPDDA(Algorithm):
    """Dual averaging of which some nodes at a time take part with noisy gradients, while all mix.

    DP-DDA with any gradients.

    With `block` only the gradients of active nodes are computed, so many at a time, which saves work where p is small
    and gradients look at many examples; without it all nodes' are, and those of inactive ones are dropped. Both give
    the same but for rounding. Raises ValueError (from `check`) for settings out of range and for networks whose W is
    not doubly stochastic.
    """

    kind: ClassVar[str] = "dp-dda"
    lr: StepLength = 0.1
    p: Fraction = 0.25
    """Chance of a node to be active in a round, in (0, 1]."""
    mu: Positive | None = None
    """Modulus of strong convexity, which weights and steps then rely on; none: those of the convex case."""
    gradients: Gradients = Gradients(batch=1)
    codec: Codec = Dense()
    order: Literal["mix first", "adapt first"] = struct.field(pytree_node=False, default="mix first")
    """Add gradients to what has been mixed, or mix what they have been added to."""
    block: Count | None = struct.field(pytree_node=False, default=None)
    """Active nodes at a time, no others being computed; none: all nodes at once."""
    title: ClassVar[str] = "DP-DDA"
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    @property
    def uneven(self) -> bool:
        """Whether rounds differ in how much there is to compute."""
        return self.block is not None

    def prepare(self, problem: Problem, moment: Moment, plan: Any) -> Array:
        """The key [] that decides who is active."""
        return moment.stream(ACTIVE)

    def init(self, round: Round) -> State:
        """Start from z = 0, at x_0."""
        x = round.problem.begin()
        return State(jnp.zeros_like(x), x, x)

    def step(self, state: State, round: Round) -> State:
        """One round."""
        z, x, start = state
        a, c, pull = self._weights(round.k, x.dtype)
        on = active(self.p, round.ready, round)
        g = round.each_of(on, self.block, lambda here: self.gradients(here.of(x), here), jnp.zeros_like(x))
        g = g if self.mu is None else g - self.mu * x
        added = jnp.where(on[:, None], a / self.p * g, 0.0)
        z = round.mix(z) + added if self.order == "mix first" else round.mix(z + added)
        return State(z, (start - c * z) / (1 + pull), start)

    def _weights(self, k: Array, dtype: Any) -> tuple[Array, Array, Array]:
        """a_t, c_t and mu c_t A_t [] of round t = k."""
        t = k.astype(dtype)
        if self.mu is None:
            return jnp.ones_like(t), self.lr / jnp.sqrt(t + 1), jnp.zeros_like(t)
        return t + 1, self.lr / (t + 1), self.mu * self.lr * (t + 2) / 2

    def params(self, state: State) -> Array:
        """The parameters x [m, n], which are z and what everybody knows."""
        return state.x


def amplified_epsilon(algorithm: DPDDA, problem: Problem, rounds: int, delta: float) -> float:
    """What rounds would add up to at `delta` if nobody could tell which nodes are active: no guarantee.

    Every round then counts, active or not, as a release from a sample that holds a record with probability p times that
    of the gradients' own sampling, at the smallest node. That needs more than silence about who is active: an inactive
    node would have to send noise of the same size, which this method does not, and gradients of more than one example
    tell by their length that there is one. Compare with the epsilon of a run's report, which does not assume this.

    Args:
        algorithm: The settings, with clipped and noisy gradients of records.
        problem: The nodes' data.
        rounds: How many rounds there are, from 0.
        delta: The chance that the epsilon may fail, in (0, 1).

    Raises:
        ValueError: Where nothing is claimed even so: without noise, or without a clip.
    """
    told = algorithm.gradients.guarantee(problem)
    if told.event is None or not told.claimed or told.unit != "record" or told.adjacency == "none":
        raise ValueError(
            f"Expected clipped and noisy gradients of records, got gradients = {algorithm.gradients!r}. Use "
            "Gradients(batch=1, clip=..., mechanism=Gaussian(...))."
        )
    rate = float(algorithm.p)
    if told.sampling is not None:
        rate *= told.sampling.batch / int(np.min(np.asarray(problem.sizes)))
    sampled = Sampled("poisson", math.ceil(rate * _PARTS - 1e-3), _PARTS)
    return epsilon(told.event, rounds, delta, sampled=sampled, adjacency=told.adjacency)
