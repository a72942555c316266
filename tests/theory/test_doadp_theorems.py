"""Theorem 2 and Corollary 1 of the DO-ADP paper, and every step of the proofs that has numbers, `GAPS` among them."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from experiments.proof_steps import before_15, laws, lemma_8, lemma_9, moments
from experiments.theory import doadp as theorems

GAMMA = theorems.gamma_of(0.4, 1.2, 0.24)
GIVEN = {"n": 20, "d": 50, "steps": 4000, "p": 0.8, "share": 0.3, "rho": 0.4, "phi": 1.2, "alpha": 0.01, "beta": 0.15}
KNOWN = {"smoothness": 0.5, "longest": 1.0, "variance": 0.7, "sigma": 0.2, "gap": 0.6}
AT = theorems.Convergence(gamma=GAMMA, **GIVEN, **KNOWN)


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


def test_what_is_missing_is_named_and_what_is_unknown_leaves_the_bound_unknown():
    for missing, changed in {
        "gamma": {"gamma": 1.01 * AT.gamma},
        "alpha": {"alpha": 0.85**2},  # (1 - beta)^2 / (2 L): the limit itself is excluded
        "beta": {"beta": 0.0},
        "p": {"p": 0.4, "gamma": theorems.gamma_of(0.4, 1.2, 0.12)},
    }.items():
        assert theorems.theorem_2(replace(AT, **changed)).missing == (missing,)
    for unknown in ("smoothness", "longest", "variance", "sigma", "gap"):
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
    assert AT.least is not None
    assert math.sqrt(AT.n / AT.least) == pytest.approx(AT.most)  # the least T is where alpha meets its limit
    short = replace(AT, steps=30, alpha=math.sqrt(20 / 30))  # 4 n L^2 / (1 - beta)^4 = 38.3
    assert theorems.corollary_1(short).missing == ("T of (10)",)


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


def test_lemma_3_contracts_by_one_minus_c_with_the_required_gamma_and_not_with_another():
    """The larger one of the two factors that (14) and (15) together give, with c_1 = gamma rho / 2, c_2 = kept / 2."""
    missed = set()
    for rho, share, kept in itertools.product(
        np.linspace(0.004, 1, 25), np.linspace(0, 1, 9), np.linspace(0.001, 1, 25)
    ):
        phi = rho + share * (2 - 2 * rho)  # rho <= phi <= 2 - rho, as for every W of Assumption 3
        for wrong in (1.0, 4.0, 0.02):
            gamma, c = wrong * theorems.gamma_of(rho, phi, kept), theorems.contraction_of(rho, kept)
            c1, c2 = gamma * rho / 2, kept / 2
            own = (1 + c1) * (1 - gamma * rho) ** 2 + (1 - kept) * (1 + 1 / c2) * gamma**2 * phi**2
            other = (1 + 1 / c1) * gamma**2 * phi**2 + (1 - kept) * (1 + c2) * (1 + gamma * phi) ** 2
            if max(own, other) > 1 - c:
                missed.add(wrong)
    assert missed == {4.0, 0.02}


def test_the_step_before_15_needs_independence_that_is_not_there():
    """E||x_1 - xhat_1||^2 <= (1 - p k / d) E||x_1 - xhat_0||^2 fails: x_1 depends on whether the node was active."""
    p, beta, alpha = 0.8, 0.05, 0.4
    assert alpha < (1 - beta) ** 2 / 2  # Theorem 2's limit for f(x) = x^2 / 2
    law = laws(p, beta, 1, lambda x: x, alpha, 1.0)
    left = sum(chance * (x - hat) ** 2 for chance, (x, _, hat, _) in law)
    right = (1 - p) * sum(chance * (x - before) ** 2 for chance, (x, before, _, _) in law)
    assert left == pytest.approx(0.2)
    assert left / right == pytest.approx(before_15()) == pytest.approx(2.049, abs=1e-3)


# Appendices B, D, E and F: moments of the momentum of a node with gradients g = 1, exactly


def test_lemma_2_bounds_the_momentum_and_the_term_that_appendix_d_drops_is_not_zero():
    """E[(eta_t - eta_(t-1)) m_t] = p E m_t - E[eta_(t-1) m_t] = -p (1 - p) g."""
    for p, beta in itertools.product((0.5, 0.8, 1.0), (0.0, 0.15, 0.9)):
        for rounds in (1, 3, 200):
            assert moments(p, beta, rounds)[1] <= p / (1 - beta) ** 2 * (1 + 1e-12)
        assert p == 1 or moments(p, beta, 1)[1] > p**2  # p^2 in place of p is caught
        before = moments(p, beta, 30)[0]
        now = p + beta * before
        assert p * now - p * (1 + beta * before) == pytest.approx(-p * (1 - p))


def test_lemma_8_drops_eta_inside_a_norm_and_is_false():
    """f_i(x) = x and -x: E||z_t - xbar_t||^2 exceeds the bound where p is near 1, with all hypotheses satisfied."""
    for p, beta, ratio, whole in ((0.8, 0.15, 1.291, 0.9542), (0.95, 0.5, 3.089, 1.0298), (0.99, 0.6, 4.309, 1.0771)):
        active, plain, bound = lemma_8(p, beta, 60)
        assert active / plain == pytest.approx(ratio, abs=2e-3)  # the first inequality of its proof says <= 1
        assert active / bound == pytest.approx(whole, abs=2e-4)  # its conclusion, times (1 - beta)^2 / (alpha beta)^2
        assert lemma_8(p, beta, 1)[0] == pytest.approx(lemma_8(p, beta, 1)[1])


def test_lemma_9_leaves_out_the_mean_of_a_sum():
    """E||(1/n) sum_i (eta_t - eta_(t-1)) m_t||^2 <= 2 p^2 G^2 / (n (1 - beta)^2) fails for many nodes with equal g."""
    assert lemma_9(100, 0.5, 0.1) > 1 > lemma_9(20, 0.8, 0.15)


def test_the_norm_of_a_mean_is_replaced_in_the_wrong_direction():
    """-||mean of grad f_i||^2 <= -(mean of ||grad f_i||^2), in the display before "Rearranging", is false."""
    g = np.array([1.0, -1.0])
    assert -(np.mean(g) ** 2) > -np.mean(g**2)
