"""Theorems 2 and 3 of the CEPS paper, and where a report tells them apart."""

import math

import numpy as np
import pytest

import jdfl
from jdfl.algorithms import ceps_theorems as theorems
from jdfl.privacy.report import report


def test_theorem_2_is_the_inverse_of_the_papers_noise():
    for epsilon in (0.25, 0.5, 2.0):
        multiplier = float(jdfl.classical_gaussian(epsilon, theorems.PAPER_DELTA).multiplier)
        assert theorems.step_epsilon(multiplier) == pytest.approx(epsilon)


@pytest.mark.parametrize("a", [1, 2, 3, 30])
def test_theorem_3_composes_and_its_delta_is_never_below_one_at_the_papers(a):
    epsilon, delta = theorems.composed(0.5, 0.5, a)
    assert epsilon == pytest.approx(math.sqrt(2 * a * math.log(2)) * 0.5 + a * 0.5 * (math.exp(0.5) - 1))
    assert epsilon > 0.5
    assert delta == (a + 1) / 2 >= 1
    assert theorems.composed(0.1, 1e-6, a)[1] == pytest.approx((a + 1) * 1e-6)


def test_theorem_3_of_a_huge_epsilon_is_infinite():
    assert theorems.composed(1e4, 0.5, 2) == (math.inf, 1.5)


@pytest.mark.parametrize(("epsilon", "delta", "a"), [(0, 0.5, 1), (-1.0, 0.5, 1), (1, 0, 1), (1, 1.5, 1), (1, 0.5, 0)])
def test_settings_out_of_range_are_refused(epsilon, delta, a):
    with pytest.raises(ValueError, match="Expected"):
        theorems.composed(epsilon, delta, a)


def test_a_report_tells_one_step_from_the_run():
    problem = jdfl.problems.example1(m=4, n=20, s=2, seed=0)
    told = jdfl.CEPS(s=2, clip=1.0, sigma=0.4, mechanism=jdfl.classical_gaussian(0.5, 0.5)).privacy(problem)
    assert told.published is not None
    assert "Theorem 2" in told.published.source
    assert told.published.told(0)["run"] is None
    whole = told.published.told(3)["run"]
    assert (whole["epsilon"], whole["delta"]) == pytest.approx(theorems.composed(0.5, 0.5, 3), rel=1e-5)
    assert "Theorem 3" in whole["source"]
    assert told.as_dict()["published"]["epsilon"] == pytest.approx(0.5)
    said = report(told, np.full(4, 3), np.full(4, 10)).statement()
    assert "as published for 3 releases: epsilon = " in said
    assert "at delta = 2 (CEPS, Theorem 3)" in said
