"""What the scripts of the CEPS paper's comparison read off runs and rows."""

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from experiments import ceps_baselines as baselines
from experiments import ceps_table5
from jdfl.algorithms.ceps_paper import paper_volume


def test_dpsgd_takes_ten_steps_and_mixes():
    problem = jdfl.problems.example1(m=6, n=20, s=3, rows=(8, 12), seed=0)
    network = jdfl.network.erdos_renyi(6, 0.6, seed=0)
    given = baselines.setting("D-PSGD", problem, network, epsilon=None, rate=0.2, s=3)
    found = baselines.follow(given, problem, 0, 3)
    weights = np.asarray(jdfl.network.as_dense(network.graph), np.float64)
    lr = 0.5 / float(np.max(np.asarray(problem.curvature)))
    x = np.zeros((6, 20))
    for j in range(3):
        for _ in range(10):
            x = x - lr * np.asarray(problem.gradients(jnp.asarray(x, jnp.float32)), np.float64)
        x = weights @ x
        assert found.consensus[j] == pytest.approx(np.sum((x - x.mean(axis=0)) ** 2) / 6, rel=1e-3)
        value = np.mean(np.asarray(problem.values_at(jnp.asarray(x.mean(axis=0), jnp.float32))))
        assert found.objective[j] == pytest.approx(value, rel=1e-4)
    assert found.iteration.tolist() == [11, 21, 31]
    links = int(np.sum(np.asarray(network.graph.mask)))
    np.testing.assert_allclose(found.bytes, 4 * 20 * links * np.arange(1, 4))


def test_papers_volumes_are_its_formula():
    """Table V's DTV column for all dense baselines, from its rounds."""
    for (_, rate), (_, rounds, volume) in ceps_table5.BASELINES.items():
        assert paper_volume(rounds, m=64, n=1000, rate=rate, period=10) / 1e6 == pytest.approx(volume, abs=0.006)
