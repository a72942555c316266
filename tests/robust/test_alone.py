"""Rules by which nodes combine nothing are refused, or warned about where it is so at some nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jdfl
from jdfl import network as nw
from jdfl import robust

SETTINGS = [
    *(kind(b=b) for kind in robust.RULES.values() for b in range(4)),
    *(robust.MultiKrum(b=b, average=count) for b in (0, 1) for count in (1, 2)),
    robust.ClippedGossip(tau=0.1, b=3),
    robust.UBAR(alpha=1.0),
    robust.BALANCE(alpha=1.0),
    robust.BALANCE(alpha=0.1, gamma=1e3),
]
STAR = nw.star(5)  # a node with four in-neighbours, and four with one
RING = nw.ring(5)


def moved(rule: robust.Rule, graph: nw.Graph) -> np.ndarray:
    """Which nodes have another row than their own after combining some of many random rows."""
    draw = np.random.default_rng(0)
    rows = jnp.asarray(draw.standard_normal((20, 5, 2)) + 3 * np.arange(20).reshape(20, 1, 1), jnp.float32)
    new = jax.vmap(lambda x: rule(graph, x, losses=lambda w: jnp.sum(w**2, axis=1)))(rows)
    return np.any(np.abs(np.asarray(new - rows)) > 1e-6, axis=(0, 2))


@pytest.mark.parametrize("rule", SETTINGS, ids=str)
def test_what_a_rule_says_that_it_combines_is_what_it_combines(rule):
    for network in (STAR, RING):
        graph, some = network.graph, moved(rule, network.graph)
        weight, mask = np.asarray(graph.weight), np.asarray(graph.mask)
        assert some.tolist() == [rule.combines(row[here]) for row, here in zip(weight, mask)], network.name


def arrays():
    draw = np.random.default_rng(1)
    return jdfl.from_arrays(draw.normal(size=(40, 2)), draw.normal(size=40), clients=np.arange(40) % 5)


@pytest.mark.parametrize(
    "make", [lambda rule: jdfl.RobustDSGD(rule=rule), lambda rule: jdfl.combined_by(jdfl.DPSGD(), rule)]
)
def test_a_rule_that_combines_nobody_is_refused_with_the_largest_b_that_works(make):
    for rule, works in ((robust.TrimmedMean(b=2), 0), (robust.NNA(b=2), 1), (robust.CSPlus(b=1), 0)):
        with pytest.raises(ValueError, match=rf"every node keeps its own row.*largest b that works is {works}\."):
            jdfl.run(make(rule), arrays(), RING, steps=2)
    with pytest.raises(ValueError, match=r"UBAR.*other settings"):
        jdfl.run(make(robust.UBAR(alpha=1.0)), arrays(), RING, steps=2)
    with pytest.raises(ValueError, match="largest b that works is 0"):
        jdfl.run(make(robust.TrimmedMean(b=1)), arrays(), nw.link_loss(RING, 0.2), steps=2)


def test_a_rule_that_combines_nobody_at_some_nodes_is_warned_about():
    with pytest.warns(UserWarning, match=r"4 of 5 nodes of star\(m=5\).*1, 2, 3, 4\."):
        jdfl.RobustDSGD(rule=robust.TrimmedMean(b=1)).check(arrays(), STAR)


def test_nodes_that_never_combine_a_message_are_named_in_the_result():
    apart = nw.from_edges([(0, 1), (1, 2), (2, 3)], 5, connected=False)
    assert any(
        "1 of 5 nodes never combined" in one for one in jdfl.run(jdfl.DPSGD(), arrays(), apart, steps=2).warnings
    )
    alone = jdfl.run(jdfl.DPSGD(), arrays(), nw.node_participation(RING, count=1), steps=2)
    assert any("no node ever combined a message" in one for one in alone.warnings)
    assert not any("combined" in one for one in jdfl.run(jdfl.LocalOnly(), arrays(), RING, steps=2).warnings)
