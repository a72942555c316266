"""DO-ADP: decentralized momentum SGD with random activation, noise and top-k compressed differences.

W. Huo, C. Liu, K. Ding, K. H. Johansson, L. Shi: Decentralized Optimization with Amplified Privacy via Efficient
Communication (Algorithm 1; Eq. 5). Every node is active in a round with probability p.

    active:    m_i <- g_i(x_i) + theta_i + beta m_i                        (5a), theta_i ~ N(0, sigma^2) per entry
               x_i <- x_i - lr m_i + gamma sum_j W_ij (xhat_j - xhat_i)    (5b)
               s_i  = C(x_i - xhat_i), sent to all neighbours              (5c)
               xhat_i <- xhat_i + s_i, at i and at all its neighbours      (5d)
    inactive:  m_i <- beta m_i,   x_i <- x_i + gamma sum_j W_ij (xhat_j - xhat_i),   nothing is sent

lr is the paper's alpha and C is `codec`: Top_k in the paper, with k / d its `share`. W is symmetric and doubly
stochastic; the paper's I - L / iota, iota > d_max, is `weights="laplacian"` (iota = d_max + 1), or
jdfl.network.laplacian. g_i is a gradient of one example, clipped; the regulariser is added after clipping.

Where the paper is ambiguous:

- Algorithm 1 starts from xhat_0 = 0 at any x_0, while the proof of Lemma 3 needs x_0 = xhat_0. `start` is "x" for
  xhat_0 = x_0, which all nodes know, or "zero". They agree where x_0 is zero.
- Assumption 2 bounds every entry of an example's gradient by G / sqrt(d), while the text says "gradient clipping",
  which bounds its norm by G. `Gradients(clip=G)` is the latter, `Gradients(norm="entries", clip=G / sqrt(d))` the
  former.
- p is in [1/2, 1] in the paper. Only a bound in its proof needs the 1/2 (Lemma 9); below it there is a warning.

Without momentum and noise and with p = 1 it is CHOCO-SGD in the order of 2020. The average of the nodes moves by -lr /
m times the sum of the active nodes' momenta, whatever the codec loses.

With a `trigger`, an active node sends s_i only where ||s_i|| exceeds it, and otherwise xhat_i stays. This rule is ours:
the paper leaves event-triggered messages to future work. What is not sent is part of later differences, so with whole
messages, and all nodes active, x_i and xhat_i are never further apart than the trigger. Whether a node sends is seen by
all and depends on data, but like the messages it is computed from noisy gradients alone: the guarantee stays the same.
A trigger saves no epsilon either, since a gradient that is held back is sent later; and Theorem 1 does not cover it.

Privacy: what is sent is computed from noisy clipped gradients, so only these need to be accounted for, with their full
sensitivity. The paper uses noise smaller by a factor sqrt(k / d), because a message has only k of d entries; but these
are chosen from the data, and the remaining entries are sent later. It uses noise smaller by another factor p because of
inactive nodes; but every observer sees which nodes send. For T rounds, nodes with q records that use one of them per
round, gradients whose entries are at most G / sqrt(d), and messages of k of d entries, the paper's Theorem 1 says that

    sigma^2 >= 160 k p^2 T log(1.25 / delta_0) G^2 / (q^2 d epsilon^2),   0 < epsilon <= 1,   T >= (q epsilon / p)^2 / 4

makes all messages (epsilon, delta)-differentially private "for some constant delta in (0, 1]", which claims nothing:
every algorithm satisfies delta = 1. The delta of its proof is 1 - (1 - delta') (1 - p delta_0)^T with delta' = epsilon
/ sqrt(5) at the smallest noise: 0.45 at epsilon = 1, whatever delta_0. (With its own lemma on subsampling the second
factor would have p delta_0 / q; we take the larger delta, which claims less.) It fails: see `UNSOUND`, and `python -m
experiments.theorem1_counterexample` for an attack that it excludes.

Missing neighbours: refused, because every message builds on all earlier ones; inactive nodes send nothing, and all
nodes know it.

Axes: m nodes, n parameters (the paper's d).
"""

import math
import warnings
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import FIXED_SYMMETRIC, Algorithm, Codes
from jdfl.algorithms.choco import warn_of_gamma
from jdfl.algorithms.choosing import ACTIVE, active
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.round import Round, RoundContext
from jdfl.base import checks, struct
from jdfl.base.arguments import settings
from jdfl.base.settings import Bound, Count, Fraction, Momentum, Positive, Provenance, StepSize
from jdfl.codecs import Codec, Dense, Sparse
from jdfl.network.graph import Network
from jdfl.privacy import GaussianEvent, Guarantee, Published, stretch
from jdfl.problems import Problem

SOURCE = "W. Huo et al., Theorem 1"
UNSOUND = (
    "a message's k entries are chosen from the data and the others are sent later, so the sensitivity is not "
    "sqrt(k / d) of the whole; all observers see who is active, so p amplifies nothing"
)


@dataclass(frozen=True)
class Theorem1:
    """The theorem for one setting; ValueError for settings out of range."""

    p: Annotated[float, Bound("(0, 1]")]
    """Probability that a node is active in a round, in (0, 1]."""
    share: Annotated[float, Bound("(0, 1]")]
    """k / d, the fraction of its entries that a node sends, in (0, 1]."""
    steps: Count
    """T, the number of rounds."""
    records: Count
    """q, the number of examples of the smallest node."""
    clip: Annotated[float, Bound("(0, inf)")]
    """G, the largest l2 norm of an example's gradient."""
    delta0: Annotated[float, Bound("(0, 1]")] = 1e-6
    """delta_0, the delta of a single release, in (0, 1]."""

    def __post_init__(self) -> None:
        settings(self)

    def sigma(self, epsilon: float) -> float:
        """The smallest noise for `epsilon`, a standard deviation per entry (7). ValueError for epsilon > 1."""
        checks.positive(epsilon=epsilon)
        if epsilon > 1:
            raise ValueError(
                f"Expected epsilon in (0, 1], the range of Theorem 1, got epsilon = {epsilon!r}. Give a smaller one, "
                "or use jdfl.calibrate, which is sound for every epsilon."
            )
        return self._product() / epsilon

    def epsilon(self, sigma: float) -> float:
        """The theorem's claim for noise of standard deviation `sigma`; above 1 it claims nothing."""
        checks.positive(sigma=sigma)
        return self._product() / sigma

    def delta(self, epsilon: float) -> float:
        """The delta at the end of its proof, for the smallest noise for `epsilon`."""
        checks.positive(epsilon=epsilon)
        left = max(0.0, 1 - epsilon / math.sqrt(5))
        return 1 - left * math.exp(self.steps * math.log1p(-self.p * min(self.delta0, 1 - 1e-16)))

    def multiplier(self, epsilon: float) -> float:
        """`sigma(epsilon)` in units of 2 G, the effect of replacing a record: the multiplier of jdfl's mechanisms."""
        return self.sigma(epsilon) / (2 * self.clip)

    def least(self, epsilon: float) -> float:
        """The least number of rounds for `epsilon`, q^2 epsilon^2 / (4 p^2)."""
        return (self.records * epsilon / (2 * self.p)) ** 2

    def conditions(self, epsilon: float) -> tuple[str, ...]:
        """The conditions of the theorem for `epsilon`, with numbers, and whether they hold."""
        asked = self.asked(epsilon)
        return tuple(f"{text}: {'holds' if holds else 'DOES NOT HOLD'}" for _, text, holds, _ in asked)

    def asked(self, epsilon: float) -> tuple[tuple[str, str, bool, str], ...]:
        """The name of every condition for `epsilon`, its text with numbers, whether it holds, and what it needs."""
        least = self.least(epsilon)
        rounds = f"T = {self.steps} >= q^2 epsilon^2 / (4 p^2) = {least:.6g}"
        return (
            ("epsilon", f"epsilon = {epsilon:.4g} in (0, 1]", 0 < epsilon <= 1, "more noise"),
            ("T", rounds, self.steps >= least, "more rounds, or more noise"),
            ("p", f"p = {self.p:g} >= 1/2", self.p >= 0.5, "nodes that are active more often"),
        )

    def _product(self) -> float:
        """The product of sigma and epsilon, which is constant in the theorem."""
        square = 160 * self.share * self.p**2 * self.steps * math.log(1.25 / self.delta0)
        return math.sqrt(square) * self.clip / self.records


class State(NamedTuple):
    x: Array  # [m, n] parameters
    hat: Array  # [m, n] public copies of x, the same at the node and at all its neighbours
    momentum: Array  # [m, n]


@struct.dataclass
class DOADP(Algorithm):
    """DO-ADP: momentum SGD with noisy gradients, random activation and compressed differences.

    It takes any gradients and any codec with a contraction factor.

    With `block` gradients are computed only for active nodes, `block` at a time, which saves work where p is small and
    gradients use many examples.

    Raises ValueError (from `check`) for a codec without a contraction factor, and a network that is not fixed and
    undirected with symmetric doubly stochastic weights. Warns where p is below 1/2, and where gamma is large for the
    codec.
    """

    kind: ClassVar[str] = "do-adp"
    provenance: ClassVar[Provenance] = ("paper read",)
    lr: StepSize = 0.001
    gamma: Fraction = 0.05
    """Step size towards the neighbours' public copies, in (0, 1]."""
    beta: Momentum = 0.15
    """Momentum, in [0, 1)."""
    p: Fraction = 0.8
    """Probability that a node is active in a round, in (0, 1]."""
    gradients: Gradients = Gradients(batch=1)
    codec: Codec = Sparse(share=0.3)
    start: Literal["x", "zero"] = struct.field(pytree_node=False, default="x")
    """Initial public copies: the parameters, or zero."""
    block: Count | None = struct.field(pytree_node=False, default=None)
    """Active nodes processed at a time, without computing the others; None: all nodes at once."""
    delta0: Fraction = 1e-6
    """delta_0 of the paper's Theorem 1: determines its noise and its claim, with --privacy.accounting paper."""
    trigger: Positive | None = None
    """Active nodes send only messages with an l2 norm above it (not in the paper); None: all messages."""
    title: ClassVar[str] = "DO-ADP"
    tuned: ClassVar[tuple[str, ...]] = ("lr", "gamma")
    needs: ClassVar[dict[str, bool]] = FIXED_SYMMETRIC
    codes: ClassVar[Codes] = "contracting"

    @property
    def uneven(self) -> bool:
        return self.block is not None

    def check(self, problem: Problem, network: Network) -> None:
        super().check(problem, network)
        delta = self.codec.contraction(problem.n, problem.n)
        assert delta is not None  # a codec with a contraction factor
        warn_of_gamma(self.codec, float(self.gamma), float(self.p) * delta)
        if float(self.p) < 0.5:
            warnings.warn(
                f"p = {float(self.p):g} is below 1/2, where the paper's proof of convergence does not apply; the "
                "method still runs.",
                stacklevel=2,
            )

    def prepare(self, problem: Problem, context: RoundContext, plan: Any) -> Array:
        """The key [] from which active nodes are drawn."""
        return context.stream(ACTIVE)

    def init(self, round: Round) -> State:
        x = round.problem.initial_params()
        return State(x, x if self.start == "x" else jnp.zeros_like(x), jnp.zeros_like(x))

    def step(self, state: State, round: Round) -> State:
        x, hat, momentum = state
        on = active(self.p, round.ready, round)
        wakes = on[:, None]
        g = round.each_of(on, self.block, lambda here: self.gradients(here.of(x), here), jnp.zeros_like(x))
        momentum = jnp.where(wakes, g, 0.0) + self.beta * momentum  # (5a)
        moved = jnp.where(wakes, x - self.lr * momentum, x)
        x = moved + self.gamma * (round.mix(hat, None) - hat)  # (5b)
        return State(x, round.publish(x, hat, by=on, over=self.trigger), momentum)  # (5c), (5d)

    def visible(self, state: State) -> Array:
        """The public copies [m, n]: the sum of all messages."""
        return state.hat

    def annotated(self, guarantee: Guarantee, problem: Problem, steps: int | None) -> Guarantee:
        """The gradients' guarantee over the rounds in which a node is active, with the paper's claim stated."""
        theorem = self.theorem(problem, steps)
        if theorem is None or not isinstance(guarantee.event, GaussianEvent):
            return guarantee
        sigma = guarantee.event.noise_multiplier * 2 * theorem.clip
        epsilon = theorem.epsilon(sigma)
        claim = Published(epsilon, theorem.delta(epsilon), SOURCE, UNSOUND, theorem.conditions(epsilon))
        return replace(guarantee, published=claim)

    def published_multiplier(self, problem: Problem, epsilon: float, steps: int) -> float:
        """The noise of the paper's Theorem 1, in units of the sensitivity; ValueError where it does not apply.

        Warns where a condition of the theorem does not hold.

        Args:
            problem: The nodes' data; the smallest node determines the noise.
            epsilon: The epsilon of the whole run by the theorem, above 0.
            steps: The number of rounds of the run, at least 1.
        """
        theorem = self.theorem(problem, steps)
        if theorem is None:
            raise ValueError(
                "Expected what Theorem 1 covers: gradients of one example, clipped per example, records that are "
                "replaced, and messages of k entries; got other settings. Use Gradients(batch=1, clip=...), "
                "Sparse(share=...) and trigger=None, or accounting='sound'."
            )
        multiplier = theorem.multiplier(epsilon)
        for condition in theorem.conditions(epsilon):
            if not condition.endswith(": holds"):
                warnings.warn(f"Theorem 1 asks for {condition}.", stacklevel=2)
        return multiplier

    def theorem(self, problem: Problem, steps: int | None) -> Theorem1 | None:
        """The paper's Theorem 1 for a run of `steps` rounds; None where it does not apply.

        It covers clipped gradients of one example, records that are replaced, and messages of k entries without a
        trigger.
        """
        g, codec = self.gradients, self.codec
        single = g.batch == 1 and g.per == "example" and g.adjacency == "replace-one"
        top = isinstance(codec, Dense) or (isinstance(codec, Sparse) and codec.leaves is None)
        paper = single and self.trigger is None and top
        if steps is None or not paper or g.clip is None:
            return None
        share = codec.size(problem.n, problem.n) / problem.n if isinstance(codec, Sparse) else 1.0
        longest = float(g.clip) * stretch(g.norm, "l2", problem.n)
        q = int(np.min(np.asarray(problem.sizes)))
        return Theorem1(float(self.p), share, steps, q, longest, float(self.delta0))
