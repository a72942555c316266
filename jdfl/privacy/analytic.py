"""The Gaussian mechanism in closed form.

B. Balle, Y.-X. Wang: Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
Denoising, 2018 (Theorem 8). Releases with noise multipliers z_1, z_2, ... are equivalent to one with mu^2 = sum
1/z_k^2.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy
from scipy.special import log_ndtr

from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.privacy.mechanisms import Gaussian

MOST_MU = 1e100  # its square is still a float


@checked
def gaussian_delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which noise of 1 / mu times the sensitivity is (epsilon, delta)-DP, for an epsilon >= 0.

    It is Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu), where mu > 0 is the sensitivity over the
    standard deviation of the noise; for several releases with noise multipliers z_k, the square root of sum 1 / z_k^2.
    Raises ValueError for an invalid mu or epsilon.
    """
    checks.positive(mu=mu)
    checks.not_negative(epsilon=epsilon)
    first = log_ndtr(mu / 2 - epsilon / mu)
    if first == -math.inf:
        return 0.0
    ratio = epsilon + log_ndtr(-mu / 2 - epsilon / mu) - first  # below 0
    return float(math.exp(first) * -math.expm1(min(ratio, 0.0)))


@checked
def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 at this delta in (0, 1), with mu as for `gaussian_delta`; 0 where mu is small enough.

    Raises ValueError for a delta outside (0, 1), and for a mu whose epsilon would overflow.
    """
    check_delta(delta)
    if mu > MOST_MU:
        checks.refuse(f"mu <= {MOST_MU:g}", "mu", mu, "Epsilon would be about mu^2 / 2, which bounds nothing.")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return _root(lambda e: gaussian_delta(mu, e) - delta, 0.0, doubled(lambda e: gaussian_delta(mu, e) > delta))


def participating_epsilon(multiplier: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon at `delta` of Gaussian releases that each use a record with probability `rate`, independently.

    Computed as if the adversary knew which releases do, a binomial number K: by joint convexity
    delta <= E gaussian_delta(sqrt(K) / multiplier, epsilon), for Poisson samples and for subsets. Nearly tight where
    the noise is small. Infinite for more than 10,000 expected participations.
    """
    if steps * rate > 1e4:
        return math.inf

    least = 1e-4 * delta  # probability of the participation counts that are treated as if released without noise
    most = min(steps, int(scipy.stats.binom.isf(least, steps, rate)) + 1)
    rest, k = float(scipy.stats.binom.sf(most, steps, rate)), np.arange(1, most + 1)
    chance, mu = scipy.stats.binom.pmf(k, steps, rate), np.sqrt(k) / multiplier

    def exceeds(epsilon: float) -> bool:
        first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
        each = np.exp(first) * -np.expm1(np.minimum(epsilon + second - first, 0.0))
        return rest + float(chance @ each) - delta > 0

    if not exceeds(0.0):
        return 0.0
    return bisected(exceeds, 0.0, doubled(exceeds), relative=1e-9)[1]


@checked
def analytic_gaussian(epsilon: float, delta: float, releases: int = 1) -> Gaussian:
    """The smallest Gaussian noise with which `releases` releases together are (epsilon, delta)-DP.

    The calibration of B. Balle and Y.-X. Wang (2018, Theorem 8), for releases, at least 1, that each use all records
    and have the same noise. The multiplier is in units of their l2 sensitivity, which must be enforced elsewhere.
    epsilon > 0 and delta in (0, 1) are of all releases together; others raise ValueError. For a whole run, or with
    sampling, use `jdfl.calibrate`.
    """
    check_target(epsilon, delta)
    checks.integer(1, releases=releases)
    high = doubled(lambda mu: gaussian_delta(mu, epsilon) < delta)
    low = 1 / doubled(lambda inverse: gaussian_delta(1 / inverse, epsilon) > delta)
    mu = low if low == high else _root(lambda x: gaussian_delta(x, epsilon) - delta, low, high)
    return Gaussian(math.sqrt(releases) / mu)


@checked
def classical_gaussian(epsilon: float, delta: float) -> Gaussian:
    """The textbook calibration sqrt(2 ln(1.25/delta)) / epsilon (CEPS paper, Eq. 13).

    It is a guarantee only for a single release, epsilon <= 1 and an enforced sensitivity; here it reproduces papers,
    and larger values of epsilon are not refused. For a guarantee use `analytic_gaussian`, or `calibrate` for several
    releases. Raises ValueError for an epsilon that is not positive, or a delta outside (0, 1).
    """
    check_target(epsilon, delta)
    return Gaussian(math.sqrt(2 * math.log(1.25 / delta)) / epsilon)


@checked
def central_multiplier(multiplier: float, clients: int) -> float:
    """The noise multiplier that protects a sum against one of the `clients` who contributed equal Gaussian noise to it.

    A participating client knows its own noise and subtracts it; the other clients' noise has the variance (clients - 1)
    / clients of the whole, whose `multiplier` > 0 is in units of the sensitivity. The remaining multiplier is
    `multiplier` sqrt((clients - 1) / clients). Raises ValueError for a multiplier that is not positive, and for fewer
    than two clients: one alone would see the sum without noise.
    """
    checks.shape((), multiplier=multiplier)
    checks.positive(multiplier=multiplier)
    checks.integer(2, None, "A single client subtracts all of the noise; use local noise per client.", clients=clients)
    return float(multiplier) * math.sqrt((clients - 1) / clients)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.brentq(function, low, high, xtol=1e-15, rtol=1e-12))


def doubled(short: Callable[[float], bool]) -> float:
    """The first of 1, 2, 4, ... that is not too `short`."""
    found = 1.0
    while short(found):
        found *= 2
    return found


def bisected(
    short: Callable[[float], bool], low: float, high: float, *, relative: float = 0.0, absolute: float = 0.0
) -> tuple[float, float]:
    """Bisect for a threshold: the ends of a short interval that contains it."""
    while high - low > max(absolute, relative * high):
        middle = (low + high) / 2
        low, high = (middle, high) if short(middle) else (low, middle)
    return low, high


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    remedy = "It is the probability that the guarantee fails, below one over the number of records."
    checks.shape((), delta=delta)
    checks.fraction(remedy, delta=delta)
    if not delta < 1:
        raise ValueError(f"Expected delta in (0, 1), got delta = {delta!r}. {remedy}")


def check_target(epsilon: float, delta: float) -> None:
    """Refuse an invalid target epsilon or delta."""
    checks.shape((), epsilon=epsilon)
    checks.positive("It is the guarantee to reach; 1 is usual, 10 protects little.", epsilon=epsilon)
    check_delta(delta)
