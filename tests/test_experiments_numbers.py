"""What experiments compute beside runs, against other ways to compute it."""

import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from experiments import ceps_baselines as baselines
from experiments import ceps_table5, partpsp_common
from experiments import decor_figure as decor
from experiments import muffliato_figure as muffliato
from experiments import partpsp_paper as paper
from experiments.muffliato_figure import Gossip
from jdfl.algorithms.ceps_paper import paper_volume
from jdfl.network import as_dense

LINE = jdfl.network.from_edges([(0, 1), (1, 2)], 3)
RANDOM = jdfl.network.erdos_renyi(12, 0.3, seed=2)


def added(network, observer, node):
    """The paper's sum for a pair of nodes, message by message."""
    W, total = np.asarray(as_dense(network.graph), float), 0.0
    for t in range(1, Gossip.on(network).rounds + 1):
        power = np.linalg.matrix_power(W, t)
        for w in range(len(W)):
            if w != observer and W[observer, w] > 0:
                total += power[w, node] ** 2 / sum(power[w, j] ** 2 for j in range(len(W)))
    return min(total, 1.0)


@pytest.mark.parametrize("network", [LINE, RANDOM])
def test_the_formula_is_the_sum_over_single_messages(network):
    gossip = Gossip.on(network)
    each = [added(network, 0, node) for node in range(network.m)]
    np.testing.assert_allclose(gossip.formula(), each, rtol=1e-6)
    each = [added(network, observer, 0) for observer in range(network.m)]
    np.testing.assert_allclose(gossip.published(), each, rtol=1e-6)


@pytest.mark.slow
def test_on_a_line_of_three_the_formula_is_no_bound_and_on_a_complete_graph_all_three_agree():
    gossip = Gossip.on(LINE)
    loss, guarantee = muffliato.observed(LINE, gossip)
    assert gossip.formula()[2] < 0.75
    np.testing.assert_allclose([loss[1], loss[2], guarantee], 1.0, rtol=1e-6)
    gossip = Gossip.on(all_pairs := jdfl.network.complete(6))
    loss, guarantee = muffliato.observed(all_pairs, gossip)
    np.testing.assert_allclose([*loss[1:], *gossip.formula()[1:], guarantee], 1.0, rtol=1e-6)


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


def test_table2_has_the_averages_that_the_paper_tells():
    """42.11 % of PartPSP-1 over PartPSP-2, 61.08 % over SGPDP, 13.35 % of PartPSP-2 over SGPDP (section V.D)."""
    settings = [(m, n, b) for m in paper.MODELS for n in paper.NETWORKS for b in (1.0, 2.0, 3.0)]
    first, second, everything = (  # the paper compares averages that are cut off after two digits
        np.floor(100 * np.mean([paper.ACCURACY[m, n, name, b] for m, n, b in settings])) / 100
        for name in ("PartPSP-1", "PartPSP-2", "SGPDP")
    )
    told = (0.4211, 0.6108, 0.1335)
    assert (first / second - 1, first / everything - 1, second / everything - 1) == pytest.approx(told, abs=1e-4)


def test_images_are_dealt_as_by_pytorchs_sampler():
    """The beginning is known: torch.randperm(10) after torch.manual_seed(0)."""
    assert partpsp_common.dealt(10).tolist() == [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]
    assert sorted(partpsp_common.dealt(500)) == list(range(500))
