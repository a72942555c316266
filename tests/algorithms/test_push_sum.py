"""Push-sum, SGP, PEDFL and PartPSP against their loops, the laws that they keep, and what they release."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms.program import planned
from jdfl.algorithms.round import RoundContext
from jdfl.engine.start import check_settings
from tests.algorithms.play import M, N, course, example, gradient_of
from tests.algorithms.pushing import DECAY, MILESTONES, NETWORKS, falling, follow, protocol, uneven, weights
from tests.reference import push_sum as reference
from tests.refused import refused

CLIPPED = jdfl.Gradients(clip=1.0, per="batch", norm="l1")
NOISY = {"b": 2.0, "noise_rate": 0.01}
FALLS = {"milestones": MILESTONES, "decay": DECAY}
VECTORS = np.random.default_rng(2).standard_normal((M, 5)) * np.arange(1, M + 1)[:, None] + 3.0


def begun(problem):
    """The same problem with a start that is not zero."""
    start = np.random.default_rng(7).standard_normal(problem.n)
    return problem.replace(start=jnp.asarray(start, problem.dtype))


def agrees(algorithm, loop_of, problem, net, d=N, **given):
    """Every round of a run agrees with `loop_of(W, told=..., ...)`."""
    program, (params, *_) = follow(algorithm, problem, net)
    expected = loop_of(W=weights(net), protocol=protocol(program, net, d), **given)
    assert np.abs(expected - np.asarray(problem.initial_params())).max() > 0.1
    np.testing.assert_allclose(np.asarray(params), expected, rtol=1e-9, atol=1e-9)


def learning_agrees(algorithm, loop_of, dpps, name, d=N, **rates):
    """Of a method that learns, on the network of that name."""
    with jax.enable_x64(True):
        problem = begun(example()).replace(shared=d if d < N else None)
        given = {
            "gradient": gradient_of(problem),
            "x": np.asarray(problem.initial_params()),
            "eta": falling(),
            "clip": 1.0,
        }
        method = algorithm(gradients=CLIPPED, dpps=dpps, **FALLS, **rates)
        agrees(method, loop_of, problem, NETWORKS[name], d, **given, **rates)


def sgp(lr, **given):
    return reference.partpsp(d=N, lr_shared=lr, lr_local=0, **given)


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("name", "sensitivity"), [("one peer", "real"), ("3-out, synchronised", None)])
def test_sgp_agrees_with_its_loop(name, sensitivity):
    dpps = jdfl.DPPS() if sensitivity is None else jdfl.DPPS(sensitivity=sensitivity, **NOISY)
    learning_agrees(jdfl.SGP, sgp, dpps, name, lr=0.07)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("reading", ["text", "no start", "code"])
def test_every_reading_of_the_estimate_agrees_with_its_loop(reading):
    """Nodes differ in their steps and noise, and start away from zero, so that no two readings are equal."""
    dpps = jdfl.DPPS(sensitivity="eq22", reading=reading, **NOISY)
    learning_agrees(jdfl.SGP, sgp, dpps, "uneven, synchronised", lr=0.07)


def test_pedfl_agrees_with_its_loop():
    dpps = jdfl.DPPS(sensitivity="certified", **NOISY)
    learning_agrees(jdfl.PEDFL, reference.pedfl, dpps, "3-out, synchronised", lr=0.07)


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("name", "sensitivity"), [("3-out, synchronised", "lemma2"), ("uneven", "certified")])
def test_partpsp_agrees_with_its_loop(name, sensitivity):
    loop_of, dpps = partial(reference.partpsp, d=5), jdfl.DPPS(sensitivity=sensitivity, **NOISY)
    learning_agrees(jdfl.PartPSP, loop_of, dpps, name, d=5, lr_shared=0.07, lr_local=0.03)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("dpps", [jdfl.DPPS(), jdfl.DPPS(**NOISY)], ids=["exact", "noisy"])
def test_average_consensus_agrees_with_its_loop(dpps):
    with jax.enable_x64(True):
        problem, clip = jdfl.problems.averaging(VECTORS, dtype=np.float64), None if dpps.b is None else 20.0
        algorithm = jdfl.AverageConsensus(clip=clip, dpps=dpps)
        agrees(algorithm, reference.average_consensus, problem, uneven(), d=5, vectors=VECTORS, clip=clip)


def test_push_sum_keeps_the_sum_and_finds_the_average_with_unequal_masses():
    problem = jdfl.problems.averaging(VECTORS)
    _, (params, begin, states, _) = follow(jdfl.AverageConsensus(), problem, uneven(), 300)
    total = np.asarray(begin.step, np.float64).sum(axis=0)
    kept = np.asarray(states.sums.s, np.float64).sum(axis=1)
    mass = np.asarray(states.sums.a, np.float64)
    np.testing.assert_allclose(kept, np.broadcast_to(total, kept.shape), rtol=1e-6)
    np.testing.assert_allclose(mass.sum(axis=1), M, rtol=1e-6)
    assert mass[-1].max() > 2 * mass[-1].min()
    np.testing.assert_allclose(params[-1], np.broadcast_to(VECTORS.mean(axis=0), (M, 5)), rtol=2e-6)


def test_synchronised_rounds_and_broadcasts_are_counted():
    problem, net = example(np.float32), uneven()
    algorithm = jdfl.SGP(gradients=CLIPPED, dpps=jdfl.DPPS(b=1.0, sensitivity="eq22"))
    *_, infos = follow(algorithm, problem, jdfl.network.synchronised(net, 3), 3)[1]
    sent = {channel: int(np.sum(count)) for channel, count in infos.sent.items()}
    links = int(np.asarray(net.graph.out_degree).sum())
    assert sent == {"shared": 2 * links + M * (M - 1), "sensitivity": 3 * M * (M - 1)}
    assert np.asarray(infos.releases).tolist() == [[1] * M] * 3


def test_with_everything_shared_over_doubly_stochastic_weights_it_is_d_psgd_that_adapts_first():
    with jax.enable_x64(True):
        problem, net = begun(example()), jdfl.network.d_out(M, 2)
        _, (here, *_) = follow(jdfl.PartPSP(lr_shared=0.07), problem, net)
        _, (there, *_) = follow(
            jdfl.DPSGD(lr=0.07, order="adapt-then-combine", codec=jdfl.Dense("float64")), problem, net
        )
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-12)


def test_local_only_may_leave_the_shared_part_as_it_begins():
    problem, net = begun(example(np.float32)).replace(shared=5), uneven()
    params, *_ = course(jdfl.LocalOnly(lr=0.05, train="local"), problem, net)
    np.testing.assert_array_equal(params[-1][:, :5], problem.initial_params()[:, :5])
    g, x = gradient_of(problem), np.asarray(problem.initial_params()[0], float)
    for k in range(5):
        x[5:] -= 0.05 * g(0, x)[5:]
        np.testing.assert_allclose(params[k, 0], x, rtol=1e-4, atol=1e-5)
    with refused("shared", train="local"):
        check_settings(jdfl.LocalOnly(train="local"), problem.replace(shared=None), net)
    with refused(shared=0):
        check_settings(jdfl.PartPSP(), problem.replace(shared=0), net)


CLIP, RATE = 0.7, 0.3


@partial(jax.jit, static_argnames=("per", "norm"))
def first_message(problem, per, norm):
    """What every node sends in round 0 without noise [m, d], of a problem that begins anywhere."""
    net = uneven()
    algorithm = jdfl.PartPSP(lr_shared=RATE, gradients=jdfl.Gradients(clip=CLIP, per=per, norm=norm))
    context = RoundContext(jnp.int32(0), jax.random.key(0), net.graph, jnp.arange(M, dtype=jnp.int32))
    program = planned(algorithm, problem, net, 1).prepare(problem, context)
    state, _ = program.init(problem, context)
    alone = context.replace(graph=jdfl.network.from_edges([], M, connected=False).graph)
    return program.step(state, problem, alone)[0].shared.s


@pytest.mark.parametrize(("per", "norm"), [("batch", "l1"), ("example", "l2")])
def test_a_nodes_data_replaced_change_its_message_by_the_reported_sensitivity(per, norm):
    """Where all of its gradients are long, and turn; nobody's sensitivity is larger."""
    problem = begun(example(np.float32)).replace(shared=5)
    gradients = jdfl.Gradients(clip=CLIP, per=per, norm=norm)
    A, b = (np.asarray(leaf) for leaf in problem.data)
    along = np.where(np.arange(N) < 5, 1, 0) if norm == "l2" else np.eye(N)[2]  # longest in l1 for its length
    worlds = []
    for far in (1e3, -1e3):
        features, target = A.copy(), b.copy()
        features[1], target[1] = along, far
        worlds.append(problem.replace(data=(features, target)))
    one, two = (np.asarray(first_message(world, per, norm), np.float64) for world in worlds)
    change = np.abs(one - two).sum(axis=1)
    assert change[1] == pytest.approx(2 * RATE * CLIP * jdfl.privacy.clipping.stretch(norm, "l1", 5), rel=1e-5)
    assert not np.delete(change, 1).any()
    if per == "batch":  # what is released is one gradient of the node
        algorithm = jdfl.PartPSP(lr_shared=RATE, gradients=gradients, dpps=jdfl.DPPS(b=1.0))
        told = planned(algorithm, problem, uneven(), 3).privacy(problem)
        assert told.sensitivity == pytest.approx(change[1], rel=1e-5)
