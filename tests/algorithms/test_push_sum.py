"""Push-sum, SGP, PEDFL and PartPSP against their loops, the laws that they keep, and what they release."""

from functools import partial

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jdfl
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.program import planned
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


def agrees(algorithm, loop_of, problem, net, d=N):
    """Every round of a run agrees with `loop_of(start, W, protocol)`."""
    program, (params, *_) = follow(algorithm, problem, net)
    expected = loop_of(np.asarray(problem.begin()), weights(net), protocol(program, net, d))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(np.asarray(params), expected, rtol=1e-9, atol=1e-9)
    return np.asarray(params)


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("name", "sensitivity"), [("one peer", "real"), ("3-out, synchronised", None)])
def test_sgp_agrees_with_its_loop(name, sensitivity):
    with jax.enable_x64(True):
        problem, dpps = begun(example()), jdfl.DPPS()
        if sensitivity is not None:
            dpps = jdfl.DPPS(sensitivity=sensitivity, **NOISY)
        algorithm = jdfl.SGP(lr=0.07, gradients=CLIPPED, dpps=dpps, **FALLS)
        agrees(
            algorithm,
            lambda x, W, told: reference.sgp(gradient_of(problem), W, x, told, falling(), lr=0.07, clip=1.0),
            problem,
            NETWORKS[name],
        )


@pytest.mark.rotated(2)
@pytest.mark.parametrize("reading", ["text", "no start", "code"])
def test_every_reading_of_the_estimate_agrees_with_its_loop(reading):
    """Nodes differ in their steps and noise, and start away from zero, so that no two readings are equal."""
    with jax.enable_x64(True):
        problem, dpps = begun(example()), jdfl.DPPS(sensitivity="eq22", reading=reading, **NOISY)
        algorithm = jdfl.SGP(lr=0.07, gradients=CLIPPED, dpps=dpps, **FALLS)

        def loop(x, W, told):
            return reference.sgp(gradient_of(problem), W, x, told, falling(), lr=0.07, clip=1.0)

        agrees(algorithm, loop, problem, NETWORKS["uneven, synchronised"])


def test_pedfl_agrees_with_its_loop():
    with jax.enable_x64(True):
        problem = begun(example())
        algorithm = jdfl.PEDFL(lr=0.07, gradients=CLIPPED, dpps=jdfl.DPPS(sensitivity="certified", **NOISY), **FALLS)
        agrees(
            algorithm,
            lambda x, W, told: reference.pedfl(gradient_of(problem), W, x, told, falling(), lr=0.07, clip=1.0),
            problem,
            NETWORKS["3-out, synchronised"],
        )


@pytest.mark.rotated(2)
@pytest.mark.parametrize("dpps", [jdfl.DPPS(), jdfl.DPPS(**NOISY)], ids=["exact", "noisy"])
def test_average_consensus_agrees_with_its_loop(dpps):
    with jax.enable_x64(True):
        problem = jdfl.problems.averaging(VECTORS, dtype=np.float64)
        clip = None if dpps.b is None else 20.0
        agrees(
            jdfl.AverageConsensus(clip=clip, dpps=dpps),
            lambda x, W, told: reference.average_consensus(VECTORS, W, told, clip=clip),
            problem,
            uneven(),
            d=5,
        )


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


SHARED = {"lr_shared": 0.07, "lr_local": 0.03}


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("name", "sensitivity"), [("3-out, synchronised", "lemma2"), ("uneven", "certified")])
def test_partpsp_agrees_with_its_loop(name, sensitivity):
    with jax.enable_x64(True):
        shared = 5
        problem, net = begun(example()).replace(shared=shared), NETWORKS[name]
        algorithm = jdfl.PartPSP(gradients=CLIPPED, dpps=jdfl.DPPS(sensitivity=sensitivity, **NOISY), **SHARED, **FALLS)
        program, (params, *_) = follow(algorithm, problem, net)
        told = protocol(program, net, shared)
        expected = reference.partpsp(
            gradient_of(problem), weights(net), np.asarray(problem.begin()), shared, told, falling(), clip=1.0, **SHARED
        )
        assert np.abs(expected - np.asarray(problem.begin())).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), expected, rtol=1e-9, atol=1e-9)


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
    np.testing.assert_array_equal(params[-1][:, :5], problem.begin()[:, :5])
    g, x = gradient_of(problem), np.asarray(problem.begin()[0], float)
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
    moment = Moment(jnp.int32(0), jax.random.key(0), net.graph, jnp.arange(M, dtype=jnp.int32))
    program = planned(algorithm, problem, net, 1).prepare(problem, moment)
    state, _ = program.init(problem, moment)
    alone = moment.replace(graph=jdfl.network.from_edges([], M, connected=False).graph)
    return program.step(state, problem, alone)[0].shared.s


@pytest.mark.rotated(2)
@pytest.mark.parametrize(("per", "norm"), [("batch", "l1"), ("example", "l2")])
@hypothesis.settings(max_examples=15)
@given(
    node=st.integers(0, M - 1),
    size=st.floats(-3, 12),
    slope=st.floats(-3, 12),
    seed=st.integers(0, 5),
    opposite=st.booleans(),
)
def test_a_nodes_data_replaced_change_its_message_by_two_clips_at_most(per, norm, node, size, slope, seed, opposite):
    problem = begun(example(np.float32)).replace(shared=5)
    A, b = problem.data
    draw = np.random.default_rng(seed)
    rows = jnp.asarray(10.0**size * draw.standard_normal(A.shape[1:]), A.dtype)
    if opposite:  # the same direction, far on the other side
        rows = A[node]
    target = jnp.asarray(10.0**slope * np.where(opposite, 1.0, draw.choice([-1, 1], b.shape[1:])), b.dtype)
    other = problem.replace(data=(A.at[node].set(rows), b.at[node].set(target)))
    one, two = (np.asarray(first_message(world, per, norm), np.float64) for world in (problem, other))
    change = np.abs(one - two).sum(axis=1)
    longest = jdfl.privacy.clipping.stretch(norm, "l1", 5) * CLIP
    assert change[node] <= 2 * RATE * longest * (1 + 1e-4) + 1e-6
    assert not np.delete(change, node).any()


def test_the_reported_sensitivity_is_that_of_the_message_and_is_attained():
    problem = begun(example(np.float32)).replace(shared=5)
    algorithm = jdfl.PartPSP(lr_shared=RATE, gradients=CLIPPED.replace(clip=CLIP), dpps=jdfl.DPPS(b=1.0))
    told = planned(algorithm, problem, uneven(), 3).privacy(problem)
    assert told.sensitivity == pytest.approx(2 * RATE * CLIP)
    A, b = problem.data
    along = jnp.zeros_like(A[1]).at[:, 2].set(1.0)
    worlds = [problem.replace(data=(A.at[1].set(along), b.at[1].set(far))) for far in (1e3, -1e3)]
    one, two = (np.asarray(first_message(world, "batch", "l1"), np.float64) for world in worlds)
    assert np.abs(one - two).sum(axis=1)[1] == pytest.approx(told.sensitivity, rel=1e-5)
