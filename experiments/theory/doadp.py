"""Theorems 1 and 2 and Corollary 1 of the DO-ADP paper: privacy, and convergence to stationary points. On the host.

W. Huo, C. Liu, K. Ding, K. H. Johansson, L. Shi: Decentralized Optimization with Amplified Privacy via Efficient
Communication. Theorem 1 is `jdfl.algorithms.doadp.Theorem1`.

Theorem 2, for L-smooth f_i, stochastic gradients of variance varsigma^2 and of norm at most G, and W with spectral gap
rho and phi = ||I - W||_2: with gamma = rho p k / (d (16 rho + rho^2 + 4 phi^2 + 2 rho phi^2) - 8 rho p k), alpha <
(1 - beta)^2 / (2 L) and c = rho^2 p k / (82 d), the mean over rounds of E||grad f(xbar)||^2 is at most

    2 (1 - beta) (f(x_0) - f*) / (alpha p T)
    + alpha L (beta + 2 + 4 beta^2 p) (G^2 + varsigma^2 + sigma^2 d) / (n (1 - beta)^3)
    + 8 alpha^2 p (G^2 + sigma^2 d) L^2 / ((1 - beta)^2 c^2)

Corollary 1 chooses alpha: the best one of Lemma 10 (9), or sqrt(n / T) for T >= 4 n L^2 / (1 - beta)^4 (10).

Steps of the proof of Theorem 2 that do not hold are in `GAPS`; tests/theory/test_doadp_theorems.py has an example of
each.
"""

import math
from dataclasses import dataclass

import numpy as np

from experiments.theory.theorem import Condition, Theorem, below, total
from jdfl.algorithms.doadp import SOURCE, UNSOUND, Theorem1

TERMS = ("2 (1 - beta) (f(x_0) - f*) / (alpha p T)", "term of alpha", "term of alpha^2")  # of Theorem 2's bound
GAPS = (
    "its proof takes E[(eta_t - eta_(t-1)) m_t] to be 0 (it is -p (1 - p) g for a constant gradient g), and x_t - "
    "xhat_(t-1) to be independent of eta_(t-1) (15); it drops eta_t inside the norm of a sum (Lemma 8, which is "
    "false), and replaces -||mean of grad f_i||^2 by -(mean of ||grad f_i||^2)"
)


def gamma_of(rho: float, phi: float, kept: float) -> float:
    """The consensus step size gamma that Theorem 2 requires.

    Args:
        rho: Spectral gap of W, in (0, 1].
        phi: ||I - W||_2, in [0, 2].
        kept: p k / d, the fraction of its entries that a node sends in a round on average, in (0, 1].
    """
    return rho * kept / (16 * rho + rho**2 + 4 * phi**2 + 2 * rho * phi**2 - 8 * rho * kept)


def contraction_of(rho: float, kept: float) -> float:
    """The c = rho^2 p k / (82 d) of Lemma 3, from rho in (0, 1] and `kept` = p k / d in (0, 1]."""
    return rho**2 * kept / 82


def spectrum(W: np.ndarray) -> tuple[float, float]:
    """The spectral gap rho = 1 - abs(lambda_2) and phi = ||I - W||_2 of a symmetric W [n, n]."""
    eigenvalues = np.linalg.eigvalsh(np.asarray(W, float))
    return 1 - float(np.sort(np.abs(eigenvalues))[-2]), float(np.max(np.abs(1 - eigenvalues)))


@dataclass(frozen=True)
class Convergence:
    """The constants and settings of Theorem 2 and Corollary 1; None for what is unknown."""

    n: int  # the number of nodes
    d: int  # the number of parameters
    steps: int  # T, the number of rounds
    p: float  # probability that a node is active in a round
    share: float  # k / d, the fraction of its entries that an active node sends
    rho: float  # spectral gap of W
    phi: float  # ||I - W||_2
    alpha: float  # step size of the gradients
    gamma: float  # step size towards the neighbours' copies
    beta: float  # momentum
    smoothness: float | None  # L, the Lipschitz constant of the gradients
    longest: float | None  # G, which bounds the norm of a stochastic gradient
    variance: float | None  # varsigma^2, which bounds the variance of a stochastic gradient
    sigma: float | None  # standard deviation of the noise per entry
    gap: float | None  # f(x_0) - f*

    @property
    def most(self) -> float | None:
        """The upper limit (1 - beta)^2 / (2 L) of alpha."""
        return (1 - self.beta) ** 2 / (2 * self.smoothness) if self.smoothness else None

    @property
    def least(self) -> float | None:
        """The least T of (10), 4 n L^2 / (1 - beta)^4."""
        return 4 * self.n * self.smoothness**2 / (1 - self.beta) ** 4 if self.smoothness else None

    def factors(self) -> tuple[float | None, float | None, float | None]:
        """r_0, b and h of Appendix G: the bound of Theorem 2 is r_0 / (alpha T) + b alpha + h alpha^2."""
        beta, L, first = self.beta, self.smoothness, None
        if self.gap is not None:
            first = 2 * (1 - beta) * self.gap / self.p
        if L is None or self.longest is None or self.sigma is None:
            return first, None, None
        square = self.longest**2 + self.sigma**2 * self.d
        c = contraction_of(self.rho, self.p * self.share)
        third = 8 * self.p * square * L**2 / ((1 - beta) ** 2 * c**2)
        if self.variance is None:
            return first, None, third
        many = L * (beta + 2 + 4 * beta**2 * self.p) * (square + self.variance)
        return first, many / (self.n * (1 - beta) ** 3), third

    def terms(self, alpha: float) -> tuple[float | None, float | None, float | None]:
        """The three terms of Theorem 2's bound for the step size `alpha`."""
        r0, b, h = self.factors()
        return (
            None if r0 is None else r0 / (alpha * self.steps),
            None if b is None else b * alpha,
            None if h is None else h * alpha**2,
        )

    def best(self) -> tuple[float, float] | None:
        """The alpha of (9), from Lemma 10, and the bound there before it is simplified; None where one is unknown."""
        (r0, b, h), most = self.factors(), self.most
        if r0 is None or b is None or h is None or most is None:
            return None
        T = self.steps
        alpha = min(math.sqrt(r0 / (b * T)), math.cbrt(r0 / (h * T)), most)
        return alpha, 2 * math.sqrt(b * r0 / T) + 2 * math.cbrt(h) * (r0 / T) ** (2 / 3) + r0 / (most * T)


def _common(at: Convergence) -> tuple[Condition, ...]:
    required = gamma_of(at.rho, at.phi, at.p * at.share)
    same = math.isclose(at.gamma, required, rel_tol=1e-5)
    text = "gamma = rho p k / (d (16 rho + rho^2 + 4 phi^2 + 2 rho phi^2) - 8 rho p k)"
    return (
        Condition("gamma", text, same, f"gamma = {required:.6g}", at.gamma, required),
        Condition("beta", "0 < beta < 1", 0 < at.beta < 1, "momentum", at.beta),
        Condition("p", "1/2 <= p <= 1 (Lemma 9)", 0.5 <= at.p <= 1, "nodes that are active more often", at.p),
    )


_CLAIM = "(1 / T) sum_t E||grad f(xbar_t)||^2 is at most the bound"


def theorem_1(theorem: Theorem1, sigma: float) -> Theorem:
    """Theorem 1 for noise of standard deviation `sigma` per entry, above 0: conditions, epsilon and delta.

    Raises ValueError for a `sigma` that is not positive.
    """
    epsilon = theorem.epsilon(sigma)
    says: dict[str, float | None] = {"epsilon": epsilon, "delta at the end of its proof": theorem.delta(epsilon)}
    claim = "all messages are (epsilon, delta)-differentially private for some delta in (0, 1], which is no claim"
    conditions = tuple(Condition(*one) for one in theorem.asked(epsilon))
    return Theorem("do-adp-1", f"DO-ADP, Theorem 1 ({SOURCE})", claim, conditions, says, UNSOUND)


def theorem_2(at: Convergence) -> Theorem:
    """Theorem 2: the conditions on gamma, beta, p and alpha, and the bound with its three terms.

    Args:
        at: The constants and settings.
    """
    step = below("alpha", "alpha < (1 - beta)^2 / (2 L)", at.alpha, at.most, "L, or a smaller step size")
    terms = at.terms(at.alpha)
    says = {**dict(zip(TERMS, terms, strict=True)), "bound": total(terms)}
    return Theorem("do-adp-2", "DO-ADP, Theorem 2", _CLAIM, (*_common(at), step), says, GAPS)


def corollary_1(at: Convergence) -> Theorem:
    """Corollary 1: the conditions on gamma, beta, p, T and alpha, and the bounds (9), without its O, and (10).

    Args:
        at: The constants and settings.
    """
    alpha = math.sqrt(at.n / at.steps)
    same = math.isclose(at.alpha, alpha, rel_tol=1e-5)
    conditions = (
        *_common(at),
        below("T of (10)", "4 n L^2 / (1 - beta)^4 <= T", at.least, at.steps, "L, or more rounds", equal=True),
        Condition("alpha of (10)", "alpha = sqrt(n / T)", same, f"alpha = {alpha:.6g}", at.alpha, alpha),
    )
    terms, best = at.terms(alpha), at.best() or (None, None)
    says = {"alpha of (9)": best[0], "bound (9) with its constants": best[1]}
    says |= {**dict(zip(TERMS, terms, strict=True)), "bound (10)": total(terms)}
    return Theorem("do-adp-corollary-1", "DO-ADP, Corollary 1", _CLAIM, conditions, says, GAPS)
