"""Noise on what a node has learnt in a round: its size, what it protects, and where it may be claimed."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jdfl
from jdfl.algorithms.algorithm import check_parts
from jdfl.algorithms.round import RoundContext
from jdfl.base import struct
from tests.algorithms.play import M, N, course, direct, example, network
from tests.later import Later
from tests.toy import Gossip

CLIP, NOISE = 0.05, 0.6
PROBLEM = Later(example, np.float32)
UPDATES = jdfl.Updates(clip=CLIP, mechanism=jdfl.Gaussian(NOISE))
METHODS = {
    "d-psgd, adam": jdfl.DPSGD(lr=0.1, optimizer=optax.adam, order="adapt-then-combine"),
    "dfedavgm": jdfl.DFedAvgM(lr=0.05, local_steps=2),
    "dfedsam": jdfl.DFedSAM(lr=0.05, local_steps=2),
    "fedavg": jdfl.FedAvg(lr=0.05, local_steps=2),
}


@partial(jax.jit, static_argnames=("count",))
def noise_of(updates, size: int | None, key, count: int = M):
    now = RoundContext(jnp.int32(0), key, network().graph, jnp.arange(count, dtype=jnp.int32))
    return updates(jnp.zeros((count, N)), direct(now, PROBLEM()))


@pytest.mark.parametrize(("trust", "share"), [("local", 1.0), ("central", 1 / np.sqrt(M))])
def test_noise_has_the_size_that_the_clip_asks_for(trust, share):
    updates = UPDATES.replace(trust=trust)
    found = np.asarray(jax.vmap(lambda key: noise_of(updates, None, key))(jax.random.split(jax.random.key(0), 400)))
    assert found.std() == pytest.approx(2 * CLIP * NOISE * share, rel=5 / np.sqrt(2 * found.size))
    mean = found.mean(axis=1)
    if trust == "central":  # the mean has the noise of one release of the mean, which one node changes by 2 clip / m
        assert mean.std() == pytest.approx(2 * CLIP / M * NOISE, rel=5 / np.sqrt(2 * mean.size))


@pytest.mark.parametrize("name", METHODS)
def test_another_nodes_data_change_its_update_by_the_sensitivity_at_most(name):
    """From the same public state: nothing else of the node's is ever sent."""
    algorithm = METHODS[name].replace(updates=jdfl.Updates(clip=CLIP))
    A, b = PROBLEM().data
    other = PROBLEM().replace(data=(A.at[2].multiply(-1.0), b.at[2].multiply(50.0)))
    net = jdfl.network.from_edges([], M, connected=False)  # nobody mixes, so that the update is all that happens
    w, v = (np.asarray(course(algorithm, world, net, rounds=1)[0][0]) for world in (PROBLEM(), other))
    change = np.linalg.norm(w - v, axis=1)
    if name == "fedavg":
        assert change.max() <= 2 * CLIP / M * (1 + 1e-4)
        assert change.min() > CLIP / M
    else:
        assert CLIP < change[2] <= 2 * CLIP * (1 + 1e-4)
        assert not np.delete(change, 2).any()


@pytest.mark.rotated(5)
@pytest.mark.parametrize("name", METHODS)
def test_every_round_is_one_release_of_a_whole_nodes_data(name):
    algorithm = METHODS[name].replace(updates=UPDATES)
    result = jdfl.run(algorithm, PROBLEM(), network(), key=0, steps=3, metrics=[])
    assert result.releases.tolist() == [3] * M
    told = jdfl.account(result)
    assert (told.unit, told.adjacency, told.sound) == ("node", "replace-one", True)
    assert told.epsilon == pytest.approx(jdfl.privacy.gaussian_epsilon(np.sqrt(3) / NOISE, told.delta), rel=1e-3)
    assert told.sensitivity == pytest.approx(2 * CLIP)


def test_central_noise_is_calibrated_by_what_is_left_of_it():
    updates = UPDATES.replace(trust="central")
    algorithm = jdfl.FedAvg(updates=updates, fraction=0.5)
    found = jdfl.calibrate(algorithm, PROBLEM(), network(), steps=3, epsilon=2.0)
    told = jdfl.account_plan(found, PROBLEM(), network(), steps=3)
    assert 1.98 < told.epsilon <= 2.0
    alone = jdfl.FedAvg(updates=updates, fraction=1 / M).privacy(PROBLEM())
    assert not alone.claimed
    assert "local" in alone.remedy


def test_central_noise_is_claimed_behind_a_server_only():
    central = UPDATES.replace(trust="central")
    behind = jdfl.FedAvg(updates=central).privacy(PROBLEM())
    assert behind.claimed
    assert behind.event.noise_multiplier == pytest.approx(NOISE * np.sqrt((M - 1) / M))  # a client knows its own noise
    assert "trusted" in behind.observer
    among = jdfl.DPSGD(updates=central).privacy(PROBLEM())
    assert not among.claimed
    assert 'trust="local"' in among.remedy
    assert not jdfl.DPSGD(updates=jdfl.Updates(clip=CLIP)).privacy(PROBLEM()).claimed
    exact, bare = (UPDATES.replace(mechanism=one) for one in (jdfl.ExactGaussian(NOISE), None))
    assert bare.sensitivity(9) == 0 < 2 * CLIP < exact.sensitivity(9) < 2 * CLIP * (1 + 1e-5)  # with what is rounded
    bare.check(jdfl.Gradients(clip=1.0, mechanism=jdfl.Laplace(1.0)))  # noise is in one place only


@struct.dataclass
class Own(Gossip):
    """A method of one's own whose gradients are its own affair."""

    updates: Any = UPDATES


def test_a_method_of_ones_own_may_have_updates_without_gradients():
    check_parts(Own(), PROBLEM())
