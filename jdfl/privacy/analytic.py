"""The Gaussian mechanism in closed form.

B. Balle, Y.-X. Wang: Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
Denoising, 2018 (Theorem 8). Releases with noise multipliers z_1, z_2, ... are together one with mu^2 = sum 1 / z_k^2.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import root_scalar
from scipy.special import log_ndtr
from scipy.stats import binom

from jdfl import checks
from jdfl.arguments import checked
from jdfl.privacy.mechanisms import Gaussian

_MOST_MU = 1e100  # whose square is a float


@checked
def gaussian_delta(mu: float, epsilon: float) -> float:
    """The least delta at which noise of 1 / mu times the sensitivity is (epsilon, delta)-DP.

    It is Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu). Raises ValueError for numbers
    that are no mu or epsilon.
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
    """The least epsilon >= 0 at this delta; 0 where mu is so small that no more is needed.

    Raises ValueError for a delta outside (0, 1), and for a mu of which epsilon would leave floating point.
    """
    check_delta(delta)
    if mu > _MOST_MU:
        checks.refuse(f"mu <= {_MOST_MU:g}", "mu", mu, "Epsilon would be about mu^2 / 2, which bounds nothing.")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    above = 1.0
    while gaussian_delta(mu, above) > delta:
        above *= 2
    return _root(lambda e: gaussian_delta(mu, e) - delta, 0.0, above)


def participating_epsilon(multiplier: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon at `delta` of Gaussian releases that each look at a record with chance `rate`, independently.

    As if it were told which ones do, a binomial number K: by joint convexity delta <= E gaussian_delta(sqrt(K) /
    multiplier, epsilon), under replace-one with the multiplier in units of that sensitivity and under add-remove alike,
    for Poisson samples and for subsets. Nearly tight where noise is little. Infinite for more than 10,000 expected.
    """
    if steps * rate > 1e4:
        return math.inf
    least = 1e-4 * delta  # of participations that are counted as seen without noise
    most = min(steps, int(binom.isf(least, steps, rate)) + 1)
    rest, k = float(binom.sf(most, steps, rate)), np.arange(1, most + 1)
    chance, mu = binom.pmf(k, steps, rate), np.sqrt(k) / multiplier

    def above(epsilon: float) -> float:
        first, second = log_ndtr(mu / 2 - epsilon / mu), log_ndtr(-mu / 2 - epsilon / mu)
        return rest + float(chance @ (np.exp(first) * -np.expm1(np.minimum(epsilon + second - first, 0.0)))) - delta

    if above(0.0) <= 0:
        return 0.0
    high = 1.0
    while above(high) > 0:
        high *= 2
    low = 0.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > 0 else (low, middle)
    return high


@checked
def analytic_gaussian(epsilon: float, delta: float, releases: int = 1) -> Gaussian:
    """The least Gaussian noise with which `releases` releases together are (epsilon, delta)-DP.

    Raises ValueError for targets that make no sense.
    """
    check_target(epsilon, delta)
    checks.whole(1, releases=releases)
    low = high = 1.0  # of mu
    while gaussian_delta(high, epsilon) < delta:
        high *= 2
    while gaussian_delta(low, epsilon) > delta:
        low /= 2
    mu = low if low == high else _root(lambda x: gaussian_delta(x, epsilon) - delta, low, high)
    return Gaussian(math.sqrt(releases) / mu)


@checked
def central_multiplier(multiplier: float, clients: int) -> float:
    """The noise multiplier that hides a sum from one of the `clients` whose equal Gaussian noises it carries.

    `multiplier` is the noise of the whole sum in units of the sensitivity. A client that takes part knows its own noise
    and subtracts it; the other clients' noise has the variance (clients - 1) / clients of the whole. The multiplier
    left is `multiplier` sqrt((clients - 1) / clients), and mu grows by the inverse of that root.

    Raises ValueError for a multiplier that is not positive, and for fewer than two clients, of which one would see the
    sum without any noise: its mu is infinite.
    """
    checks.shape((), multiplier=multiplier)
    checks.positive(multiplier=multiplier)
    checks.whole(2, None, "A client alone subtracts all of the noise; let every client hide itself.", clients=clients)
    return float(multiplier) * math.sqrt((clients - 1) / clients)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(root_scalar(function, bracket=(low, high), xtol=1e-15, rtol=1e-12).root)


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    remedy = "It is the chance that the guarantee fails, below one over the number of records."
    checks.shape((), delta=delta)
    checks.fraction(remedy, delta=delta)
    if not delta < 1:
        raise ValueError(f"Expected delta in (0, 1), got delta = {delta!r}. {remedy}")


def check_target(epsilon: float, delta: float) -> None:
    """Refuse an epsilon or a delta that is no target."""
    checks.shape((), epsilon=epsilon)
    checks.positive("It is what is to be guaranteed; 1 is usual, 10 protects little.", epsilon=epsilon)
    check_delta(delta)
