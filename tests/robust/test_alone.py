"""Rules by which nodes combine nothing are refused, or warned about where it is so at some nodes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import robust
from tests.later import Later
from tests.refused import refused

SETTINGS = [
    *(kind(b=b) for kind in robust.RULES.values() for b in (0, 1, 3)),
    *(robust.MultiKrum(b=b, average=count) for b in (0, 1) for count in (1, 2)),
    robust.ClippedGossip(tau=0.1, b=3),
    robust.UBAR(alpha=1.0),
    robust.BALANCE(alpha=1.0),
    robust.BALANCE(alpha=0.1, gamma=1e3),
]
STAR = Later(nw.star, 5)  # a node with four in-neighbours, and four with one
RING = Later(nw.ring, 5)


@partial(jax.jit, static_argnames=("rule",))
def _combined(rule, graph, rows):
    return jax.vmap(lambda x: rule(graph, x, losses=lambda w: jnp.sum(w**2, axis=1)))(rows)


@pytest.mark.rotated(6)
@pytest.mark.parametrize("rule", SETTINGS, ids=str)
def test_what_a_rule_says_that_it_combines_is_what_it_combines(rule):
    """Nodes have another row than their own after combining some of many random rows."""
    draw = np.random.default_rng(0)
    rows = (draw.standard_normal((20, 5, 2)) + 3 * np.arange(20).reshape(20, 1, 1)).astype(np.float32)
    for network in (STAR(), RING()):
        weight, mask = np.asarray(network.graph.weight), np.asarray(network.graph.mask)
        new = np.asarray(_combined(rule, nw.pad(network.graph, 4), rows))
        moved = np.any(np.abs(new - rows) > 1e-6, axis=(0, 2))
        assert moved.tolist() == [rule.combines(row[here]) for row, here in zip(weight, mask)], network.name


def arrays():
    draw = np.random.default_rng(1)
    return jdfl.from_arrays(draw.normal(size=(40, 2)), draw.normal(size=40), clients=np.arange(40) % 5)


def test_a_rule_that_combines_nobody_is_refused_with_the_largest_b_that_works():
    for rule, works in ((robust.TrimmedMean(b=2), 0), (robust.NNA(b=2), 1), (robust.CSPlus(b=1), 0)):
        for method in (jdfl.RobustDSGD(rule=rule), jdfl.combined_by(jdfl.DPSGD(), rule)):
            with refused(f"largest b that works is {works}"):
                jdfl.run(method, arrays(), RING(), steps=2)
    with refused("UBAR"):
        jdfl.run(jdfl.RobustDSGD(rule=robust.UBAR(alpha=1.0)), arrays(), RING(), steps=2)
    with refused("largest b that works is 0"):
        jdfl.run(jdfl.RobustDSGD(rule=robust.TrimmedMean(b=1)), arrays(), nw.link_loss(RING(), 0.2), steps=2)
    with pytest.warns(UserWarning, match="4 of 5 nodes"):  # and warned about where it combines nobody at some nodes
        jdfl.RobustDSGD(rule=robust.TrimmedMean(b=1)).check(arrays(), STAR())


def test_nodes_that_never_combine_a_message_are_named_and_rows_that_are_alike_count_as_combined():
    apart = nw.from_edges([(0, 1), (1, 2), (2, 3)], 5, connected=False)
    assert "1 of 5 nodes never combined" in "".join(jdfl.run(jdfl.DPSGD(), arrays(), apart, steps=2).warnings)
    assert "combined" not in "".join(jdfl.run(jdfl.LocalOnly(), arrays(), RING(), steps=2).warnings)
    result = jdfl.run(jdfl.combined_by(jdfl.DPSGD(), robust.CoordinateMedian()), arrays(), nw.complete(5), steps=3)
    assert result.communication_rounds.tolist() == [3] * 5


@pytest.mark.parametrize("kind", ["far", "silent"])
def test_nodes_whose_rule_never_accepts_a_message_are_named_in_the_result(kind):
    rule, network = {
        "far": (robust.BALANCE(gamma=1e-9), nw.complete(5)),
        "silent": (robust.TrimmedMean(b=1), nw.node_participation(nw.complete(5), count=2)),
    }[kind]
    result = jdfl.run(jdfl.RobustDSGD(rule=rule), arrays(), network, steps=4)
    alone = jdfl.run(jdfl.LocalOnly(lr=0.1), arrays(), network, steps=4)
    same = np.all(np.abs(np.asarray(result.params - alone.params)) < 1e-6, axis=1)
    assert (result.communication_rounds == 0).tolist() == same.tolist()
    assert same.sum() >= 4
    assert any("combined a message" in one for one in result.warnings)


def test_a_rule_for_a_method_that_does_not_mix_or_has_one_is_refused():
    for method in (jdfl.FedAvg(), jdfl.PENS()):
        with refused("coordinate median", method.title):
            jdfl.run(jdfl.combined_by(method, robust.CoordinateMedian()), arrays(), nw.complete(5), steps=1)
    with refused("algorithm.rule"):
        jdfl.combined_by(jdfl.RobustDSGD(), robust.CoordinateMedian())
