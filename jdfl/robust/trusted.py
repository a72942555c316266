"""Rules that trust what is like the node's own model: UBAR by distance and loss, BALANCE by relative distance.

S. Guo, T. Zhang, X. Xie, L. Ma, T. Xiang, Y. Liu: Towards Byzantine-Resilient Learning in Decentralized Systems, 2020
(UBAR, also called MOZI); M. Fang, Z. Zhang, Hairi, P. Khanduri, J. Liu, S. Lu, Y. Liu, N. Gong: Byzantine-Robust
Decentralized Federated Learning, 2024 (BALANCE).

    x_i <- alpha x_i + (1 - alpha) mean of the accepted x_j

A node that accepts no row keeps its own.

Axes: m nodes, d slots, n parameters.
"""

from typing import ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, NotNegative, Positive, Provenance
from jdfl.robust.received import Received, rank
from jdfl.robust.rule import Losses, Rule


@struct.dataclass
class UBAR(Rule):
    """UBAR: of the nearest in-neighbours those whose models have no larger loss on the node's data than its own.

    If all of them have a larger loss, one is accepted all the same (`fallback`); what the paper has there could not be
    looked up. `b` has no effect. Every received model is evaluated on all examples of the node, and what it then sends
    depends on them without noise.
    """

    kind: ClassVar[str] = "ubar"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    title: ClassVar[str] = "UBAR"
    assumes: ClassVar[bool] = False
    scores: ClassVar[bool] = True
    rho: Fraction = 0.5
    """Share of the in-neighbours that pass the first stage, the nearest; at least one passes."""
    alpha: Fraction = 0.5
    """Weight of the node's own model."""
    fallback: Literal["smallest-loss", "nearest"] = struct.field(pytree_node=False, default="smallest-loss")
    """The accepted one where all have a larger loss: as in the package murmura, or as in the code of ClippedGossip."""

    def combined(self, received: Received, losses: Losses | None) -> Array:
        """The combined rows [m, n]."""
        if losses is None:
            raise ValueError("Expected the nodes' losses for UBAR, got losses = None. Pass losses=problem.values.")
        here, count = received.here, received.count
        share = jnp.floor(self.rho * count.astype(received.own.dtype) + 1e-4).astype(jnp.int32)
        near = rank(received.distances(), here) < jnp.maximum(1, share)[:, None]
        found = received.slots(losses)
        found = jnp.where(near & jnp.isfinite(found), found, jnp.inf)
        good = near & (found <= losses(received.own)[:, None])
        best = near & (rank(found if self.fallback == "smallest-loss" else received.distances(), near) == 0)
        return _trusting(received, jnp.where(jnp.any(good, axis=1, keepdims=True), good, best), self.alpha)

    def combines(self, weight: np.ndarray) -> bool:
        """Return whether there are in-neighbours, with a weight above zero."""
        return len(weight) > 0 and float(self.alpha) < 1

    def most(self, degree: int) -> int:
        """Return all that leave the assumed share of honest in-neighbours."""
        return degree - max(1, int(float(self.rho) * degree + 1e-4))


@struct.dataclass
class BALANCE(Rule):
    """BALANCE: in-neighbours are accepted if ||x_j - x_i|| <= gamma exp(-kappa k / horizon) ||x_i||.

    k is the number of the round. `b` has no effect.
    """

    kind: ClassVar[str] = "balance"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    title: ClassVar[str] = "BALANCE"
    assumes: ClassVar[bool] = False
    gamma: Positive = 0.3
    """Largest accepted distance in the first round, relative to the length of the node's own model."""
    kappa: NotNegative = 1.0
    """How fast it shrinks."""
    horizon: Count = struct.field(pytree_node=False, default=1000)
    """Rounds after which it has shrunk by exp(-kappa); the number of rounds of the run in the paper."""
    alpha: Fraction = 0.5
    """Weight of the node's own model."""

    def combined(self, received: Received, losses: Losses | None) -> Array:
        """The combined rows [m, n]."""
        size = jnp.sqrt(jnp.sum(received.own**2, axis=1))
        most = self.gamma * jnp.exp(-self.kappa * jnp.asarray(received.k, size.dtype) / self.horizon) * size
        return _trusting(received, received.here & (received.distances() <= most[:, None]), self.alpha)

    def combines(self, weight: np.ndarray) -> bool:
        """Return whether there are in-neighbours, with a weight above zero."""
        return len(weight) > 0 and float(self.alpha) < 1

    def most(self, degree: int) -> int:
        """Return `degree`: the paper bounds distances, not numbers."""
        return degree


def _trusting(received: Received, accepted: Array, alpha: Array | float) -> Array:
    """Alpha x_i + (1 - alpha) times the mean of the accepted [m, d] rows; x_i where there are none."""
    count = jnp.maximum(jnp.sum(accepted, axis=1, keepdims=True), 1).astype(received.own.dtype)
    return received.moved(jnp.where(accepted, (1 - alpha) / count, 0))
