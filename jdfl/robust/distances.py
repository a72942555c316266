"""Rules by distance from the node's own row: clipping, nearest-neighbour averaging, UBAR and BALANCE.

L. He, S. P. Karimireddy, M. Jaggi: Byzantine-Robust Decentralized Learning via ClippedGossip, 2022; R. Gaucher,
A. Dieuleveut, H. Hendrikx: Unified Breakdown Analysis for Byzantine Robust Gossip, 2025 (CS+-RG); S. Farhadkhani,
R. Guerraoui, N. Gupta, L. N. Hoang, R. Pinot, J. Stephan: Robust Collaborative Learning with Linear Gradient Overhead,
2023 (NNA); S. Guo, T. Zhang, X. Xie, L. Ma, T. Xiang, Y. Liu: Towards Byzantine-Resilient Learning in Decentralized
Systems, 2020 (UBAR, also called MOZI); M. Fang, Z. Zhang, Hairi, P. Khanduri, J. Liu, S. Lu, Y. Liu, N. Gong:
Byzantine-Robust Decentralized Federated Learning, 2024 (BALANCE).

    x_i <- x_i + sum_j W_ij (x_j - x_i) min(1, tau_i / ||x_j - x_i||)                   (clipping)
    x_i <- mean of x_i and of the rows nearest to it, all but b                         (NNA)
    x_i <- alpha x_i + (1 - alpha) mean of the accepted x_j                             (UBAR, BALANCE)

The weight of b attackers is at most that of the b heaviest neighbours, delta_i. With weights that are all equal the
rules count neighbours, as their papers do for graphs without weights. A node of UBAR or BALANCE that accepts no row
keeps its own.

Axes: m nodes, d slots, n parameters.
"""

from typing import ClassVar, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, NotNegative, Positive, Provenance
from jdfl.devices import nodes
from jdfl.robust.rule import Losses, Received, Rule, nearer, rank

_ROUNDING = 1e-5  # of sums of weights


@struct.dataclass
class ClippedGossip(Rule):
    """ClippedGossip: what a neighbour differs by is clipped to a length tau_i.

    Without a given length it is adaptive: tau_i^2 = sum_{j in S} W_ij ||x_j - x_i||^2 / delta_i, where S are the
    nearest nodes, itself included, whose weights together are at most 1 - delta_i. The paper's condition could not be
    looked up; it may be the other `reach`, and with equal weights both are the same. The authors' code has neither: it
    clips to the second largest distance. That of CS+-RG's authors has S with weights below 1 - delta_i.
    """

    kind: ClassVar[str] = "clipped-gossip"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read", "other code read")
    title: ClassVar[str] = "ClippedGossip"
    tau: Positive | None = None
    """Largest length of a difference; None: adaptive."""
    reach: Literal["at-most", "at-least"] = struct.field(pytree_node=False, default="at-most")
    """Weight of S: at most 1 - delta_i, or as few as reach 1 - delta, delta being the largest of all delta_i."""

    def combined(self, received: Received, losses: Losses | None) -> Array:
        far = received.distances()
        if self.tau is not None:
            return _clipped(received, far, jnp.full(far.shape[:1], self.tau, far.dtype))
        weight, delta = received.weight, received.heaviest(self.b)
        light, most = nearer(far, weight), jnp.sum(weight, axis=1, keepdims=True)
        if self.reach == "at-most":
            light = light <= most - delta[:, None] + _ROUNDING
        else:
            delta = jnp.full_like(delta, nodes.largest(delta))
            light = light - weight < most - delta[:, None] - _ROUNDING
        squares = jnp.sum(jnp.where(light & received.here, weight * far**2, 0), axis=1)
        tau = jnp.sqrt(squares / jnp.where(delta > 0, delta, 1))
        return _clipped(received, far, jnp.where(delta > 0, tau, jnp.inf))

    def combines(self, weight: np.ndarray) -> bool:
        """Return whether the lightest in-neighbour can be left without the b heaviest; any with a given length."""
        given = self.tau is not None or self.b == 0
        return len(weight) > 0 and (given or _lightest_stays(weight, self.b, 1))


@struct.dataclass
class CSPlus(Rule):
    """CS+-RG: differences are clipped to the largest that is left when those with weight 2 delta_i are set aside.

    tau_i is the largest distance up to which the weights add up to at most those of all neighbours less 2 delta_i, and
    0 where there is none.
    """

    kind: ClassVar[str] = "cs-plus"
    provenance: ClassVar[Provenance] = ("from memory", "authors' code read")
    title: ClassVar[str] = "CS+-RG"

    def combined(self, received: Received, losses: Losses | None) -> Array:
        far, weight = received.distances(), received.weight
        most = jnp.sum(weight, axis=1) - 2 * received.heaviest(self.b)
        light = received.here & (nearer(far, weight) <= most[:, None] + _ROUNDING)
        return _clipped(received, far, jnp.max(jnp.where(light, far, 0), axis=1, initial=0))

    def combines(self, weight: np.ndarray) -> bool:
        """Return whether the lightest in-neighbour can be left without twice the b heaviest."""
        return len(weight) > 0 and _lightest_stays(weight, self.b, 2)


@struct.dataclass
class NNA(Rule):
    """NNA: the mean of the node's row and of the in-neighbours' nearest to it, all but b.

    A node with at most b in-neighbours keeps its row.
    """

    kind: ClassVar[str] = "nna"
    provenance: ClassVar[Provenance] = ("from memory", "other code read")
    title: ClassVar[str] = "NNA"

    def combined(self, received: Received, losses: Losses | None) -> Array:
        kept = jnp.maximum(0, received.count - self.b)
        near = rank(received.distances(), received.here) < kept[:, None]
        return received.moved(jnp.where(near, 1 / (1 + kept)[:, None].astype(received.own.dtype), 0))

    def combines(self, weight: np.ndarray) -> bool:
        return len(weight) > self.b


def _lightest_stays(weight: np.ndarray, b: int, times: int) -> bool:
    """Whether the smallest of the weights [d] fits into all of them less `times` the b largest."""
    return float(np.min(weight)) <= float(np.sum(weight) - times * np.sum(np.sort(weight)[::-1][:b])) + _ROUNDING


def _clipped(received: Received, far: Array, tau: Array) -> Array:
    """x_i + sum_j W_ij clip(x_j - x_i, tau_i) [m, n] for distances far [m, d] and lengths tau [m]."""
    factor = jnp.where(far > tau[:, None], tau[:, None] / jnp.where(far > 0, far, 1), 1)
    return received.moved(received.weight * factor)


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
        size = jnp.sqrt(jnp.sum(received.own**2, axis=1))
        most = self.gamma * jnp.exp(-self.kappa * jnp.asarray(received.k, size.dtype) / self.horizon) * size
        return _trusting(received, received.here & (received.distances() <= most[:, None]), self.alpha)

    def combines(self, weight: np.ndarray) -> bool:
        return len(weight) > 0 and float(self.alpha) < 1

    def most(self, degree: int) -> int:
        """Return `degree`: the paper bounds distances, not numbers."""
        return degree


def _trusting(received: Received, accepted: Array, alpha: Array | float) -> Array:
    """Alpha x_i + (1 - alpha) times the mean of the accepted [m, d] rows; x_i where there are none."""
    count = jnp.maximum(jnp.sum(accepted, axis=1, keepdims=True), 1).astype(received.own.dtype)
    return received.moved(jnp.where(accepted, (1 - alpha) / count, 0))
