"""PartPSP: stochastic gradients over private push-sum, for models of which only a part is shared.

Y. Zhou, K. Xue, E. Chen: Differentially Private Perturbed Push-Sum Protocol and Its Application in Non-Convex
Optimization (Algorithm 2). With y_i the corrected shared parameters, l_i the local ones, and one batch per round:

    l_i <- l_i - gamma_l grad_l f_i(y_i, l_i)
    g_i  = grad_s f_i(y_i, l_i), clipped
    DPPS with eps_i = -gamma_s g_i

The shared part is the first `problem.n_shared` parameters. All three rates are multiplied by `decay` at every
milestone, as in the published code. With everything shared and no noise this is SGP.

A local part changes with every record of its node, so that clipping single examples bounds no more of what one record
changes than clipping the node's whole gradient does: what is told of privacy is told of whole nodes.

Missing neighbours: the columns of W must still sum to one, so that the sender keeps what does not arrive
(`weights="sender"`), and nothing of the sums of s and a is lost. What is late (`network.delays`) is added when it
arrives.

Axes: m nodes, n parameters, d of them shared, T rounds.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.dpps import DPPS, PushSum
from jdfl.algorithms.gradients import Exact, Gradients
from jdfl.algorithms.push_descent import OverPushSum, exact, oracle, shortened
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive
from jdfl.network import Network
from jdfl.privacy import Guarantee
from jdfl.problems import Problem


class State(NamedTuple):
    """What the next round needs."""

    shared: PushSum
    local: Array  # [m, n - d]


@struct.dataclass
class PartPSP(OverPushSum):
    """Push-sum of a part of the parameters, private where messages are noisy; the rest stays with its node.

    PartPSP. Raises ValueError (from `check` and `plan`) for settings out of range.

    `gradients.clip` is that of the shared part's gradient: of the node's (`per="batch"`), or of every example's first.
    """

    kind: ClassVar[str] = "partpsp"
    lr_shared: Positive = 0.1
    """Length of the shared parameters' steps."""
    lr_local: Positive = 0.1
    """Length of the local parameters' steps."""
    gradients: Exact = Gradients(per="batch", norm="l1")
    dpps: DPPS = DPPS()
    """Noise on messages."""
    milestones: tuple[Count, ...] = struct.field(pytree_node=False, default=())
    """Rounds from which all rates are lower."""
    decay: Positive = 0.1
    """What rates are multiplied by at every milestone."""
    title: ClassVar[str] = "PartPSP"
    tuned: ClassVar[tuple[str, ...]] = ("lr_shared", "lr_local")
    rate: ClassVar[str] = "lr_shared"

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings out of range, naming them."""
        super().check(problem, network)
        if problem.n_shared == 0:
            raise ValueError("Expected a shared part, got shared = 0. Use LocalOnly, or share something.")

    def carried(self, problem: Problem) -> int:
        """The shared parameters."""
        return problem.n_shared

    def init(self, round: Round) -> State:
        """Start where the problem says."""
        x, d = round.problem.begin(), round.problem.n_shared
        return State(self.dpps.init(x[:, :d], round), x[:, d:])

    def step(self, state: State, round: Round) -> State:
        """One round."""
        y = state.shared.y
        scale = jnp.asarray(round.ready.scale(round.k), y.dtype)
        local, g = self._descent(y, state.local, scale, round)
        return State(self.pushed(state.shared, -self.lr_shared * scale * g, round), local)

    def _descent(self, y: Array, local: Array, scale: Array, round: Round) -> tuple[Array, Array]:
        """The local parts after their step [m, n - d], and the shared parts' gradients there [m, d], clipped.

        Both are taken of one node while its batch is at hand, but where examples are clipped: those are formed a few at
        a time, counted over all nodes.
        """
        problem, gradients = round.problem, self.gradients
        d = problem.n_shared
        round.book.grads = 2 if d < problem.n else 1

        def parts(gradient: Callable[..., Array], y: Array, local: Array, *sample: Any) -> tuple[Array, Array]:
            if d < problem.n:
                g = gradient(exact(gradients), problem, _whole(y, local), *sample, slice(d, problem.n))
                local = local - self.lr_local * scale * g
            return local, gradient(oracle(gradients), problem, _whole(y, local), *sample, slice(0, d))

        rows = y, local, *gradients.sample(round)
        if oracle(gradients).clip is None:
            local, g = problem.each(partial(parts, Gradients.plain), *rows)
        else:
            local, g = parts(Gradients.exact, *rows)
        return local, shortened(gradients, g)

    def params(self, state: State) -> Array:
        """The corrected shared parameters and the local ones [m, n]."""
        return _whole(state.shared.y, state.local)

    def visible(self, state: State) -> Array:
        """What others see of a state [m, n]: messages; zeros stand for the local parameters, which nobody sees."""
        return _whole(state.shared.shown, jnp.zeros_like(state.local))

    def told(self, guarantee: Guarantee, problem: Problem, steps: int | None) -> Guarantee:
        """That of the protocol: nothing else is sent, and the shared gradient is clipped last of all."""
        return replace(guarantee, local=_LOCAL) if problem.personal and guarantee.event is not None else guarantee


_LOCAL = "the parameters that stay with a node are computed from its data without noise"


def _whole(shared: Array, local: Array) -> Array:
    return jnp.concatenate([shared, local], axis=-1)
