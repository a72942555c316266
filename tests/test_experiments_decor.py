"""The figure of DECOR's paper: its accountant, its noise and its problem, against other ways to compute them."""

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from experiments import decor_figure as decor
from jdfl.network import as_dense


def test_decors_accountant_and_ours_have_the_same_shift():
    own, links, algorithm = 10.0, 3.0, decor.decor(10.0, 3.0)
    for name, network in decor.NETWORKS.items():
        r = decor.rate(own, links, network)
        report = jdfl.account_plan(algorithm, decor.problem(), network, steps=1, delta=decor.DELTA)
        assert report.unit == "node"
        assert r == pytest.approx(0.5 / report.noise_multiplier**2, rel=1e-5)
        if name == "complete":  # one eigenvalue of own noise, all others with 16 times that of links on top
            assert r == pytest.approx(2 / 16 * (1 / own**2 + 15 / (own**2 + 16 * links**2)), rel=1e-9)


def test_steps_of_decors_problem_are_those_of_a_loop():
    problem, network = decor.problem(), decor.NETWORKS["ring"]
    algorithm = jdfl.DPSGD(lr=0.05, order="adapt-then-combine", gradients=jdfl.Gradients(clip=1.0, per="batch"))
    found = jdfl.run(algorithm, problem, network, key=0, steps=30, metrics=[decor.gap]).history["gap"].to_numpy()[-1]
    a, b = (np.asarray(one, float)[:, 0] for one in problem.data)
    W, best = np.asarray(as_dense(network.graph), float), a @ b / np.sum(a**2)
    np.testing.assert_allclose(problem.truth, best, rtol=1e-5)
    x = np.ones((16, 10))
    for _ in range(30):
        g = a[:, None] * (a[:, None] * x - b)
        x = W @ (x - 0.05 * g * np.minimum(1, 1 / np.linalg.norm(g, axis=1))[:, None])
    wanted = np.mean(np.sum((x - best) ** 2, axis=1))
    assert found == pytest.approx(wanted, rel=1e-4)
    assert float(decor.gap(jnp.asarray(x), problem)) == pytest.approx(wanted, rel=1e-4)
