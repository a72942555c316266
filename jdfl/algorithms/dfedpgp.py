"""DFedPGP: partial gradient push, local steps on shared and on personal parameters over directed networks.

Y. Liu, Y. Shi, Q. Li, B. Wu, X. Wang, L. Shen: Decentralized Directed Collaboration for Personalized Federated
Learning, 2024.

    `personal_steps` times:  v_i <- v_i - lr_local grad_v f_i(u_i / a_i, v_i)
    `local_steps` times:     u_i <- u_i - lr grad_u f_i(u_i / a_i, v_i)
    u_i <- sum_j P_ij u_j,   a_i <- sum_j P_ij a_j

The run starts from a_i = 1. The columns of P sum to one. The shared part u_i / a_i is the first `problem.n_shared`
parameters; the others, v_i, never leave their node. With everything shared and one step it is `jdfl.SGP`.
`jdfl.PartPSP` takes one step on each part, and can add noise to messages.

An implementation by others multiplies the gradient of u_i by another 1 / a_i, as the derivative by u_i has it. Here the
gradient is that of push-sum, by u_i / a_i.

Personal parameters contain records without noise, so clipping examples would not bound the effect of a record on later
gradients. No privacy is claimed.

Missing neighbours: the columns of P must still sum to one, so the sender keeps what does not arrive
(`weights="sender"`), and the sums of u and a lose nothing.

Axes: m nodes, n parameters, d of them shared.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Personal
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import PushSums
from jdfl.algorithms.round import MODEL, Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance, StepSize
from jdfl.problems import Problem


class State(NamedTuple):
    u: Array  # [m, d] shared parameters, sums of push-sum
    a: Array  # [m] push-sum weights
    v: Array  # [m, n - d] personal parameters

    @property
    def x(self) -> Array:
        """The parameters [m, n]; uses the inverse, because XLA divides only in some programs."""
        return jnp.concatenate([self.u * (1 / self.a)[:, None], self.v], axis=1)


@struct.dataclass
class DFedPGP(PushSums):
    """DFedPGP: stochastic gradient push of a shared part, with local steps; the other parameters are personal.

    Raises ValueError (from `check`) for a problem without a shared part, and networks that are not strongly connected
    and column-stochastic.
    """

    kind: ClassVar[str] = "dfedpgp"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    lr: StepSize = 0.1
    lr_local: Positive = 0.1
    """Step size of the personal parameters."""
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps on the shared parameters before each exchange of messages."""
    personal_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps on the personal parameters before these."""
    gradients: Exact = Gradients()
    title: ClassVar[str] = "DFedPGP"
    personal: ClassVar[Personal] = "parameters"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "lr_local")

    def init(self, round: Round) -> State:
        x, d = round.problem.initial_params(), round.problem.n_shared
        return State(x[:, :d], jnp.ones_like(x[:, 0]), x[:, d:])

    def step(self, state: State, round: Round) -> State:
        (u, _, v), d = state, round.problem.n_shared

        def gradient(u: Array, v: Array, here: Round, part: slice) -> Array:
            return self.gradients(state._replace(u=u, v=v).x, here, part=part)

        if round.problem.personal:
            rate, part = self.lr_local, slice(d, None)
            v = round.repeat(self.personal_steps, lambda here, v: v - rate * gradient(u, v, here, part), v)
        u = round.repeat(self.local_steps, lambda here, u: u - self.lr * gradient(u, v, here, slice(0, d)), u)
        u, a = round.push(u, state.a, MODEL)
        return State(u, a, v)

    def visible(self, state: State) -> Array:
        """What others see of a state [m, n]: u; zeros replace the personal parameters, which nobody sees."""
        return jnp.concatenate([state.u, jnp.zeros_like(state.v)], axis=1)

    def carried(self, problem: Problem) -> int:
        """The number of shared parameters."""
        return problem.n_shared
