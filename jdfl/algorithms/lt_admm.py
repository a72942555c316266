"""LT-ADMM and LT-ADMM-VR: relaxed ADMM whose nodes take several gradient steps between two exchanges.

X. Ren, N. Bastianello, K. H. Johansson, T. Parisini: Communication-Efficient Stochastic Distributed Learning, 2026.
With d_i neighbours of node i, penalty rho and relaxation alpha:

    tau times:  y_i <- y_i - lr v_i - beta (rho d_i x_i - sum_j z_ij),     from y_i = x_i
    x_i  <- y_i
    z_ij <- (1 - alpha) z_ij - alpha (z_ji - 2 rho x_j)
    LT-ADMM:       v_i = g_i(y_i)
    LT-ADMM-VR:    v_i = mean_{h in B_i} (g_ih(y_i) - c_ih) + mean_h c_ih,     then c_ih <- g_ih(y_i) for h in B_i

The last term of the first line stays the same in all steps of a round. `jdfl.DiNNO` computes it at y_i instead; with
one local step, lr = beta and alpha = 1/2 it is LT-ADMM, for half the penalty. The z_ij are kept as two sums per node
(see `jdfl.ADMM`), and only x is sent. The run starts from z_ij = x_i, as in the package decent-bench, by one of the
authors; with `start="consensus"` from z_ij = rho x_i, which keep parameters that agree where they are. Both are the
same where the initial parameters are zero. With gradients that are clipped and noisy LT-ADMM is LT-ADMM-DP of the same
group, as far as summaries of that paper say.

LT-ADMM-VR draws a batch B_i for every step and has a table c_ih of gradients of all examples h. The table begins with
the gradients at x_i, in every round or (`kept`) in the first one only, which saves a pass over the data per round but
needs a smaller lr: gradients in it may be many rounds old. A batch has distinct examples, all sets being equally
likely, and their weights in f_i count in both means. The regulariser is not sampled. The table holds q numbers for each
of m n parameters, q being the most examples of a node. Gradients are counted by examples: two per member of a batch,
and every example of a node where the table begins. In decent-bench `kept` is `v2`.

Missing neighbours: refused, because both nodes of a link must know what the other one has received.

Axes: m nodes, n parameters, q examples of a node, b examples of a batch.
"""

from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms import admm
from jdfl.algorithms.admm import LinkSums, OverLinks, Relaxation, State
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Count, Positive, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.network import Network
from jdfl.problems import Problem

_BATCH = Stream("lt-admm-vr.batch", "private")


@struct.dataclass
class LocalTraining(OverLinks):
    """The settings of LT-ADMM, and what its steps share whatever their gradients are."""

    lr: StepSize = 0.1
    beta: Positive = 0.1
    """Step size along the constraints."""
    penalty: Positive = 0.5
    """Weight rho of the constraint of a link."""
    relaxation: Relaxation = 0.5
    """Weight alpha of the new values of the links' variables."""
    local_steps: Count = struct.field(pytree_node=False, default=5)
    """Gradient steps tau before each exchange of messages."""
    start: Literal["parameters", "consensus"] = struct.field(pytree_node=False, default="parameters")
    """Begin with links z_ij = x_i (an author's code), or with rho x_i."""
    tuned: ClassVar[tuple[str, ...]] = ("lr", "beta")

    def links(self, x: Array, round: Round) -> LinkSums:
        """The first variables of the links, as sums, for initial parameters x [m, n]."""
        return admm.consensus(x, 1 if self.start == "parameters" else self.penalty, round)

    def towards(self, x: Array, z: LinkSums, round: Round) -> Array:
        """What a local step subtracts [m, n] because of the constraints: beta (rho d_i x_i - sum_j z_ij)."""
        return self.beta * (self.penalty * admm.degree(x, round) * x - z.own)


@struct.dataclass
class LTADMM(LocalTraining):
    """LT-ADMM: relaxed ADMM with local gradient steps; exact with gradients of all examples.

    It takes any gradients. Raises ValueError (from `check`) for settings out of range and for networks that change or
    have one-way links.
    """

    kind: ClassVar[str] = "lt-admm"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "LT-ADMM"
    exact: ClassVar[bool] = True

    def init(self, round: Round) -> State:
        """Start from the initial parameters x."""
        x = round.problem.begin()
        return State(x, self.links(x, round))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, z = state
        away = self.towards(x, z, round)

        def local(here: Round, y: Array) -> Array:
            return y - self.lr * self.gradients(y, here) - away

        x = round.repeat(self.local_steps, local, x)
        return State(x, admm.exchanged(z, x, self.penalty, self.relaxation, round))


class StateVR(NamedTuple):
    """What a round of LT-ADMM-VR passes to the next."""

    x: Array  # [m, n] parameters
    z: LinkSums  # of the variables of the links
    table: Array | None  # [m, q, n] last gradients of the examples, if kept


@struct.dataclass
class LTADMMVR(LocalTraining):
    """LT-ADMM-VR: relaxed ADMM with local steps along variance-reduced gradients; exact with small batches.

    Raises ValueError (from `check`) for settings out of range, batches that exceed the data of a node, and networks
    that change or have one-way links.
    """

    kind: ClassVar[str] = "lt-admm-vr"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    batch: Count = struct.field(pytree_node=False, default=1)
    """Examples of a node in a local step."""
    kept: bool = struct.field(pytree_node=False, default=False)
    """Keep the table from round to round."""
    title: ClassVar[str] = "LT-ADMM-VR"
    exact: ClassVar[bool] = True

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for settings and networks that do not fit."""
        super().check(problem, network)
        if self.batch > (least := int(np.min(problem.sizes))):
            raise ValueError(
                f"Expected batch <= {least}, the fewest examples of a node, got batch = {self.batch}. Use a smaller "
                "batch, or jdfl.LTADMM."
            )

    def examples(self, problem: Problem) -> Array:
        """One example per gradient [m]."""
        return jnp.ones((problem.m,), jnp.int32)

    def init(self, round: Round) -> StateVR:
        """Start from the initial parameters x, and the table there if it is kept."""
        x = round.problem.begin()
        return StateVR(x, self.links(x, round), _table(x, round) if self.kept else None)

    def step(self, state: StateVR, round: Round) -> StateVR:
        """One round."""
        x, z, table = state
        problem, share = round.problem, round.problem.weight / jnp.sum(round.problem.weight, axis=1, keepdims=True)
        table = _table(x, round) if table is None else table
        away = self.towards(x, z, round)
        at = jnp.arange(x.shape[0])[:, None]

        def local(here: Round, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            y, table, mean = carry
            chosen = _drawn(self.batch, here)
            data, part = jax.vmap(problem.take)(problem.data, chosen), jnp.take_along_axis(share, chosen, axis=1)
            old, new = table[at, chosen], problem.each(problem.example_gradients, y, data)
            v = _sums(part / jnp.sum(part, axis=1, keepdims=True), new - old) + mean
            y = y - self.lr * (v + jax.vmap(jax.grad(problem.regulariser))(y)) - away
            new = problem.each(problem.example_gradients, y, data)
            here.book.grads += 2 * self.batch
            return y, table.at[at, chosen].set(new), mean + _sums(part, new - old)

        x, table, _ = round.repeat(self.local_steps, local, (x, table, _sums(share, table)))
        z = admm.exchanged(z, x, self.penalty, self.relaxation, round)
        return StateVR(x, z, table if self.kept else None)


def _table(x: Array, round: Round) -> Array:
    """The gradients of all examples [m, q, n] at x [m, n]."""
    round.book.grads = round.book.grads + round.problem.sizes
    return round.problem.each(round.problem.example_gradients, x, round.problem.data)


def _drawn(batch: int, round: Round) -> Array:
    """The places [m, b] of distinct examples of every node in a local step."""

    def one(key: Array, weight: Array) -> Array:
        return lax.top_k(jnp.where(weight > 0, jax.random.uniform(key, weight.shape, jnp.float32), -1.0), batch)[1]

    return jax.vmap(one)(round.keys(_BATCH, round.local_step), round.problem.weight)


def _sums(weight: Array, g: Array) -> Array:
    """The weighted sums [m, n] of gradients g [m, b, n]."""
    return jnp.einsum("mb,mbn->mn", weight, g, precision="highest")
