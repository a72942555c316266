"""D-PSGD and its kin against the loops written from their papers, and the laws that they keep."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jdfl
from jdfl.engine.start import check_settings
from tests.algorithms.play import ROUNDS, M, N, course, example, gradient_of, matrices, network
from tests.reference import family as reference

WIRE = jdfl.Dense("float64")
LR = 0.07


def agrees(algorithm, loop_of, net=None, tolerance=1e-9):
    """Every round of a run agrees with `loop_of(gradient, W)`."""
    with jax.enable_x64(True):
        problem, net = example(), network() if net is None else net
        check_settings(algorithm, problem, net)
        params, *_ = course(algorithm, problem, net)
        expected = loop_of(gradient_of(problem), matrices(net, jax.random.key(11)))
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("order", ["combine-then-adapt", "adapt-then-combine"])
@pytest.mark.parametrize("period", [1, 4])
def test_dpsgd_agrees_with_its_loop(order, period):
    agrees(
        jdfl.DPSGD(lr=LR, codec=WIRE, order=order, period=period),
        lambda g, W: reference.dpsgd(g, W, N, lr=LR, period=period, adapt_first=order == "adapt-then-combine"),
    )


def test_local_only_agrees_with_its_loop():
    agrees(jdfl.LocalOnly(lr=LR), lambda g, W: reference.local_only(g, M, N, ROUNDS, lr=LR))


@pytest.mark.parametrize("period", [1, 3])
def test_iht_agrees_with_its_loop(period):
    agrees(
        jdfl.IHT(s=4, lr=LR, codec=WIRE, period=period),
        lambda g, W: reference.iht(g, W, N, lr=LR, s=4, period=period),
    )


@pytest.mark.parametrize("gossip_steps", [1, 3])
def test_dfedsam_agrees_with_its_loop(gossip_steps):
    given = {"lr": LR, "rho": 0.3, "local_steps": 4, "gossip_steps": gossip_steps}
    agrees(jdfl.DFedSAM(codec=WIRE, **given), lambda g, W: reference.dfedsam(g, W, N, **given))


@pytest.mark.parametrize("local_steps", [1, 3])
def test_matcha_agrees_with_its_loop(local_steps):
    agrees(
        jdfl.MATCHA(lr=LR, codec=WIRE, local_steps=local_steps),
        lambda g, W: reference.matcha(g, W, N, lr=LR, local_steps=local_steps),
        jdfl.network.matcha(network(), 0.4),
    )


@pytest.mark.parametrize(("fraction", "weighting"), [(1.0, "equal"), (0.5, "examples"), (0.01, "equal")])
def test_fedavg_agrees_with_its_loop(fraction, weighting):
    with jax.enable_x64(True):
        problem, net = example(), network()
        algorithm = jdfl.FedAvg(lr=LR, codec=WIRE, fraction=fraction, weighting=weighting)
        params, _, _, infos = course(algorithm, problem, net)
        chosen = [np.flatnonzero(row) for row in np.asarray(infos.sent["up"])]
        assert {len(clients) for clients in chosen} == {max(1, int(fraction * M + 0.5))}
        share = np.asarray(problem.sizes, float) if weighting == "examples" else None
        expected = reference.fedavg(gradient_of(problem), M, N, chosen, lr=LR, local_steps=5, share=share)
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=1e-9)
        if fraction < 1:
            assert len({tuple(clients) for clients in chosen}) > 1


def test_fedavg_chooses_every_client_equally_often():
    _, _, _, infos = course(jdfl.FedAvg(lr=LR, fraction=0.4, local_steps=1), example(np.float32), network(), rounds=400)
    share = np.asarray(infos.sent["up"]).mean(axis=0)
    np.testing.assert_allclose(share, 3 / M, atol=4 * np.sqrt(0.24 / 400))


@pytest.mark.parametrize(
    "algorithm", [jdfl.DPSGD(lr=LR), jdfl.DPSGD(lr=LR, order="adapt-then-combine"), jdfl.MATCHA(lr=LR)], ids=str
)
def test_the_average_moves_by_the_average_gradient_and_nothing_else(algorithm):
    with jax.enable_x64(True):
        problem, net = example(), network()
        params, *_ = course(algorithm.replace(codec=WIRE), problem, net)
        params = np.concatenate([np.zeros((1, M, N)), np.asarray(params)])
        g = gradient_of(problem)
        for before, after in itertools.pairwise(params):
            mean = np.mean([g(i, before[i]) for i in range(M)], axis=0)
            # Columns of float32 weights sum to one up to their rounding.
            np.testing.assert_allclose(after.mean(axis=0), before.mean(axis=0) - LR * mean, atol=1e-6)


def test_matcha_with_the_whole_budget_is_dpsgd_with_its_weights():
    problem, net = example(np.float32), jdfl.network.matcha(network(), 1.0)
    W = matrices(net, jax.random.key(11), 2)
    np.testing.assert_array_equal(W[0], W[1])
    fixed = jdfl.network.from_matrix(W[0])
    here, *_ = course(jdfl.MATCHA(lr=LR), problem, net)
    there, *_ = course(jdfl.DPSGD(lr=LR, order="adapt-then-combine"), problem, fixed)
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)


def test_all_nonzeros_and_dense_messages_make_iht_dpsgd():
    problem, net = example(np.float32), network()
    here, *_ = course(jdfl.IHT(s=N, lr=LR, codec=jdfl.Dense()), problem, net)
    there, *_ = course(jdfl.DPSGD(lr=LR), problem, net)
    np.testing.assert_array_equal(here, there)


def test_sparse_messages_lose_nothing_of_sparse_models():
    problem, net = example(np.float32), network()
    sparse, *_ = course(jdfl.IHT(s=4, lr=LR), problem, net)
    dense, *_ = course(jdfl.IHT(s=4, lr=LR, codec=jdfl.Dense()), problem, net)
    np.testing.assert_allclose(sparse, dense, rtol=1e-5, atol=1e-6)


def test_many_gossip_steps_are_the_power_of_the_matrix():
    problem, net = example(np.float32), network()
    W = np.linalg.matrix_power(matrices(net, jax.random.key(11), 1)[0], 3)
    power = jdfl.network.from_matrix(W)
    here, *_ = course(jdfl.DFedSAM(lr=LR, gossip_steps=3), problem, net)
    there, *_ = course(jdfl.DFedSAM(lr=LR), problem, power)
    np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adam,
        optax.adam(LR),
        partial(optax.sgd, momentum=0.9),
        lambda lr: optax.chain(optax.clip(0.5), optax.sgd(lr)),
    ],
    ids=["factory", "transformation", "momentum", "chain"],
)
def test_any_optax_transformation_takes_the_local_steps(optimizer):
    problem = example(np.float32)
    params, *_ = course(jdfl.LocalOnly(lr=LR, optimizer=optimizer), problem, network())
    transformation = optimizer if isinstance(optimizer, optax.GradientTransformation) else optimizer(LR)
    g = gradient_of(problem)
    with jax.numpy_dtype_promotion("standard"):
        for i in range(2):
            x = jnp.zeros(N)
            state = transformation.init(x)
            for k in range(5):
                moved, state = transformation.update(jnp.asarray(g(i, np.asarray(x)), jnp.float32), state, x)
                x = x + moved
                np.testing.assert_allclose(params[k, i], x, rtol=1e-4, atol=1e-5)


def test_plain_steps_are_those_of_sgd():
    problem, net = example(np.float32), network()
    for kind in (jdfl.DPSGD, jdfl.MATCHA, jdfl.FedAvg, jdfl.LocalOnly):
        here, *_ = course(kind(lr=LR), problem, net)
        there, *_ = course(kind(lr=LR, optimizer=optax.sgd), problem, net)
        np.testing.assert_array_equal(here, there)


def test_optimizers_keep_their_state_from_round_to_round():
    problem, net = example(np.float32), network()
    adam, *_ = course(jdfl.DPSGD(lr=LR, optimizer=optax.adam), problem, net)
    signs, *_ = course(
        jdfl.DPSGD(lr=LR, optimizer=lambda lr: optax.chain(optax.scale_by_sign(), optax.sgd(lr))), problem, net
    )
    np.testing.assert_allclose(adam[0], signs[0], atol=1e-5)
    assert np.abs(np.asarray(adam - signs)[5:]).max() > 1e-2


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (jdfl.DPSGD(lr=-1.0), ["lr", "-1.0"]),
        (jdfl.DPSGD(lr=np.ones(M)), ["lr", "(7,)", "one number"]),
        (jdfl.DPSGD(optimizer=0.1), ["optimizer", "0.1", "optax.adam"]),
        (jdfl.DPSGD(optimizer=lambda lr: lr), ["optimizer(0.1)", "0.1", "optax.adam"]),
        (jdfl.DPSGD(period=0), ["period", "0"]),
        (jdfl.DPSGD(order="last"), ["order", "'last'", "adapt-then-combine"]),
        (jdfl.DPSGD(codec=None), ["codec", "None", "Dense()"]),
        (jdfl.DPSGD(codec=jdfl.OneBit(side=True)), ["D-PSGD", "codec = OneBit", "side=False"]),
        (jdfl.IHT(s=13), ["s", "13", "nonzeros"]),
        (jdfl.DFedSAM(rho=-0.1), ["rho", "-0.1"]),
        (jdfl.DFedSAM(gossip_steps=0), ["gossip_steps", "0"]),
        (jdfl.FedAvg(fraction=0.0), ["fraction", "0.0", "Fraction of the clients"]),
        (jdfl.FedAvg(local_steps=0), ["local_steps", "0"]),
        (jdfl.FedAvg(weighting="size"), ["weighting", "'size'", "examples"]),
        (jdfl.MATCHA(local_steps=0), ["local_steps", "0"]),
    ],
)
@pytest.mark.filterwarnings("ignore:With d = ")
def test_mistakes_are_named(algorithm, words):
    with pytest.raises(ValueError) as error:
        check_settings(algorithm, example(np.float32), network())
    assert all(word in str(error.value) for word in words), error.value


def test_matcha_refuses_a_network_that_does_not_keep_the_average():
    with pytest.raises(ValueError, match="MATCHA") as error:
        check_settings(jdfl.MATCHA(), example(np.float32), jdfl.network.star(M, weights="uniform"))
    assert "doubly stochastic" in str(error.value)


def test_a_run_from_the_outside():
    problem, net = example(np.float32), network()
    result = jdfl.run(jdfl.FedAvg(lr=LR, fraction=0.5), problem, net, steps=6, every=3)
    assert result.totals.messages == {"down": 24, "up": 24}
    assert result.totals.gradients == 6 * 4 * 5
    alone = jdfl.run(jdfl.LocalOnly(lr=LR), problem, net, steps=6)
    assert alone.totals.bytes == 0
    assert alone.totals.examples == 6 * int(problem.sizes.sum())
