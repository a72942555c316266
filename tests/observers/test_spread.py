"""The map from releases to messages is that of loops written from the papers, whatever the network and the settings."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse as sp

import jdfl
from jdfl.algorithms.program import planned
from jdfl.base import struct
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.network.graph import as_dense, round_of
from jdfl.observers.spread import spread
from jdfl.observers.watched import NoMapError
from tests.later import Later

M, T = 5, 4
NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
LR = 0.3
ASYMMETRIC = Later(lambda: jdfl.network.from_matrix(sp.csr_array(np.random.default_rng(0).dirichlet(np.ones(M), M))))
RING = Later(jdfl.network.ring, M)
EDGES = [*((i, i - 1) for i in range(1, M)), (0, M - 1), (2, 0)]  # out-degrees differ, and push-sum weights with them
ONE_WAY = Later(jdfl.network.from_edges, EDGES, M, directed=True, weights="out-degree")


def problem(sizes=(1, 2, 3, 4, 5), penalty=None):
    """Nodes with different numbers of examples, and thus different sensitivities 2 / q."""
    random = np.random.default_rng(0)
    features = [random.standard_normal((q, 3)).astype(np.float32) for q in sizes]
    if penalty is not None:
        labels = [(x[:, 0] > 0).astype(np.float32) for x in features]
        return jdfl.problems.logistic_regression(list(zip(features, labels)), penalty=penalty)
    return jdfl.problems.linear_regression(features, [x[:, 0] for x in features])


def mixing(network):
    return np.asarray(as_dense(round_of(network, 0)), np.float64)


def found(algorithm, network, places, data=None, steps=T, key=0):
    """The coefficients [places, P, m, m] of the rows of all nodes at some places, and the map."""
    data = problem() if data is None else data
    map = spread(planned(algorithm, data, network, steps), data, network, steps, key)
    eye = np.eye(network.m)
    rows = map.rows([(place % (map.final + 1), eye[i]) for place in places for i in range(network.m)])
    return rows.reshape(len(places), network.m, len(map.inputs), network.m), map


def inputs(releases):
    """The unit inputs [P, m, P m] in units of sensitivities, which are 2 / q in float32."""
    eye = np.eye(releases * M).reshape(releases, M, releases * M)
    return eye * 2 * (1 / np.arange(1, M + 1, dtype=np.float32)).astype(float)[None, :, None]


def agree(rows, wanted):
    np.testing.assert_allclose(rows.reshape(wanted.shape), wanted, rtol=0, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("network", "order", "period"),
    [(RING, "combine-then-adapt", 2), (ASYMMETRIC, "adapt-then-combine", 1), (ASYMMETRIC, "combine-then-adapt", 1)],
)
def test_decentralized_sgd(network, order, period):
    W, y, x = mixing(network), inputs(T), np.zeros((M, T * M))
    sent = []
    for k in range(T):
        mix = W if k % period == 0 else np.eye(M)
        before = x if order == "combine-then-adapt" else x - LR * y[k]
        sent.append(before)
        x = mix @ x - LR * y[k] if order == "combine-then-adapt" else mix @ before
    algorithm = jdfl.DPSGD(lr=LR, gradients=NOISY, order=order, period=period)
    rows, map = found(algorithm, network, [*range(T), -1])
    agree(rows, np.stack([*sent, x]))
    assert [place.round for place in map.places] == list(range(T))
    assert map.by.tolist() == [[k % period == 0] * M for k in range(T)]
    assert map.inputs == [2.0] * T


def test_a_regulariser_and_the_momentum_of_optax_are_parts_of_the_step():
    W, y, x, z, v = mixing(RING()), inputs(T), np.zeros((M, T * M)), np.zeros((M, T * M)), 0.0
    for k in range(T):
        v = 0.9 * v + y[k]
        x, z = W @ x - LR * (y[k] + np.float64(np.float32(0.1)) * x), W @ z - LR * v
    optimizer = lambda lr: optax.sgd(lr, momentum=0.9)  # noqa: E731
    for wanted, more, data in ((x, {}, problem(penalty=0.1)), (z, {"optimizer": optimizer}, None)):
        rows, _ = found(jdfl.DPSGD(lr=LR, gradients=NOISY, **more), RING(), [-1], data)
        np.testing.assert_allclose(rows.reshape(M, -1), wanted, atol=1e-7 * np.abs(wanted).max())


@pytest.mark.parametrize(("kind", "network"), [(jdfl.DSGT, RING), (jdfl.PushDIGing, ONE_WAY)])
def test_gradient_tracking_sends_two_vectors(kind, network):
    """With the sums of push-sum in place of means, parameters are divided by what all ones become."""
    W, g, x, a = mixing(network), inputs(T + 1), np.zeros((M, (T + 1) * M)), np.ones((M, 1))
    y, sent = g[0], []
    for k in range(T):
        moved = x - LR * y
        sent += [moved, y]
        x, y, a = W @ moved, W @ y + g[k + 1] - g[k], W @ a
    rows, map = found(kind(lr=LR, gradients=NOISY), network, [*range(2 * T), -1])
    wanted = np.stack([*sent, x / a])
    np.testing.assert_allclose(rows.reshape(wanted.shape), wanted, atol=3e-7 * np.abs(wanted).max())
    assert [release for release, _ in map.points] == list(range(T + 1))


def test_random_networks_are_those_of_the_run():
    network = jdfl.network.erdos_renyi_rounds(M, 0.5)
    _, map = found(jdfl.DPSGD(lr=LR, gradients=NOISY), network, [0], key=1)
    drawn = jax.jit(jax.vmap(lambda k: network.at(k, Keys.of(typed_key(1)).at_round(k).network)))(jnp.arange(T))
    np.testing.assert_array_equal(map.heard, drawn.mask)
    np.testing.assert_array_equal(map.senders, drawn.senders)
    assert (map.heard[0] != map.heard[1]).any()


@struct.dataclass
class Doubled(jdfl.Gradients):
    """What it does besides would be lost."""

    def __call__(self, w, round, **more):
        return 2 * super().__call__(w, round, **more)


@struct.dataclass
class Turned(jdfl.DPSGD):
    """Its step adds a node's numbers to one another."""

    def step(self, state, round):
        new = super().step(state, round)
        return new._replace(x=jnp.cumsum(new.x, axis=1))


def test_what_is_no_such_map_is_named():
    doubled = Doubled(clip=1.0, mechanism=jdfl.Gaussian(2.0))
    for algorithm, network, named in (
        (jdfl.DFedSAM(gradients=NOISY), RING(), "affine"),
        (jdfl.DPSGD(gradients=NOISY, optimizer=optax.adam), RING(), "affine"),
        (jdfl.CHOCO(gradients=NOISY, codec=jdfl.QSGD(levels=4)), RING(), "QSGD"),
        (jdfl.DPSGD(gradients=jdfl.Gradients()), RING(), "releases"),
        (jdfl.DPSGD(gradients=doubled), RING(), "Doubled"),
        (jdfl.DPSGD(gradients=NOISY), jdfl.network.delays(RING(), 2), "late"),
        (Turned(lr=5.0, gradients=NOISY), RING(), "entries of a vector"),
    ):
        with pytest.raises(NoMapError, match=named):
            found(algorithm, network, [0])
