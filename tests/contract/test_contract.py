"""The laws that every registered algorithm keeps."""

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
from jdfl.algorithms.program import Program
from jdfl.algorithms.sending import Prepared
from jdfl.engine import start
from jdfl.network.links import between
from tests.contract.table import GOSSIP, TABLE, Row
from tests.field import ROWS as FIELD

M, N = testing.NODES, testing.PARAMETERS
SAME = {"every": 2, "metrics": ["objective", "consensus_error"]}  # one compiled program for most runs of a row


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
SLOW |= {"CEPS-Perf", "DP-DFedSAM-MGS", "DFedAvgM, quantised", "CEPS-1BCS, d per node", "directed CEPS"}
_FIRST = {row.name: row for row in reversed(FIELD)}
SLOW |= {str(row) for row in FIELD if _FIRST[row.name] is not row}
ROWS = [pytest.param(row, marks=pytest.mark.slow if str(row) in SLOW else ()) for row in (*TABLE, GOSSIP)]


@pytest.fixture(scope="module", params=ROWS, ids=[str(row) for row in (*TABLE, GOSSIP)])
def row(request) -> Row:
    """A row of the table; all laws are tested on one before the next."""
    return request.param


def make_problem(row: Row, noise: float = 0.1, dtype=np.float32, m: int = M) -> jdfl.problems.LinearRegression:
    """A small sparse regression with the row's shared part."""
    return _problem(noise, row.shared, dtype, m)


@cache
def _problem(noise: float, shared: int | None, dtype: Any, m: int) -> jdfl.problems.LinearRegression:
    with jax.ensure_compile_time_eval():
        made = testing.small_problem(noise, shared=shared, dtype=dtype, m=m)
        return made.replace(start=jnp.zeros((made.n,), made.dtype))  # so that other starts have the same programs


make_network = testing.small_network


def case_of(row: Row) -> testing.Case:
    """What all laws of a row are tried on."""
    return testing.Case(row.algorithm, make_problem(row), swept=row.swept)


MACHINERY = ("CEPS-1BCS", "DP-CEPS, clipped", "DSGT", "DECOR", "MAFALDA-SGD, in passes", "CHOCO-SGD, top 3", "FedAvg")
MACHINERY += ("DP-D-PSGD, every third round, minibatches, Adam", "PartPSP, minibatches in turn", "CPGT, noisy, top 3")
BY_ENGINE = ("chunks change nothing", "resumed runs are the same", "runs side by side equal single runs")
BY_ENGINE += ("one program for all values", "runs stay finite")


@pytest.mark.parametrize("law", BY_ENGINE)
@pytest.mark.parametrize("name", MACHINERY)
def test_laws_of_the_engine_on_rows_that_differ_in_it(name: str, law: str):
    """Periods, one-bit messages, sparse states, push-sum, local steps, stored messages, a server, batches, noise."""
    testing.LAWS[law](case_of(next(row for row in TABLE if str(row) == name)))


@pytest.mark.rotated(6)
@pytest.mark.parametrize("law", BY_ENGINE)
def test_laws_of_the_engine(row: Row, law: str):
    testing.LAWS[law](case_of(row))


@pytest.mark.rotated(3)
@pytest.mark.parametrize("law", [law for law in testing.LAWS if law not in BY_ENGINE])
def test_laws(row: Row, law: str):
    testing.LAWS[law](case_of(row))


def test_every_registered_algorithm_has_a_row():
    assert set(REGISTRY) == {row.name for row in TABLE}
    assert all(isinstance(row.algorithm, REGISTRY[row.name]) for row in TABLE)


def cut_off() -> jdfl.network.Static:
    """The network, of which the last node hears nobody and is heard by nobody."""
    whole = make_network()
    return replace(whole, graph=between(whole.graph, jnp.arange(M) < M - 1))


@pytest.mark.rotated(3)
def test_a_missing_neighbour_has_no_part_in_a_round_or_is_refused(row: Row):
    """As the docstring says."""
    if row is GOSSIP:
        pytest.skip("its docstring tells nothing")
    said = re.search(r"Missing neighbours: (.*?)\n\n", sys.modules[type(row.algorithm).__module__].__doc__ or "", re.S)
    assert said is not None
    problem, lossy = make_problem(row), jdfl.network.link_loss(make_network(), 0.3)
    forms = [getattr(row.exact, name) for name in ("quantised", "accelerated") if hasattr(row.exact, name)]
    if any(forms) or ("refused" in said[1] and not forms):
        with pytest.raises(ValueError, match=r"fixed network|network plays no part"):
            start.check_run(row.exact, problem, lossy, 5, 1, None)
        return
    start.check_run(row.exact, problem, lossy, 5, 1, None)
    features, target = problem.data
    others = problem.replace(data=(features, target.at[: M - 1].add(1.0)))
    alone = problem.replace(data=(features, target.at[M - 1].add(1.0)))
    here, changed_others, changed_alone = (
        np.asarray(testing.Case(row.exact).play(one, cut_off())[1][4]) for one in (problem, others, alone)
    )
    np.testing.assert_array_equal(here[-1], changed_others[-1])
    np.testing.assert_array_equal(here[:-1], changed_alone[:-1])
    assert not np.array_equal(here, changed_others)
    assert not np.array_equal(here, changed_alone)


@pytest.mark.rotated(3)
def test_consensus_at_the_solution_is_a_fixed_point(row: Row):
    problem = make_problem(row, noise=0.0)
    assert problem.truth is not None

    def start(program, problem):
        return row.consensus_state(program, problem, problem.truth)

    if row.consensus_state is None:
        _, params, _ = testing.Case(row.exact, problem.replace(start=problem.truth)).play()
    else:
        _, params, _ = testing.Case(row.exact, problem).play(start=start)
    np.testing.assert_allclose(params, np.broadcast_to(problem.truth, (13, M, N)), atol=2e-6)


def test_counts_are_those_made_by_hand(row: Row):
    problem, network = make_problem(row), make_network()
    rounds = 13
    prepared, _, total = case_of(row).play()
    adjacency = np.asarray(jdfl.network.to_scipy(network.graph).todense())
    np.fill_diagonal(adjacency, 0)
    expected = row.count(prepared, adjacency, rounds)
    assert set(total.sent) == set(expected["sent"])
    for channel, sent in expected["sent"].items():
        np.testing.assert_array_equal(total.sent[channel], sent, err_msg=channel)
    for name in ("communications", "grads", "releases"):
        np.testing.assert_array_equal(getattr(total, name), expected[name], err_msg=name)

    result = jdfl.run(row.algorithm, problem, network, key=0, steps=rounds, options=jdfl.Options(chunk=100), **SAME)
    ran = Program(result.algorithm, prepared=Prepared(own=result.ready))
    by_hand = row.count(ran, adjacency, rounds)
    assert result.totals.messages == {channel: sent.sum() for channel, sent in by_hand["sent"].items()}
    assert result.totals.message_bits == row.message_bits
    assert result.totals.bits == sum(row.message_bits[c] * sent.sum() for c, sent in by_hand["sent"].items())
    assert result.totals.gradients == by_hand["grads"].sum()
    assert result.totals.releases == by_hand["releases"].sum()
    assert result.totals.communications == by_hand["communications"].sum()
    if not hasattr(result.algorithm, "rule"):  # which may leave rows as they are
        np.testing.assert_array_equal(result.communication_rounds, by_hand["communications"])


def test_everything_is_as_sparse_as_it_must_be(row: Row):
    if row.nonzeros == N:
        pytest.skip("nothing is sparse")
    assert (np.count_nonzero(case_of(row).run(steps=40, key=2).params, axis=1) <= row.nonzeros).all()
