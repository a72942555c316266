"""DO-ADP: decentralized momentum SGD whose nodes wake at random and send the largest changes of noisy parameters.

W. Huo, C. Liu, K. Ding, K. H. Johansson, L. Shi: Decentralized Optimization with Amplified Privacy via Efficient
Communication (Algorithm 1; Eq. 5). Every node is active in a round with probability p.

    active:    m_i <- g_i(x_i) + theta_i + beta m_i                        (5a), theta_i ~ N(0, sigma^2) per entry
               x_i <- x_i - lr m_i + gamma sum_j W_ij (xhat_j - xhat_i)    (5b)
               s_i  = C(x_i - xhat_i), sent to all neighbours              (5c)
               xhat_i <- xhat_i + s_i, at i and at all its neighbours      (5d)
    inactive:  m_i <- beta m_i,   x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i),   nothing is sent

lr is the paper's alpha, C is `codec`: Top_k in the paper, with k / d its `share`. W is symmetric and doubly stochastic;
the paper's I - L / iota, iota > d_max, is `weights="laplacian"` (iota = d_max + 1), or jdfl.network.laplacian. g_i is a
gradient of one example, clipped; the regulariser is added after clipping.

Where the paper can be read in two ways:

- Algorithm 1 starts from xhat_0 = 0 at any x_0; the proof of Lemma 3 wants x_0 = xhat_0. `start` is "x" for
  xhat_0 = x_0, which all nodes know, or "zero". They are the same where x_0 is zero.
- Assumption 2 bounds every entry of an example's gradient by G / sqrt(d), the text says "gradient clipping", which
  bounds its length by G. `Gradients(clip=G)` is the latter, `Gradients(norm="entries", clip=G / sqrt(d))` the former.
- p is in [1/2, 1] in the paper. Only a bound in its proof needs the 1/2 (Lemma 9); below it there is a warning.

Without momentum and noise, with p = 1, it is CHOCO-SGD in the order of 2020. The average of the nodes moves by lr / m
times the sum of the active nodes' momenta, and by nothing else, whatever the codec loses.

Privacy: what is sent is computed from noisy clipped gradients, so that they are all that has to be accounted for, with
their whole sensitivity. The paper asks for less noise by sqrt(k / d), since a message has k of d entries only; but
which these are is chosen from the data, and what is left out is sent later. It asks for less by another factor p for
nodes that are not active; but everybody sees who sends. `jdfl.algorithms.theorem1` has its formula and what it claims;
`python -m experiments.theorem1_counterexample` shows an attack that the claim excludes.

Missing neighbours: refused, since every message builds on all those before it; nodes that are not active send nothing,
and all know.

Axes: m nodes, n parameters (the paper's d).
"""

import warnings
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.activation import ACTIVE, active
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.choco import warn_of_gamma
from jdfl.algorithms.codes import Codes
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.round import Round
from jdfl.algorithms.step_lengths import FIXED_SYMMETRIC
from jdfl.algorithms.theorem1 import SOURCE, UNSOUND, Theorem1
from jdfl.base import struct
from jdfl.base.settings import Count, Fraction, Momentum, StepLength
from jdfl.codecs import Codec, Dense, Sparse
from jdfl.network.graph import Network
from jdfl.privacy import GaussianEvent, Guarantee, Published, stretch
from jdfl.problems import Problem


class State(NamedTuple):
    """What the next round needs."""

    x: Array  # [m, n] parameters
    hat: Array  # [m, n] public copies of them, the same at the node and at all its neighbours
    momentum: Array  # [m, n]


@struct.dataclass
class DOADP(Algorithm):
    """Nodes wake at random, and send the largest changes of momentum SGD with noisy gradients.

    DO-ADP with any gradients and any codec that contracts.

    With `block` only the gradients of active nodes are computed, so many at a time, which saves work where p is small
    and gradients look at many examples.

    Raises ValueError (from `check`) for settings out of range, a codec without a contraction, and a network that is not
    fixed and undirected with symmetric doubly stochastic weights. Warns where p is below 1/2, and of a gamma that is
    large for what nodes send.
    """

    kind: ClassVar[str] = "do-adp"
    lr: StepLength = 0.001
    gamma: Fraction = 0.05
    """Step towards the neighbours' public copies, in (0, 1]."""
    beta: Momentum = 0.15
    """Momentum, in [0, 1)."""
    p: Fraction = 0.8
    """Chance of a node to be active in a round, in (0, 1]."""
    gradients: Gradients = Gradients(batch=1)
    codec: Codec = Sparse(share=0.3)
    start: Literal["x", "zero"] = struct.field(pytree_node=False, default="x")
    """Where the public copies start: at the parameters, or at zero."""
    block: Count | None = struct.field(pytree_node=False, default=None)
    """Active nodes at a time, no others being computed; none: all nodes at once."""
    delta0: Fraction = 1e-6
    """Of the paper's Theorem 1: decides its noise and what it claims, with --privacy.accounting paper."""
    title: ClassVar[str] = "DO-ADP"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"

    @property
    def uneven(self) -> bool:
        """Whether rounds differ in how much there is to compute."""
        return self.block is not None

    def check(self, problem: Problem, network: Network) -> None:
        """Refuse settings, codecs and networks that the method cannot have, naming them."""
        super().check(problem, network)
        delta = self.codec.contraction(problem.n, problem.n)
        assert delta is not None  # a codec that contracts
        warn_of_gamma("DO-ADP", self.codec, float(self.gamma), float(self.p) * delta)
        if float(self.p) < 0.5:
            warnings.warn(
                f"p = {float(self.p):g} is below 1/2, where the paper's proof of convergence does not hold; the method "
                "works all the same.",
                stacklevel=2,
            )

    def prepare(self, problem: Problem, moment: Moment, plan: Any) -> Array:
        """The key [] that decides who is active."""
        return moment.stream(ACTIVE)

    def init(self, round: Round) -> State:
        """Start from x where the problem says, and from public copies of it or of zero."""
        x = round.problem.begin()
        return State(x, x if self.start == "x" else jnp.zeros_like(x), jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        """One round."""
        x, hat, momentum = state
        on = active(self.p, round.ready, round)
        wakes = on[:, None]
        g = round.each_of(on, self.block, lambda here: self.gradients(here.of(x), here), jnp.zeros_like(x))
        momentum = jnp.where(wakes, g, 0.0) + self.beta * momentum  # (5a)
        moved = jnp.where(wakes, x - self.lr * momentum, x)
        x = moved + self.gamma * (round.mix(hat, None) - hat)  # (5b)
        return State(x, round.publish(x, hat, by=on), momentum)  # (5c), (5d)

    def visible(self, state: State) -> Array:
        """The public copies [m, n]: all that was ever sent."""
        return state.hat

    def told(self, guarantee: Guarantee, problem: Problem, steps: int | None) -> Guarantee:
        """That of the gradients, of the rounds in which a node is active; beside it what the paper would claim."""
        theorem = self.theorem(problem, steps)
        if theorem is None or not isinstance(guarantee.event, GaussianEvent):
            return guarantee
        sigma = guarantee.event.noise_multiplier * 2 * theorem.clip
        epsilon = theorem.epsilon(sigma)
        claim = Published(epsilon, theorem.delta(epsilon), SOURCE, UNSOUND, theorem.conditions(epsilon))
        return replace(guarantee, published=claim)

    def published_multiplier(self, problem: Problem, epsilon: float, steps: int) -> float:
        """The noise that the paper's Theorem 1 asks for, in units of the sensitivity; ValueError where it has none.

        Warns where a condition of the theorem does not hold.

        Args:
            problem: The nodes' data, of which the smallest node counts.
            epsilon: What the whole run may spend by the theorem, above 0.
            steps: The number of rounds of the run, at least 1.
        """
        theorem = self.theorem(problem, steps)
        if theorem is None:
            raise ValueError(
                "Expected gradients of one example that are clipped one by one, records that are replaced, and "
                "messages of k entries, of which Theorem 1 is, got others. Use Gradients(batch=1, clip=...) and "
                "Sparse(share=...), or accounting='sound'."
            )
        multiplier = theorem.multiplier(epsilon)
        for condition in theorem.conditions(epsilon):
            if not condition.endswith(": holds"):
                warnings.warn(f"Theorem 1 asks for {condition}.", stacklevel=2)
        return multiplier

    def theorem(self, problem: Problem, steps: int | None) -> Theorem1 | None:
        """The paper's Theorem 1 for a run of so many rounds; None where it says nothing of it.

        It is of clipped gradients of one example, of records that are replaced, and of messages of k entries.
        """
        g, codec = self.gradients, self.codec
        single = g.batch == 1 and g.per == "example" and g.adjacency == "replace-one"
        if steps is None or not single or g.clip is None or not isinstance(codec, Dense | Sparse):
            return None
        share = codec.size(problem.n, problem.n) / problem.n if isinstance(codec, Sparse) else 1.0
        longest = float(g.clip) * stretch(g.norm, "l2", problem.n)
        q = int(np.min(np.asarray(problem.sizes)))
        return Theorem1(float(self.p), share, steps, q, longest, float(self.delta0))
