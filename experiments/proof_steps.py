"""Steps of the three papers' proofs that do not hold, each with an example that satisfies what the step assumes.

Everything is exact or a few thousand multiplications, a second in all. The steps that hold are tests
(tests/theory/test_*_theorems.py).

- CEPS, Lemma 1: five nodes select two each, so that the links of any two rounds connect all nodes, but two pairs select
  only each other and never agree: ||A^(i -> a) d_j||^2 and the lemma's bound after 12,000 communications. The proof
  takes selected links to be undirected.
- CEPS, Lemma 4: E<grad f(nu), W Delta A 1 / m>, which the proof drops, for three nodes that select themselves and
  another: its sign depends on the f_i.
- CEPS, (27): e_inf is a supremum over all steps of a quantity with Gaussian noise: the largest value so far.
- DPPS, (39): a node's distance from the mean, and the bound by its own start and perturbations, which are zero.
- DO-ADP, Lemma 8: f_i(x) = x and -x on two nodes, no noise. E||z_t - xbar_t||^2 over the bound, exactly, and the first
  inequality of the proof, which drops eta_t inside the norm of a sum.
- DO-ADP, Lemma 9: E||(1/n) sum_i (eta_t - eta_(t-1)) m_t||^2 over its bound, equal gradients at all nodes. The square
  of the mean is missing in the bound.
- DO-ADP, Appendix C, before (15): E||x_1 - xhat_1||^2 over (1 - p k / d) E||x_1 - xhat_0||^2, with f(x) = x^2 / 2 and
  k = d: x_1 depends on whether the node was active.
- DO-ADP, Appendix D: -||mean of grad f_i||^2 and -(mean of ||grad f_i||^2) for gradients 1 and -1; the first is
  replaced by the second as an upper bound.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from experiments.theory.ceps import log10_gap

PAIRS = [[(i, j) for j in range(3) if j != i] for i in range(3)]  # a node selects itself and another one
QUADRATICS = {  # Hessians of three f_i in Lemma 4, and where the nodes are
    "convex, one dimension": ((1, 2, 3), (-1, 0, 2)),
    "not convex": ((-1, 1, 1), (0, 5, -5)),
    "convex, two dimensions": (
        (
            np.array([[0.08, -0.07], [-0.07, 0.07]]),
            np.array([[1.9, 0.8], [0.8, 0.35]]),
            np.array([[0.74, 1.42], [1.42, 2.73]]),
        ),
        ([-1.6, 2.1], [1.15, -0.18], [0.06, -0.78]),
    ),
}
EIGHT = ((0.8, 0.15), (0.95, 0.5), (0.99, 0.6))  # p and beta in Lemma 8, the first as in the paper's experiments
NINE = ((100, 0.5, 0.1), (20, 0.8, 0.15))  # n, p and beta in Lemma 9, the second as in its experiments
FIRST, SECOND = (  # the selections of the five nodes of Lemma 1 in even and in odd communications
    [(0, 1), (0, 1), (2, 3), (2, 3), (4, 0)],
    [(0, 1), (0, 1), (2, 3), (2, 3), (4, 2)],
)
ROUNDS = 6000  # pairs of communications


def selected(choice: Sequence[Sequence[int]]) -> np.ndarray:
    """A^k (16 of the CEPS paper) [m, m]: column i has 1 / t_i at the nodes that i selects."""
    A = np.zeros((len(choice), len(choice)))
    for i, nodes in enumerate(choice):
        A[list(nodes), i] = 1 / len(nodes)
    return A


def closed_pairs(rounds: int) -> tuple[float, float]:
    """||A^(i -> a) d_0||^2 after `rounds` pairs of communications, and Lemma 1's bound on it for B = 1."""
    tau = 1 - 10 ** log10_gap(5, 1)
    d = np.full(5, 0.2) - np.eye(5)[0]
    product = np.linalg.matrix_power(selected(FIRST) @ selected(SECOND), rounds)
    return float(np.sum((product @ d) ** 2)), 64 * 5 * tau ** (2 * 2 * rounds)


def cross_term(hessians: Any, points: Any, choices: Any, c: float) -> tuple[float, float]:
    """Lemma 4's E<grad f(nu), W Delta A 1 / m>, and E<grad f(varpi), the same>, over all choices, with P = 0.

    f_i(w) = w^T H_i w / 2, with H_i a number or a matrix.
    """
    H = [np.atleast_2d(one) for one in hessians]
    w = np.reshape(np.asarray(points, float), (len(H), -1))
    mean, whole, found = w.mean(axis=0), sum(H), []
    for chosen in itertools.product(*choices):
        averages = np.stack([w[list(one)].mean(axis=0) for one in chosen])
        moved = averages.mean(axis=0) - mean
        nu = mean - sum(one @ x for one, x in zip(H, averages)) / (c * len(H))
        found.append(((whole @ nu) @ moved, (whole @ mean) @ moved))
    at_nu, at_mean = np.mean(found, axis=0)
    return float(at_nu), float(at_mean)


def twice_largest(hessians: Any) -> float:
    """2 l, the smallest c that (22) allows."""
    return 2 * max(float(np.linalg.eigvalsh(np.atleast_2d(one))[-1]) for one in hessians)


def noisy_projections(steps: int, seed: int) -> np.ndarray:
    """||P_Omega(U + Xi) - U||^2 [steps] with fresh standard normal Xi, of a fixed U [6, 2] with 3 nonzeros kept."""
    draw, U = np.random.default_rng(seed), np.ones((6, 2))
    found = []
    for _ in range(steps):
        x = U + draw.normal(size=U.shape)
        kept = np.argsort(-np.abs(x), axis=0)[:3]
        out = np.zeros_like(x)
        np.put_along_axis(out, kept, np.take_along_axis(x, kept, 0), 0)
        found.append(float(np.sum((out - U) ** 2)))
    return np.array(found)


def silent_node(rounds: int = 6) -> tuple[float, float]:
    """|y_9 - mean| on 2-Out of ten nodes where node 0 alone adds 1 per round, and what node 9 has added: zero."""
    W = np.asarray(jdfl.network.as_dense(jdfl.network.d_out(10, 2).graph), float)
    s = np.zeros(10)
    for _ in range(rounds):
        s[0] += 1.0
        s = W @ s
    return float(abs(s[9] - s.mean())), 0.0


def moments(p: float, beta: float, rounds: int) -> tuple[float, float]:
    """E m_t and E m_t^2 of a node with g = 1: m_t = eta_(t-1) + beta m_(t-1), m_0 = 0, t = `rounds`."""
    first = second = 0.0
    for _ in range(rounds):
        first, second = p + beta * first, p + 2 * p * beta * first + beta**2 * second
    return first, second


def lemma_8(p: float, beta: float, t: int) -> tuple[float, float, float]:
    """Two nodes with gradients 1 and -1: E||mean of eta_(t-1) m_t||^2; the same without eta; Lemma 8's sum."""
    first, second = moments(p, beta, t - 1)
    active = p * (1 + 2 * beta * first + beta**2 * second) - (p * (1 + beta * first)) ** 2
    plain = p * (1 - p) * sum(beta ** (2 * one) for one in range(t))
    bound = p * (1 - p) * sum(beta**one for one in range(t + 1)) / (1 - beta)
    return active / 2, plain / 2, bound / 2


def lemma_9(n: int, p: float, beta: float, t: int = 60) -> float:
    """E||(1/n) sum_i (eta_t - eta_(t-1)) m_t||^2 over 2 p^2 / (n (1 - beta)^2), for n nodes with g = 1."""
    before, square = moments(p, beta, t)
    on = p * (1 + 2 * beta * before + beta**2 * square)  # E[eta_(t-1) m_t^2]
    second, mean = p * (1 - p) * beta**2 * square + (1 - p) * on, -p * (1 - p)
    return (mean**2 + (second - mean**2) / n) / (2 * p**2 / (n * (1 - beta) ** 2))


Law = list[tuple[float, tuple[float, ...]]]


def laws(p: float, beta: float, rounds: int, gradient: Callable[[float], float], alpha: float, x0: float) -> Law:
    """All (probability, (x_t, xhat_t-1, xhat_t, m_t)) after some rounds of a node with one parameter, xhat_0 = 0."""
    found: Law = [(1.0, (x0, 0.0, 0.0, 0.0))]
    for _ in range(rounds):
        new: Law = []
        for (chance, (x, _, hat, m)), on in itertools.product(found, (1, 0)):
            momentum = on * gradient(x) + beta * m
            moved = x - on * alpha * momentum
            new.append((chance * (p if on else 1 - p), (moved, hat, moved if on else hat, momentum)))
        found = new
    return found


def before_15(p: float = 0.8, beta: float = 0.05, alpha: float = 0.4) -> float:
    """E||x_1 - xhat_1||^2 over (1 - p) E||x_1 - xhat_0||^2 for f(x) = x^2 / 2, x_0 = 1, k = d."""
    law = laws(p, beta, 1, lambda x: x, alpha, 1.0)
    left = sum(chance * (x - hat) ** 2 for chance, (x, _, hat, _) in law)
    return left / ((1 - p) * sum(chance * (x - before) ** 2 for chance, (x, before, _, _) in law))


def rows_of(seeds: int) -> list[Row]:
    made: list[Row] = []

    def add(case: str, column: str, *values: float) -> None:
        made.append(row(case, column, None, values))

    for name, found in zip(("||A d||^2", "bound"), closed_pairs(ROUNDS), strict=True):
        add(f"CEPS Lemma 1, two closed pairs, {2 * ROUNDS} communications", name, found)
    for name, (hessians, points) in QUADRATICS.items():
        at_nu, at_mean = cross_term(hessians, points, PAIRS, twice_largest(hessians))
        add(f"CEPS Lemma 4, {name}", "E<grad f(nu), W DA 1 / m>", at_nu)
        add(f"CEPS Lemma 4, {name}", "E<grad f(varpi), W DA 1 / m>", at_mean)
    for steps in (20, 2_000, 20_000):
        most = [float(noisy_projections(20_000, seed)[:steps].max()) for seed in range(seeds)]
        add(f"CEPS (27), {steps} steps", "e_inf so far", *most)
    for name, found in zip(("distance", "bound"), silent_node(), strict=True):
        add("DPPS (39), a node that adds nothing", name, found)
    for p, beta in EIGHT:
        active, plain, bound = lemma_8(p, beta, 60)
        add(f"DO-ADP Lemma 8, p = {p:g}, beta = {beta:g}", "first inequality, left / right", active / plain)
        add(f"DO-ADP Lemma 8, p = {p:g}, beta = {beta:g}", "left / bound", active / bound)
    for n, p, beta in NINE:
        add(f"DO-ADP Lemma 9, n = {n}, p = {p:g}, beta = {beta:g}", "second term / bound", lemma_9(n, p, beta))
    add("DO-ADP Appendix C, before (15)", "left / right", before_15())
    gradients = np.array([1.0, -1.0])
    add("DO-ADP Appendix D, gradients 1 and -1", "-||mean||^2", -float(np.mean(gradients) ** 2))
    add("DO-ADP Appendix D, gradients 1 and -1", "-(mean of squares)", -float(np.mean(gradients**2)))
    return made


@experiment(seeds=3)
def main(chosen: Options) -> Made:
    rows = rows_of(chosen.seeds)
    return Made({"Steps of proofs that do not hold": rows}, bars(rows, ["left / bound"], "left side / bound"))
