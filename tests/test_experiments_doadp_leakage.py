"""The leakage attack of DO-ADP II-C is exact without noise, whatever the network and the gradients are."""

import numpy as np

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


def test_every_gradient_is_recovered_where_whole_vectors_are_sent():
    for p in (1.0, 0.6):
        public, mixing, given, active = walk(0, compressed.exactly, p)
        found = leakage.recovered(public, mixing)
        np.testing.assert_array_equal(found.active, active)
        np.testing.assert_allclose(found.gradients[active], given[active], rtol=0, atol=1e-9)


def test_the_formula_as_printed_recovers_none():
    public, mixing, given, _ = walk(0, compressed.exactly)
    told = leakage.errors(leakage.recovered(public, 2 * np.eye(M) - mixing), given)
    assert told["relative error of g"] > 1e-3
    assert told["entries of g recovered"] < 0.5
