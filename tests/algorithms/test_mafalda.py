"""MAFALDA-SGD: the loop of its paper, its factorization, and what its noise guarantees against real attacks."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from experiments.observer_attack import Fixed
from jdfl.algorithms.mafalda import optimal, sensitivity, workload
from jdfl.algorithms.round import Round
from jdfl.network import as_dense
from jdfl.observers import Everyone, Neighbour, observe
from tests.algorithms.play import course, direct, example, network, round_of
from tests.later import Later
from tests.refused import refused

M, T, PASSES = 4, 8, 4
RING = Later(jdfl.network.ring, M)
GAUSSIAN = jdfl.Gaussian(1.5)
TURNS = jdfl.Gradients(clip=1.0, mechanism=GAUSSIAN, batch=1, sampling="in order")
PASSING = jdfl.MAFALDA(gradients=TURNS, horizon=T, band=3)
ALL = jdfl.MAFALDA(gradients=replace(TURNS, batch=None, sampling="replacement"), horizon=T)


def matrix(rows):
    """C [T, T] of its rows [T, p]."""
    C = np.zeros((len(rows), len(rows)))
    for back in range(rows.shape[1]):
        C[np.arange(back, len(rows)), np.arange(len(rows) - back)] = rows[back:, back]
    return C


def world(place, sign, records=PASSES, node=1):
    """Data of which only one record is not zero."""
    data = np.zeros((M, records, 1))
    data[node, place, 0] = sign
    dtype = jnp.zeros(()).dtype
    return Fixed(jnp.asarray(data, dtype), jnp.ones((M, records), dtype), jnp.zeros((M,), dtype))


def test_it_is_the_loop_of_its_paper():
    """Fresh noise is that of the mechanism, which is seen on gradients of the same key."""
    with jax.enable_x64(True):
        problem, net, key, rounds = example(rows=(8, 8)), network(), jax.random.key(11), 12
        gradients = jdfl.Gradients(clip=5.0, mechanism=jdfl.Gaussian(0.3), batch=2, sampling="in order")
        algorithm = jdfl.MAFALDA(lr=0.05, gradients=gradients, horizon=20, band=3)
        found = course(algorithm, problem, net, key, rounds=rounds)[0]
        C = matrix(np.asarray(algorithm.plan(problem, net, rounds), float))
        assert np.count_nonzero(C) == 12 + 11 + 10
        W, x = np.asarray(as_dense(net.graph), np.float64), np.zeros((problem.m, problem.n))
        node, fresh = jnp.arange(problem.m, dtype=jnp.int32), []

        @jax.jit
        def noise_of(x, k):
            there = direct(round_of(key, k, net.graph, node), problem, gradients)
            return gradients(x, there) - gradients.without_noise(x, there)

        A, b = (np.asarray(leaf) for leaf in problem.data)
        for k in range(rounds):
            fresh.append(np.asarray(noise_of(jnp.asarray(x), jnp.int32(k))))
            turn = slice(2 * (k % 4), 2 * (k % 4) + 2)
            each = A[:, turn] * (np.einsum("mqn,mn->mq", A[:, turn], x) - b[:, turn])[..., None]
            length = np.linalg.norm(each, axis=2, keepdims=True)
            g = (each * np.minimum(1, 5.0 / length)).mean(axis=1)
            noise = np.einsum("t,tmn->mn", np.linalg.inv(C[: k + 1, : k + 1])[k], np.array(fresh))
            x = W @ (x - 0.05 * (g + noise))
            np.testing.assert_allclose(found[k], x, rtol=1e-9, atol=1e-12)


def test_the_workload_is_what_noise_does_to_the_parameters():
    net, rounds = network(), 6
    W, m = np.asarray(as_dense(net.graph), float), net.m
    moved = np.zeros((rounds, m, rounds, m))  # round, node; of unit noise in round, at node
    for s in range(rounds):
        for k in range(s, rounds):
            moved[k, :, s] = np.linalg.matrix_power(W, k - s + 1)
    G = np.einsum("kisj,kitj->st", moved, moved) / m
    np.testing.assert_allclose(workload(net, rounds), G, rtol=1e-6)


@pytest.mark.parametrize(("signed", "passes"), [(False, 1), (True, 3), (False, 5), (True, 20)])
def test_the_sensitivity_is_the_most_that_a_record_of_any_place_moves(passes, signed):
    """Of changes of gradients in any directions, each no longer than one."""
    random = np.random.default_rng(passes)
    rows = random.normal(size=(14, 4)) if signed else random.uniform(size=(14, 4))
    C, found = matrix(rows), sensitivity(rows, passes)
    for rounds in (1, 4, 14):
        seen = [C[:rounds, place::passes] for place in range(passes)]
        alike = max(np.linalg.norm(one.sum(axis=1)) for one in seen)
        assert alike <= found[rounds - 1] + 1e-12
        assert signed or alike == pytest.approx(found[rounds - 1])
        for one in seen:
            change = random.normal(size=(one.shape[1], 5))
            change /= np.maximum(np.linalg.norm(change, axis=1, keepdims=True), 1e-9)
            assert np.linalg.norm(one @ change) <= found[rounds - 1] + 1e-9


def weighed(G, rows):
    """What is minimized."""
    inverse = np.linalg.inv(matrix(rows))
    return np.trace(inverse.T @ G @ inverse)


def test_no_factor_near_the_optimal_one_is_better_and_more_diagonals_help():
    G, passes = workload(RING(), 12), 4
    values, random = [], np.random.default_rng(0)
    for band in (1, 2, 4):
        rows = optimal(G, passes, band)
        assert sensitivity(rows, passes)[-1] == pytest.approx(1.0)
        values.append(weighed(G, rows))
        for size in (1e-3, 1e-2, 0.1):
            other = rows * (1 + size * random.normal(size=rows.shape))
            assert weighed(G, other) * sensitivity(other, passes)[-1] ** 2 >= values[-1] * (1 - 1e-6)
    root = np.sqrt(np.diag(G))  # one pass: independent noise, x_t proportional to sqrt(G_tt)
    assert weighed(G, optimal(G, 1, 1)) == pytest.approx(root.sum() ** 2, rel=1e-8)
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.6 * np.trace(G) * 12 / passes  # independent noise of one size


def test_everyone_learns_what_is_claimed_and_a_node_no_more():
    algorithm, records = PASSING, PASSES
    problem = world(0, 1.0, records)
    seen = observe(algorithm, problem, RING(), Everyone(), steps=T, delta=0.01)
    claimed = jdfl.account_plan(algorithm, problem, RING(), steps=T, delta=0.01)
    assert seen.bound
    np.testing.assert_allclose(seen.mu, 1 / 1.5, rtol=1e-5)
    assert seen.epsilon.max() == pytest.approx(claimed.epsilon, rel=1e-4)
    near = observe(algorithm, problem, RING(), Neighbour(0), steps=T, delta=0.01)
    assert np.nanmax(near.mu) <= 1 / 1.5 + 1e-6


def test_a_whole_node_is_in_every_round_and_nodes_whose_passes_are_shorter_count():
    problem, whole = world(0, 1.0), replace(PASSING, gradients=replace(TURNS, per="batch"))
    told = whole.privacy(problem, whole.plan(problem, RING(), T), T)
    assert (told.claimed, told.unit) == (True, "node")
    assert told.event.shift(T) == pytest.approx(1 / 1.5, rel=1e-5)
    assert whole.plan(problem, RING(), T).shape == (T, 1)
    sizes = (8, 4, 8, 8)
    problem = jdfl.problems.linear_regression([np.ones((q, 2)) for q in sizes], [np.ones(q) for q in sizes])
    told = PASSING.privacy(problem, plan := PASSING.plan(problem, RING(), T), T)
    rows = np.asarray(plan, float)
    assert told.event.shift(T) == pytest.approx(max(sensitivity(rows, 4)[-1], sensitivity(rows, 8)[-1]) / 1.5)


def test_noise_is_found_for_an_epsilon():
    problem = world(0, 1.0)
    algorithm = jdfl.calibrate(PASSING, problem, RING(), steps=5, epsilon=0.7, delta=0.01)
    told = jdfl.account_plan(algorithm, problem, RING(), steps=5, delta=0.01)
    assert 0.699 < told.epsilon <= 0.7
    assert algorithm.gradients.mechanism.multiplier != 1.5


class Sends(jdfl.MAFALDA):
    """Sends what is hidden."""

    def step(self, state: Any, round: Round) -> Any:
        """One round."""
        new = super().step(state, round)
        return new._replace(x=new.x + 0 * round.mix(new.hidden[:, 0]))


def test_what_is_hidden_must_not_be_sent():
    problem = world(0, 1.0)
    for kind, claimed in ((jdfl.MAFALDA, True), (Sends, False)):
        algorithm = kind(gradients=TURNS, horizon=T, band=3)
        told = algorithm.privacy(problem, algorithm.plan(problem, RING(), T), T)
        assert told.claimed == claimed


def test_rounds_beyond_the_horizon_and_changing_networks_are_refused():
    with refused("horizon"):
        replace(PASSING, horizon=3).plan(world(0, 1.0), RING(), 4)
    for net in (jdfl.network.link_loss(RING(), 0.5), jdfl.network.outages(RING(), 0.5, 0.5)):
        with refused("network"):
            jdfl.account_plan(PASSING, world(0, 1.0), net, steps=2)
