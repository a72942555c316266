"""Attacks: what is sent, who counts in metrics, and what is refused."""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import robust
from jdfl.base import struct
from jdfl.robust.attacks import Scene
from tests.field.row import weighted
from tests.later import Later
from tests.refused import all_refused

M, LIARS = 6, (1, 4)
W = weighted()
NETWORK = Later(lambda: jdfl.network.from_matrix(W, name="eighths"))
PROBLEM = Later(lambda: jdfl.problems.example1(m=M, n=8, s=2, rows=(12, 20)))
DENSE = Later(lambda: jdfl.network.complete(M))
LIAR = np.isin(np.arange(M), LIARS)
X = np.random.default_rng(0).standard_normal((M, 4)).astype(np.float32)
GOOD = X[~LIAR]


@jax.jit
def _rows(attack, graph, x, liars):
    return attack.rows(Scene(graph, x, liars, attack.prepare(graph, liars), jax.random.key(0)))


def rows(attack):
    return np.asarray(_rows(attack, NETWORK().graph, X, LIAR))


def run(algorithm, attack, nodes=LIARS, *, steps=5, network=DENSE, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = jdfl.attacked(algorithm, attack, nodes, **options)
        return jdfl.run(given, PROBLEM(), network(), steps=steps)


def test_what_is_sent_is_what_the_papers_say():
    mean, deviation = GOOD.mean(axis=0), GOOD.std(axis=0, ddof=1)
    np.testing.assert_allclose(rows(robust.SignFlip(scale=2.0)), -2 * X)
    np.testing.assert_allclose(rows(robust.FOE(epsilon=0.5))[1], -0.5 * mean, rtol=1e-5)
    np.testing.assert_allclose(rows(robust.ALIE(z=1.5))[1], mean - 1.5 * deviation, rtol=1e-4, atol=1e-6)
    # m = 6, b = 2: s = 4 - 2 = 2, the quantile of (6 - 2 - 2) / 4 = 1/2 is 0
    np.testing.assert_allclose(rows(robust.ALIE())[4], mean, rtol=1e-4, atol=1e-6)
    far = np.argmax(((GOOD - mean) ** 2).sum(axis=1))
    np.testing.assert_allclose(rows(robust.Mimic())[1], GOOD[far])
    assert abs(rows(robust.GaussianRows(sigma=3.0)) - mean).std() == pytest.approx(3, rel=0.7)
    near = [j for j in np.flatnonzero(W[4]) if j != 4 and not LIAR[j]]
    np.testing.assert_allclose(rows(robust.FreeRider())[4], X[near].mean(axis=0), rtol=1e-5)


def test_dissensus_takes_back_what_honest_neighbours_do():
    """With epsilon = 1 a node that averages stays where it is."""
    sent = rows(robust.Dissensus())
    for i in np.flatnonzero(~LIAR):
        theirs = [j for j in np.flatnonzero(W[i]) if j != i and LIAR[j]]
        if theirs:
            moved = sum(W[i, j] * ((sent[i] if LIAR[j] else X[j]) - X[i]) for j in range(M) if j != i)
            np.testing.assert_allclose(moved, 0, atol=1e-6)


def test_the_spectral_attack_follows_the_slowest_direction():
    v = np.asarray(robust.SpectralAttack().prepare(NETWORK().graph, jnp.asarray(LIAR)))
    links = ((W != 0) & ~np.eye(M, dtype=bool))[np.ix_(~LIAR, ~LIAR)]
    laplacian = np.diag(links.sum(axis=1)) - links
    values = np.linalg.eigvalsh(laplacian)
    assert (v[LIAR] == 0).all()
    assert v[~LIAR] @ laplacian @ v[~LIAR] == pytest.approx(values[1], abs=1e-5)
    np.testing.assert_allclose(rows(robust.SpectralAttack(scale=2.0)), X + 2 * np.outer(v, v @ X), atol=1e-5)


def test_a_topology_liar_takes_weight_from_its_neighbours_own():
    attack, graph = robust.TopologyLiar(factor=3.0), NETWORK().graph
    lied = attack.graph(graph, jnp.asarray(LIAR))
    dense = np.asarray(jdfl.network.as_dense(lied))
    np.testing.assert_allclose(dense.sum(axis=1), 1, atol=1e-6)
    assert (dense >= 0).all()
    assert dense[0, 1] == pytest.approx(3 * W[0, 1])
    assert dense[0, 2] == pytest.approx(W[0, 2])


def test_label_flips_change_the_attackers_data_alone():
    draw = np.random.default_rng(0)
    parts = [(draw.standard_normal((5, 3)), draw.integers(0, 3, 5)) for _ in range(M)]
    problem = jdfl.problems.softmax_regression(parts, classes=3)
    labels = np.asarray(robust.LabelFlip().problem(problem, jnp.asarray(LIAR)).data[1])
    before = np.asarray(problem.data[1])
    np.testing.assert_array_equal(labels[LIAR], 2 - before[LIAR])
    np.testing.assert_array_equal(labels[~LIAR], before[~LIAR])
    np.testing.assert_array_equal(robust.LabelFlip().rows(Scene(None, X, LIAR, None, None)), X)
    np.testing.assert_allclose(
        robust.LabelFlip().problem(PROBLEM(), jnp.asarray(LIAR)).data[1][1], -PROBLEM().data[1][1]
    )


def test_a_step_under_attack_is_the_loop():
    """D-PSGD: honest nodes receive the attackers' rows, attackers stay honest themselves."""
    W = np.full((M, M), 1 / M)
    result = run(jdfl.DPSGD(lr=0.1), robust.SignFlip(scale=3.0), start=2)
    x, problem = np.zeros((M, 8)), PROBLEM()
    A, b = (np.asarray(leaf, np.float64) for leaf in problem.data)
    weight = np.asarray(problem.weight, np.float64)
    for k in range(5):
        residual = weight * (np.einsum("iqn,in->iq", A, x) - b) / weight.sum(axis=1, keepdims=True)
        g = np.einsum("iqn,iq->in", A, residual)
        sent = np.where(LIAR[:, None] & (k >= 2), -3 * x, x)
        x = W @ sent + np.diag(W)[:, None] * (x - sent) - 0.1 * g
    np.testing.assert_allclose(result.params, x, rtol=1e-4, atol=1e-5)


def test_metrics_are_about_honest_nodes_and_their_optimum():
    algorithm = jdfl.attacked(jdfl.RobustDSGD(rule=robust.TrimmedMean(b=2)), robust.FOE(), LIARS)
    metrics = ["objective", "consensus_error", "suboptimality"]
    result = jdfl.run(algorithm, PROBLEM(), DENSE(), steps=5, every=5, metrics=metrics)
    honest = np.flatnonzero(~LIAR)
    some, w = PROBLEM().nodes(honest), result.params[honest]
    objective, best = float(some.values_at(w.mean(axis=0)).mean()), float(jdfl.problems.optimum(some).value)
    assert result.final["objective"] == pytest.approx(objective, rel=1e-5)
    assert result.final["suboptimality"] == pytest.approx(objective - best, abs=1e-5)
    spread = float(((w - w.mean(axis=0)[None]) ** 2).sum(axis=1).mean())
    assert result.final["consensus_error"] == pytest.approx(spread, rel=1e-3, abs=1e-9)
    assert "by nodes 1, 4" in repr(result)


@struct.dataclass
class Broken(robust.Attack):
    kind, title = "broken", "broken"

    def rows(self, scene):
        return scene.x * jnp.nan


def test_attackers_that_diverge_do_not_end_the_run():
    assert run(jdfl.RobustDSGD(rule=robust.TrimmedMean(b=2)), Broken(), [1], steps=4).ending == "steps"
    plain = run(jdfl.DPSGD(), Broken(), [1], steps=4)
    assert plain.ending == "diverged"
    assert plain.diverged[1] != 1


def test_other_methods_are_attacked_too():
    """Also where the attackers are leaves of a tree, as all nodes but one are in a complete network."""
    for algorithm in (jdfl.CHOCO(lr=0.02), jdfl.FedAvg(), jdfl.RelaySGD(lr=0.02), jdfl.SGP(lr=0.02)):
        one, other = (run(algorithm, robust.SignFlip(scale=scale), steps=3) for scale in (1.0, 2.0))
        assert one.final["objective"] != other.final["objective"]


def test_any_method_takes_a_rule_and_noise_is_still_claimed_under_attack():
    plain = jdfl.run(jdfl.EXTRA(lr=0.05), PROBLEM(), DENSE(), steps=4)
    same = jdfl.run(jdfl.combined_by(jdfl.EXTRA(lr=0.05), robust.Weighted()), PROBLEM(), DENSE(), steps=4)
    np.testing.assert_allclose(same.params, plain.params, rtol=1e-4, atol=1e-6)
    ruled = jdfl.combined_by(jdfl.CHOCO(lr=0.05), robust.CSPlus(b=1))  # of public copies
    assert run(ruled, robust.SignFlip(scale=1e6), [2], steps=4).ending == "steps"
    noisy = jdfl.RobustDSGD(gradients=jdfl.Gradients(batch=2, clip=1.0, mechanism=jdfl.Gaussian(1.0)))
    for rule, claimed in ((robust.TrimmedMean(), True), (robust.ClippedGossip(), True), (robust.UBAR(), False)):
        given = replace(noisy, rule=rule)
        assert given.privacy(PROBLEM()).claimed == claimed
        assert jdfl.attacked(given, robust.SignFlip(), [1]).privacy(PROBLEM()).claimed == claimed


def test_attacks_that_cannot_be_are_refused():
    ring, rule = Later(jdfl.network.ring, M), robust.TrimmedMean(b=1)
    with pytest.warns(UserWarning, match="has 2, the bound is 1"):
        jdfl.run(jdfl.attacked(jdfl.RobustDSGD(rule=rule), robust.SignFlip(), LIARS), PROBLEM(), DENSE(), steps=1)
    most = {"coordinate-median": 2, "geometric-median": 2, "krum": 1, "weighted": 0, "balance": 5, "ubar": 3}
    assert {kind: robust.RULES[kind]().most(5) for kind in most} == most
    all_refused(
        (lambda: run(jdfl.DPSGD(), robust.SignFlip(), [3, 0], network=ring), "the nodes 0, 3"),
        (lambda: run(jdfl.DPSGD(), robust.SignFlip(), [6]), "ids from 0 to 5"),
        *((lambda nodes=nodes: run(jdfl.DPSGD(), robust.SignFlip(), nodes), "node id") for nodes in ([], [1, 1], [-1])),
        (lambda: run(jdfl.CHOCO(), robust.Dissensus()), "every neighbour another row"),
        (lambda: run(jdfl.CEPS(s=2), robust.SignFlip()), "sends otherwise"),
        (lambda: run(jdfl.DPSGD(), robust.SignFlip(scale=-1.0)), "scale > 0"),
        (lambda: robust.LabelFlip().check(replace(PROBLEM(), data=X)), "label flip"),
        (lambda: run(jdfl.DPSGD(), robust.SignFlip(), network=lambda: jdfl.network.delays(ring(), 2)), "delays"),
        (lambda: run(jdfl.DPSGD(), robust.SignFlip(), range(M)), f"fewer than {M} attackers"),
    )
