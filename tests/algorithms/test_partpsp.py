"""PartPSP: against its loop, the algorithms that it contains, and what stays with a node."""

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
from tests.algorithms.pushing import NETWORKS, falling, follow, protocol, uneven, weights
from tests.algorithms.test_push_sum import CLIPPED, FALLS, NOISY, begun
from tests.reference import push_sum as reference

RATES = {"lr_shared": 0.07, "lr_local": 0.03}


@pytest.mark.parametrize(
    ("name", "sensitivity", "shared"),
    [
        ("3-out, synchronised", "lemma2", 5),
        ("uneven", "certified", 5),
        ("uneven, synchronised", "certified", 1),
        ("one peer", "real", 5),
        ("3-out, synchronised", "eq22", 5),
        ("uneven", None, N),
    ],
)
def test_partpsp_agrees_with_its_loop(name, sensitivity, shared):
    with jax.enable_x64(True):
        problem, net = begun(example()).replace(shared=shared), NETWORKS[name]
        dpps = jdfl.DPPS() if sensitivity is None else jdfl.DPPS(sensitivity=sensitivity, **NOISY)
        algorithm = jdfl.PartPSP(gradients=CLIPPED, dpps=dpps, **RATES, **FALLS)
        program, (params, *_) = follow(algorithm, problem, net)
        told = protocol(program, net, shared)
        expected = reference.partpsp(
            gradient_of(problem), weights(net), np.asarray(problem.begin()), shared, told, falling(), clip=1.0, **RATES
        )
        assert np.abs(expected - np.asarray(problem.begin())).max() > 0.1
        np.testing.assert_allclose(np.asarray(params), expected, rtol=1e-9, atol=1e-9)


def test_with_everything_shared_it_is_sgp():
    problem, net = begun(example(np.float32)), uneven()
    dpps = jdfl.DPPS(b=2.0, noise_rate=0.01)
    _, (here, *_) = follow(jdfl.PartPSP(lr_shared=0.07, gradients=CLIPPED, dpps=dpps), problem, net)
    _, (there, *_) = follow(jdfl.SGP(lr=0.07, gradients=CLIPPED, dpps=dpps), problem, net)
    np.testing.assert_array_equal(here, there)


def test_with_everything_shared_over_doubly_stochastic_weights_it_is_d_psgd_that_adapts_first():
    with jax.enable_x64(True):
        problem, net = begun(example()), jdfl.network.d_out(M, 2)
        _, (here, *_) = follow(jdfl.PartPSP(lr_shared=0.07), problem, net)
        _, (there, *_) = follow(
            jdfl.DPSGD(lr=0.07, order="adapt-then-combine", codec=jdfl.Dense("float64")), problem, net
        )
        np.testing.assert_allclose(here, there, rtol=0, atol=1e-12)


def test_local_parameters_stay_with_their_node():
    """With a clip next to nothing only local parameters move, and other data at node 0 move those of node 0 alone."""
    with jax.enable_x64(True):
        problem, net = example().replace(shared=5), uneven()
        A, b = problem.data
        other = problem.replace(data=(A, b.at[0].add(3.0)))
        algorithm = jdfl.PartPSP(gradients=CLIPPED.replace(clip=1e-13))
        here, there = (np.asarray(follow(algorithm, one, net)[1][0]) for one in (problem, other))
        np.testing.assert_allclose(here[:, 1:], there[:, 1:], rtol=0, atol=1e-11)
        assert np.abs(here[-1, 0, 5:] - there[-1, 0, 5:]).max() > 0.1


def test_local_only_may_leave_the_shared_part_as_it_begins():
    problem, net = begun(example(np.float32)).replace(shared=5), uneven()
    params, *_ = course(jdfl.LocalOnly(lr=0.05, train="local"), problem, net)
    np.testing.assert_array_equal(params[-1][:, :5], problem.begin()[:, :5])
    g, x = gradient_of(problem), np.asarray(problem.begin()[0], float)
    for k in range(5):
        x[5:] -= 0.05 * g(0, x)[5:]
        np.testing.assert_allclose(params[k, 0], x, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"train = 'local'.*all of whose parameters are shared"):
        check_settings(jdfl.LocalOnly(train="local"), problem.replace(shared=None), net)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (jdfl.PartPSP(lr_shared=0.0), ["lr_shared > 0", "0.0"]),
        (jdfl.PartPSP(lr_local=-1.0), ["lr_local > 0", "-1.0"]),
        (jdfl.PartPSP(gradients=jdfl.Gradients(clip=-1.0)), ["clip > 0", "-1.0"]),
    ],
    ids=["lr_shared", "lr_local", "clip"],
)
def test_mistakes_are_named(algorithm, words):
    with pytest.raises(ValueError) as error:
        check_settings(algorithm, example(np.float32).replace(shared=5), uneven())
    assert all(word in str(error.value) for word in words), error.value


def test_a_problem_without_a_shared_part_is_refused():
    with pytest.raises(ValueError, match=r"shared = 0\. Use LocalOnly"):
        check_settings(jdfl.PartPSP(), example(np.float32).replace(shared=0), uneven())


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


@pytest.mark.parametrize(("per", "norm"), [("batch", "l1"), ("example", "l1"), ("batch", "l2")])
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
