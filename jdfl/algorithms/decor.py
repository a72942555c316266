"""DECOR: decentralized SGD whose noise partly cancels between neighbours, who share secrets.

Y. Allouah, A. Koloskova, A. El Firdoussi, M. Jaggi, R. Guerraoui: The Privacy Power of Correlated Noise in
Decentralized Learning, 2024.

    x_i <- sum_j W_ij (x_j - lr (g_j(x_j) + own_j + sum_l s_jl)),   s_jl = - s_lj

own_j is the noise of `gradients`, s_jl that of a link, `pairs` times the largest sensitivity of any node in standard
deviation, which both its nodes draw from a secret of theirs. It vanishes from the sum over all nodes and hides single
messages from whoever does not know the secrets.

Of one round all messages together are a Gaussian mechanism with the covariance S = own + pairs^2 L, where L is the
Laplacian of the links whose secrets are unknown: node u has mu_u^2 = Delta_u^2 (S^-1)_uu. What `colluding` nodes know,
which put their secrets together, is left out of S, for those nodes of which that is worst.

Missing neighbours: they would leave noise behind that does not cancel, so that such networks are refused.

Axes: m nodes, n parameters.
"""

import math
from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round
from jdfl.base import struct
from jdfl.base.settings import Natural, Positive, StepLength
from jdfl.base.streams import Stream
from jdfl.devices import nodes
from jdfl.network import Network, as_dense
from jdfl.network.graph import round_of
from jdfl.privacy import Gaussian, GaussianEvent, Guarantee
from jdfl.problems import Problem

_PAIRS = Stream("decor.pairs", "private")
_MOST = 2e11  # work of trying all coalitions


@struct.dataclass
class DECOR(Algorithm):
    """D-PSGD that adapts first, with noise that cancels over links beside that of every node.

    Its guarantee rests on trust: that the nodes of a link have a secret in common which only they know, and that no
    more than `colluding` nodes put their secrets together. Raises ValueError (from `check`) for settings out of range,
    noise other than Gaussian, and networks that are not fixed and undirected.
    """

    kind: ClassVar[str] = "decor"
    lr: StepLength = 0.1
    gradients: Gradients = Gradients()
    pairs: Positive = 1.0
    """Noise of a link by the largest sensitivity of any node."""
    colluding: Natural = struct.field(pytree_node=False, default=0)
    """Nodes that may put their secrets together, and see all messages."""
    title: ClassVar[str] = "DECOR"
    needs: ClassVar[dict[str, bool]] = {"fixed": True, "undirected": True}

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse noise that is not Gaussian, and more coalitions than can be tried."""
        super().check(problem, network)
        noise = self.gradients.mechanism
        if noise is not None and not isinstance(noise, Gaussian):
            raise ValueError(
                f"Expected Gaussian noise for DECOR, whose sums over links are Gaussian, got mechanism = {noise!r}."
            )
        if math.comb(problem.m, self.colluding) * problem.m**3 > _MOST or self.colluding >= problem.m:
            raise ValueError(
                f"Expected fewer coalitions that might collude, got colluding = {self.colluding} of {problem.m} nodes. "
                "Each of them is tried; give fewer colluding nodes, or a smaller network."
            )

    def plan(self, problem: Problem, network: Network, steps: int) -> Array:
        """The noise multiplier [T] that counts against whoever knows the secrets of `colluding` nodes alone."""
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

    def init(self, round: Round) -> Array:
        """Start from x [m, n] where the problem says."""
        return round.problem.begin()

    def step(self, x: Array, round: Round) -> Array:
        """One round from x [m, n]."""
        g = self.gradients(x, round)
        if self.gradients.mechanism is not None:
            scale = self.pairs * nodes.largest(self.gradients.sensitivities(round.problem))
            g = g + scale.astype(g.dtype) * round.pairwise(_PAIRS, g)
        return round.mix(x - self.lr * g)

    def privacy(self, problem: Problem, plan: Any = None, steps: int | None = None) -> Guarantee:
        """What noise and secrets guarantee together, given the plan [T]; see the trust that it rests on."""
        told = super().privacy(problem, plan, steps)
        if not told.claimed or plan is None or not isinstance(told.event, GaussianEvent):
            return told
        trust = "all messages, without the secrets of links"
        if self.colluding:
            trust = f"all messages, with the secrets of {self.colluding} nodes and without the others'"
        return replace(told, observer=trust, event=GaussianEvent(float(np.min(np.asarray(plan)))))


def _shift(own: np.ndarray, noise: np.ndarray, pairs: float, links: np.ndarray, known: list[int]) -> float:
    """The largest mu of any node [m] that is not `known`, with own noise [m, m] and noise of pairs on links [m, m]."""
    left = np.delete(np.delete(links, known, 0), known, 1).astype(float)
    S = np.delete(np.delete(noise, known, 0), known, 1) + pairs * (np.diag(left.sum(axis=1)) - left)
    return float(np.max(np.delete(own, known) * np.sqrt(np.diag(np.linalg.inv(S)))))
