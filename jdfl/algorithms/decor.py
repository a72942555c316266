"""DECOR: decentralized SGD with noise that partly cancels between neighbours, drawn from shared secrets.

Y. Allouah, A. Koloskova, A. El Firdoussi, M. Jaggi, R. Guerraoui: The Privacy Power of Correlated Noise in
Decentralized Learning, 2024.

    x_i <- sum_j W_ij (x_j - lr (g_j(x_j) + own_j + sum_l s_jl)),   s_jl = - s_lj

own_j is the noise of `gradients` and s_jl the noise of a link. Both nodes of the link draw s_jl from a secret that only
they share, with a standard deviation of `pairs` times the largest sensitivity of any node. It cancels in the sum over
all nodes and hides single messages from observers who do not know the secrets.

All messages of one round together are a Gaussian mechanism with the covariance S = own + pairs^2 L, where L is the
Laplacian of the links whose secrets the observer does not know: node u has mu_u^2 = Delta_u^2 (S^-1)_uu. The secrets of
`colluding` nodes, which pool them, are excluded from S, for the worst choice of such nodes.

Missing neighbours: refused, because a lost message would leave noise that does not cancel.
"""

import math
from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, Objective
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Natural, Positive, Provenance, StepSize
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.network import Network, as_dense
from jdfl.network.graph import round_of
from jdfl.privacy import Gaussian, GaussianEvent, Guarantee
from jdfl.problems import Problem

_PAIRS = Stream("decor.pairs", "private")
_MOST = 2e11  # largest work of trying all coalitions


@struct.dataclass
class DECOR(Algorithm):
    """DECOR: adapt-then-combine D-PSGD with noise that cancels over links, in addition to each node's own.

    Its guarantee rests on trust: the two nodes of a link share a secret that no other node knows, and at most
    `colluding` nodes pool their secrets. Raises ValueError (from `check`) for noise other than Gaussian, and networks
    that are not fixed and undirected.
    """

    kind: ClassVar[str] = "decor"
    provenance: ClassVar[Provenance] = ("from memory",)
    lr: StepSize = 0.1
    gradients: Gradients = Gradients()
    pairs: Positive = 1.0
    """Standard deviation of a link's noise, in units of the largest sensitivity of any node."""
    colluding: Natural = struct.field(pytree_node=False, default=0)
    """Number of nodes that may pool their secrets and see all messages."""
    objective: Objective = struct.field(pytree_node=False, default="mean")
    """Accept networks that preserve the mean of the nodes only, or all ("pi"), with the weights that they give."""
    title: ClassVar[str] = "DECOR"
    needs: ClassVar[dict[str, bool]] = {"fixed": True, "undirected": True}

    def check(self, problem: Problem, network: Network) -> None:
        """Raise ValueError for noise that is not Gaussian, and for more coalitions than can be tried."""
        super().check(problem, network)
        noise = self.gradients.mechanism
        if noise is not None and not isinstance(noise, Gaussian):
            raise ValueError(
                f"Expected Gaussian noise for DECOR, whose sums over links are Gaussian, got mechanism = {noise!r}."
            )
        if math.comb(problem.m, self.colluding) * problem.m**3 > _MOST or self.colluding >= problem.m:
            raise ValueError(
                f"Expected fewer possible coalitions, got colluding = {self.colluding} of {problem.m} nodes. "
                "Each coalition is tried; give fewer colluding nodes or a smaller network."
            )

    def plan(self, problem: Problem, network: Network, steps: int) -> Array:
        """The noise multiplier [T] against an observer who knows only the secrets of `colluding` nodes."""
        mu = 0.0
        if self.gradients.mechanism is not None:
            own = np.asarray(self.gradients.sensitivities(problem), float)
            z = float(self.gradients.mechanism.event().noise_multiplier)
            links = np.asarray(as_dense(round_of(network, 0))) != 0
            np.fill_diagonal(links, False)
            noise = np.diag(z**2 * np.where(own > 0, own, 1.0) ** 2), (float(self.pairs) * own.max()) ** 2
            mu = max(_shift(own, *noise, links, list(some)) for some in combinations(range(problem.m), self.colluding))
        least = np.nextafter(np.float32(1 / mu), np.float32(0)) if mu > 0 else np.float32(math.inf)  # rounded down
        return jnp.full((steps,), least, jnp.float32)

    def step(self, x: Array, round: Round) -> Array:
        g = self.gradients(x, round)
        if self.gradients.mechanism is not None:
            scale = self.pairs * nodes.largest(self.gradients.sensitivities(round.problem))
            g = g + scale.astype(g.dtype) * round.pairwise(_PAIRS, g)
        return round.mix(x - self.lr * g)

    def privacy(self, problem: Problem, plan: Any = None, steps: int | None = None) -> Guarantee:
        """What noise and secrets guarantee together under the plan [T]; see the class for the trust assumed."""
        claim = super().privacy(problem, plan, steps)
        if not claim.claimed or plan is None or not isinstance(claim.event, GaussianEvent):
            return claim
        trust = "all messages, without the secrets of links"
        if self.colluding:
            trust = f"all messages, with the secrets of {self.colluding} nodes and without the others'"
        return replace(claim, observer=trust, event=GaussianEvent(float(np.min(np.asarray(plan)))))


def _shift(own: np.ndarray, noise: np.ndarray, pairs: float, links: np.ndarray, known: list[int]) -> float:
    """The largest mu of the nodes [m] not in `known`, with noise covariance [m, m] and pair noise on links [m, m]."""
    left = np.delete(np.delete(links, known, 0), known, 1).astype(float)
    S = np.delete(np.delete(noise, known, 0), known, 1) + pairs * (np.diag(left.sum(axis=1)) - left)
    return float(np.max(np.delete(own, known) * np.sqrt(np.diag(np.linalg.inv(S)))))
