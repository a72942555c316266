"""The laws that every registered algorithm keeps, and the loops of the papers of those in tests/field.

What a row is played on has one shape, so that one program computes all cases of a law: its examples and its neighbour
table have five empty slots.
"""

import re
import sys
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import testing
from jdfl.algorithms import REGISTRY
from jdfl.algorithms.push_descent import OverPushSum
from jdfl.engine import start
from jdfl.network import links
from tests.contract.row import ROUNDS
from tests.contract.table import GOSSIP, TABLE, Row
from tests.field import ROWS as FIELD
from tests.field.row import Field, Loop, exactly, network
from tests.field.row import problem as learned

pytestmark = pytest.mark.filterwarnings("ignore:.* keep their own rows")  # of BRIDGE-T, on so small a network
M, N, PADDING = testing.NODES, testing.PARAMETERS, 5
ALL = (*TABLE, GOSSIP)
MACHINERY = (pytest.param("CEPS-1BCS", marks=pytest.mark.rotated(3)), "CEPS-sparse", "DECOR", "MAFALDA-SGD, in passes")
MACHINERY += ("FedAvg", "PartPSP, minibatches in turn", "DP-D-PSGD, every third round, minibatches, Adam")
_FIRST = {row.name: str(row) for row in reversed(ALL)} | {"ceps": "CEPS-1BCS"}
MORE = {str(row) for row in ALL if _FIRST[row.name] != str(row)}  # algorithms that have another row, too
ROWS = [pytest.param(row, marks=pytest.mark.rotated(8 if str(row) in MORE else 4)) for row in ALL]
make_network = testing.small_network


@pytest.fixture(scope="module", params=ROWS, ids=[str(row) for row in ALL])
def row(request) -> Row:
    """A row of the table."""
    return request.param


def make_problem(row: Row, noise: float = 0.1, dtype=np.float32, m: int = M) -> jdfl.problems.LinearRegression:
    """A small sparse regression with the row's shared part."""
    return _problem(noise, row.shared, dtype, m)


@cache
def _problem(noise: float, shared: int | None, dtype: Any, m: int) -> jdfl.problems.LinearRegression:
    with jax.ensure_compile_time_eval():
        made = testing.small_problem(noise, shared=shared, dtype=dtype, m=m)
        return made.replace(start=jnp.zeros((made.n,), made.dtype))  # so that other starts have the same programs


def on(row: Row) -> jdfl.network.Static:
    """The network of the plays."""
    return row.on() if isinstance(row, Field) else network()


def play(
    row: Row, algorithm: Any, problem: Any = None, *, net: Any = None, empty: float = 7.5, away: Any = (), **given: Any
) -> tuple[Any, np.ndarray, Any]:
    """The prepared program, parameters [13, m, n] and summed counts, with messages that are exact in float64.

    Args:
        row: The row.
        algorithm: Its algorithm, or another one for the same problem.
        problem: What is learned instead of the problem of plays.
        net: The network instead of the row's.
        empty: What is in the slots for examples that hold none.
        away: Nodes that hear nobody and are heard by nobody.
        given: Arguments of `testing.Case.play`.
    """
    problem, net = problem or learned(row.shared), net or on(row)
    more = [(0, 0), (0, PADDING), (0, 0)]
    data = [jnp.pad(x, more[: x.ndim], constant_values=empty) for x in problem.data]
    longer = replace(problem, data=tuple(data), weight=jnp.pad(problem.weight, more[:2]))
    here = jnp.ones(M, bool).at[jnp.array(away, int)].set(False)
    wide = replace(net, graph=links.between(jdfl.network.pad(net.graph, 2 * M), here))
    return testing.Case(exactly(algorithm), longer).play(network=wide, **given)


@cache
def played(name: str, exact: bool = False) -> tuple[Any, np.ndarray, Any]:
    """The play of a row."""
    row = next(row for row in ALL if str(row) == name)
    return play(row, row.exact if exact else row.algorithm)


@pytest.mark.parametrize("row", FIELD, ids=str, indirect=True)
def test_a_method_is_the_loop_of_its_paper(row: Field):
    for algorithm in (row.algorithm, *row.more):
        found = played(str(row))[1] if algorithm is row.algorithm else play(row, algorithm)[1]
        assert np.abs(found).max() > 1e-3  # or the nodes never moved
        loop = Loop(exactly(algorithm), learned(row.shared), row.on)
        np.testing.assert_allclose(found, row.loop(loop), rtol=1e-9, atol=1e-9)


def test_counts_are_those_made_by_hand(row: Row):
    program, params, total = played(str(row))
    adjacency = np.asarray(jdfl.network.to_scipy(on(row).graph).todense())
    np.fill_diagonal(adjacency, 0)
    expected = row.count(program, adjacency, ROUNDS)
    assert set(total.sent) == set(expected["sent"])
    for channel, sent in expected["sent"].items():
        np.testing.assert_array_equal(total.sent[channel], sent, err_msg=channel)
    for name in ("communications", "grads", "releases"):
        np.testing.assert_array_equal(getattr(total, name), expected[name], err_msg=name)
    assert (np.count_nonzero(params, axis=2) <= row.nonzeros).all()
    checked = start.check_run(row.algorithm, learned(row.shared), on(row), ROUNDS, 1, None)
    assert checked.message_bits(learned(row.shared)) == row.message_bits


def test_places_of_nodes_and_empty_slots_mean_nothing(row: Row):
    _, here, counts = played(str(row))
    problem, order = learned(row.shared), np.random.default_rng(3).permutation(M)
    parts = jax.tree.map(lambda x: x[order], {name: getattr(problem, name) for name in ("data", "weight", "curvature")})
    relabelled = replace(on(row), graph=jdfl.network.relabel(on(row).graph, order))
    given = {"net": relabelled, "node": order.tolist()}
    _, there, moved_counts = play(row, row.algorithm, replace(problem, **parts), **given)
    np.testing.assert_allclose(there, here[:, order], rtol=1e-9, atol=1e-12)
    for one, other in zip(jax.tree.leaves(counts), jax.tree.leaves(moved_counts), strict=True):
        np.testing.assert_array_equal(one[order], other)
    np.testing.assert_array_equal(play(row, row.algorithm, empty=0.0)[1], here)


@pytest.mark.rotated(24)
def test_a_schedule_is_its_number_in_every_round(row: Row):
    if not isinstance(lr := getattr(row.algorithm, "lr", None), float):
        return
    half = ROUNDS // 2
    fallen = play(row, replace(row.algorithm, lr=lambda k: jnp.where(k < half, lr, lr / 2)))[1]
    bounds = isinstance(row.algorithm, jdfl.CPGT | OverPushSum)  # on step sizes, rounded up, which noise follows
    np.testing.assert_allclose(fallen[:half], played(str(row))[1][:half], *[1e-4, 1e-6] if bounds else [1e-12, 1e-12])
    assert np.abs(fallen[-1] - played(str(row))[1][-1]).max() > 1e-9


def test_consensus_at_the_solution_is_a_fixed_point(row: Row):
    problem = make_problem(row, noise=0.0)
    begin = row.consensus_state
    _, params, _ = play(row, row.exact, problem.replace(start=problem.truth), start=begin)
    np.testing.assert_allclose(params, np.broadcast_to(problem.truth, (ROUNDS, M, N)), atol=2e-6)


def test_a_missing_neighbour_has_no_part_in_a_round_or_is_refused(row: Row):
    """As the docstring says."""
    if row is GOSSIP:
        pytest.skip("its docstring tells nothing")
    said = re.search(r"Missing neighbours: (.+(?:\n.+)*)", sys.modules[type(row.algorithm).__module__].__doc__ or "")
    assert said is not None
    problem, lossy = learned(row.shared), jdfl.network.link_loss(make_network(), 0.3)
    forms = [getattr(row.exact, name) for name in ("quantised", "accelerated") if hasattr(row.exact, name)]
    if any(forms) or ("refused" in said[1] and not forms):
        with pytest.raises(ValueError, match=r"fixed network|network plays no part"):
            start.check_run(row.exact, problem, lossy, 5, 1, None)
        return
    alone = jnp.zeros((M, 1)).at[-1].set(1.0)
    features, target = problem.data

    def after(changed: Any) -> np.ndarray:
        return play(row, row.exact, problem.replace(data=(features, target + changed)), away=[M - 1])[1][4]

    here, changed_others, changed_alone = after(0 * alone), after(1 - alone), after(alone)
    np.testing.assert_array_equal(here[-1], changed_others[-1])
    np.testing.assert_array_equal(here[:-1], changed_alone[:-1])
    assert not np.array_equal(here, changed_others)
    assert not np.array_equal(here, changed_alone)


@pytest.mark.rotated(15)
def test_a_synchronised_round_is_one_of_a_complete_graph_or_is_refused(row: Row):
    """Its weights are 1 / m, whatever the table of neighbours says; a method that reads the table would differ."""
    met = jdfl.network.synchronised(make_network(), 1)
    problem = learned(row.shared)
    try:
        start.check_run(row.algorithm, problem, met, ROUNDS, 1, None)
    except ValueError:
        return
    if getattr(getattr(row.algorithm, "dpps", None), "sensitivity", "") == "eq22":
        pytest.skip("its constants are those of the network inside")
    case = testing.Case(row.algorithm, problem)
    complete = jdfl.network.from_matrix(np.full((M, M), 1 / M))
    found, expected = (case.play(network=net)[1] for net in (met, complete))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)  # 1 / m has 24 bits in the table


@pytest.mark.parametrize("law", [law for law in testing.LAWS if "relabelled" not in law and "padding" not in law])
@pytest.mark.parametrize("name", MACHINERY)
def test_laws_of_the_engine(name: str, law: str):
    """Periods, one-bit messages, sparse states, push-sum, local steps, stored messages, a server, batches, noise."""
    row = next(row for row in TABLE if str(row) == name)
    testing.check_algorithm(row.algorithm, law, make_problem(row))


@pytest.mark.rotated(90)
def test_all_laws(row: Row):
    half = getattr(row.algorithm, "codec", None) == jdfl.Dense("float16")  # rounds what differs in the seventh place
    algorithm = replace(row.algorithm, codec=jdfl.Dense()) if half else row.algorithm
    for law in testing.LAWS:
        testing.check_algorithm(algorithm, law, make_problem(row))


def test_every_registered_algorithm_has_a_row():
    assert set(REGISTRY) == {row.name for row in TABLE}
    assert all(isinstance(row.algorithm, REGISTRY[row.name]) for row in TABLE)
