"""CEPS at honest budgets: its constants are public, and every method that sends something is attacked."""

from dataclasses import replace

import numpy as np

import jdfl
from experiments import ceps_privacy as privacy
from experiments import privacy_audit
from jdfl.algorithms.gradients import takes_noise
from tests.field import ROWS

TINY = privacy.Series("tiny", 6, (20, 40), rounds=12, clips=(0.5, 2.0), n=40, s=3)


def test_public_constants_need_the_sizes_alone():
    """Other data of the same sizes, the same sigma_i and clip."""
    problem = TINY.problem(0)
    A, b = problem.data
    other = replace(problem, data=(3.0 * A, -b), curvature=9.0 * problem.curvature)
    one, two = TINY.algorithm(problem), TINY.algorithm(other)
    np.testing.assert_array_equal(one.sigma, two.sigma)
    assert one.clip == two.clip
    assert not any("sigma" in words for words in one.privacy(problem).warnings)


def test_every_algorithm_that_sends_something_is_attacked():
    names = {name.split(",")[0] for name in privacy_audit.attacked()}
    exact = {row.name for row in ROWS if not takes_noise(type(row.algorithm)) and not row.claimed}
    assert names == set(jdfl.algorithms.REGISTRY) - {"local-only"} - exact
