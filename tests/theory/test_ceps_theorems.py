"""Theorems 1 to 3 of the CEPS paper, every step of their proofs that has numbers, and how a report states them."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import jdfl
from experiments.proof_steps import (
    FIRST,
    PAIRS,
    QUADRATICS,
    SECOND,
    closed_pairs,
    cross_term,
    noisy_projections,
    selected,
    twice_largest,
)
from experiments.theory import ceps as theorems
from jdfl.algorithms.ceps_privacy import PAPER_DELTA, composed, step_epsilon
from jdfl.privacy.report import report


def test_theorem_2_is_the_inverse_of_the_papers_noise():
    for epsilon in (0.25, 0.5, 2.0):
        multiplier = float(jdfl.classical_gaussian(epsilon, PAPER_DELTA).multiplier)
        assert step_epsilon(multiplier) == pytest.approx(epsilon)


@pytest.mark.parametrize("a", [1, 2, 3, 30])
def test_theorem_3_composes_and_its_delta_is_never_below_one_at_the_papers(a):
    epsilon, delta = composed(0.5, 0.5, a)
    assert epsilon == pytest.approx(math.sqrt(2 * a * math.log(2)) * 0.5 + a * 0.5 * (math.exp(0.5) - 1))
    assert epsilon > 0.5
    assert delta == (a + 1) / 2 >= 1
    assert composed(0.1, 1e-6, a)[1] == pytest.approx((a + 1) * 1e-6)


def test_theorem_3_of_a_huge_epsilon_is_infinite():
    assert composed(1e4, 0.5, 2) == (math.inf, 1.5)


@pytest.mark.parametrize(("epsilon", "delta", "a"), [(0, 0.5, 1), (-1.0, 0.5, 1), (1, 0, 1), (1, 1.5, 1), (1, 0.5, 0)])
def test_settings_out_of_range_are_refused(epsilon, delta, a):
    with pytest.raises(ValueError, match="Expected"):
        composed(epsilon, delta, a)


def test_a_report_tells_one_step_from_the_run():
    problem = jdfl.problems.example1(m=4, n=20, s=2, seed=0)
    told = jdfl.CEPS(s=2, clip=1.0, sigma=0.4, mechanism=jdfl.classical_gaussian(0.5, 0.5)).privacy(problem)
    assert told.published is not None
    assert "Theorem 2" in told.published.source
    assert told.published.told(0)["run"] is None
    whole = told.published.told(3)["run"]
    assert (whole["epsilon"], whole["delta"]) == pytest.approx(composed(0.5, 0.5, 3), rel=1e-5)
    assert "Theorem 3" in whole["source"]
    assert told.as_dict()["published"]["epsilon"] == pytest.approx(0.5)
    said = report(told, np.full(4, 3), np.full(4, 10)).statement()
    assert "as published for 3 releases: epsilon = " in said
    assert "at delta = 2 (CEPS, Theorem 3)" in said


def least_c(m: int, ell: float, B: int) -> tuple[float, float]:
    """c_0 and tau of (12), by the printed formulas."""
    tau = (1 - m ** (-m * B)) ** (1 / B)
    return (80 * m * math.sqrt(ell) / (1 - tau)) ** 2, tau


@pytest.mark.parametrize(("m", "ell", "B"), [(2, 1.0, 1), (3, 2.5, 1), (2, 1.0, 3), (3, 0.5, 2), (4, 7.0, 1)])
def test_c0_is_the_printed_formula(m, ell, B):
    exact, tau = least_c(m, ell, B)
    assert theorems.log10_c0(m, ell, B) == pytest.approx(math.log10(exact), abs=1e-4)
    assert 10 ** theorems.log10_gap(m, B) == pytest.approx(1 - tau, rel=1e-4)


def test_c0_is_finite_where_floats_are_not():
    assert theorems.log10_c0(128, 1.0, 1) == pytest.approx(2 * (math.log10(80 * 128) + 128 * math.log10(128)))
    assert 540 < theorems.log10_c0(128, 1.0, 1) < theorems.log10_c0(128, 1.0, 2)


def test_theorem_1_is_its_formula_and_its_condition():
    given: dict[str, Any] = {"m": 3, "smoothness": 2.0, "B": 1, "k0": 4, "communications": 7}
    c0 = least_c(3, 2.0, 1)[0]
    c, gap, zeta, e = 3 * c0, 5.0, 0.3, 0.01
    found = theorems.theorem_1(**given, c=c, gap=gap, zeta=zeta, e_inf=e)
    by_hand = 8 * 3 * c * gap / 7 + (9 * c0 * zeta**2 + 16 * 3 * c * 4 * e) / c
    assert found.says["log10 of the bound"] == pytest.approx(math.log10(by_hand), abs=1e-9)
    assert found.holds
    less = theorems.theorem_1(**given, c=0.99 * c0, gap=gap, zeta=None, e_inf=e)
    assert less.missing == ("c >= c_0",)
    assert less.says["log10 of the bound"] is None
    assert "does not speak of this run: missing c >= c_0" in less.statement()
    unknown = theorems.theorem_1(**(given | {"smoothness": None}), c=c, gap=gap, zeta=zeta, e_inf=e)
    assert unknown.holds is None


def inequalities(m: int, ell: float, B: int, c: float) -> list[bool]:
    """The four of (22), the two of (42), and the factors with which (37) and the proof of Theorem 1 continue."""
    tau = least_c(m, ell, B)[1]
    gap = (1 - tau) ** 2
    return [
        c**2 * gap - 384 * m**2 * ell**2 >= c**2 * gap / 2,
        c >= 2 * ell,
        1 / (8 * c * m) >= 800 * m * ell / (c**2 * gap) * (1 - 1e-12),
        c / 2 >= 800 * m**2 * ell / (3 * gap),
        ell**2 / (c**3 * m) + (ell - c) / (2 * c**2 * m) <= 0,
        (5 * m * c + 2 * m * ell) / 4 <= 3 * m * c / 2,
        2 * 128 * m**2 * c**2 <= 800 * m * m * c**2 / 3,
        ell**2 / (2 * c) + ell / 2 <= ell,
    ]


@pytest.mark.parametrize(("m", "ell", "B"), [*itertools.product((2, 3, 5), (0.01, 1.0, 40.0), (1, 2))])
def test_c0_is_just_enough_for_22(m, ell, B):
    c0 = least_c(m, ell, B)[0]
    assert all(inequalities(m, ell, B, c0))
    assert not all(inequalities(m, ell, B, 0.999 * c0))  # the third is an equality at c_0


def worst_ratio(matrices: list[np.ndarray], tau: float, factor: float) -> float:
    """The largest ||A^(i -> a) d_j||^2 / (factor m tau^(2 (a - i - 1))) over i and j, for a = len(matrices) + 1."""
    m = len(matrices[0])
    product, found, d = np.eye(m), 0.0, np.full((m, m), 1 / m) - np.eye(m)
    for r, A in enumerate([np.eye(m), *reversed(matrices)]):
        product = A @ product
        found = max(found, float(np.sum((product @ d) ** 2, axis=0).max()) / (factor * m * tau ** (2 * r)))
    return found


def test_lemma_1_bounds_products_where_links_connect_all_in_both_directions():
    draw, m, B = np.random.default_rng(0), 5, 2
    tau = least_c(m, 1.0, B)[1]
    ring = [[(i, (i + 1) % m), (i, (i - 1) % m)] for i in range(m)]
    for _ in range(20):
        matrices: list[np.ndarray] = []
        while len(matrices) < 60:  # every node selects one neighbour, then the other one: B = 2 rounds have all links
            turn = draw.integers(0, 2, m)
            matrices += [
                selected([ring[i][turn[i]] for i in range(m)]),
                selected([ring[i][1 - turn[i]] for i in range(m)]),
            ]
        assert worst_ratio(matrices, tau, 64) <= 1
        assert worst_ratio(matrices, tau, 0.1) > 1  # a planted constant, at A^(a-1 -> a) = I


def test_lemma_1_is_false_where_some_nodes_are_never_selected():
    """Five nodes that select two each: the links of any two rounds connect all, but two closed pairs never agree."""
    parent = list(range(5))
    for i, (a, b) in enumerate([*FIRST, *SECOND]):
        for j in (a, b):
            old, new = parent[j], parent[i % 5]
            parent = [new if one == old else one for one in parent]
    assert len(set(parent)) == 1  # G_t^B is connected for B = 1
    few, many = closed_pairs(100), closed_pairs(6000)
    assert few[0] == pytest.approx(many[0], abs=1e-9)  # nothing is lost any more
    assert many[0] > 1.9 * many[1]
    assert few[0] < few[1]  # only after many rounds


def largest(x: np.ndarray, s: int) -> np.ndarray:
    """P_Omega of the columns of x [n, m]."""
    kept = np.argsort(-np.abs(x), axis=0)[:s]
    out = np.zeros_like(x)
    np.put_along_axis(out, kept, np.take_along_axis(x, kept, 0), 0)
    return out


def test_lemma_2_bounds_what_projections_and_noise_add():
    draw, most = np.random.default_rng(1), 0.0
    for _ in range(200):
        n, m, s, k0 = 12, 3, int(draw.integers(1, 5)), int(draw.integers(2, 9))
        c, mu = draw.uniform(0.5, 5), draw.uniform(0.05, 5)
        U, xi, rho = draw.normal(size=(n, m)), draw.uniform(0, 1) * draw.normal(size=(n, m)), mu / (c + mu)
        W = largest((U + xi) / c, s)
        Q, e = [W - U / c], float(np.sum((c * W - U) ** 2))
        for _ in range(k0 - 1):
            inside = (U + mu * W) / (c + mu)
            W = largest(inside, s)
            Q.append(W - inside)
            e = max(e, float(np.sum(((c + mu) * Q[-1]) ** 2)))
        P = sum(rho**i * one for i, one in enumerate(reversed(Q)))
        np.testing.assert_allclose(W, U / c + P, atol=1e-12)  # (31), first line
        ratio = float(np.sum(P**2)) / (k0 * e / c**2)  # (28)
        assert ratio <= 1 + 1e-12
        most = max(most, ratio)
    assert most > 0.25  # a bound with k_0 / 4 is caught


def test_e_inf_is_a_supremum_without_a_finite_value_where_there_is_noise():
    found = noisy_projections(20_000, 2)
    assert max(found[:20]) < max(found[:2000]) < max(found)


@pytest.mark.parametrize(
    ("name", "sign"), [("convex, one dimension", -1), ("not convex", 1), ("convex, two dimensions", 1)]
)
def test_lemma_4_drops_a_term_of_either_sign(name, sign):
    hessians, points = QUADRATICS[name]
    convex = all(np.linalg.eigvalsh(np.atleast_2d(one))[0] > 0 for one in hessians)
    assert convex == name.startswith("convex")
    at_nu, at_mean = cross_term(hessians, points, PAIRS, twice_largest(hessians))
    assert at_mean == pytest.approx(0, abs=1e-12)  # E Delta A = 0
    assert sign * at_nu > 1e-3  # but nu depends on A


def test_the_step_of_41_is_an_identity_and_its_bound_is_tight():
    draw = np.random.default_rng(3)
    for _ in range(50):
        m, c, ell = 4, draw.uniform(2, 9), 1.0
        g, psi = draw.normal(size=6), draw.normal(size=6)
        left = -g @ psi / (c * m) + m * ell / 2 * np.sum((psi / (c * m)) ** 2)
        right = (ell - c) / (2 * c**2 * m) * psi @ psi - g @ g / (2 * c * m) + np.sum((g - psi) ** 2) / (2 * c * m)
        assert left == pytest.approx(right, rel=1e-10)


def test_theorems_2_and_3_state_one_step_and_the_run():
    multiplier = float(jdfl.classical_gaussian(0.5, 0.5).multiplier)
    step, run = theorems.theorem_2(multiplier, 0.5), theorems.theorem_3(multiplier, 0.5, 3)
    assert step.says == pytest.approx({"epsilon": 0.5, "delta": 0.5})
    assert step.holds
    assert (run.says["epsilon"], run.says["delta"]) == pytest.approx(composed(0.5, 0.5, 3))
    assert "no claim" in run.statement()
    assert theorems.theorem_2(multiplier / 3, 0.5).missing == ("Gaussian mechanism",)  # epsilon = 1.5


def test_assumption_5_is_refuted_by_one_gradient():
    found = theorems.assumption_5(np.array([0.04, 7.0]), np.array([0.1, 0.1]))
    assert found.holds is False
    assert (found.value, found.limit) == (7.0, 0.05)
    assert theorems.assumption_5(np.array([0.04]), np.array([0.1])).holds is None
