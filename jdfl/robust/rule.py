"""Rules: how a node combines its own row with those of its in-neighbours, which need not be honest.

Axes: m nodes, n parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import struct
from jdfl.base.settings import Natural, Provenance
from jdfl.network import Graph, mix
from jdfl.robust.received import Aimed, Received

Losses = Callable[[Array], Array]  # the nodes' losses [m], each of its own data at its row of [m, n]


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
        """That of methods that multiply by W."""
        return ""

    def most(self, degree: int) -> int:
        """Return 0: one attacker moves the result as far as it likes."""
        return 0
