"""Step sizes that are functions of the round: loops in float64, resumed runs, lanes, identities, claims, refusals."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jdfl
from jdfl.algorithms import cpgt
from tests.algorithms.play import M, N, example, gradient_of, matrices, network
from tests.events.scenes import ROWS, ran
from tests.events.scenes import network as timed_network
from tests.refused import all_refused

ROUNDS = 12
SCHEDULE = optax.exponential_decay(0.1, 3, 0.5)  # of round k: .1 * .5^(k / 3)
WHOLE = jdfl.Gradients(clip=1.0, per="batch")


@cache
def problem(dtype):
    return example(dtype)


def run(algorithm, steps=ROUNDS, **given):
    data = problem(np.float64 if jax.config.jax_enable_x64 else np.float32)
    return jdfl.run(algorithm, data, network(), key=1, steps=steps, metrics=[], **given)


def loops():
    """The parameters of D-PSGD, DSGT and NIDS after all rounds."""
    of_one, W, m = gradient_of(example()), matrices(network(), 1, 1)[0], range(M)
    g = lambda x: np.stack([of_one(i, x[i]) for i in m])  # noqa: E731
    lr, zero = [0.1 * 0.5 ** (k / 3) for k in range(ROUNDS)], np.zeros((M, N))
    x, tracked, y = zero, zero, g(zero)
    old, new = zero, zero - lr[0] * g(zero)
    for k in range(ROUNDS):
        x = W @ x - lr[k] * g(x)
        moved = W @ (tracked - lr[k] * y)
        tracked, y = moved, W @ y + g(moved) - g(tracked)
        before = lr[max(k - 1, 0)]
        old, new = new, (np.eye(M) + W) / 2 @ (2 * new - old - lr[k] * g(new) + before * g(old))
    return {"d-psgd": x, "dsgt": tracked, "nids": new}


@pytest.mark.parametrize("kind", [jdfl.DPSGD, jdfl.DSGT, jdfl.NIDS])
def test_a_method_with_a_schedule_is_its_loop_and_goes_on_in_the_round_where_it_was(kind):
    with jax.enable_x64(True):
        algorithm = kind(lr=SCHEDULE, codec=jdfl.Dense("float64"))
        whole, part = run(algorithm), run(algorithm, 5)
        np.testing.assert_allclose(whole.params, loops()[kind.kind], rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(run(algorithm, resume=part).params, whole.params)


def test_nodes_with_step_sizes_of_their_own_take_them_and_agree_on_the_same_solution():
    with jax.enable_x64(True):
        of_one, W, lr = gradient_of(example()), matrices(network(), 1, 1)[0], np.linspace(0.02, 0.1, M)
        W += np.diag(1 - W.sum(axis=1))  # rounded to float32
        x, y = np.zeros((M, N)), np.stack([of_one(i, np.zeros(N)) for i in range(M)])
        for _ in range(ROUNDS):
            before, x = x, W @ (x - lr[:, None] * y)
            y = W @ y + np.stack([of_one(i, x[i]) - of_one(i, before[i]) for i in range(M)])
        own = jdfl.DSGT(lr=lr, codec=jdfl.Dense("float64"))
        np.testing.assert_allclose(run(own).params, x, rtol=1e-9, atol=1e-9)
        common = run(own.replace(lr=0.05), 3000).params
        np.testing.assert_allclose(run(own, 3000).params, common, atol=1e-9)


def test_lanes_have_the_rounds_of_their_runs_and_constants_make_another_identity():
    algorithm = jdfl.DPSGD(lr=SCHEDULE, gradients=jdfl.Gradients(batch=2))
    lanes = jdfl.repeat(algorithm, problem(np.float32), network(), keys=[1, 2], steps=ROUNDS, metrics=[], batch=1)
    alone = jdfl.run(algorithm, problem(np.float32), network(), key=2, steps=ROUNDS, metrics=[])
    np.testing.assert_array_equal(lanes[1].params, alone.params)
    others = [optax.exponential_decay(0.1, 3, 0.5), optax.exponential_decay(0.1, 3, 0.4)]
    same, other = (run(replace(algorithm, lr=one), 1).provenance.hash for one in others)
    assert run(algorithm, 1).provenance.hash == same != other


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.rotated(4)) for name in ROWS])
def test_events_of_a_node_have_their_number_as_the_round(name):
    method = ROWS[name].method
    if isinstance(lr := getattr(method, "lr", None), float):
        timed = timed_network("equal")  # of periods in which every node acts at most once
        later = replace(method, lr=lambda k: jnp.where(k < 1, lr, lr / 2))
        (one, two), (other, fallen) = ([ran(m, timed, steps=k).params for k in (1, 4)] for m in (method, later))
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
        assert np.abs(fallen - two).max() > 1e-4


def test_what_a_schedule_changes_in_messages_is_what_noise_is_scaled_by():
    data, lr = problem(np.float32), np.asarray([float(SCHEDULE(k)) for k in range(ROUNDS)])
    found = cpgt.changes(jdfl.CPGT(lr=SCHEDULE, gradients=WHOLE), data, ROUNDS)
    expected = 2 * np.sqrt(N) * np.array([lr[:k].sum() for k in range(ROUNDS)])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4)
    assert (found[0] >= expected).all()
    gradients = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
    net, own = jdfl.network.complete(M), {"dpps": jdfl.DPPS(b=1e3), "gradients": gradients}
    claims = [
        jdfl.algorithms.program.planned(jdfl.SGP(lr=one, **own), data, net, ROUNDS).privacy(data)
        for one in (0.1, optax.constant_schedule(0.1), optax.piecewise_constant_schedule(0.1, {6: 1e-9}))
    ]
    assert all(claim.claimed for claim in claims)
    scales = [np.asarray(claim.event.multipliers) for claim in claims]
    np.testing.assert_allclose(scales[1], scales[0], rtol=1e-4)
    assert scales[2][-1] > 1.2 * scales[0][-1]


def test_schedules_that_cannot_be_meant_are_refused():
    falling, curve = (lambda k: 0.1 - 0.01 * k), optax.cosine_decay_schedule(0.1, 6)
    all_refused(
        (lambda: run(jdfl.DPSGD(lr=falling)), "lr(11)", "optax.cosine_decay_schedule"),
        (lambda: run(jdfl.DPSGD(lr=lambda k: float("nan"))), "lr(0)", "nan"),
        (lambda: run(jdfl.DPSGD(lr=lambda k: jnp.ones(3))), "lr(k)", "(3,)"),
        (lambda: run(jdfl.DPSGD(lr=lambda k: 0.1 if k < 3 else 0.2)), "lr(k)", "jnp.where"),
        (lambda: run(jdfl.DPSGD(lr=lambda: 0.1)), "lr(k)", "TypeError"),
        (lambda: run(jdfl.DPSGD(lr=lambda k: 0.0)), "lr = 0.0"),
        (lambda: jdfl.Gradients(clip="adaptive"), "clip = 'adaptive'"),
        (lambda: jdfl.Gradients(clip={"bias": 1.0}), "clip = {'bias': 1.0}"),
        (lambda: run(jdfl.DPSGD(lr=[0.1] * M)), "lr", "all nodes"),
        (lambda: run(jdfl.DPSGD(lr=np.ones(M))), "lr", "all nodes"),
        (lambda: run(jdfl.DSGT(lr=np.ones(M + 1))), "lr", f"({M + 1},)"),
        (lambda: run(jdfl.KGT(lr=curve)), "K-GT", "lr(k) = 0.0"),
    )
    run(jdfl.KGT(lr=curve), 6)
    with pytest.warns(UserWarning, match=r"lr = 0\.6"):
        run(jdfl.EXTRA(lr=optax.linear_schedule(0.6, 0.0, ROUNDS)))
