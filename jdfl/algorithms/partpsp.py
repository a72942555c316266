"""PartPSP: stochastic gradients over private push-sum, for models that share only part of their parameters.

Y. Zhou, K. Xue, E. Chen: Differentially Private Perturbed Push-Sum Protocol and Its Application in Non-Convex
Optimization (Algorithm 2).

    l_i <- l_i - gamma_l grad_l f_i(y_i, l_i)
    g_i  = grad_s f_i(y_i, l_i), clipped
    DPPS with eps_i = -gamma_s g_i

y_i are the corrected shared parameters and l_i the local ones; a round uses one batch. The shared part is the first
`problem.n_shared` parameters. All three rates are multiplied by `decay` at every milestone, as in the published code.
With everything shared and no noise this is SGP.

The local part changes with every record of its node, so clipping single examples bounds the effect of one record no
better than clipping the node's whole gradient: the privacy statement is about whole nodes.

Missing neighbours: the columns of W must still sum to one, so the sender keeps what does not arrive
(`weights="sender"`), and the sums of s and a lose nothing. Delayed messages (`network.delays`) are added when they
arrive.

Axes: m nodes, n parameters, d of them shared, T rounds.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Personal
from jdfl.algorithms.dpps import DPPS, PushSum
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import OverPushSum, exact, oracle, shortened
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance
from jdfl.network import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem


class State(NamedTuple):
    shared: PushSum
    local: Array  # [m, n - d]


@struct.dataclass
class PartPSP(OverPushSum):
    """PartPSP: push-sum SGD on a shared part of the parameters, optionally private; the rest stays local.

    `gradients.clip` applies to the gradient of the shared part: the node's (`per="batch"`), or every example's and then
    the node's.
    """

    kind: ClassVar[str] = "partpsp"
    provenance: ClassVar[Provenance] = ("paper read", "authors' code read")
    lr_shared: Positive = 0.1
    """Step size of the shared parameters."""
    lr_local: Positive = 0.1
    """Step size of the local parameters."""
    gradients: Exact = Gradients(per="batch", norm="l1")
    dpps: DPPS = DPPS()
    """Noise on messages."""
    milestones: tuple[Count, ...] = struct.field(pytree_node=False, default=())
    """Rounds from which all rates are multiplied by `decay`."""
    decay: Positive = 0.1
    """Factor on all rates at every milestone."""
    title: ClassVar[str] = "PartPSP"
    personal: ClassVar[Personal] = "parameters"
    tuned: ClassVar[tuple[str, ...]] = ("lr_shared", "lr_local")
    rate: ClassVar[str] = "lr_shared"

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        if problem.n_shared == 0:
            raise ValueError("Expected a shared part, got shared = 0. Use LocalOnly, or share some parameters.")

    def carried(self, problem: Problem) -> int:
        """The number of shared parameters."""
        return problem.n_shared

    def init(self, round: Round) -> State:
        x, d = round.problem.initial_params(), round.problem.n_shared
        return State(self.dpps.init(x[:, :d], round), x[:, d:])

    def step(self, state: State, round: Round) -> State:
        y = state.shared.y
        scale = jnp.asarray(round.ready.scale(round.k), y.dtype)
        local, g = self._descent(y, state.local, scale, round)
        return State(self.pushed(state.shared, -self.lr_shared * scale * g, round), local)

    def _descent(self, y: Array, local: Array, scale: Array, round: Round) -> tuple[Array, Array]:
        """The local parts after their step [m, n - d], and the clipped gradients of the shared parts there [m, d]."""
        problem, gradients = round.problem, self.gradients
        d = problem.n_shared
        round.trace.grads = 2 if d < problem.n else 1

        def parts(gradient: Callable[..., Array], y: Array, local: Array, *sample: Any) -> tuple[Array, Array]:
            if d < problem.n:
                g = gradient(exact(gradients), problem, _joined(y, local), *sample, slice(d, problem.n))
                local = local - self.lr_local * scale * g
            return local, gradient(oracle(gradients), problem, _joined(y, local), *sample, slice(0, d))

        rows = y, local, *gradients.sample(round)
        if oracle(gradients).clip is None:
            local, g = problem.each(partial(parts, Gradients.plain), *rows)
        else:
            local, g = parts(Gradients.exact, *rows)
        return local, shortened(gradients, g)

    def mass(self, state: State) -> Array:
        return state.shared.a

    def params(self, state: State) -> Array:
        """The corrected shared parameters and the local ones [m, n]."""
        return _joined(state.shared.y, state.local)

    def visible(self, state: State) -> Array:
        """What others see of a state [m, n]: messages; zeros replace the local parameters, which nobody sees."""
        return _joined(state.shared.shown, jnp.zeros_like(state.local))

    def annotated(self, guarantee: Guarantee, problem: Problem, steps: int | None) -> Guarantee:
        """The protocol's guarantee: nothing else is sent, and the shared gradient is clipped last."""
        return replace(guarantee, local=_LOCAL) if problem.personal and guarantee.event is not None else guarantee


_LOCAL = "the local parameters are computed from a node's data without noise"


def _joined(shared: Array, local: Array) -> Array:
    return jnp.concatenate([shared, local], axis=-1)
