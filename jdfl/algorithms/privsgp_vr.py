"""PrivSGP-VR: noisy stochastic gradient push with variance-reduced gradients.

Z. Zhu, Y. Huang, X. Wang, J. Xu: PrivSGP-VR: Differentially Private Variance-Reduced Stochastic Gradient Push with
Tight Utility Bounds, 2024 (Algorithm 1).

    x_i = u_i / a_i,     q: a random example of node i
    h_i = g_iq(x_i) - t_iq + (1 / J_i) sum_l t_il,     t_iq <- g_iq(x_i)
    u_i <- sum_j P_ij (u_j - lr (h_j + noise_j)),      a_i <- sum_j P_ij a_j

The run starts from a_i = 1 and t_iq = g_iq(x_i), the gradients of all J_i examples at the initial parameters. The
columns of P sum to one. The table t_i (SAGA) takes the memory of one model per example. With `gradients.batch` = b, the
first two terms are means over b examples, drawn with replacement; with None h_i is the full gradient, as in `jdfl.SGP`.

Whether the paper stores gradients as SAGA does could not be checked. The paper assumes bounded gradients and
amplification by drawing one example, although every record changes every h_i through the table. Here h_i is clipped
after the correction, so a node's whole data change it by at most twice `gradients.clip`, and the noise is accounted for
without amplification. A regulariser, which contains no data, is added after the noise.

Missing neighbours: the columns of P must still sum to one, so the sender keeps what does not arrive
(`weights="sender"`), and the sums of u and a lose nothing.

Axes: m nodes, q examples per node, n parameters.
"""

from dataclasses import replace
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.gradients import NOISE, Gradients
from jdfl.algorithms.push_descent import PushSums, shortened
from jdfl.algorithms.round import MODEL, Round
from jdfl.base import marking, struct
from jdfl.base.settings import Only, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.network import Network
from jdfl.problems import Problem

_EXAMPLE = Stream("privsgp-vr.example", "private")


class State(NamedTuple):
    u: Array  # [m, n] sums of push-sum
    a: Array  # [m] push-sum weights
    table: Array  # [m, q, n] last gradient of every example, without the regulariser; never sent

    @property
    def x(self) -> Array:
        """The parameters [m, n]; uses the inverse, because XLA divides only in some programs."""
        return self.u * (1 / self.a)[:, None]


@struct.dataclass
class PrivSGPVR(PushSums):
    """PrivSGP-VR: push-sum SGD with single examples, whose gradients are corrected by a table and then made noisy.

    With a clip and a mechanism it is private, and a guarantee is about a node's whole data. Raises ValueError (from
    `check`) for settings out of range, and for networks that are not strongly connected and column-stochastic.
    """

    kind: ClassVar[str] = "privsgp-vr"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.02
    gradients: Annotated[Gradients, Only(("batch", "clip", "per", "norm", "mechanism", "adjacency"))] = Gradients(
        batch=1, per="batch"
    )
    """Examples of a step, and clip and noise of the corrected gradients; single examples are not clipped."""
    title: ClassVar[str] = "PrivSGP-VR"

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings out of range, and for batches or clipping of examples."""
        super().check(problem, network)
        g = self.gradients
        if g.sampling != "replacement" or (g.clip is not None and g.per != "batch"):
            raise ValueError(
                "Expected sampling = 'replacement' and per = 'batch' for PrivSGP-VR, whose corrected gradients are "
                f"clipped, got {g.sampling!r} and {g.per!r}. Give Gradients(batch=1, per='batch', ...)."
            )

    def init(self, round: Round) -> State:
        u, problem = round.problem.initial_params(), round.problem
        round.trace.grads = problem.sizes // self.examples(problem)
        table = marking.own(problem.each(problem.example_gradients, u, problem.data), u, problem.data)
        return State(u, jnp.ones_like(u[:, 0]), table)

    def step(self, state: State, round: Round) -> State:
        x, problem = state.x, round.problem

        def corrected(w: Array, data: Any, weight: Array, table: Array, key: Array) -> tuple[Array, Array]:
            real = jnp.cumsum(weight > 0, dtype=jnp.int32)
            every = (weight > 0).astype(w.dtype) / real[-1].astype(w.dtype)
            q, share = jnp.arange(weight.shape[0]), every
            if self.gradients.batch is not None:
                nth = jax.random.randint(key, (self.gradients.batch,), 0, real[-1], jnp.int32)
                q, share = jnp.searchsorted(real, nth, side="right"), jnp.full(nth.shape, 1 / nth.size, w.dtype)
            g = problem.example_gradients(w, problem.take(data, q))
            h = jnp.sum(share[:, None] * (g - table[q]), axis=0) + jnp.sum(every[:, None] * table, axis=0)
            return h, table.at[q].set(g)

        round.trace.grads = round.trace.grads + 1
        used = x, problem.data, problem.weight, state.table
        rows = x, *problem.weighted_data, problem.cut(state.table), round.keys(_EXAMPLE)
        h, table = marking.own(problem.each(corrected, *rows), used)
        h, whole = shortened(self.gradients, h), replace(self.gradients, batch=None)  # the table has all examples
        if whole.mechanism is not None:
            h = round.noisy(whole.mechanism, h, whole.sensitivities(problem), NOISE, whole.guarantee)
        h = h + jax.vmap(jax.grad(problem.regulariser))(x)
        u, a = round.push(state.u - self.lr * h, state.a, MODEL)
        return State(u, a, table)
