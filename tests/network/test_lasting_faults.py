"""Faults that last: bursts, outages, membership; and weights that stay with the sender."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import jdfl
from jdfl import network as nw
from jdfl.engine.start import check_run
from tests.later import Later
from tests.network.examples import graph_of_round, heard, matrices, rounds, rows
from tests.refused import refused
from tests.toy import regression

TORUS = Later(nw.torus, 6)
ARCS = Later(nw.d_out, 6, 2)
COUNT = 400
KEYS = Later(jax.random.split, jax.random.key(8), COUNT)
RULES = {
    "loss": lambda base, weights: nw.link_loss(base, 0.3, directed=True, weights=weights),
    "bursts": lambda base, weights: nw.bursty_loss(base, 0.1, 0.2, directed=True, weights=weights),
    "participation": lambda base, weights: nw.node_participation(base, 0.6, weights=weights),
    "outages": lambda base, weights: nw.outages(base, 0.1, 0.3, weights=weights),
    "membership": lambda base, weights: nw.membership(base, joins=[0, 2, 0, 0, 0, 0], leaves=9, weights=weights),
    "both": lambda base, weights: nw.membership(
        nw.outages(base, 0.2, 0.3, weights=weights), leaves=[5, *[9] * 5], weights=weights
    ),
}


@pytest.mark.rotated(6)
@pytest.mark.parametrize("name", RULES)
def test_rows_or_columns_of_weights_still_sum_to_one(name):
    for weights, axis in (("own", 2), ("rescale", 2), ("sender", 1)):
        base = ARCS() if weights == "sender" else nw.circulant(6, [1, 2], directed=True)
        stacked = rounds(RULES[name](base, weights), KEYS())
        np.testing.assert_allclose(matrices(stacked).sum(axis=axis), 1, rtol=0, atol=1e-6)
        assert heard(stacked).sum() < COUNT * np.asarray(base.graph.mask).sum()
        nw.check_graph(graph_of_round(stacked, 3), columns=weights == "sender")


@pytest.mark.parametrize(
    "name", ["outages", *(pytest.param(one, marks=pytest.mark.rotated(5)) for one in RULES if one != "outages")]
)
def test_a_run_of_push_sum_keeps_its_mass(name):
    problem = jdfl.problems.averaging(rows(6))
    network = RULES[name](ARCS(), "sender")
    result = jdfl.run(jdfl.AverageConsensus(), problem, network, key=0, steps=60, every=20)
    assert abs(float(np.asarray(result.state.sums.a, np.float64).sum()) - 6) < 1e-5
    assert np.all(np.asarray(result.state.sums.a) > 0)


STATES = jax.jit(lambda net, graph: jax.vmap(lambda k: net.bad(k, graph))(jnp.arange(COUNT)))


def bad(net):
    """The states of links [k, m, d]."""
    return np.asarray(STATES(net.replace(name=""), TORUS().graph))


def test_a_run_draws_the_states_of_links_from_its_own_key():
    net = nw.bursty_loss(TORUS(), 0.1, 0.2)
    one, two = (bad(nw.in_run(net, jax.random.key(seed), 0)) for seed in (1, 2))
    assert not np.array_equal(one, two)
    np.testing.assert_array_equal(one, bad(nw.in_run(net, jax.random.key(1), 5)))
    around = nw.in_run(nw.link_loss(net, 0.1), jax.random.key(1), 0).base
    np.testing.assert_array_equal(bad(around), one)  # what is around it changes nothing
    twice = nw.in_run(nw.bursty_loss(net, 0.1, 0.2), jax.random.key(1), 0).base
    assert not np.array_equal(bad(twice), one)


def test_bursts_lose_what_their_links_states_say():
    net = nw.bursty_loss(TORUS(), 0.05, 0.2, good=0.1, bad=0.7)
    stacked, states = rounds(net, KEYS()), bad(net)
    here = np.asarray(TORUS().graph.mask)[None]
    lost = here & ~stacked.mask
    for state, chance in ((states, 0.7), (~states, 0.1)):
        slots = state & here
        # both ways of a link are one draw
        assert scipy.stats.binomtest(int(lost[slots].sum()) // 2, int(slots.sum()) // 2, chance).pvalue > 1e-4
    assert abs(states[here.repeat(COUNT, 0)].mean() - 0.2) < 0.05
    np.testing.assert_array_equal(heard(stacked), heard(stacked).swapaxes(1, 2))
    assert (stacked.out_degree == np.asarray(TORUS().graph.out_degree)).all()


@pytest.mark.parametrize("name", ["outages", "membership", "both"])
def test_who_is_away_has_no_links_and_sends_nothing(name):
    stacked = rounds(RULES[name](TORUS(), "own"), KEYS())
    away, arcs = stacked.away, heard(stacked)
    assert 0 < away.mean() < 1
    assert not stacked.out_degree[away].any()
    np.testing.assert_array_equal(stacked.out_degree, arcs.sum(axis=1))
    links = (nw.to_scipy(TORUS()).toarray() > 0) & ~np.eye(6, dtype=bool)
    np.testing.assert_array_equal(arcs, links & ~away[:, :, None] & ~away[:, None, :])


def test_nodes_that_are_away_stay_as_they_are_and_count_nothing():
    problem = regression(6, 4)
    network = nw.membership(TORUS(), joins=[0, 4, 0, 0, 0, 0], leaves=[50, 50, 3, 50, 50, 50])
    algorithm = jdfl.DPSGD(lr=0.05, gradients=jdfl.Gradients(clip=1.0, mechanism=jdfl.Gaussian(1.0)))
    seen = []
    keep = {"callbacks": [lambda now: seen.append(np.asarray(now.params()))], "options": jdfl.Options(chunk=1)}
    result = jdfl.run(algorithm, problem, network, key=0, steps=8, **keep)
    start = np.asarray(problem.initial_params())
    for k, params in enumerate(seen):  # after round k
        np.testing.assert_array_equal(np.array_equal(params[1], start[1]), k < 4)
        if k >= 2:
            np.testing.assert_array_equal(params[2], seen[2][2])
    np.testing.assert_array_equal(result.releases, [8, 4, 3, 8, 8, 8])
    assert result.totals.gradients == 8 * 4 + 4 + 3
    assert (result.communication_rounds <= [8, 4, 3, 8, 8, 8]).all()


def test_noise_for_the_step_of_its_round_is_refused_where_nodes_send_older_steps():
    problem, fading = regression(6, 4), jdfl.DPDO(epsilon=30.0, gradients=jdfl.Gradients(clip=1.0, per="batch"))
    for name in ("outages", "membership"):
        with refused("DPDO", "node_participation"):
            jdfl.run(fading, problem, RULES[name](TORUS(), "own"), key=0, steps=3)
    check_run(fading, problem, RULES["participation"](TORUS(), "own"), 3, 1, None)
    check_run(jdfl.DPDO(), problem, RULES["outages"](TORUS(), "own"), 3, 1, None)  # nothing is claimed of it
