"""D-PSGD and its kin against the loops written from their papers, and the laws that they keep."""

import jax
import numpy as np
import optax
import pytest

import jdfl
from tests.algorithms.play import ROUNDS, M, N, course, example, gradient_of, matrices, network
from tests.reference import family as reference

WIRE = jdfl.Dense("float64")
LR = 0.07


def agrees(algorithm, loop_of, net=None):
    """Every round of a run agrees with `loop_of(gradient, W)`."""
    with jax.enable_x64(True):
        problem, net = example(), network() if net is None else net
        params, *_ = course(algorithm, problem, net)
        expected = loop_of(gradient_of(problem), matrices(net, jax.random.key(11)))
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("order", "period"), [("combine-then-adapt", 1), ("adapt-then-combine", 4)])
def test_dpsgd_agrees_with_its_loop(order, period):
    agrees(
        jdfl.DPSGD(lr=LR, codec=WIRE, order=order, period=period),
        lambda g, W: reference.dpsgd(g, W, N, lr=LR, period=period, adapt_first=order == "adapt-then-combine"),
    )


def test_local_only_iht_dfedsam_and_matcha_agree_with_their_loops():
    agrees(jdfl.LocalOnly(lr=LR), lambda g, W: reference.dpsgd(g, [np.eye(M)] * ROUNDS, N, lr=LR))
    agrees(jdfl.IHT(s=4, lr=LR, codec=WIRE, period=3), lambda g, W: reference.dpsgd(g, W, N, lr=LR, s=4, period=3))
    given = {"lr": LR, "rho": 0.3, "local_steps": 4, "gossip_steps": 3}
    agrees(jdfl.DFedSAM(codec=WIRE, **given), lambda g, W: reference.dfedsam(g, W, N, **given))
    agrees(
        jdfl.MATCHA(lr=LR, codec=WIRE, local_steps=3),
        lambda g, W: reference.dpsgd(g, W, N, lr=LR, local_steps=3, adapt_first=True),
        jdfl.network.matcha(network(), 0.4),
    )


@pytest.mark.parametrize(("fraction", "weighting"), [(1.0, "equal"), (0.5, "examples")])
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


def test_any_optax_transformation_takes_the_local_steps():
    problem, optimizer = example(np.float32), lambda lr: optax.chain(optax.clip(0.5), optax.adam(lr))
    params, *_ = course(jdfl.LocalOnly(lr=LR, optimizer=optimizer), problem, network())
    g, x, update = gradient_of(problem), np.zeros(N, np.float32), jax.jit(optimizer(LR).update)
    state = optimizer(LR).init(x)
    with jax.numpy_dtype_promotion("standard"):
        for k in range(5):
            moved, state = update(g(1, x).astype(np.float32), state, x)
            x = x + np.asarray(moved)
            np.testing.assert_allclose(params[k, 1], x, rtol=1e-4, atol=1e-5)
