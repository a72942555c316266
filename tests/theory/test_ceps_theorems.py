"""Theorems 1 to 3 of the CEPS paper, every step of their proofs that has numbers, and how a report states them."""

import math
from typing import Any

import numpy as np
import pytest

import jdfl
from experiments.proof_steps import FIRST, SECOND, closed_pairs
from experiments.theory import ceps as theorems
from jdfl.algorithms.ceps_paper import composed
from jdfl.privacy.report import report


def test_theorem_3_composes_and_its_delta_is_never_below_one_at_the_papers():
    for a in (1, 2, 3, 30):
        epsilon, delta = composed(0.5, 0.5, a)
        assert epsilon == pytest.approx(math.sqrt(2 * a * math.log(2)) * 0.5 + a * 0.5 * (math.exp(0.5) - 1))
        assert epsilon > 0.5
        assert delta == (a + 1) / 2 >= 1
        assert composed(0.1, 1e-6, a)[1] == pytest.approx((a + 1) * 1e-6)
    assert composed(1e4, 0.5, 2) == (math.inf, 1.5)
    for wrong in ((0, 0.5, 1), (1, 1.5, 1), (1, 0.5, 0)):
        with pytest.raises(ValueError):
            composed(*wrong)


def test_a_report_tells_one_step_from_the_run():
    problem = jdfl.problems.example1(m=4, n=20, s=2, seed=0)
    told = jdfl.CEPS(s=2, clip=1.0, sigma=0.4, mechanism=jdfl.classical_gaussian(0.5, 0.5)).privacy(problem)
    assert told.published is not None
    assert "Theorem 2" in told.published.source
    assert told.published.as_dict(0)["run"] is None
    whole = told.published.as_dict(3)["run"]
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


def test_c0_is_the_printed_formula_and_finite_where_floats_are_not():
    for m, ell, B in ((2, 1.0, 1), (3, 2.5, 1), (2, 1.0, 3), (3, 0.5, 2), (4, 7.0, 1)):
        exact, tau = least_c(m, ell, B)
        assert theorems.log10_c0(m, ell, B) == pytest.approx(math.log10(exact), abs=1e-4)
        assert 10 ** theorems.log10_gap(m, B) == pytest.approx(1 - tau, rel=1e-4)
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


def test_lemma_1_is_false_where_some_nodes_are_never_selected():
    """Five nodes that select two each: the links of any two rounds connect all, but two closed pairs never agree."""
    links = [{a, b, i % 5} for i, (a, b) in enumerate([*FIRST, *SECOND])]
    together = links.pop(0)
    while near := [one for one in links if one & together]:
        together = together.union(*near)
        links = [one for one in links if one not in near]
    assert len(together) == 5  # G_t^B is connected for B = 1
    few, many = closed_pairs(100), closed_pairs(6000)
    assert few[0] == pytest.approx(many[0], abs=1e-9)  # nothing is lost any more
    assert many[0] > 1.9 * many[1]
    assert few[0] < few[1]  # only after many rounds


def largest(x: np.ndarray, s: int) -> np.ndarray:
    """P_Omega of the columns of x [n, m]."""
    return np.where(np.abs(x) >= np.sort(np.abs(x), axis=0)[-s], x, 0.0)


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
