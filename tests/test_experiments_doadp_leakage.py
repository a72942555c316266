"""The leakage attack of DO-ADP II-C is exact without noise, whatever the network and the gradients are."""

import numpy as np
import pytest

from experiments import doadp_leakage as leakage
from tests.reference import compressed
from tests.reference.doadp import doadp

M, N, T = 5, 6, 40


def walk(seed, compress, p=1.0):
    """Public copies [T + 1, m, n] of a run with random gradients [T, m, n], a random W, and who is active [T, m]."""
    draw = np.random.default_rng(seed)
    weights = draw.random((M, M))
    weights = (weights + weights.T) / 20
    W = weights + np.diag(1 - weights.sum(axis=1))
    given, active, sent = draw.normal(size=(T, M, N)), draw.random((T, M)) < p, []

    def kept(z):
        sent.append(compress(z))
        return sent[-1]

    doadp(
        lambda k, i, x: given[k, i], active, W, np.zeros(N), kept,
        lr=leakage.ALPHA, gamma=leakage.GAMMA, beta=leakage.BETA, zero=True,
    )  # fmt: skip
    steps, messages = np.zeros((T, M, N)), iter(sent)
    for k, i in np.argwhere(active):
        steps[k, i] = next(messages)
    public = np.concatenate([np.zeros((1, M, N)), np.cumsum(steps, axis=0)])
    return public, np.eye(M) + leakage.GAMMA * (W - np.eye(M)), given, active


@pytest.mark.parametrize("p", [1.0, 0.6])
def test_every_gradient_is_recovered_where_whole_vectors_are_sent(p):
    public, mixing, given, active = walk(0, compressed.exactly, p)
    found = leakage.recovered(public, mixing)
    np.testing.assert_array_equal(found.active, active)
    np.testing.assert_allclose(found.gradients[active], given[active], rtol=0, atol=1e-9)
    assert leakage.errors(found, given)["largest relative error of g"] < 1e-9


def test_the_formula_as_printed_recovers_none():
    public, mixing, given, _ = walk(0, compressed.exactly)
    told = leakage.errors(leakage.recovered(public, 2 * np.eye(M) - mixing), given)
    assert told["relative error of g"] > 1e-3
    assert told["entries of g recovered"] < 0.5


def test_sparse_messages_hold_back_single_gradients_but_no_sum_for_long():
    public, mixing, given, _ = walk(1, compressed.top(2))
    found = leakage.recovered(public, mixing)
    told = leakage.errors(found, given)
    assert told["relative error of g"] > 0.3
    momentum, total = np.zeros((M, N)), np.zeros((M, N))
    for g in given:
        momentum = g + leakage.BETA * momentum
        total += momentum
    apart = np.abs(found.momenta.sum(axis=0) - total)
    last = public[-1] != public[-2]  # what the last message has
    np.testing.assert_allclose(apart[last], 0, atol=1e-9)
    assert (apart[~last] > 1e-3).all()


def test_a_record_of_least_squares_follows_from_two_gradients():
    draw = np.random.default_rng(2)
    rows, target = np.abs(draw.normal(size=(M, N))), draw.choice([-2.0, 0.5], M)
    x1 = draw.normal(size=(M, N))
    first, second = -target[:, None] * rows, (np.sum(rows * x1, axis=1) - target)[:, None] * rows
    np.testing.assert_allclose(leakage.row_of_linear(first, second, x1), rows, rtol=1e-9)
