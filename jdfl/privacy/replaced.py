"""Replace-one with fresh random samples: the privacy profile of one sample as a privacy loss distribution.

With r the probability that the record is in the sample, mu_0 the law of a release without it, mu_1 and mu_1' those with
the record and with its replacement, neighbours release M = (1 - r) mu_0 + r mu_1 and M' = (1 - r) mu_0 + r mu_1'.
For t = e^eps >= 1, alpha = 1 + (t - 1) / r and beta = t / alpha, which is at most 1,

    M - t M' = r [mu_1 - alpha ((1 - beta) mu_0 + beta mu_1')],

so their hockey-stick divergence is r H_alpha(mu_1, (1 - beta) mu_0 + beta mu_1') (advanced joint convexity: B.
Balle, G. Barthe, M. Gaboardi: Privacy Amplification by Subsampling, 2018, Theorem 2), and by joint convexity at most

    r [(1 - beta) H_alpha(mu_1, mu_0) + beta H_alpha(mu_1, mu_1')].

The laws are mixtures over the rest of the sample, to which joint convexity applies once more. The multiplier z is in
units of the replace-one sensitivity Delta, so H_alpha(mu_1, mu_1') is at most that of a shift by Delta, of mu = 1 / z
for Gaussian noise. With Poisson sampling the rest of the sample does not depend on the record, and a sum of clipped
contributions divided by a fixed number changes by at most Delta / 2 when one is omitted: H_alpha(mu_1, mu_0) is that
of a shift by Delta / 2. With samples of a fixed size another record takes its place, the shift may be Delta, and both
terms are the same: r H_alpha(Delta) (Y. Zhu, J. Dong, Y.-X. Wang: Optimal Accounting of Differential Privacy via
Characteristic Function, 2022, Theorem 11).

Since the relation is symmetric, delta(-eps) = 1 - e^-eps + e^-eps delta(eps). Hockey-stick divergences of laws are
convex in t, so a measure whose divergence is at least this at the points of a grid, and linear in t between them,
dominates; such measures compose. That measure is dp-accounting's "connect the dots"; negative masses are set to 0,
which only adds.

How loose this is: mu_0 at 0 with mu_1 and mu_1' at -1/2 and 1/2, the antipodal pair, is a pair of neighbours with a
smaller epsilon (at delta = 1e-6, z = .6, r = .001 and 1,000 samples, .21 where the bound gives .51). We know of no
worse pair of neighbours, but it is not proven that none exists; the gap between the two is how loose the bound may be.
"""

import math
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr

Kind = Literal["gaussian", "laplace"]


def divergence(kind: Kind, z: float, rate: float, epsilon: np.ndarray, *, poisson: bool) -> np.ndarray:
    """Upper bound on delta at every epsilon for one sample, in the shape of `epsilon`."""
    log_alpha = np.log(np.expm1(epsilon) + rate) - math.log(rate)
    whole = _shifted(kind, 1 / z, log_alpha)
    if poisson:
        beta = np.minimum(np.exp(epsilon - log_alpha), 1.0)
        whole = (1 - beta) * _shifted(kind, 0.5 / z, log_alpha) + beta * whole
    return np.clip(rate * whole, 0.0, 1.0)


def losses(kind: Kind, z: float, rate: float, grid: float, top: int, *, poisson: bool) -> Any:
    """One sample as dp-accounting's privacy loss distribution, which dominates the true one."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    eps = grid * np.arange(top + 1)
    delta = np.minimum.accumulate(divergence(kind, z, rate, eps, poisson=poisson))
    below = -np.expm1(-eps[:0:-1]) + np.exp(-eps[:0:-1]) * delta[:0:-1]  # at -top grid, ..., -grid
    both = np.minimum.accumulate(np.clip(np.concatenate([below, delta]), 0.0, 1.0))
    found = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, -top, top, both)
    return privacy_loss_distribution.PrivacyLossDistribution(found)


def _shifted(kind: Kind, shift: float, log_order: np.ndarray) -> np.ndarray:
    """The hockey-stick divergence, at these orders, between noise of scale 1 and the same noise shifted."""
    if kind == "gaussian":
        p, q = ndtr(shift / 2 - log_order / shift), ndtr(-shift / 2 - log_order / shift)
        return np.maximum(p - np.exp(log_order) * q, 0.0)
    return np.maximum(-np.expm1((log_order - shift) / 2), 0.0)
