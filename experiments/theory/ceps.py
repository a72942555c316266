"""Theorems 1 to 3 of the CEPS paper: convergence, and its claims about privacy of one step and of a run. On the host.

Sha, Zhou, Kong, Li: Sparse Decentralized Federated Learning. Theorem 1, for nodes that all communicate every k_0 steps,
with sigma_i = c / t_i and T communications: if c >= c_0 = (80 m sqrt(l) / (1 - tau))^2 with tau = (1 - m^(-m B))^(1 /
B) (12), then with f = sum_i f_i

    (1 / T) sum_a E||grad f(varpi^(a k_0))||^2 <= 8 m c (f(0) - f*) / T + m^2 c_0 zeta^2 / c + 16 m k_0 e_inf

Numbers of Theorem 1 are decimal logarithms, since c_0 is often outside the range of floats. `GAPS` has the steps of its
proof that do not hold.

Theorems 2 and 3 are about privacy (`jdfl.algorithms.ceps_paper`).
"""

import math

import numpy as np

from experiments.theory.theorem import Condition, Theorem, below, log10
from jdfl.algorithms.ceps_paper import UNSOUND, composed, step_epsilon

GAPS = (
    "the proof of Lemma 1 takes selected links to be undirected: if some i select j but j never i, Assumption 4 as "
    "written does not make the nodes agree; Lemma 4 drops E<grad f(nu), W Delta A 1 / m>, which is not zero; with "
    "Gaussian noise e_inf (27), a supremum over all steps, has no finite value"
)


def log10_gap(m: int, B: int) -> float:
    """log10 of 1 - tau, with tau of (12) for m >= 2 nodes and windows of B >= 1 communications."""
    small = -m * B * math.log10(m)  # log10 of m^(-m B)
    return math.log10(-math.expm1(math.log1p(-(10**small)) / B)) if small > -300 else small - math.log10(B)


def log10_c0(m: int, smoothness: float, B: int) -> float:
    """log10 of c_0 (12) for m >= 2 nodes, windows of B >= 1 communications, and l = `smoothness` > 0."""
    return 2 * (math.log10(80 * m) + math.log10(smoothness) / 2 - log10_gap(m, B))


def pairs_bound(m: int, t: float, B: int) -> float:
    """The paper's bound on the probability of Assumption 4: every pair of nodes communicates in B rounds.

    Args:
        m: The number of nodes, at least 2, each linked to all others.
        t: The number of nodes that a node combines, itself among them, in [1, m].
        B: The number of rounds, at least 1.
    """
    return float((1 - (1 - (t - 1) / (m - 1)) ** B) ** ((m - 1) * m))


def theorem_1(
    *,
    m: int,
    smoothness: float | None,
    B: int,
    c: float | None,
    k0: int | None,
    communications: int,
    gap: float | None,
    zeta: float | None,
    e_inf: float | None,
) -> Theorem:
    """Theorem 1 for these constants: the condition c >= c_0, and the bound with its three terms, as logarithms.

    Args:
        m: The number of nodes, at least 2.
        smoothness: l, the largest Lipschitz constant of a grad f_i; None: unknown.
        B: Assumption 4 is about B + 1 communications, B >= 1.
        c: The constant in sigma_i = c / t_i; None: there is none.
        k0: Steps between two communications; None: nodes differ.
        communications: T, the number of communications.
        gap: f(0) - f*, with f the sum of the f_i; None: unknown.
        zeta: The zeta of Assumption 2; None: unknown.
        e_inf: The e_inf of (27); None: unknown.
    """
    limit = log10_c0(m, smoothness, B) if smoothness else None
    needs = "l, and one c for all nodes, or a larger c (smaller steps)"
    condition = below("c >= c_0", f"log10 c_0 <= log10 c, for B = {B}", limit, log10(c), needs, equal=True)

    def product(factor: float, *parts: float | None) -> float | None:
        logs = [log10(factor), *parts]
        return None if None in logs else sum(one for one in logs if one is not None)

    less = None if c is None else -math.log10(c)
    first = product(8 * m / communications, log10(c), log10(gap)) if communications else None
    second = product(m**2, limit, log10(zeta), log10(zeta), less)
    third = product(16 * m, log10(k0), log10(e_inf))
    whole = None
    if first is not None and second is not None and third is not None:
        whole = float(np.logaddexp.reduce(np.array([first, second, third]) * math.log(10))) / math.log(10)
    says = {
        "log10 of 8 m c (f(0) - f*) / T": first,
        "log10 of m^2 c_0 zeta^2 / c": second,
        "log10 of 16 m k_0 e_inf": third,
        "log10 of the bound": whole,
    }
    claim = "(1 / T) sum_a E||grad f(varpi)||^2, with f the sum of the f_i, is at most the bound"
    return Theorem("ceps-1", "CEPS, Theorem 1", claim, (condition,), says, GAPS)


def theorem_2(multiplier: float, delta: float) -> Theorem:
    """Theorem 2: the epsilon of one step, and the condition of the formula that its proof takes.

    Args:
        multiplier: Standard deviation of the noise divided by u_i, above 0.
        delta: Delta of one step, in (0, 1].
    """
    epsilon = step_epsilon(multiplier, delta)
    needs = "more noise, or the analytic Gaussian mechanism"
    formula = below("Gaussian mechanism", "epsilon < 1, where the formula of (13) is proven", epsilon, 1.0, needs)
    says: dict[str, float | None] = {"epsilon": epsilon, "delta": delta}
    return Theorem("ceps-2", "CEPS, Theorem 2", "one step is (epsilon, delta)-private", (formula,), says, UNSOUND)


def theorem_3(multiplier: float, delta: float, communications: int) -> Theorem:
    """Theorem 3: epsilon and delta of all communications together, with the condition of `theorem_2`.

    Args:
        multiplier: As for `theorem_2`.
        delta: As for `theorem_2`.
        communications: The number a of communications, at least 1.
    """
    step = theorem_2(multiplier, delta)
    epsilon, whole = composed(step_epsilon(multiplier, delta), delta, communications)
    claim = f"a = {communications} communications are (epsilon, delta)-private"
    if whole >= 1:
        claim += "; every algorithm satisfies a delta of 1 or more, so this is no claim"
    says: dict[str, float | None] = {"epsilon": epsilon, "delta": whole}
    return Theorem("ceps-3", "CEPS, Theorem 3", claim, step.conditions, says, UNSOUND)


def assumption_5(lengths: np.ndarray, bounds: np.ndarray) -> Condition:
    """Assumption 5, ||grad f_i(w)|| <= u_i / 2 for every w, as far as it can be refuted at one w.

    Args:
        lengths: The norm of every node's gradient at some w, lengths [m].
        bounds: u_i of every node, bounds [m].
    """
    worst = int(np.argmax(lengths / bounds))
    value, limit = float(lengths[worst]), float(bounds[worst]) / 2
    text = f"||grad f_i(w)|| <= u_i / 2 for every w; at the start, of node {worst}"
    needs = "a larger u_i" if value > limit else "a bound on the gradients at every w"
    return Condition("Assumption 5", text, False if value > limit else None, needs, value, limit)
