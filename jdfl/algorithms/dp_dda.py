"""DP-DDA: distributed dual averaging in which randomly active nodes add noisy gradients and all nodes mix.

C. Liu, K. H. Johansson, Y. Shi: Distributed empirical risk minimization with differential privacy, 2024. Every node is
active in a round t = 0, 1, ... with probability p.

    z_i <- sum_j W_ij z_j + (a_t / p) (g_i(x_i) + noise - mu x_i)    (second term only where i is active)
    x_i <- argmin_x <z_i, x> + A_t mu / 2 ||x||^2 + ||x - x_0||^2 / (2 c_t),    A_t = a_0 + ... + a_t
         = (x_0 - c_t z_i) / (1 + mu c_t A_t)

    convex:            mu = 0,  a_t = 1,      c_t = lr / sqrt(t + 1)
    strongly convex:   mu > 0,  a_t = t + 1,  c_t = lr / (t + 1)

The run starts from z_i = 0 and the initial parameters x_0. W is doubly stochastic, so the average of the z_i is the sum
of the active nodes' contributions over m. `order="adapt-then-combine"` also mixes these contributions, z_i <- sum_j
W_ij (z_j + ...); on a complete network with p = 1 all nodes then take the steps of centralised dual averaging.

The paper's abstract and others say: active nodes perturb stochastic subgradients of single samples, inactive nodes
still send and mix, all nodes share a regulariser h, node sampling is said to amplify privacy, and without noise the
rate is O(1 / t). The rest is derived here and was not checked against the paper: the weights a_t and step sizes c_t,
the division by p, which makes the sum correct in expectation, and whether gradients are added before or after mixing
(J. Duchi, A. Agarwal, M. Wainwright: Dual averaging for distributed optimization, 2012, add them after mixing). With mu
the argmin uses the lower bound f(x_i) + <g, x - x_i> + mu / 2 ||x - x_i||^2 of a strongly convex f instead of a linear
one; where f contains h = mu / 2 ||x||^2, this is A_t h plus gradients of the data term alone. Step sizes approach 2 /
(mu t p), and none exceeds lr / p.

Privacy: what is sent is computed from noisy gradients of active nodes, so only these need to be accounted for. Random
activation does not strengthen the guarantee against an observer of all messages: z_i minus the mixture of the last z_j
is zero where i was not active.

Missing neighbours: their weight goes where the network says, by default to the node itself, and a node that receives
nothing adds up its own gradients. W must stay doubly stochastic, so both directions of a link fail together.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.choosing import ACTIVE, active
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round, RoundContext
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, Positive, Provenance, StepSize
from jdfl.codecs import Codec, Dense
from jdfl.problems import Problem


class State(NamedTuple):
    z: Array  # [m, n] dual variables: mixed sums of weighted gradients
    x: Array  # [m, n] parameters
    start: Array  # [m, n] x_0, where the proximal term is zero


@struct.dataclass
class DPDDA(Algorithm):
    """DP-DDA: dual averaging in which a random subset of nodes adds noisy gradients while all nodes mix.

    It takes any gradients. With `block` gradients are computed only for active nodes, `block` at a time, which saves
    work where p is small and gradients use many examples. Without it all gradients are computed and those of inactive
    nodes dropped. Both give the same result up to rounding. Raises ValueError (from `check`) for networks whose W is
    not doubly stochastic.
    """

    kind: ClassVar[str] = "dp-dda"
    provenance: ClassVar[Provenance] = ("abstract only", "described by others")
    lr: StepSize = 0.1
    p: Fraction = 0.25
    """Probability that a node is active in a round, in (0, 1]."""
    mu: Positive | None = None
    """Modulus of strong convexity, used in weights and step sizes; None: the convex case."""
    gradients: Gradients = Gradients(batch=1)
    codec: Codec = Dense()
    order: Literal["combine-then-adapt", "adapt-then-combine"] = struct.field(
        pytree_node=False, default="combine-then-adapt"
    )
    """Add gradients after mixing or before it."""
    block: Count | None = struct.field(pytree_node=False, default=None)
    """Active nodes processed at a time, without computing the others; None: all nodes at once."""
    title: ClassVar[str] = "DP-DDA"
    needs: ClassVar[dict[str, bool]] = {"doubly_stochastic": True}

    @property
    def uneven(self) -> bool:
        return self.block is not None

    def prepare(self, problem: Problem, context: RoundContext, plan: Any) -> Array:
        """The key [] from which active nodes are drawn."""
        return context.stream(ACTIVE)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(jnp.zeros_like(x), x, x)

    def step(self, state: State, round: Round) -> State:
        z, x, start = state
        a, c, pull = self._weights(round.k, x.dtype)
        on = active(self.p, round.ready, round)
        g = round.each_of(on, self.block, lambda here: self.gradients(here.of(x), here), jnp.zeros_like(x))
        g = g if self.mu is None else g - self.mu * x
        added = jnp.where(on[:, None], a / self.p * g, 0.0)
        z = round.mix(z) + added if self.order == "combine-then-adapt" else round.mix(z + added)
        return State(z, (start - c * z) / (1 + pull), start)

    def _weights(self, k: Array, dtype: Any) -> tuple[Array, Array, Array]:
        """a_t, c_t and mu c_t A_t [] of round t = k."""
        t = k.astype(dtype)
        if self.mu is None:
            return jnp.ones_like(t), self.lr / jnp.sqrt(t + 1), jnp.zeros_like(t)
        return t + 1, self.lr / (t + 1), self.mu * self.lr * (t + 2) / 2

    def params(self, state: State) -> Array:
        """The parameters x [m, n], a function of z and public quantities."""
        return state.x
