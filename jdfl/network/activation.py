"""MATCHA's two designs: the activation probability of each matching, and the mixing step alpha. Runs on the host.

J. Wang, A. K. Sahu, Z. Yang, G. Joshi, S. Kar, "MATCHA: Speeding up decentralized SGD via matching decomposition
sampling", 2019. With L_j the Laplacian of matching j, p_j the probability that it is active, Lbar = sum_j p_j L_j:

    p       maximises lambda_2(Lbar) subject to sum_j p_j <= budget M, 0 <= p_j <= 1
    alpha   minimises rho = || E[W^T W] - J ||,  E[W^T W] = I - 2 alpha Lbar + alpha^2 (Lbar^2 + 2 Ltilde),
            Ltilde = sum_j p_j (1 - p_j) L_j                 (J: all entries 1 / m; W = I - alpha sum of active L_j)

Axes: m nodes, M matchings.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
from scipy.optimize import minimize_scalar

TOLERANCE = 1e-5  # relative gap between the connectivity found and its upper bound
_MOST_STEPS = 300  # Newton steps at most; 20 to 40 are typical
_FASTER = 8.0  # factor by which the weight of t grows from one centring to the next


class Activation(NamedTuple):
    """Activation probabilities of the matchings, with the connectivity they achieve and a certified upper bound."""

    p: np.ndarray  # [M]
    connectivity: float  # lambda_2(sum p_j L_j)
    bound: float  # upper bound on the connectivity of any probabilities within the budget


def laplacian(weight: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """The weighted sum of the matchings' Laplacians, sum_j weight_j L_j [m, m]."""
    m, count = partner.shape
    result = np.zeros((m, m))
    np.subtract.at(result, (np.repeat(np.arange(len(partner)), count), partner.ravel()), np.tile(weight, m))
    np.fill_diagonal(result, 0)
    np.fill_diagonal(result, -result.sum(axis=1))
    return result


def _eigenvalue(X: np.ndarray, place: int) -> float:
    """The eigenvalue at index `place` of a symmetric X [m, m], counted in ascending order."""
    return float(la.eigvalsh(X, subset_by_index=(place, place))[0])


def connectivity(L: np.ndarray) -> float:
    """The algebraic connectivity lambda_2 of a Laplacian [m, m]."""
    return _eigenvalue(L, 1)


def _inner(X: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """<X, L_j> [M] for a symmetric X [m, m]."""
    return np.sum(np.diagonal(X)[:, None] - X[np.arange(X.shape[0])[:, None], partner], axis=0)


class _Barrier:
    """-weight t - log det(Lbar - t I) - sum log p - sum log(1 - p) - log(most - sum p), Lbar on zero-sum vectors."""

    def __init__(self, partner: np.ndarray, most: float, weight: float) -> None:
        self.partner, self.most, self.weight = partner, most, weight
        self.m, self.count = partner.shape

    def factor(self, p: np.ndarray, t: float) -> np.ndarray | None:
        """The Cholesky factor of Lbar - t (I - J) + J; None outside the domain."""
        if p.min() <= 0 or p.max() >= 1 or p.sum() >= self.most:
            return None
        try:
            return la.cholesky(laplacian(p, self.partner) - t * np.eye(self.m) + (1 + t) / self.m)
        except la.LinAlgError:
            return None

    def value(self, p: np.ndarray, t: float) -> float:
        factor = self.factor(p, t)
        if factor is None:
            return np.inf
        rest = np.sum(np.log(p) + np.log1p(-p)) + np.log(self.most - p.sum())
        return -self.weight * t - 2 * float(np.sum(np.log(np.diagonal(factor)))) - float(rest)

    def step(self, p: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, float]:
        """The Newton step [M + 1] in (p, t) and its decrement, where X = (Lbar - t I)^-1 on zero-sum vectors."""
        slack = self.most - p.sum()
        gradient = np.append(-_inner(X, self.partner) - 1 / p + 1 / (1 - p) + 1 / slack, np.trace(X) - self.weight)
        hessian = np.empty((self.count + 1, self.count + 1))
        for j in range(self.count):
            one = np.flatnonzero(self.partner[:, j] > np.arange(len(self.partner)))
            rows = X[one] - X[self.partner[one, j]]
            hessian[j:-1, j] = hessian[j, j:-1] = _inner(rows.T @ rows, self.partner[:, j:])
        hessian[:-1, :-1] += np.diag(p**-2 + (1 - p) ** -2) + slack**-2
        hessian[:-1, -1] = hessian[-1, :-1] = -_inner(X @ X, self.partner)
        hessian[-1, -1] = np.sum(X**2)
        scale = np.sqrt(np.diagonal(hessian))
        step = -np.linalg.solve(hessian / np.outer(scale, scale), gradient / scale) / scale
        return step, float(np.sqrt(max(0.0, -gradient @ step)))

    def length(self, p: np.ndarray, t: float, step: np.ndarray, decrement: float) -> float:
        """The fraction of the Newton step to take; the fraction 1 / (1 + decrement) never leaves the domain."""
        if decrement <= 0.25:
            return 1.0
        start, length, safe = self.value(p, t), 1.0, 1 / (1 + decrement)
        while length > safe:
            lower = self.value(p + length * step[:-1], t + length * step[-1])
            if lower <= start - 0.1 * length * decrement**2:
                return length
            length *= 0.7
        return safe


def _largest(X: np.ndarray, partner: np.ndarray, most: float) -> float:
    """The largest <X, sum p_j L_j> / tr X within the budget: matchings are filled in decreasing order of <X, L_j>."""
    worth = np.sort(_inner(X, partner))[::-1]
    whole = int(most)
    return float((worth[:whole].sum() + (most - whole) * worth[whole : whole + 1].sum()) / np.trace(X))


def activation(partner: np.ndarray, budget: float) -> Activation:
    """Optimal activation probabilities for the matchings of a connected network, with a bound that certifies them.

    A barrier method (S. Boyd, L. Vandenberghe, "Convex optimization", 2004, section 11.6) maximises t subject to
    t <= lambda_2(Lbar): Newton's method for increasing weights of t, until connectivity and bound differ by less than
    `TOLERANCE`. For any X >= 0 with X 1 = 0, the largest <X, Lbar> / tr X is an upper bound; the barrier's own X makes
    it tight, and tighter at the end of a Newton step. A step costs M sums of m / 2 outer products of vectors [m].
    """
    m, count = partner.shape
    most = budget * count
    if budget == 1:
        found = connectivity(laplacian(np.ones(int(count)), partner))
        return Activation(np.ones(count), found, found)
    p = np.full(count, 0.9 * budget)
    t = 0.5 * connectivity(laplacian(p, partner))
    barrier = _Barrier(partner, most, (m + 2 * count) / t)
    best, best_p, bound = 0.0, p, np.inf
    for _ in range(_MOST_STEPS):
        factor = barrier.factor(p, t)
        if factor is None:
            break  # the limit of double precision
        X = la.cho_solve((factor, False), np.eye(m)) - 1 / m
        step, decrement = barrier.step(p, X)
        bound = min(bound, _largest(X, partner, most))
        if decrement < 1:  # so X stays positive semidefinite after the step
            change = laplacian(step[:-1], partner) - step[-1] * np.eye(m)
            bound = min(bound, _largest(X - X @ change @ X, partner, most))
        full = p + (1 - p) * (most - p.sum()) / (count - p.sum())
        found = connectivity(laplacian(full, partner))
        if found > best:
            best, best_p = found, full
        if best >= (1 - TOLERANCE) * bound:
            break
        length = barrier.length(p, t, step, decrement)
        p, t = p + length * step[:-1], t + length * step[-1]
        if decrement < 0.5:
            barrier.weight *= _FASTER
    return Activation(best_p, best, max(bound, best))


def moments(p: np.ndarray, partner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lbar and Lbar^2 + 2 Ltilde, both [m, m], for activation probabilities p [M] of the matchings partner [m, M]."""
    L = laplacian(p, partner)
    return L, L @ L + 2 * laplacian(p * (1 - p), partner)


def mean_square(alpha: float, L: np.ndarray, square: np.ndarray) -> float:
    """|| E[W^T W] - J || for the mixing step alpha, given Lbar and Lbar^2 + 2 Ltilde [m, m]."""
    m = L.shape[0]
    return _eigenvalue(np.eye(m) - 1 / m - 2 * alpha * L + alpha**2 * square, m - 1)


def mixing_step(p: np.ndarray, partner: np.ndarray) -> tuple[float, float]:
    """The mixing step alpha that minimises rho, and that rho: a one-dimensional convex minimisation.

    The published semidefinite program has the same solution. Each unit vector v gives a parabola in alpha whose minimum
    is at v^T Lbar v / v^T (Lbar^2 + 2 Ltilde) v <= 1 / lambda_2(Lbar); the minimum of their maximum obeys this bound
    too.
    """
    L, square = moments(p, partner)
    furthest = 1 / connectivity(L)
    if np.all(p == 1):  # || I - alpha L - J ||^2 is least where both ends of the spectrum are equally far from zero
        alpha = 2 / (1 / furthest + _eigenvalue(L, L.shape[0] - 1))
    else:
        options: Any = {"bounds": (0, furthest), "method": "bounded", "options": {"xatol": 1e-9 * furthest}}
        alpha = float(minimize_scalar(lambda one: mean_square(one, L, square), **options).x)
    return alpha, max(0.0, mean_square(alpha, L, square))
