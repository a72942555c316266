"""The laws that every registered algorithm keeps."""

import re
import sys
from collections.abc import Iterator
from functools import partial
from operator import attrgetter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl.algorithms import REGISTRY
from jdfl.algorithms.moment import Moment
from jdfl.algorithms.program import Program, planned
from jdfl.algorithms.round import Prepared
from jdfl.base import struct
from jdfl.engine import runner, stepping
from jdfl.network.links import between
from tests.contract.table import GOSSIP, TABLE, Row

M, N, S, Q = 6, 20, 3, 8
SAME = {"every": 2, "metrics": ["objective", "consensus"]}  # one compiled program for most runs of a row


SLOW = {f"CEPS-1BCS, {kind}" for kind in ("Hadamard", "shared Phi", "side information", "receiver's Phi")}
SLOW |= {"CEPS-int8", "CEPS-sparse", "CEPS-Perf, self always in", "DP-CEPS, kept", "DP-CEPS-1BCS, literal"}
SLOW |= {
    "PartPSP, true distances",
    "SGPDP, Eq. 22",
    "DPDO",
    "CPGT, exact",
    "DDA",
    "DP-DDA, samples, float16",
}  # their algorithms have other rows
SLOW |= {
    "CHOCO-SGD, exact",
    "DCD-PSGD, exact",
    "D-PSGD, int8",
    "DP-DFedSAM, Poisson samples",
    "DP-DSGT, float16",
    "SGP",
}
SLOW |= {"DP-IHT-D-PSGD, every second round", "D-PSGD, noisy updates of subsets"}
ROWS = [pytest.param(row, marks=pytest.mark.slow if str(row) in SLOW else ()) for row in (*TABLE, GOSSIP)]


@pytest.fixture(scope="module", params=ROWS, ids=[str(row) for row in (*TABLE, GOSSIP)])
def row(request) -> Iterator[Row]:
    """A row of the table; all laws are tested on one before the next, which shares no programs with it."""
    yield request.param
    jax.clear_caches()


def make_problem(row: Row, noise: float = 0.1, extra: int = 0, dtype=np.float32) -> jdfl.problems.LinearRegression:
    """A small sparse regression with the row's shared part; `extra` adds padded examples."""
    draw = np.random.default_rng(5)
    w = np.zeros(N)
    w[:S] = [1.0, -2.0, 0.5]
    A = draw.standard_normal((M, Q, N))
    b = A @ w + noise * draw.standard_normal((M, Q))
    problem = jdfl.problems.linear_regression(list(A), list(b), truth=w, dtype=dtype).replace(shared=row.shared)
    if not extra:
        return problem
    wide = [(0, 0), (0, extra)]
    features, target = (np.pad(leaf, wide + [(0, 0)] * (leaf.ndim - 2)) for leaf in problem.data)
    return problem.replace(
        data=(jnp.asarray(features), jnp.asarray(target)), weight=jnp.asarray(np.pad(problem.weight, wide))
    )


def make_network() -> jdfl.network.Static:
    """A connected graph with unequal degrees."""
    return jdfl.network.from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 2), (0, 3)], M)


@partial(jax.jit, static_argnames=("consensus_state",))
def trace(algorithm, problem, network, node, ks, w, consensus_state):
    """The prepared algorithm, parameters [rounds, m, n] and summed counts over the rounds `ks`."""

    prepares, begins, goes_on = jax.random.split(jax.random.key(3), 3)

    def at(k, key):
        key = jax.random.fold_in(key, k)
        return Moment(k, key, network.at(k, key), node)

    algorithm = algorithm.prepare(problem, at(jnp.int32(0), prepares))
    state, total = algorithm.init(problem, at(jnp.int32(0), begins))
    if consensus_state is not None:
        state = consensus_state(algorithm, problem, w)

    def one(carry, k):
        state, info = algorithm.step(carry[0], problem, at(k, goes_on))
        return (state, jax.tree.map(jnp.add, carry[1], info)), algorithm.params(state)

    (_, total), params = jax.lax.scan(one, (state, total), ks)
    return algorithm, params, total


def play(algorithm, problem, network, node, rounds: int = 13, w=None, consensus_state=None):
    """`trace` of the first rounds; arrays of one shape share one compilation."""
    ks = jnp.arange(rounds, dtype=jnp.int32)
    algorithm = planned(algorithm, problem, network, rounds)
    return trace(algorithm, stepping.nameless(problem), stepping.nameless(network), node, ks, w, consensus_state)


def test_every_registered_algorithm_has_a_row():
    assert set(REGISTRY) == {row.name for row in TABLE}
    assert all(isinstance(row.algorithm, REGISTRY[row.name]) for row in TABLE)


@struct.dataclass
class CutOff:
    """A network of which the last node hears nobody and is heard by nobody."""

    graph: jdfl.network.Graph

    @property
    def m(self) -> int:
        return M

    def at(self, k, key):
        return between(self.graph, jnp.arange(M) < M - 1)


@pytest.mark.thinned(14, 2)
def test_a_missing_neighbour_has_no_part_in_a_round_or_is_refused(row: Row):
    """As the docstring says."""
    if row is GOSSIP:
        pytest.skip("its docstring tells nothing")
    said = re.search(r"Missing neighbours: (.*?)\n\n", sys.modules[type(row.algorithm).__module__].__doc__ or "", re.S)
    assert said is not None
    problem, lossy = make_problem(row), jdfl.network.link_loss(make_network(), 0.3)
    quantised = getattr(row.exact, "quantised", False)
    if quantised or ("refused" in said[1] and not hasattr(row.exact, "quantised")):
        with pytest.raises(ValueError, match=r"fixed network|network plays no part"):
            runner.check_run(row.exact, problem, lossy, 5, 1, None)
        return
    runner.check_run(row.exact, problem, lossy, 5, 1, None)
    features, target = problem.data
    others = problem.replace(data=(features, target.at[: M - 1].add(1.0)))
    alone = problem.replace(data=(features, target.at[M - 1].add(1.0)))
    here, changed_others, changed_alone = (
        np.asarray(jdfl.run(row.exact, one, CutOff(make_network().graph), key=1, steps=5, metrics=[]).params)
        for one in (problem, others, alone)
    )
    np.testing.assert_array_equal(here[-1], changed_others[-1])
    np.testing.assert_array_equal(here[:-1], changed_alone[:-1])
    assert not np.array_equal(here, changed_others)
    assert not np.array_equal(here, changed_alone)


@pytest.mark.thinned(20, 3)
def test_consensus_at_the_solution_is_a_fixed_point(row: Row):
    problem, network = make_problem(row, noise=0.0), make_network()
    assert problem.truth is not None
    node = jnp.arange(M, dtype=jnp.int32)
    _, params, _ = play(row.exact, problem, network, node, 13, problem.truth, row.consensus_state)
    np.testing.assert_allclose(params, np.broadcast_to(problem.truth, (13, M, N)), atol=2e-6)


@pytest.mark.thinned(26)
def test_chunks_equal_the_unbroken_run_bit_for_bit(row: Row):
    problem, network = make_problem(row), make_network()
    whole, parts = (
        jdfl.run(row.algorithm, problem, network, key=1, steps=11, chunk=chunk, **SAME) for chunk in (100, 3)
    )
    np.testing.assert_array_equal(whole.params, parts.params)
    assert whole.history.equals(parts.history)
    assert whole.totals == parts.totals
    assert whole.history["round"].tolist() == [0, 2, 4, 6, 8, 10, 11]


def test_a_plan_is_the_beginning_of_a_longer_one(row: Row):
    """What is planned enters no key: runs of other lengths share their noise, and so all that it is scaled by."""
    problem, network, lengths = make_problem(row), make_network(), (4, 9)
    plans = [jax.tree.leaves(planned(row.algorithm, problem, network, steps).plan) for steps in lengths]
    for short, long in zip(*plans, strict=True):
        (axis,) = np.flatnonzero(np.array(short.shape) != long.shape)
        np.testing.assert_array_equal(short, np.take(long, range(short.shape[axis]), axis))


@pytest.mark.thinned(30, 5)
def test_seeds_side_by_side_equal_one_after_another(row: Row):
    problem, network = make_problem(row), make_network()
    value = attrgetter(row.swept)(row.algorithm)
    together = jdfl.sweep(
        row.algorithm, problem, network, over={row.swept: [value]}, keys=[4, 5], steps=9, batch=2, **SAME
    )
    for result, seed in zip(together, (4, 5)):
        alone = jdfl.run(row.algorithm, problem, network, key=seed, steps=9, chunk=100, **SAME)
        np.testing.assert_allclose(result.params, alone.params, rtol=1e-5, atol=1e-6)
        assert result.totals == alone.totals
        assert result.rounds == alone.rounds


@pytest.mark.thinned(24, 1)
def test_new_floats_seeds_and_data_compile_nothing(row: Row, compilations):
    problem, network = make_problem(row), make_network()
    jdfl.run(row.algorithm, problem, network, key=0, steps=5, chunk=100, **SAME)
    other = make_problem(row, noise=0.3)
    value = 1.3 * attrgetter(row.swept)(row.algorithm)
    lasting = jax.tree.leaves(planned(row.algorithm, problem, network, 4).plan)
    steps = 5 if lasting else 4  # what is planned is as long as the run
    before = compilations()
    new = stepping.with_field(row.algorithm, row.swept, value)
    changed = jdfl.run(new, other, network, key=9, steps=steps, chunk=100, **SAME)
    assert compilations() == before
    assert changed.rounds == steps


@pytest.mark.thinned(14, 2)
def test_sweep_values_matter_and_compile_once(row: Row, compilations):
    problem, network = make_problem(row), make_network()
    value = attrgetter(row.swept)(row.algorithm)
    first = jdfl.sweep(row.algorithm, problem, network, over={row.swept: [value, 9 * value]}, steps=9, batch=2, **SAME)
    before = compilations()
    again = jdfl.sweep(
        row.algorithm, problem, network, over={row.swept: [2 * value, 5 * value]}, steps=9, batch=2, **SAME
    )
    assert compilations() == before
    assert not np.array_equal(first[0].params, first[1].params)
    assert again[1].labels == {"seed": 0, row.swept: 5 * value}


@pytest.mark.thinned(24, 4)
def test_relabelled_nodes_do_the_same(row: Row):
    order = np.array([3, 0, 5, 1, 4, 2])
    problem, network = make_problem(row), make_network()
    moved = problem.replace(
        data=jax.tree.map(lambda leaf: leaf[order], problem.data),
        weight=problem.weight[order],
        curvature=problem.curvature[order],
    )
    relabelled = network.replace(graph=jdfl.network.relabel(network.graph, order))
    _, here, counts = play(row.algorithm, problem, network, jnp.arange(M, dtype=jnp.int32))
    _, there, moved_counts = play(row.algorithm, moved, relabelled, jnp.asarray(order, jnp.int32))
    np.testing.assert_allclose(there, here[:, order], rtol=1e-5, atol=1e-6)
    for one, other in zip(jax.tree.leaves(counts), jax.tree.leaves(moved_counts)):
        np.testing.assert_array_equal(other, one[order])


@pytest.mark.thinned(24, 5)
def test_padding_changes_nothing(row: Row):
    node = jnp.arange(M, dtype=jnp.int32)
    problem, network = make_problem(row), make_network()
    wide = network.replace(graph=jdfl.network.pad(network.graph, 9))
    _, here, counts = play(row.algorithm, problem, network, node)
    _, there, wide_counts = play(row.algorithm, make_problem(row, extra=5), wide, node)
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)
    for one, other in zip(jax.tree.leaves(counts), jax.tree.leaves(wide_counts)):
        np.testing.assert_array_equal(other, one)


def test_counts_are_those_made_by_hand(row: Row):
    problem, network = make_problem(row), make_network()
    rounds = 13
    prepared, _, total = play(row.algorithm, problem, network, jnp.arange(M, dtype=jnp.int32), rounds)
    adjacency = np.asarray(jdfl.network.to_scipy(network.graph).todense())
    np.fill_diagonal(adjacency, 0)
    expected = row.count(prepared, adjacency, rounds)
    assert set(total.sent) == set(expected["sent"])
    for channel, sent in expected["sent"].items():
        np.testing.assert_array_equal(total.sent[channel], sent, err_msg=channel)
    for name in ("communications", "grads", "releases"):
        np.testing.assert_array_equal(getattr(total, name), expected[name], err_msg=name)

    result = jdfl.run(row.algorithm, problem, network, key=0, steps=rounds, chunk=100, **SAME)
    ran = Program(result.algorithm, prepared=Prepared(own=result.ready))
    by_hand = row.count(ran, adjacency, rounds)
    assert result.totals.messages == {channel: sent.sum() for channel, sent in by_hand["sent"].items()}
    assert result.totals.message_bits == row.message_bits
    assert result.totals.bits == sum(row.message_bits[c] * sent.sum() for c, sent in by_hand["sent"].items())
    assert result.totals.gradients == by_hand["grads"].sum()
    assert result.totals.releases == by_hand["releases"].sum()
    np.testing.assert_array_equal(result.communication_rounds, by_hand["communications"])


def test_everything_stays_finite_and_as_sparse_as_it_must_be(row: Row):
    result = jdfl.run(row.algorithm, make_problem(row), make_network(), key=2, steps=40, chunk=100, **SAME)
    assert result.ending == "steps"
    assert np.isfinite(result.history.to_numpy(dtype=float)).all()
    assert np.isfinite(result.params).all()
    assert (np.count_nonzero(result.params, axis=1) <= row.nonzeros).all()
