"""What observers learn is what optimal attacks reach, and is claimed only where it holds."""

import numpy as np
import pytest
import scipy.sparse as sp

import jdfl
from experiments.observer_attack import reached, world
from jdfl.base import struct
from jdfl.observers import Coalition, Everyone, FinalModels, Neighbour, Server, observe, observe_pairs
from jdfl.observers.observe import Observed
from jdfl.privacy import gaussian_epsilon
from tests.later import Later
from tests.refused import refused

M, T = 6, 4
NOISY = jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(2.0))
ADAPT = jdfl.DPSGD(lr=0.1, gradients=NOISY, order="adapt-then-combine")
EXACTLY = jdfl.Dense("float64")
RING = Later(jdfl.network.ring, M)
CLIENTS = jdfl.FedAvg(updates=jdfl.Updates(clip=1.0, mechanism=jdfl.Gaussian(2.0)))
AROUND = sp.csr_array(np.array([[0.5, 0.5, 0, 0], [0, 0.4, 0.6, 0], [0, 0, 0.3, 0.7], [0.8, 0, 0, 0.2]]))


def data(m=M):
    return world(m, 0, 1.0)


_runs: dict[str, Observed] = {}  # maps are made once for all observers


def of(algorithm, network=None, steps=T, delta=0.01):
    network = RING() if network is None else network
    weights = np.asarray(network.graph.weight).tolist() if hasattr(network, "graph") else id(network)
    label = repr((algorithm, network.name, weights, steps, delta))
    if label not in _runs:
        _runs[label] = Observed.of(algorithm, data(network.m), network, steps=steps, key=0, delta=delta)
    return _runs[label]


def about(algorithm, observer, network=None, **given):
    return of(algorithm, network, **given).by(observer)


def test_a_ring_of_six():
    """Noise of twice the sensitivity, four rounds; the numbers were found by another program, and simulated."""
    for observer, wanted in (
        (Everyone(), [1, 1, 1, 1, 1, 1]),
        (Neighbour(0), [np.nan, 0.970, 0.345, 0.138, 0.345, 0.970]),
        (Coalition((2, 4)), [0.445, 0.975, np.nan, 1, np.nan, 0.975]),
        (FinalModels(), [0.741] * 6),
    ):
        np.testing.assert_allclose(about(ADAPT, observer).mu, wanted, atol=6e-4)


ATTACKED = [
    (ADAPT.replace(codec=EXACTLY), Neighbour(0), 1),
    (jdfl.DSGT(gradients=NOISY, codec=EXACTLY), Neighbour(0, sums=True), 2),
    (jdfl.DFedAvgM(gradients=NOISY, local_steps=2, codec=EXACTLY), Coalition((2, 4)), 0),
]


@pytest.mark.rotated(3)
@pytest.mark.parametrize(("algorithm", "observer", "node"), ATTACKED, ids=lambda one: type(one).__name__)
def test_optimal_attacks_reach_what_is_derived(algorithm, observer, node):
    found, wanted = reached(algorithm, RING(), observer, node, steps=T)
    assert found == pytest.approx(wanted, rel=0.05)
    assert wanted > 0.2


def test_weights_of_a_round_are_taken_as_rows():
    adapt = ADAPT.replace(objective="pi", codec=EXACTLY)  # columns of W do not sum to one
    found, wanted = reached(adapt, jdfl.network.from_matrix(AROUND), Neighbour(0), 2, steps=T)
    assert wanted == pytest.approx(found, rel=0.05)


ROWS = [
    ADAPT,
    jdfl.DSGT(gradients=NOISY),
    jdfl.EXTRA(gradients=NOISY),
    jdfl.DFedAvgM(gradients=NOISY, local_steps=2),
    jdfl.DPDDA(gradients=NOISY),
    jdfl.CHOCO(gradients=NOISY, codec=jdfl.Dense()),
    CLIENTS,
]


@pytest.mark.rotated(6)
@pytest.mark.parametrize("algorithm", ROWS, ids=lambda one: type(one).__name__)
def test_who_sees_less_learns_less(algorithm):
    run = of(algorithm)
    everyone = run.by(Everyone()).mu
    assert np.all(everyone <= np.sqrt(run.releases) / 2.0 + 1e-7)
    seen = [run.by(one).mu for one in (Coalition((0, 2)), Neighbour(0), Neighbour(0, sums=True))]
    other = ~np.isnan(seen[0])
    for more, less in zip([everyone, *seen], seen):
        assert np.all(less[other] <= more[other] + 1e-6)
    assert np.all(run.by(FinalModels((3,))).mu <= run.by(FinalModels()).mu + 1e-6)


def test_a_server_of_secure_sums_sees_the_noise_of_all():
    np.testing.assert_allclose(about(CLIENTS, Server()).mu, np.ones(M), rtol=1e-7)
    np.testing.assert_allclose(about(CLIENTS, Server(sums=True)).mu, np.full(M, np.sqrt(1 / M)), rtol=1e-6)
    client = about(CLIENTS, Neighbour(1))  # who subtracts its own noise, and does not see the last sum
    np.testing.assert_allclose(client.mu, np.where(np.arange(M) == 1, np.nan, np.sqrt(3 / 4 / (M - 1))), rtol=1e-6)


def test_a_bound_is_claimed_where_all_gradients_are_taken_at_known_points():
    for algorithm, observer, bound in (
        (ADAPT, Everyone(), True),
        (ADAPT, Neighbour(0), False),
        (jdfl.DPSGD(gradients=NOISY), Coalition((0, 3)), True),  # whose neighbours are all others
        (CLIENTS, Server(sums=True), True),
        (CLIENTS, Neighbour(1), True),
        (jdfl.DFedAvgM(gradients=NOISY, local_steps=2), Everyone(), False),  # points between local steps are unseen
    ):
        found = about(algorithm, observer)
        assert found.bound is bound
        assert ("NO GUARANTEE" in found.statement()) is not bound
        assert found.epsilon_claimed == pytest.approx(gaussian_epsilon(np.sqrt(found.releases) / 2, 0.01), rel=1e-3)
        assert np.nanmax(found.epsilon) <= found.epsilon_claimed * (1 + 1e-6)


@struct.dataclass
class Stateful(jdfl.Algorithm):
    """Its nodes add noise to parameters of theirs that nobody has seen."""

    gradients: jdfl.Gradients = jdfl.Gradients()
    updates: jdfl.Updates = CLIENTS.updates

    def init(self, round):
        return round.problem.initial_params(), round.problem.initial_params()

    def step(self, state, round):
        x, own = state
        x = round.mix(self.updates(own - 0.1 * self.gradients.without_noise(x, round), round))
        return x, x


def test_noise_on_a_state_is_no_bound_but_one_round_is_fixed_for_whoever_looks():
    assert not of(Stateful()).spread.fixed
    for algorithm, observer in ((Stateful(), Coalition((0, 3))), (ADAPT, Neighbour(0))):
        assert not about(algorithm, observer).bound
        assert about(algorithm, observer, steps=1).bound


def test_epsilon_is_that_of_the_shift_and_pays_for_tables():
    found = about(ADAPT, Neighbour(0))
    np.testing.assert_array_equal(found.epsilon[1:], [gaussian_epsilon(mu, 0.01) for mu in found.mu[1:]])
    exact = jdfl.Gradients(clip=1.0, mechanism=jdfl.ExactGaussian(2.0))
    other = about(jdfl.DPSGD(lr=0.1, gradients=exact, order="adapt-then-combine"), Neighbour(0))
    np.testing.assert_allclose(other.mu, found.mu, rtol=1e-6)
    assert np.all((other.epsilon > found.epsilon) | np.isnan(found.epsilon))
    np.testing.assert_allclose(other.epsilon, found.epsilon, rtol=1e-6)


def test_pairs_are_the_observers_one_by_one(monkeypatch):
    run = of(ADAPT)
    monkeypatch.setattr(Observed, "of", lambda *given, **how: run)
    pairs = observe_pairs(ADAPT, data(), RING(), steps=T, delta=0.01)
    np.testing.assert_array_equal(pairs.mu[3], about(ADAPT, Neighbour(3)).mu)
    np.testing.assert_array_equal(pairs.distance[0], [0, 1, 2, 3, 2, 1])
    assert pairs.by_distance()["pairs"].tolist() == [12, 12, 6]
    assert pairs.median == pytest.approx(np.nanmedian(pairs.epsilon))


def test_what_cannot_be_said_is_refused(monkeypatch):
    assumed = jdfl.Gradients(mechanism=jdfl.Gaussian(1.0), sensitivity=1.0)
    laplace = jdfl.Gradients(clip=1.0, mechanism=jdfl.Laplace(1.0))
    for algorithm, observer, named in (
        (ADAPT, Neighbour(6), "node = 6"),
        (ADAPT, Coalition(tuple(range(M))), "6"),
        (ADAPT, Server(), "server"),
        (jdfl.DPSGD(), Neighbour(0), "noise"),
        (jdfl.DPSGD(gradients=assumed), Neighbour(0), "not clipped"),
        (jdfl.DPSGD(gradients=laplace), Neighbour(0), "laplace"),
    ):
        with refused(named):
            about(algorithm, observer)
    with refused(observer=3):
        observe(ADAPT, data(), RING(), 3, steps=T, delta=0.01)
    monkeypatch.setitem(Observed.by.__globals__, "_MOST_ROWS", 20)
    with refused("20 vectors", "24", "Everyone"):
        about(ADAPT, Everyone())
    with refused("late"):
        about(ADAPT, Neighbour(0), jdfl.network.delays(RING(), 2))


def test_lost_messages_are_not_seen():
    run = Observed.of(ADAPT, data(), jdfl.network.link_loss(RING(), 0.5), steps=T, key=0, delta=0.01)
    rows = Neighbour(0).rows(run.spread)
    assert len(rows) == run.spread.heard[:, 0].sum() < 2 * T
    assert run.by(Neighbour(0)).mu[3] < about(ADAPT, Neighbour(0)).mu[3]
