"""CEPS with the old messages of neighbours that were not selected (III-E), a u_i per node, noise at k = 0."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import ceps as module
from jdfl.algorithms.program import Program, planned
from jdfl.engine import loop, stepping
from jdfl.engine.start import check_settings
from tests.algorithms.test_ceps import BASE, ROUNDS, M, N, S, compare, course, example, gradient_of
from tests.reference.gpsp import keep_largest
from tests.test_sharding import same

STORED = BASE.replace(storage="sparse", unselected="stored")


def loop_over_nodes(gradient, neighbours, sigma, period, chosen, own):
    """Algorithm 1 with III-E: every node keeps the last z_j of each neighbour; `chosen(k, i)` are those it asks."""
    w, u = np.zeros((M, N)), np.stack([-gradient(i, np.zeros(N)) for i in range(M)])
    size = np.array([len(near) + own for near in neighbours], float)
    known = [{j: np.zeros(N) for j in near} for near in neighbours]
    taken = []
    for k in range(ROUNDS):
        new = w.copy()
        for i in range(M):
            if k > 0 and k % period[i] == 0:
                for j in chosen(k, i):
                    known[i][j] = w[j]
                total = sum(known[i].values()) + (w[i] if own else 0)
                mean = total / size[i]
                u[i] = sigma[i] * size[i] * mean - gradient(i, mean)
                new[i] = keep_largest(u[i] / (sigma[i] * size[i]), S)
            else:
                new[i] = keep_largest((u[i] + 0.1 * w[i]) / (sigma[i] * size[i] + 0.1), S)
        w = new
        taken.append(w)
    return np.stack(taken)


@pytest.mark.parametrize("own", ["absent", "always"])
def test_old_messages_stay_in_use(own):
    with jax.enable_x64(True):
        problem, network = example(), jdfl.network.erdos_renyi(M, 0.5, seed=2)
        algorithm = STORED.replace(own=own, rate=0.4)
        plain, bare = stepping.nameless(problem), stepping.nameless(network)
        prepared, (w, _, others, _, _), _ = course(algorithm, plain, bare, jax.random.key(11), ROUNDS)
        senders, mask = np.asarray(network.graph.senders), np.asarray(network.graph.mask)
        found = loop_over_nodes(
            gradient_of(problem),
            [senders[i][mask[i]].tolist() for i in range(M)],
            np.asarray(prepared.ready.sigma),
            np.asarray(prepared.ready.period),
            lambda k, i: senders[i][np.asarray(others)[k, i]].tolist(),
            own == "always",
        )
        np.testing.assert_allclose(w, found, rtol=0, atol=1e-9)
        (other, *_) = course(algorithm.replace(unselected="absent"), plain, bare, jax.random.key(11), ROUNDS)[1]
        assert np.abs(np.asarray(other) - np.asarray(w)).max() > 1e-3


def test_everyone_selected_leaves_nothing_old():
    with jax.enable_x64(True):
        problem, network = example(), jdfl.network.erdos_renyi(M, 0.5, seed=2)
        runs = [
            jdfl.run(STORED.replace(rate=1.0, unselected=how), problem, network, key=0, steps=30)
            for how in ("absent", "stored")
        ]
    np.testing.assert_allclose(runs[0].params, runs[1].params, rtol=0, atol=1e-12)
    assert runs[0].totals == runs[1].totals


def test_blocks_and_one_bit_messages_store_the_same():
    problem, network = example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2)
    for codec in (jdfl.Sparse(), jdfl.OneBit(d=60)):
        one = replace(STORED, codec=codec)
        runs = [jdfl.run(replace(one, block=block), problem, network, key=0, steps=30).params for block in (1, 3, M)]
        for other in runs[1:]:
            np.testing.assert_allclose(other, runs[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_it_is_the_same_on_several_devices_and_resumes():
    problem, network = example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2)
    noise = {"mechanism": jdfl.Gaussian(0.7), "sensitivity": U, "period": None}
    for one in (replace(STORED, codec=jdfl.Sparse()), BASE.replace(codec=jdfl.Dense(), **noise)):
        runs = [
            jdfl.run(one, problem, network, key=0, steps=9, options=jdfl.Options(devices=many)) for many in (None, 4)
        ]
        same(*runs)
        part = jdfl.run(one, problem, network, key=0, steps=5)
        np.testing.assert_array_equal(jdfl.run(one, problem, network, steps=9, resume=part).params, runs[0].params)


def test_what_is_stored_is_s_numbers_per_link_and_bounded():
    network = jdfl.network.erdos_renyi(M, 0.5, seed=2)
    problem = example(np.float32)
    program = planned(STORED.replace(codec=jdfl.Sparse()), problem, network, 9)
    setting = stepping.setting(Program(program.algorithm), problem, network, None, jax.random.key(0))
    _, carry, _ = jax.eval_shape(loop.start, setting, ())
    d = network.graph.senders.shape[1]
    assert carry.state.stored.value.shape == (M, d * S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jdfl.algorithms.ceps_paper.MOST_STORED", M * d * S - 1)
        with pytest.raises(ValueError, match=f"at most {M * d * S - 1} stored numbers .* got {M * d * S}"):
            check_settings(STORED.replace(codec=jdfl.Sparse()), problem, network)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"storage": "dense"}, "storage = 'dense'"), ({"own": "sampled"}, "own = 'sampled'")],
)
def test_what_cannot_be_stored_is_refused(changes, words):
    network = jdfl.network.erdos_renyi(M, 0.5, seed=2)
    with pytest.raises(ValueError, match=words):
        check_settings(STORED.replace(codec=jdfl.Sparse(), **changes), example(np.float32), network)
    with pytest.raises(ValueError, match="a fixed network"):
        check_settings(STORED.replace(codec=jdfl.Sparse()), example(np.float32), jdfl.network.link_loss(network, 0.1))


def test_stored_messages_keep_the_guarantee():
    problem, network = example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2)
    private = STORED.replace(codec=jdfl.Sparse(), mechanism=jdfl.Gaussian(3.0), clip=1.0, sigma=1.0)
    told = planned(private, problem, network, 9).privacy(problem)
    assert told.claimed
    assert told == planned(private.replace(unselected="absent"), problem, network, 9).privacy(problem)


# ---------------------------------------------------------------- u_i per node

U = jnp.linspace(0.05, 0.2, M)


def test_every_node_may_have_its_own_u():
    compare(BASE.replace(mechanism=jdfl.Gaussian(0.7), noise="kept", sensitivity=U, block=3))


def test_noise_has_the_deviation_of_the_nodes_u():
    problem, network = example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2)
    noisy = BASE.replace(codec=jdfl.Dense(), mechanism=jdfl.Gaussian(3.0), sensitivity=U)
    plain = np.asarray(jdfl.run(BASE.replace(codec=jdfl.Dense()), problem, network, key=0, steps=1).state.u)
    runs = np.stack([jdfl.run(noisy, problem, network, steps=1, key=key).state.u for key in range(15)])
    measured = np.std(runs - plain, axis=(0, 2))
    np.testing.assert_allclose(measured, 3.0 * U, rtol=0.15)


def test_equal_u_are_one_u_and_others_are_refused():
    problem, network = example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2)
    noisy = BASE.replace(codec=jdfl.Dense(), mechanism=jdfl.Gaussian(0.7), sensitivity=0.1)
    one, each = (
        jdfl.run(a, problem, network, key=0, steps=9) for a in (noisy, noisy.replace(sensitivity=jnp.full(M, 0.1)))
    )
    assert each.guarantee.sensitivity == pytest.approx(0.1)
    assert not each.guarantee.claimed
    assert np.shape(one.params) == np.shape(each.params)
    with pytest.raises(ValueError, match="one u_i per node"):
        check_settings(noisy.replace(sensitivity=jnp.ones(M + 1)), problem, network)


# ---------------------------------------------------------------- k = 0


@pytest.mark.parametrize("noise", ["literal", "kept"])
def test_appendix_e_has_noise_in_step_0_and_algorithm_1_has_not(noise):
    """The messages that nodes have after step 0 differ from those without noise only where K_i has 0."""
    problem, network = example(np.float32), jdfl.network.erdos_renyi(M, 0.5, seed=2)
    plain = BASE.replace(codec=jdfl.Dense())
    for first, hidden in (("period", noise == "kept"), ("zero", True)):
        here = plain.replace(first=first)
        noisy = here.replace(mechanism=jdfl.Gaussian(5.0), sensitivity=1.0, noise=noise)
        w = [np.asarray(jdfl.run(one, problem, network, key=0, steps=1).params) for one in (here, noisy)]
        assert (np.abs(w[0] - w[1]).max() > 0.1) == hidden
    assert module.CEPS().first == "period"
