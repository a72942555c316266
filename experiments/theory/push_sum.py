"""Lemma 2 and Theorems 1 and 2 of the DPPS paper: privacy of a round, and convergence of PartPSP. On the host.

Y. Zhou, K. Xue, E. Chen: Differentially Private Perturbed Push-Sum Protocol and Its Application in Non-Convex
Optimization. Theorem 1: a round whose Laplace noise has scale gamma_n S / b, with S = max_i S_i of Eq. 22, is (b /
gamma_n)-differentially private for queries that differ in one node, if S is at least the largest distance between two
nodes' vectors. Lemma 2 says that it is for some constants C' and lambda; `lemma2_constants` has such constants.

Theorem 2, with A = (L_ls^2 / 2 + gamma_s L_sc^2 / 2 + 4 L_s L_sc^2 gamma_s^2) 30 C^2 / (1 - q)^2 (after Eq. 55),
requires gamma_s < min((1 - q) / (2 sqrt(15) C L_sc), 1 / (16 L_s + 8 A)), gamma_l < 1 / (1 + L_l) and gamma_n < gamma_s
/ 2. It is stated in orders of T; (56) of its proof has the numbers:

    (gamma_l - gamma_l^2 - L_l gamma_l^2) mean_t Delta_l + (gamma_s / 2 - gamma_n / 2 - 4 L_s gamma_s^2 - 2 A gamma_s^2)
    mean_t Delta_s  <=  (F(0) - F*) / T + A sum_i ||s_i(0)||^2 / (3 N T) + (1 + L_l) gamma_l^2 sigma_l^2
    + (4 L_s + A) gamma_s^2 (sigma_s^2 + sigma_g^2) + (gamma_n + 2 L_s gamma_s^2 + 2 A gamma_n^2) d_s S^2 / b^2

Axes: N nodes, T rounds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.theory.theorem import Condition, Theorem, below, total
from jdfl.privacy.sensitivity import lemma2_constants

GAPS = (
    "its (39) bounds y_i by the start and the perturbations of node i alone, which is false for all C and q: those of "
    "other nodes move y_i too; with all nodes' terms it holds, so that Lemma 6 needs N C where it has C"
)
LEAKS = "the S_i that are broadcast reveal the norm of the noise"
ALONE = "nothing is said about several rounds together: T rounds add up to T b / gamma_n"


def bound_A(L_s: float, L_sc: float, L_ls: float, gamma_s: float, C: float, q: float) -> float:
    """A of Theorem 2, as it is defined after Eq. 55 of the paper.

    Args:
        L_s: Lipschitz constant of grad_s F_i in s, as in Assumption 2 (c).
        L_sc: That between grad_s F_i and the clipped gradient, Assumption 2 (d).
        L_ls: That of grad_l F_i in s, Assumption 2 (b).
        gamma_s: Step size of the shared parameters.
        C: The constant of (39).
        q: The contraction of (39), in (0, 1).
    """
    return (L_ls**2 / 2 + gamma_s * L_sc**2 / 2 + 4 * L_s * L_sc**2 * gamma_s**2) * 30 * C**2 / (1 - q) ** 2


def most_gamma_s(L_s: float, L_sc: float, A: float, C: float, q: float) -> float:
    """The upper limit of gamma_s in Theorem 2; the arguments are those of `bound_A`, and its A."""
    first = (1 - q) / (2 * math.sqrt(15) * C * L_sc) if L_sc > 0 else math.inf
    return min(first, 1 / (16 * L_s + 8 * A)) if L_s > 0 or A > 0 else first


def lemma_2(matrices: Sequence[np.ndarray], constant: float, contraction: float) -> Condition:
    """Whether Eq. 22 with these constants bounds the distance between two nodes, for any perturbations.

    It does if the constant is at least N C with the C of `contraction` for these matrices. It does not if perturbations
    of norm one at every node, with the signs that drive two nodes apart, exceed it in some round, from equal starts at
    zero and without noise. Between the two nothing is known.

    Args:
        matrices: The doubly stochastic matrices [T, N, N] of all rounds, at least one.
        constant: C' of Eq. 22, above 0.
        contraction: Lambda of Eq. 22, in (0, 1].
    """
    N, products, S, worst, least = len(matrices[0]), list[np.ndarray](), 0.0, 0.0, 0.0
    for W in matrices:
        products.append(np.eye(N))
        S = contraction * S + 2 * constant
        apart = sum(np.abs(P[:, None] - P[None]).sum(axis=2) for P in products)  # over pairs of nodes [N, N]
        worst = max(worst, float(np.max(apart)) / S)
        for r, P in enumerate(reversed(products)):
            least = max(least, N * float(np.abs(P - 1 / N).max()) / max(contraction**r, 1e-300))
        products = [W @ P for P in products]
    text = "S of Eq. 22 is at least the largest distance between two nodes' vectors: the worst distance / S"
    holds = True if constant >= least else False if worst > 1 + 1e-9 else None
    constant, contraction = constants(matrices)
    needs = f"larger constants, for example C' = N C = {constant:.4g} and lambda = {contraction:.3g}"
    return Condition("Lemma 2", text, holds, needs, worst, 1.0)


def constants(matrices: Sequence[np.ndarray]) -> tuple[float, float]:
    """The C' = N C and lambda of `lemma2_constants`; NaN where the nodes of a network do not come to agree.

    With them (39) holds, too, if it has the terms of all nodes.

    Args:
        matrices: The matrices [T, N, N] of all rounds, at least one.
    """
    try:
        return lemma2_constants(matrices)
    except ValueError:
        return math.nan, math.nan


def theorem_1(b: float, gamma_n: float, rounds: int, failure: float | None = None) -> Theorem:
    """Theorem 1 without the conditions of a run: its epsilon of a round, and of all rounds by adding up.

    Args:
        b: The paper's privacy parameter, above 0.
        gamma_n: The smallest noise rate of a round, above 0.
        rounds: T, the number of rounds.
        failure: The probability that a public S is too small in some round; None: S is not public, but broadcast.
    """
    says: dict[str, float | None] = {"epsilon of a round": b / gamma_n, "T b / gamma_n": rounds * b / gamma_n}
    if failure is not None:
        says["probability that S is too small in some round"] = failure
    claim = "every round t > 0 is (b / gamma_n)-differentially private for queries that differ in one node"
    return Theorem("dpps-1", "DPPS, Theorem 1", claim, (), says, ALONE if failure is not None else f"{LEAKS}; {ALONE}")


@dataclass(frozen=True)
class Convergence:
    """The constants and settings of Theorem 2; None for what is unknown."""

    rounds: int  # T, the number of rounds
    d_s: int  # the number of shared parameters
    gamma_s: float  # step size of the shared parameters
    gamma_l: float  # step size of the local parameters
    gamma_n: float  # noise rate
    b: float | None  # privacy parameter; None: there is no noise
    C: float  # the constant of (39)
    q: float  # the contraction of (39), in (0, 1)
    L_s: float | None  # Lipschitz constant of the shared gradients in the shared parameters
    L_sc: float | None  # Lipschitz constant between a shared gradient and a clipped one
    L_l: float | None  # Lipschitz constant of the local gradients in the local parameters
    L_ls: float | None  # Lipschitz constant of the local gradients in the shared parameters
    sigma_s: float | None  # standard deviation of a clipped stochastic shared gradient
    sigma_l: float | None  # standard deviation of a stochastic local gradient
    sigma_g: float | None  # largest distance of a node's clipped gradient from that of all nodes, on average
    S: float | None  # largest sensitivity of a round
    gap: float | None  # F(0) - F*
    start: float  # the mean over nodes of ||s_i(0)||^2

    @property
    def A(self) -> float | None:
        """`bound_A`; None where a constant is unknown."""
        if self.L_s is None or self.L_sc is None or self.L_ls is None:
            return None
        return bound_A(self.L_s, self.L_sc, self.L_ls, self.gamma_s, self.C, self.q)

    def terms(self) -> dict[str, float | None]:
        """The terms on the right of (56), divided by T, by name."""
        A, L_s, L_l, square = self.A, self.L_s, self.L_l, self.gamma_s**2
        one = None if L_l is None or self.sigma_l is None else (1 + L_l) * self.gamma_l**2 * self.sigma_l**2
        other = noise = None
        if A is not None and L_s is not None:
            if self.sigma_s is not None and self.sigma_g is not None:
                other = (4 * L_s + A) * square * (self.sigma_s**2 + self.sigma_g**2)
            if self.b is None:
                noise = 0.0
            elif self.S is not None:
                rates = self.gamma_n + 2 * L_s * square + 2 * A * self.gamma_n**2
                noise = rates * self.d_s * self.S**2 / self.b**2
        return {
            "(F(0) - F*) / T": None if self.gap is None else self.gap / self.rounds,
            "A mean_i ||s_i(0)||^2 / (3 T)": None if A is None else A * self.start / (3 * self.rounds),
            "(1 + L_l) gamma_l^2 sigma_l^2": one,
            "(4 L_s + A) gamma_s^2 (sigma_s^2 + sigma_g^2)": other,
            "(gamma_n + 2 L_s gamma_s^2 + 2 A gamma_n^2) d_s S^2 / b^2": noise,
        }


def theorem_2(at: Convergence) -> Theorem:
    """Theorem 2: the conditions on the three step sizes, and the bound on the mean of Delta_s, from (56).

    Args:
        at: The constants and settings.
    """
    A, most, local = at.A, None, None if at.L_l is None else 1 / (1 + at.L_l)
    if A is not None and at.L_s is not None and at.L_sc is not None:
        most = most_gamma_s(at.L_s, at.L_sc, A, at.C, at.q)
    text = "gamma_s < min((1 - q) / (2 sqrt(15) C L_sc), 1 / (16 L_s + 8 A))"
    noise = below("gamma_n", "gamma_n < gamma_s / 2", at.gamma_n, at.gamma_s / 2, "less noise")
    if at.b is None:
        noise = Condition("gamma_n", "gamma_n < gamma_s / 2: there is no noise", True)
    conditions = (
        below("gamma_s", text, at.gamma_s, most, "L_s, L_sc and L_ls, or a smaller step size"),
        below("gamma_l", "gamma_l < 1 / (1 + L_l)", at.gamma_l, local, "L_l, or a smaller step size"),
        noise,
    )
    terms, weight = at.terms(), None
    if A is not None and at.L_s is not None:
        gamma_n = 0.0 if at.b is None else at.gamma_n
        weight = at.gamma_s / 2 - gamma_n / 2 - (4 * at.L_s + 2 * A) * at.gamma_s**2
    whole = total(terms.values())
    bound = None if whole is None or weight is None or weight <= 0 else whole / weight
    says = {**terms, "A": A, "weight of Delta_s": weight, "bound on mean_t Delta_s": bound}
    claim = (
        "mean_t Delta_l and mean_t Delta_s are O(1 / sqrt(T)) with all three step sizes as small; by (56) of its proof"
    )
    return Theorem("dpps-2", "DPPS, Theorem 2 (PartPSP)", claim, conditions, says, GAPS)
