"""DESTRESS: recursive gradients of few examples within a round, with several exchanges for every mixing.

B. Li, Z. Li, Y. Chi: DESTRESS: Computation-Optimal and Communication-Efficient Decentralized Nonconvex Finite-Sum
Optimization, 2022.

    u_i = x_i,       v_i = s_i
    S times:    u_i+ = (W_in (u - lr v))_i,       v_i+ = (W_in (v + a (g_b(u+) - g_b(u)) / p))_i
    x_i <- u_i,       s_i <- (W_out (s + g(x) - g))_i,       g_i <- g_i(x_i)

The run starts from g_i = g_i(x_i) and s_i = mean_j g_j. A coordinator computes this mean before the first round; like
the paper and its authors' code we do not count these messages. With `start="own"` it starts from s_i = g_i. S is
`local_steps`. b are the examples of an inner step, the same in both gradients. a_i is 1 with probability p, the
`activation`; otherwise it is 0, and the node evaluates no gradient in that step. W_in is W to the power `inner_mixes`
and W_out W to the power `outer_mixes`. With `accelerated` they are Chebyshev polynomials of W instead, T_K(W / l) /
T_K(1 / l), l the second largest modulus of an eigenvalue. With S = 1 and single exchanges it is `jdfl.DIGing` in the
order adapt-then-combine. It converges linearly to the exact solution of strongly convex problems.

The authors' code by default ends the inner steps of a round at a random one. Here it is always the last.

Cost: `gradients` counts those of b examples, so that of all q examples of a node counts as q / b, rounded up.

Missing neighbours: their weight goes where the network says; with acceleration, networks that change are refused. W
must stay doubly stochastic, so both directions of a link fail together.

Axes: m nodes, n parameters, T rounds.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC
from jdfl.algorithms.choosing import ACTIVE, active
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round, RoundContext
from jdfl.algorithms.variance_reduced import OfBatches
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, Provenance, StepSize
from jdfl.network import Network, spectral_gap
from jdfl.problems import Problem


class State(NamedTuple):
    x: Array  # [m, n] parameters
    s: Array  # [m, n] trackers of the average gradient
    g: Array  # [m, n] gradients of all examples at x


@struct.dataclass
class DESTRESS(OfBatches):
    """DESTRESS: variance reduction with inner steps, random activation and extra mixing.

    It takes any gradients without noise. Raises ValueError (from `check`) for noisy gradients, networks whose W is not
    doubly stochastic, and those that do not allow acceleration.
    """

    kind: ClassVar[str] = "destress"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    lr: StepSize = 0.05
    gradients: Exact = Gradients(batch=10)
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Inner steps of a round, each with its own exchanges."""
    inner_mixes: Count = struct.field(pytree_node=False, default=2)
    """Exchanges of each of the two vectors in an inner step."""
    outer_mixes: Count = struct.field(pytree_node=False, default=2)
    """Exchanges of trackers after the inner steps."""
    activation: Fraction = 1.0
    """Probability with which a node evaluates gradients in an inner step."""
    accelerated: bool = struct.field(pytree_node=False, default=False)
    """Mix with Chebyshev polynomials of W instead of its powers."""
    start: Literal["mean", "own"] = struct.field(pytree_node=False, default="mean")
    """Begin with the mean of all gradients as trackers (paper, authors' code), or with the nodes' own gradients."""
    title: ClassVar[str] = "DESTRESS"
    exact: ClassVar[bool] = True
    channels: ClassVar[tuple[Channel, ...]] = (MODEL, TRACKER)

    @property
    def needs(self) -> dict[str, bool]:
        """Requirements on the network: acceleration needs one with a spectral gap."""
        return FIXED_SYMMETRIC if self.accelerated else {"doubly_stochastic": True}

    def plan(self, problem: Problem, network: Network, steps: int) -> Array:
        """The second largest modulus l [T] of an eigenvalue of W; 0 gives powers of W."""
        return jnp.full((steps,), 1 - spectral_gap(network) if self.accelerated else 0, problem.dtype)

    def prepare(self, problem: Problem, context: RoundContext, plan: Any) -> tuple[Array, Array]:
        """The key [] from which active nodes are drawn, and the plan [T]."""
        return context.stream(ACTIVE), plan

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        g = self._full_gradient(x, jnp.ones((round.m,), jnp.bool_), x, round)
        return State(x, g if self.start == "own" else round.averaged(g, TRACKER), g)

    def step(self, state: State, round: Round) -> State:
        u, v = state.x, state.s
        for t in range(self.local_steps):
            here = replace(round, local_step=t, local_steps=self.local_steps)
            before, u = u, self._mixed(u - self.lr * v, self.inner_mixes, here, MODEL)
            on = active(self.activation, jax.random.fold_in(round.ready[0], t), here)
            change = here.each_of(on, None, lambda here, w=(u, before): self._change(*w, here))
            v = self._mixed(v + jnp.where(on[:, None], change / self.activation, 0), self.inner_mixes, here, TRACKER)
        g = self._full_gradient(u, jnp.ones((round.m,), jnp.bool_), u, round)
        return State(u, self._mixed(state.s + g - state.g, self.outer_mixes, round, TRACKER), g)

    def _mixed(self, z: Array, times: int, round: Round, channel: Channel) -> Array:
        """Rows z [m, n] after some exchanges."""
        before, z, w = z, z + round.pull(z, channel), jnp.asarray(2, z.dtype)
        for _ in range(1, times):
            w = 1 / (1 - round.ready[1][round.k] ** 2 * w / 4)
            before, z = z, w * (z + round.pull(z, channel)) + (1 - w) * before
        return z
