"""How often every matching of a network is active, and the step of the mixing: the two designs of MATCHA. On the host.

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
_MOST_STEPS = 300  # of Newton's method; 20 to 40 are taken
_FASTER = 8.0  # factor of the weight of t from one centre to the next


class Activation(NamedTuple):
    """Probabilities of the matchings, and what they are worth."""

    p: np.ndarray  # [M]
    connectivity: float  # lambda_2(sum p_j L_j)
    bound: float  # no probabilities within the budget have a larger one


def laplacian(weight: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """The weighted sum of the matchings' Laplacians, sum_j weight_j L_j [m, m].

    Args:
        weight ([M]): Weight of every matching, such as the probability that it is active.
        partner ([m, M]): Whom node i meets in matching j; a node without a partner is its own.
    """
    m, count = partner.shape
    result = np.zeros((m, m))
    np.subtract.at(result, (np.repeat(np.arange(len(partner)), count), partner.ravel()), np.tile(weight, m))
    np.fill_diagonal(result, 0)
    np.fill_diagonal(result, -result.sum(axis=1))
    return result


def _eigenvalue(X: np.ndarray, place: int) -> float:
    """One of the eigenvalues of a symmetric X [m, m], which are in ascending order."""
    return float(la.eigvalsh(X, subset_by_index=(place, place))[0])


def connectivity(L: np.ndarray) -> float:
    """lambda_2 of a Laplacian [m, m]."""
    return _eigenvalue(L, 1)


def _inner(X: np.ndarray, partner: np.ndarray) -> np.ndarray:
    """<X, L_j> [M] for a symmetric X [m, m]."""
    return np.sum(np.diagonal(X)[:, None] - X[np.arange(X.shape[0])[:, None], partner], axis=0)


class _Barrier:
    """-weight t - log det(Lbar - t I) - sum log p - sum log(1 - p) - log(most - sum p), Lbar on vectors of sum 0."""

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
        """Newton's step [M + 1] in (p, t) and its decrement, with X = (Lbar - t I)^-1 on the vectors of sum zero."""
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
        """How much of a step to take; 1 / (1 + decrement) of it never leaves the domain."""
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
    """The largest <X, sum p_j L_j> / tr X within the budget: the most worthy matchings first."""
    worth = np.sort(_inner(X, partner))[::-1]
    whole = int(most)
    return float((worth[:whole].sum() + (most - whole) * worth[whole : whole + 1].sum()) / np.trace(X))


def activation(partner: np.ndarray, budget: float) -> Activation:
    """The probabilities of the matchings of a connected network, with the bound that certifies them.

    Newton's method on the problem with logarithmic barriers, t <= lambda_2(Lbar) being one of the constraints, for ever
    larger weights of t (S. Boyd, L. Vandenberghe, "Convex optimization", 2004, section 11.6), until connectivity and
    bound differ by less than `TOLERANCE`. For any X >= 0 with X 1 = 0 the largest <X, Lbar> / tr X is a bound; the
    barrier's own X makes it tight, and more so at the end of Newton's step. A step costs M sums of m / 2 outer products
    of vectors [m].

    Args:
        partner ([m, M]): Whom node i meets in matching j; a node without a partner is its own.
        budget: Mean share of the matchings that are active in a round, in (0, 1]; with 1 all of them always are.
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
            break  # double precision resolves no more
        X = la.cho_solve((factor, False), np.eye(m)) - 1 / m
        step, decrement = barrier.step(p, X)
        bound = min(bound, _largest(X, partner, most))
        if decrement < 1:  # which keeps X after the step positive semidefinite
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
    """Lbar and Lbar^2 + 2 Ltilde, both [m, m], for probabilities [M] of the matchings partner [m, M]."""
    L = laplacian(p, partner)
    return L, L @ L + 2 * laplacian(p * (1 - p), partner)


def mean_square(alpha: float, L: np.ndarray, square: np.ndarray) -> float:
    """|| E[W^T W] - J || for a step alpha, of Lbar and of Lbar^2 + 2 Ltilde [m, m]."""
    m = L.shape[0]
    return _eigenvalue(np.eye(m) - 1 / m - 2 * alpha * L + alpha**2 * square, m - 1)


def mixing_step(p: np.ndarray, partner: np.ndarray) -> tuple[float, float]:
    """The step alpha that makes rho least, and rho: a convex function of one number, minimised.

    The published problem is semidefinite and has the same solution. Every unit vector v gives a parabola in alpha,
    lowest at v^T Lbar v / v^T (Lbar^2 + 2 Ltilde) v <= 1 / lambda_2(Lbar); so is then the largest of them.

    Args:
        p ([M]): Probability that a matching is active, in [0, 1].
        partner ([m, M]): Whom node i meets in matching j, of a connected network.
    """
    L, square = moments(p, partner)
    furthest = 1 / connectivity(L)
    if np.all(p == 1):  # || I - alpha L - J ||^2, lowest where both ends of the spectrum are as far from zero
        alpha = 2 / (1 / furthest + _eigenvalue(L, L.shape[0] - 1))
    else:
        options: Any = {"bounds": (0, furthest), "method": "bounded", "options": {"xatol": 1e-9 * furthest}}
        alpha = float(minimize_scalar(lambda one: mean_square(one, L, square), **options).x)
    return alpha, max(0.0, mean_square(alpha, L, square))
