"""Theorems 2 and 3 of the CEPS paper: its claims about the privacy of one step and of a run. On the host.

Sha, Zhou, Kong, Li: Sparse Decentralized Federated Learning. With noise of variance rho_i = 2 ln(1.25
/ delta) u_i^2 / epsilon^2 (13) on gradients of at most u_i / 2 (Assumption 5), every step is said to be (epsilon,
delta)-differentially private (Theorem 2), and a communications are together

    (sqrt(2 a ln(1 / delta)) epsilon + a epsilon (e^epsilon - 1), (a + 1) delta)          (Theorem 3)

At the paper's delta = 0.5 the second number is (a + 1) / 2, which is 1 for one communication and larger for several.
Every algorithm satisfies a delta of one or more, including one that sends its data, so Theorem 3 then claims nothing.

Neither theorem holds for Algorithm 1 as printed: see `UNSOUND`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jdfl.base import checks
from jdfl.privacy import Gaussian, Guarantee, Published, exposing
from jdfl.problems import Problem

PAPER_DELTA = 0.5  # of its noise (section V)
STEP, RUN = "CEPS, Theorem 2, at delta = 0.5", "CEPS, Theorem 3"
UNSOUND = (
    "the paper's value is for one step, from a formula for epsilon <= 1; its delta allows anything in every second "
    "run, its sensitivity is assumed, its noise is not stored in u, and its first message has no noise"
)


def step_epsilon(multiplier: float, delta: float = PAPER_DELTA) -> float:
    """The epsilon of Theorem 2 at `delta` for a noise `multiplier`, its standard deviation over the sensitivity.

    Raises ValueError for a multiplier that is not positive.
    """
    checks.positive(multiplier=multiplier)
    return math.sqrt(2 * math.log(1.25 / delta)) / multiplier


def composed(epsilon: float, delta: float, communications: int) -> tuple[float, float]:
    """Epsilon and delta of Theorem 3 for a number a of communications.

    The delta is the theorem's (a + 1) `delta`, even where it is one or more.

    Args:
        epsilon: Epsilon of one communication, above 0.
        delta: Delta of one communication, in (0, 1].
        communications: The number a of communications, at least 1.

    Raises:
        ValueError: For an epsilon that is not positive, a delta outside (0, 1], or fewer than one communication.
    """
    checks.positive(epsilon=epsilon)
    checks.fraction("It is the delta of one step.", delta=delta)
    checks.whole(1, communications=communications)
    a = communications
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return math.sqrt(2 * a * math.log(1 / delta)) * epsilon + a * epsilon * growth, (a + 1) * delta


@dataclass(frozen=True)
class Theorem3:
    """`composed` for one step's `epsilon` and `delta`, as a function of the number of communications."""

    epsilon: float
    delta: float

    def __call__(self, communications: int) -> tuple[float, float]:
        """Epsilon and delta for a number of communications."""
        return composed(self.epsilon, self.delta, communications)


def guarantee(algorithm: Any) -> Callable[[Problem, int], Guarantee]:
    """The guarantee of CEPS's releases of u, as a function of the problem: claimed if clipped with noise kept.

    It also states what the paper's theorems would claim.
    """
    return partial(_guarantee, algorithm)


def _guarantee(algorithm: Any, problem: Problem, _: int) -> Guarantee:
    claim = algorithm.gradients.guarantee(problem)
    if algorithm.noise == "literal":
        reason = "the noise is not stored in u, so later messages lose it, and the first message has no noise"
        claim = replace(
            claim,
            claimed=False,
            reason=reason if claim.claimed else f"{claim.reason}; {reason}",
            remedy=f'{"" if claim.claimed else claim.remedy} Use noise="kept".'.strip(),
        )
    elif claim.claimed:
        reason = "every u is computed from clipped gradients and noisy, and w and messages from u"
        claim = replace(claim, reason=reason)
    if algorithm.sigma is None:
        # Computed from the node's local data without noise: give sigma, a public constant, or declare it public.
        claim = exposing(claim, ("curvature",), problem.public)
    if not isinstance(algorithm.mechanism, Gaussian):
        return claim
    epsilon = step_epsilon(float(algorithm.mechanism.multiplier))
    run = Theorem3(epsilon, PAPER_DELTA)
    return replace(claim, published=Published(epsilon, PAPER_DELTA, STEP, UNSOUND, run=run, run_source=RUN))
