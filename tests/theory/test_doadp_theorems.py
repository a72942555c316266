"""Theorem 2 and Corollary 1 of the DO-ADP paper, and every step of the proofs that has numbers, `GAPS` among them."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import jdfl
from experiments.proof_steps import before_15, laws, lemma_8, lemma_9, moments
from experiments.theory import doadp as theorems
from jdfl.algorithms import Theorem1

AT = theorems.Convergence(
    n=20,
    d=50,
    steps=4000,
    p=0.8,
    share=0.3,
    rho=0.4,
    phi=1.2,
    alpha=0.01,
    gamma=theorems.gamma_of(0.4, 1.2, 0.24),
    beta=0.15,
    smoothness=0.5,
    longest=1.0,
    variance=0.7,
    sigma=0.2,
    gap=0.6,
)


def test_theorem_2_is_its_printed_formula():
    p, beta, alpha, L, T, n, c = 0.8, 0.15, 0.01, 0.5, 4000, 20, 0.4**2 * 0.8 * 0.3 / 82
    noise = 0.2**2 * 50
    terms = (
        2 * (1 - beta) * 0.6 / (alpha * p * T),
        alpha * L * (beta + 2 + 4 * beta**2 * p) * (1 + 0.7 + noise) / (n * (1 - beta) ** 3),
        8 * alpha**2 * p * (1 + noise) * L**2 / ((1 - beta) ** 2 * c**2),
    )
    found = theorems.theorem_2(AT)
    assert found.holds
    assert [found.says[name] for name in theorems.TERMS] == pytest.approx(list(terms))
    assert found.says["bound"] == pytest.approx(sum(terms))


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        ({"gamma": 1.01 * AT.gamma}, ("gamma",)),
        ({"alpha": 0.85**2}, ("alpha",)),  # (1 - beta)^2 / (2 L): the limit itself is excluded
        ({"beta": 0.0}, ("beta",)),
        ({"p": 0.4, "gamma": theorems.gamma_of(0.4, 1.2, 0.12)}, ("p",)),
    ],
    ids=str,
)
def test_a_condition_that_is_missing_is_named(changed, missing):
    found = theorems.theorem_2(replace(AT, **changed))
    assert found.missing == missing
    assert f"missing {missing[0]}" in found.statement()


@pytest.mark.parametrize("unknown", ["smoothness", "longest", "variance", "sigma", "gap"])
def test_an_unknown_constant_leaves_the_bound_unknown(unknown):
    found = theorems.theorem_2(replace(AT, **{unknown: None}))
    assert found.says["bound"] is None
    assert found.holds is (None if unknown == "smoothness" else True)


def test_corollary_1_is_10_as_printed_and_its_conditions():
    p, beta, L, T, n, c, G, noise = 0.8, 0.15, 0.5, 4000, 20, theorems.contraction_of(0.4, 0.24), 1.0, 0.2**2 * 50
    printed = (
        2 * 0.6 * (1 - beta) / (p * math.sqrt(n * T))
        + L * (beta + 2 + 4 * beta**2 * p) * (G + 0.7 + noise) / ((1 - beta) ** 3 * math.sqrt(n * T))
        + 8 * n * p * (G + noise) * L**2 / ((1 - beta) ** 2 * c**2 * T)
    )
    found = theorems.corollary_1(AT)
    assert found.says["bound (10)"] == pytest.approx(printed)
    assert found.missing == ("alpha of (10)",)
    assert theorems.corollary_1(replace(AT, alpha=math.sqrt(n / T))).holds
    short = replace(AT, steps=30, alpha=math.sqrt(20 / 30))  # 4 n L^2 / (1 - beta)^4 = 38.3
    assert theorems.corollary_1(short).missing == ("T of (10)",)


def test_the_least_T_is_where_alpha_meets_its_limit():
    assert AT.least is not None
    assert AT.most is not None
    assert math.sqrt(AT.n / AT.least) == pytest.approx(AT.most)


def test_lemma_10_bounds_what_its_step_size_gives():
    """(9) before its O, for any r_0, b, h and limit; with half of a factor it would not hold."""
    draw, most = np.random.default_rng(0), 0.0
    for _ in range(500):
        at = replace(
            AT,
            gap=10 ** draw.uniform(-4, 3),
            sigma=10 ** draw.uniform(-3, 1),
            smoothness=10 ** draw.uniform(-2, 1),
            rho=draw.uniform(0.05, 1),
            steps=int(10 ** draw.uniform(0, 7)),
        )
        alpha, bound = at.best() or (0.0, 0.0)
        reached = sum(one or 0.0 for one in at.terms(alpha))
        assert reached <= bound * (1 + 1e-12)
        most = max(most, reached / bound)
    assert most > 0.9


# Appendix C: Lemma 3


def coefficients(rho: float, phi: float, kept: float, gamma: float) -> float:
    """The larger one of the two factors that (14) and (15) together give, with c_1 = gamma rho / 2, c_2 = kept / 2."""
    c1, c2 = gamma * rho / 2, kept / 2
    own = (1 + c1) * (1 - gamma * rho) ** 2 + (1 - kept) * (1 + 1 / c2) * gamma**2 * phi**2
    other = (1 + 1 / c1) * gamma**2 * phi**2 + (1 - kept) * (1 + c2) * (1 + gamma * phi) ** 2
    return max(own, other)


def grid() -> list[tuple[float, float, float]]:
    """rho, phi and p k / d, with rho <= phi <= 2 - rho, as they are for every W of Assumption 3."""
    rhos, kept = np.linspace(0.004, 1, 25), np.linspace(0.001, 1, 25)
    return [(rho, phi, one) for rho in rhos for phi in np.linspace(rho, 2 - rho, 9) for one in kept]


def test_lemma_3_contracts_by_one_minus_c_with_the_required_gamma():
    for rho, phi, kept in grid():
        gamma, c = theorems.gamma_of(rho, phi, kept), theorems.contraction_of(rho, kept)
        assert 0 < gamma <= 1
        assert coefficients(rho, phi, kept, gamma) <= 1 - c
        assert (1 - c) * (1 + c / 2) <= 1 - c / 2 + 1e-15  # c_3 = 2 / c
        assert (1 - c) * (1 + 2 / c) <= 2 / c
        assert 2 * (2 / c) / (c / 2) == pytest.approx(8 / c**2)  # the recursion, from zero


@pytest.mark.parametrize("wrong", [4.0, 0.02])
def test_another_gamma_does_not_contract_so_fast(wrong):
    assert any(
        coefficients(*one, wrong * theorems.gamma_of(*one)) > 1 - theorems.contraction_of(one[0], one[2])
        for one in grid()
    )


def test_W_of_the_paper_has_the_rho_and_phi_that_its_eigenvalues_give():
    network = jdfl.network.circulant(20, [1, 2, 3], weights="uniform")
    W = np.asarray(jdfl.network.as_dense(network.graph), float)
    turns = 2 * math.pi * np.arange(20) / 20
    eigenvalues = (1 + 2 * sum(np.cos(offset * turns) for offset in (1, 2, 3))) / 7
    rho, phi = theorems.spectrum(W)
    assert rho == pytest.approx(1 - np.abs(eigenvalues[1:]).max(), abs=1e-6)
    assert phi == pytest.approx(np.abs(1 - eigenvalues).max(), abs=1e-6)


def test_lemma_7_bounds_what_top_k_loses():
    draw, most = np.random.default_rng(0), 0.0
    for x in [*draw.standard_t(2, size=(200, 12)), np.ones(12)]:
        for k in range(1, 13):
            lost = float(np.sum(np.sort(x**2)[: 12 - k]))
            assert lost <= (1 - k / 12) * float(x @ x) * (1 + 1e-12)
            most = max(most, lost / ((1 - k / 12) * float(x @ x)) if k < 12 else 0.0)
    assert most == pytest.approx(1)  # of equal entries


def test_the_step_before_15_needs_independence_that_is_not_there():
    """E||x_1 - xhat_1||^2 <= (1 - p k / d) E||x_1 - xhat_0||^2 fails: x_1 depends on whether the node was active."""
    p, beta, alpha = 0.8, 0.05, 0.4
    assert alpha < (1 - beta) ** 2 / 2  # Theorem 2's limit for f(x) = x^2 / 2
    law = laws(p, beta, 1, lambda x: x, alpha, 1.0)
    left = sum(chance * (x - hat) ** 2 for chance, (x, _, hat, _) in law)
    right = (1 - p) * sum(chance * (x - before) ** 2 for chance, (x, before, _, _) in law)
    assert left == pytest.approx(0.2)
    assert left / right == pytest.approx(before_15()) == pytest.approx(2.049, abs=1e-3)
    apart = [(x - before) ** 2 for _, (x, before, _, _) in law]
    drawn_apart = sum(chance * one for (chance, _), one in zip(law, apart)) * (1 - p)
    assert drawn_apart == pytest.approx(right)  # what an eta that is drawn independently would give


# Appendices B, D, E and F: moments of the momentum of a node with gradients g = 1, exactly


@pytest.mark.parametrize(("p", "beta"), [*itertools.product((0.5, 0.8, 1.0), (0.0, 0.15, 0.9))])
def test_lemma_2_bounds_the_momentum(p, beta):
    for rounds in (1, 3, 200):
        assert moments(p, beta, rounds)[1] <= p / (1 - beta) ** 2 * (1 + 1e-12)
    assert moments(p, beta, 1)[1] > 0.99 * p**2 / (1 - 0.5 * beta) ** 2 - 1e-12 or beta  # p^2 in place of p is caught
    assert p == 1 or moments(p, beta, 1)[1] > p**2


@pytest.mark.parametrize(("p", "beta"), [(0.8, 0.15), (0.5, 0.6)])
def test_the_term_that_appendix_d_drops_is_not_zero(p, beta):
    """E[(eta_t - eta_(t-1)) m_t] = p E m_t - E[eta_(t-1) m_t] = -p (1 - p) g."""
    before = moments(p, beta, 30)[0]
    now = p + beta * before
    assert p * now - p * (1 + beta * before) == pytest.approx(-p * (1 - p))


@pytest.mark.parametrize(
    ("p", "beta", "ratio", "whole"),
    [(0.8, 0.15, 1.291, 0.9542), (0.95, 0.5, 3.089, 1.0298), (0.99, 0.6, 4.309, 1.0771)],
)
def test_lemma_8_drops_eta_inside_a_norm_and_is_false(p, beta, ratio, whole):
    """f_i(x) = x and -x: E||z_t - xbar_t||^2 exceeds the bound where p is near 1, with all hypotheses satisfied."""
    active, plain, bound = lemma_8(p, beta, 60)
    assert active / plain == pytest.approx(ratio, abs=2e-3)  # the first inequality of its proof says <= 1
    assert active / bound == pytest.approx(whole, abs=2e-4)  # its conclusion, times (1 - beta)^2 / (alpha beta)^2
    assert lemma_8(p, beta, 1)[0] == pytest.approx(lemma_8(p, beta, 1)[1])


def test_lemma_8_by_simulation():
    draw, p, beta, t = np.random.default_rng(0), 0.95, 0.5, 30
    m = np.zeros((200_000, 2))
    eta = m
    for _ in range(t):
        eta = (draw.random(m.shape) < p).astype(float)
        m = eta + beta * m
    found = float(np.mean(((eta * m) @ np.array([0.5, -0.5])) ** 2))
    assert found == pytest.approx(lemma_8(p, beta, t)[0], rel=0.02)


@pytest.mark.parametrize(("n", "p", "beta", "exceeds"), [(100, 0.5, 0.1, True), (20, 0.8, 0.15, False)])
def test_lemma_9_leaves_out_the_mean_of_a_sum(n, p, beta, exceeds):
    """E||(1/n) sum_i (eta_t - eta_(t-1)) m_t||^2 <= 2 p^2 G^2 / (n (1 - beta)^2) fails for many nodes with equal g."""
    assert (lemma_9(n, p, beta) > 1) == exceeds


def test_the_norm_of_a_mean_is_replaced_in_the_wrong_direction():
    """-||mean of grad f_i||^2 <= -(mean of ||grad f_i||^2), in the display before "Rearranging", is false."""
    g = np.array([1.0, -1.0])
    assert -(np.mean(g) ** 2) > -np.mean(g**2)


@pytest.mark.parametrize("beta", [0.05, 0.15, 0.6])
def test_the_limit_of_alpha_is_where_the_last_coefficient_vanishes(beta):
    L, p = 3.0, 0.7
    at = replace(AT, beta=beta, smoothness=L)
    assert at.most is not None

    def last(alpha: float) -> float:
        return (
            alpha**2 * p * beta * L / (1 - beta) ** 3
            - alpha * p / (2 * (1 - beta))
            + alpha**2 * L * p / (1 - beta) ** 2
        )

    assert last(at.most) == pytest.approx(0, abs=1e-12)
    assert last(0.99 * at.most) < 0 < last(1.01 * at.most)


# Theorem 1


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0])
def test_the_steps_of_theorem_1(epsilon):
    theorem = Theorem1(p=0.8, share=0.3, steps=200_000, records=300, clip=2.0, delta0=1e-6)
    sigma, p, q, T = theorem.sigma(epsilon), 0.8, 300, 200_000
    once = 2 * math.sqrt(2 * 0.3 * math.log(1.25e6)) * 2.0 / sigma
    assert once**2 == pytest.approx(q**2 * epsilon**2 / (20 * p**2 * T))  # (8)
    assert once**2 <= 0.2
    assert math.expm1(once) <= 2 * once
    assert 2 * once <= 0.9
    sampled = 2 * p * once / q
    assert T * sampled**2 == pytest.approx(epsilon**2 / 5)
    whole = math.sqrt(2 * T * sampled**2 * math.log(math.e + 1)) + T * sampled**2
    assert whole <= math.sqrt(3 / 5) * epsilon + epsilon / 5 <= epsilon
    found = theorems.theorem_1(theorem, sigma)
    assert found.says["epsilon"] == pytest.approx(epsilon)
    assert found.says["delta at the end of its proof"] == pytest.approx(theorem.delta(epsilon))
    assert found.holds
    short = replace(theorem, steps=1)
    assert theorems.theorem_1(short, short.sigma(epsilon)).missing == ("T",)
