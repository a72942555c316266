"""Theorems 2 and 3 of the CEPS paper: what it claims for one step, and for a run. On the host.

Sha, Zhou, Kong, Li: Sparse Decentralized Federated Learning. With noise of variance rho_i = 2 ln(1.25 / delta) u_i^2 /
epsilon^2 (13) on gradients of at most u_i / 2 (Assumption 5), every step is said to be (epsilon, delta)-differentially
private (Theorem 2), and a communications together

    (sqrt(2 a ln(1 / delta)) epsilon + a epsilon (e^epsilon - 1), (a + 1) delta)          (Theorem 3)

At the paper's own delta = .5 the second number is (a + 1) / 2, which is 1 for one communication and more for several: a
delta of one or more is met by every algorithm, also by one that sends its data, so that Theorem 3 then claims nothing.

Neither holds for Algorithm 1 as printed: see `UNSOUND`.
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
    "in the paper that is for one step, by a formula for epsilon <= 1; its delta allows anything in every second "
    "run, its sensitivity is assumed, its noise does not stay in u, and its first message has none"
)


def step_epsilon(multiplier: float) -> float:
    """The epsilon of Theorem 2 at `PAPER_DELTA`, for noise of so many sensitivities (a standard deviation)."""
    checks.positive(multiplier=multiplier)
    return math.sqrt(2 * math.log(1.25 / PAPER_DELTA)) / multiplier


def composed(epsilon: float, delta: float, communications: int) -> tuple[float, float]:
    """Epsilon and delta of Theorem 3, for a number a of communications.

    The delta is the theorem's, (a + 1) `delta`, also where it is one or more.

    Args:
        epsilon: That of one communication, above 0.
        delta: That of one communication, in (0, 1].
        communications: How many there are, a, at least 1.

    Raises:
        ValueError: For an epsilon that is not positive, a delta outside (0, 1] or fewer than one communication.
    """
    checks.positive(epsilon=epsilon)
    checks.fraction("It is the delta of one step.", delta=delta)
    checks.whole(1, communications=communications)
    a = communications
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return math.sqrt(2 * a * math.log(1 / delta)) * epsilon + a * epsilon * growth, (a + 1) * delta


@dataclass(frozen=True)
class Theorem3:
    """`composed` for any number of communications of one step's `epsilon` and `delta`."""

    epsilon: float
    delta: float

    def __call__(self, communications: int) -> tuple[float, float]:
        """Epsilon and delta of so many communications."""
        return composed(self.epsilon, self.delta, communications)


def guarantee(algorithm: Any) -> Callable[[Problem, int], Guarantee]:
    """What may be said of the releases of u of a CEPS, on a problem: something if they are clipped, their noise kept.

    Beside it stands what the paper's theorems would say.
    """
    return partial(_guarantee, algorithm)


def _guarantee(algorithm: Any, problem: Problem, _: int) -> Guarantee:
    told = algorithm.gradients.guarantee(problem)
    if algorithm.sigma is None:
        # Computed from the node's own data without noise: give sigma, a public constant, or declare it public.
        told = exposing(told, ("curvature",), problem.public)
    if algorithm.noise == "literal":
        reason = "the noise is not stored in u, so that later messages wash it out, and the first message has none"
        told = replace(
            told,
            claimed=False,
            reason=reason if told.claimed else f"{told.reason}; {reason}",
            remedy=f'{"" if told.claimed else told.remedy} Use noise="kept".'.strip(),
        )
    elif told.claimed:
        told = replace(told, reason="every u is computed from clipped gradients and noisy, and w and messages from u")
    if not isinstance(algorithm.mechanism, Gaussian):
        return told
    epsilon = step_epsilon(float(algorithm.mechanism.multiplier))
    run = Theorem3(epsilon, PAPER_DELTA)
    return replace(told, published=Published(epsilon, PAPER_DELTA, STEP, UNSOUND, run=run, run_source=RUN))
