"""DisPFL: sparse personal models whose masks the nodes search for themselves, averaged where the masks overlap.

R. Dai, L. Shen, F. He, X. Tian, D. Tao: DisPFL: Towards Communication-Efficient Personalized Federated Learning via
Decentralized Sparse Training, 2022.

    x_i <- M_i (sum_j x_j) / (sum_j m_j)        (entry by entry, over node i and its in-neighbours; 0 where no m_j is 1)
    x_i <- x_i - lr M_i g_i(x_i)                (`local_steps` times)
    m_i <- M_i
    M_i <- M_i without the p_k of its entries at which |x_i| is smallest,
           and with the p_k entries outside of that at which |g_i(x_i)| is largest

p_k is the number of active entries times `anneal` (1 + cos(pi k / `horizon`)) / 2, rounded up, and 0 from round
`horizon` on. Every mask has `density` n active entries in all rounds, drawn at random before the first.

This is the order of the authors' code: m_i is the mask in which x_i was trained, and a pruned entry may grow again at
once. That code spreads the density over the layers of a network (ERK); here all parameters are one layer. A message has
the active values and the mask, in one bit per entry. Masks depend on records only through `gradients`, so noise on
these covers them too.

Missing neighbours: they are left out of both sums, and a node that receives nothing keeps its own entries.
"""

from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, Personal
from jdfl.algorithms.choosing import largest
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import MODEL, Round
from jdfl.base import struct
from jdfl.base.settings import Bound, Count, Fraction, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.network import adding
from jdfl.problems import Problem

_MASKS = Stream("dispfl.masks", "choice")


class State(NamedTuple):
    x: Array  # [m, n] parameters, 0 outside of `mask`
    mask: Array  # [m, n] active entries of x, bool
    next: Array  # [m, n] active entries in the next round, bool


@struct.dataclass
class DisPFL(Algorithm):
    """DisPFL: sparse personal models, each in a mask of its own that is pruned and regrown in every round."""

    kind: ClassVar[str] = "dispfl"
    provenance: ClassVar[Provenance] = ("authors' code read",)
    lr: StepSize = 0.1
    density: Annotated[float, Bound("(0, 1]")] = struct.field(pytree_node=False, default=0.5)
    """Fraction of active entries, in (0, 1]; at least one is active."""
    anneal: Fraction = 0.5
    """Fraction of the active entries that the first search exchanges."""
    horizon: Count = struct.field(pytree_node=False, default=100)
    """Rounds over which the number of exchanged entries decreases to 0."""
    local_steps: Count = struct.field(pytree_node=False, default=1)
    """Gradient steps after each exchange of messages."""
    gradients: Gradients = Gradients()
    title: ClassVar[str] = "DisPFL"
    needs: ClassVar[dict[str, bool]] = {"table": True}
    personal: ClassVar[Personal] = "models"

    def sparsity(self, problem: Problem) -> int:
        """The number of active entries."""
        return max(1, int(self.density * problem.n + 0.5))

    def message_bits(self, problem: Problem, codec: Any) -> dict[str, int]:
        """The active values, and the mask."""
        return {MODEL.name: self.sparsity(problem) * 8 * problem.dtype.itemsize + problem.n}

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        score = jax.vmap(lambda key: jax.random.uniform(key, x.shape[1:], jnp.float32))(round.keys(_MASKS))
        mask = largest(score, score >= 0, self.sparsity(round.problem))
        return State(jnp.where(mask, x, 0), mask, mask)

    def step(self, state: State, round: Round) -> State:
        mask, added = state.next, round.on(adding(round.graph))
        old = round.leaving(MODEL, state.mask).astype(state.x.dtype)  # in the same message as x
        total, active = state.x + added.mix(state.x), old + added.mix(old, None)
        x = jnp.where(mask, total / jnp.maximum(active, 1), 0)
        x = round.repeat(self.local_steps, lambda here, x: x - self.lr * jnp.where(mask, self.gradients(x, here), 0), x)
        g = self.gradients(x, round, look=1)
        passed = jnp.minimum(round.k, self.horizon).astype(jnp.float32) / self.horizon
        share = self.anneal / 2 * (1 + jnp.cos(jnp.pi * passed))
        p = jnp.ceil(share * self.sparsity(round.problem) - 1e-4).astype(jnp.int32)  # 0.1 * 30 is 3, not 4
        kept = mask & ~largest(-jnp.abs(x), mask, p)
        return State(x, mask, kept | largest(jnp.abs(g), ~kept, p))
