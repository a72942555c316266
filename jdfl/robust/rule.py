"""Rules: how a node combines its own row with those of its in-neighbours, which need not be honest.

Rows that are not finite are left out. Nothing here forms an array [m, d, n] of all nodes: what needs the rows
themselves is computed for a few nodes at a time, and what needs numbers about rows one slot after another.

Axes: m nodes, d slots of the table of in-neighbours, n parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.settings import Natural, Provenance
from jdfl.devices.memory import in_blocks
from jdfl.network import Graph, mix
from jdfl.network.sums import gather_sum

Losses = Callable[[Array], Array]  # the nodes' losses [m], each of its own data at its row of [m, n]
_WIDE = 64  # slots from which ranks are found by sorting


@struct.dataclass
class Aimed:
    """Rows that attackers send to single nodes: all attackers send the same row to the same node."""

    liars: Array  # [m] bool the attackers
    rows: Array  # [m, n] row i: what node i receives from each of them


@struct.dataclass
class Received:
    """The rows of a round as rules read them.

    A row that is not finite is left out, as if its sender had sent nothing.
    """

    graph: Graph
    own: Array  # [m, n] the nodes' own rows
    senders: Array  # [m, d] int32 the places of the rows; slots without a finite row have a place that is one
    rows: Array  # [M, n] the rows that `senders` indexes
    here: Array  # [m, d] bool the slots with a finite row
    k: Array | int = 0  # [] the round, from 0
    aim: Array | None = None  # [m, d] bool the slots whose row is that of `aimed`; None: no slot
    aimed: Array | None = None  # [m, n]

    @staticmethod
    def of(
        graph: Graph, own: Array, sent: Array | None = None, *, aimed: Aimed | None = None, k: Any = 0
    ) -> "Received":
        """What the nodes of a graph have received."""
        if graph.synchronised is not None:
            raise ValueError(
                "Expected a network without synchronised rounds for robust rules, which read the table of neighbours. "
                "Use the network inside it."
            )
        rows = graph.gathered(own if sent is None else sent)
        fine = _finite(rows)
        senders, here = graph.senders, graph.mask & fine[graph.senders]
        senders = jnp.where(here, senders, jnp.argmax(fine).astype(senders.dtype))
        if aimed is None:
            return Received(graph, own, senders, rows, here, k)
        aim = graph.mask & graph.gathered(aimed.liars)[graph.senders]
        sound = _finite(aimed.rows)
        thrown = jnp.where(sound[:, None], aimed.rows, 0)
        return Received(graph, own, senders, rows, jnp.where(aim, sound[:, None], here), k, aim, thrown)

    @property
    def count(self) -> Array:
        """How many finite rows a node has received [m] int32."""
        return jnp.sum(self.here, axis=1, dtype=jnp.int32)

    @property
    def weight(self) -> Array:
        """The mixing weights of these rows [m, d], 0 elsewhere."""
        return jnp.where(self.here, self.graph.weight, 0).astype(self.own.dtype)

    def heaviest(self, b: Array | int) -> Array:
        """The sum [m] of the b largest weights in every row: the most weight that b attackers may have."""
        return jnp.sum(jnp.where(rank(-self.weight, self.here) < b, self.weight, 0), axis=1)

    def slots(self, function: Callable[[Array], Array]) -> Array:
        """The numbers [m, d] that `function` gives [m] for the rows [m, n] of one slot after another."""
        aim = jnp.zeros_like(self.here) if self.aim is None else self.aim

        def one(slot: tuple[Array, Array]) -> Array:
            z = self.rows.at[slot[0]].get(mode="promise_in_bounds")
            return function(z if self.aimed is None else jnp.where(slot[1][:, None], self.aimed, z))

        return lax.map(one, (self.senders.T, aim.T)).T

    def distances(self) -> Array:
        """The distances ||x_j - x_i|| [m, d] of the rows from the node's own; infinite in slots without a row."""

        def some(own: Array, senders: Array, aim: Array, thrown: Array) -> Array:
            z = self._gathered(senders, aim, thrown)
            return jnp.sqrt(squares(z - own[:, None]))

        d, n = self.here.shape[1], self.own.shape[1]
        far = in_blocks(some, self.own, self.senders, *self._thrown(), numbers=(d + 1) * n // 2)
        return jnp.where(self.here, far, jnp.inf)

    def moved(self, share: Array) -> Array:
        """x_i + sum_j share_ij (x_j - x_i) [m, n] for shares [m, d]; those of slots without a row do not count."""
        share = lax.optimization_barrier(jnp.where(self.here, share, 0).astype(self.own.dtype))
        own = (1 - jnp.sum(share, axis=1))[:, None] * self.own
        if self.aim is None or self.aimed is None:
            return own + gather_sum(self.senders, share, self.rows)
        thrown = jnp.sum(jnp.where(self.aim, share, 0), axis=1)[:, None] * self.aimed
        return own + thrown + gather_sum(self.senders, jnp.where(self.aim, 0, share), self.rows)

    def each(self, function: Callable[[Array, Array, Array], Array]) -> Array:
        """The rows [m, n] of `function(own [n], others [d, n], here [d]) -> [n]`, of a few nodes at a time."""
        d, n = self.here.shape[1], self.own.shape[1]

        def some(own: Array, senders: Array, here: Array, aim: Array, thrown: Array) -> Array:
            others = lax.optimization_barrier(self._gathered(senders, aim, thrown))
            return jax.vmap(function)(own, others, here)

        given = self.own, self.senders, self.here, *self._thrown()
        return in_blocks(some, *given, numbers=(d + 1) * n // 2)

    def _thrown(self) -> tuple[Array, Array]:
        """Rows to be sliced with those of the nodes: the slots of attackers [m, d], and what they send [m, n]."""
        aim = jnp.zeros_like(self.here) if self.aim is None else self.aim
        return aim, self.own if self.aimed is None else self.aimed

    def _gathered(self, senders: Array, aim: Array, thrown: Array) -> Array:
        """The rows [b, d, n] that b nodes receive, of `senders` [b, d]; those in `aim` [b, d] are `thrown` [b, n]."""
        others = self.rows.at[senders].get(mode="promise_in_bounds")
        return others if self.aimed is None else jnp.where(aim[:, :, None], thrown[:, None], others)


def once(function: Callable[..., Array], *operands: Any) -> Array:
    """`function(*operands)`, computed once and not again for every use of it.

    On a CPU, XLA computes what many results need again for each of them. A conditional that is always true, which XLA
    cannot see, prevents it there.
    """
    made = jax.eval_shape(function, *operands)
    always = lax.optimization_barrier(jnp.bool_(True))
    return lax.cond(always, function, lambda *_: jnp.zeros(made.shape, made.dtype), *operands)


def squares(x: Array) -> Array:
    """The sums of squares [...] of rows x [..., n], as a product: a CPU adds up rows one number after another."""
    return jnp.dot(x * x, jnp.ones((x.shape[-1],), x.dtype), precision=ops.HIGHEST)


def nearer(far: Array, value: Array) -> Array:
    """For every slot the sum [m, d] of `value` [m, d] over it and the slots with a smaller `far` [m, d].

    Of equal ones the earlier slot counts as smaller.
    """
    d = far.shape[1]
    if d > _WIDE:
        order = jnp.argsort(far, axis=1)
        total = jnp.cumsum(jnp.take_along_axis(value, order, axis=1), axis=1)
        return jnp.take_along_axis(total, jnp.argsort(order, axis=1), axis=1)
    slot = jnp.arange(d)

    def add(k: Array, total: Array) -> Array:
        one = far[:, k, None]
        before = (one < far) | ((one == far) & (k <= slot)[None])
        return total + jnp.where(before, value[:, k, None], 0)

    return lax.fori_loop(0, d, add, jnp.zeros_like(value))


def rank(far: Array, here: Array) -> Array:
    """The ranks [m, d] int32 of slots by `far` [m, d] among those that are `here` [m, d], from 0; d elsewhere."""
    found = nearer(jnp.where(here, far, jnp.inf), here.astype(jnp.int32)) - 1
    return jnp.where(here, found, far.shape[1])


def _finite(x: Array) -> Array:
    """Which rows of x [m, n] are finite [m]."""
    return jnp.isfinite(jnp.dot(x * 0, jnp.ones((x.shape[1],), x.dtype)))


@struct.dataclass
class Rule:
    """A robust rule. A subclass has its settings and `combined`; your own may be any such class.

    Class variables: `kind` is its name on the command line, `title` its name in messages, and `scores` says whether it
    evaluates the nodes' losses, which privacy statements count as unprotected use of data. `assumes` says whether its
    result depends on the number b. `provenance` says what it was written from.
    """

    kind: ClassVar[str] = ""
    provenance: ClassVar[Provenance] = ()
    title: ClassVar[str] = ""
    scores: ClassVar[bool] = False
    assumes: ClassVar[bool] = True
    b: Natural = struct.field(pytree_node=False, default=1)
    """Attackers that a node assumes among its in-neighbours."""

    def __call__(
        self,
        graph: Graph,
        x: Array,
        sent: Array | None = None,
        *,
        aimed: Aimed | None = None,
        k: Array | int = 0,
        losses: Losses | None = None,
    ) -> Array:
        """The combined rows [m, n]."""
        return self.combined(Received.of(graph, x, sent, aimed=aimed, k=k), losses)

    def combined(self, received: Received, losses: Losses | None) -> Array:
        """Return the combined rows [m, n] of what every node has `received`."""
        raise NotImplementedError

    def combines(self, weight: np.ndarray) -> bool:
        """Return whether a node can combine any row of its in-neighbours, whose mixing weights are weight [d]."""
        return len(weight) > 0

    @property
    def minimises(self) -> str:
        """What methods minimise that combine rows by this rule, in words; "" where the rule is W."""
        return f"what the {self.title} leaves of the nodes' objectives f_i, which need not be their mean"

    def most(self, degree: int) -> int:
        """Return the most attackers among `degree` in-neighbours for which the rule's paper bounds its error."""
        return max(0, (degree - 1) // 2)


@struct.dataclass
class Weighted(Rule):
    """W x, which is not robust: the rule of methods without one, for comparison."""

    kind: ClassVar[str] = "weighted"
    provenance: ClassVar[Provenance] = ("no paper",)
    title: ClassVar[str] = "weighted mean"
    assumes: ClassVar[bool] = False
    b: Natural = struct.field(pytree_node=False, default=0)
    """Attackers that a node assumes among its in-neighbours; no number has an effect here."""

    def __call__(
        self,
        graph: Graph,
        x: Array,
        sent: Array | None = None,
        *,
        aimed: Aimed | None = None,
        k: Any = 0,
        losses: Losses | None = None,
    ) -> Array:
        """The combined rows [m, n]; a row that is not finite counts."""
        if aimed is None:
            mixed = mix(graph, x if sent is None else sent)
        else:
            liar = graph.mask & graph.gathered(aimed.liars)[graph.senders]
            honest = replace(graph, weight=jnp.where(liar, 0, graph.weight))
            thrown = jnp.sum(jnp.where(liar, graph.weight, 0), axis=1).astype(x.dtype)
            mixed = mix(honest, x if sent is None else sent) + thrown[:, None] * aimed.rows
        return mixed if sent is None else mixed + graph.self_weight.astype(x.dtype)[:, None] * (x - sent)

    @property
    def minimises(self) -> str:
        return ""

    def most(self, degree: int) -> int:
        """Return 0: one attacker moves the result as far as it likes."""
        return 0
