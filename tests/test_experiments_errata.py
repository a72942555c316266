"""The checks of the papers' proofs: each against what can be computed by hand, each seen to fail where it should."""

import numpy as np
import pytest

import jdfl
from experiments import errata_checks as errata
from experiments import lemma2_counterexample as lemma2
from jdfl.privacy.sensitivity import lemma2_constants


def test_the_first_step_of_ceps_is_eq_4_and_equals_jdfls_literal_one():
    u = 0.5 * 0.05
    assert errata.first_step(1.0) == pytest.approx(u / 1.1)
    problem = jdfl.problems.logistic_regression(
        [(np.array([[0.05]]), np.array([label])) for label in (1, 0)], penalty=0.0
    )
    algorithm = jdfl.CEPS(
        s=1, sigma=np.ones(2), period=np.array([2, 2]), mechanism=jdfl.Gaussian(5.0), sensitivity=0.1, noise="literal"
    )
    w = [
        np.asarray(jdfl.run(algorithm, problem, jdfl.network.complete(2), key=key, steps=1, metrics=()).params)
        for key in (0, 1)
    ]
    assert (w[0] == w[1]).all()  # nothing is noisy
    np.testing.assert_allclose(w[0].ravel(), [errata.first_step(1.0), errata.first_step(0.0)], rtol=1e-5)


def test_lemma_4s_cross_term_is_minus_the_variances_of_what_arrives():
    w, c = np.array([-1.0, 0.0, 2.0]), 6.0
    at_nu, at_mean = errata.cross_term((1.0, 2.0, 3.0), w, errata.ANY_ONE, c)
    assert at_nu == pytest.approx(-6 / (9 * c) * 6 * w.var())
    assert at_mean == pytest.approx(0, abs=1e-12)
    alike = errata.cross_term((1.0, 2.0, 3.0), np.ones(3), errata.ANY_ONE, c)  # nothing is drawn apart
    assert alike == pytest.approx((0, 0), abs=1e-12)


def test_the_momentum_is_correlated_with_sleep_unless_all_are_awake():
    assert errata.momentum(0.8, 0, 200_000) == pytest.approx(-0.16, abs=0.003)
    assert errata.momentum(1.0, 0, 100) == 0


def test_the_means_noise_has_gamma_n():
    by_lemma, by_equation = errata.mean_after(0)
    assert by_lemma < 1e-15
    assert by_equation > 0.01


def test_the_broadcast_of_s_i_tells_the_length_of_its_nodes_noise_alone():
    own, other = errata.noise_told(0)
    assert own < 1e-9
    assert other > 100


def test_constants_of_lemma_2_bound_every_power_of_w():
    for of in lemma2.NETWORKS.values():
        W = np.asarray(jdfl.network.as_dense(jdfl.network.d_out(*of).graph), float)
        told = constant, contraction = lemma2_constants([W])
        for r in (0, 1, 7, 30):
            apart = np.abs(np.linalg.matrix_power(W, r) - 1 / len(W)).max()
            assert apart <= constant / len(W) * contraction**r * (1 + 1e-9)
        assert max(lemma2.ratios(kind, W, told, 12, 0).max() for kind in lemma2.KINDS) <= 1
        few = (lemma2.CONSTANT, lemma2.CONTRACTION)
        assert lemma2.ratios("worst of two nodes", W, few, 12, 0).max() > 1.5  # constants fail
