"""Muffliato's first figure: its formula and what is derived, against other ways to compute them."""

import numpy as np
import pytest

import jdfl
from experiments import muffliato_figure as muffliato
from experiments.muffliato_figure import Gossip
from jdfl.network import as_dense

LINE = jdfl.network.from_edges([(0, 1), (1, 2)], 3)
RANDOM = jdfl.network.erdos_renyi(12, 0.3, seed=2)


def added(network, observer, node):
    """The paper's sum for a pair of nodes, message by message."""
    W, total = np.asarray(as_dense(network.graph), float), 0.0
    for t in range(1, Gossip.on(network).rounds + 1):
        power = np.linalg.matrix_power(W, t)
        for w in range(len(W)):
            if w != observer and W[observer, w] > 0:
                total += power[w, node] ** 2 / sum(power[w, j] ** 2 for j in range(len(W)))
    return min(total, 1.0)


@pytest.mark.parametrize("network", [LINE, RANDOM])
def test_the_formula_is_the_sum_over_single_messages(network):
    gossip = Gossip.on(network)
    each = [added(network, 0, node) for node in range(network.m)]
    np.testing.assert_allclose(gossip.formula(), each, rtol=1e-6)
    each = [added(network, observer, 0) for observer in range(network.m)]
    np.testing.assert_allclose(gossip.published(), each, rtol=1e-6)


@pytest.mark.slow
def test_on_a_line_of_three_the_formula_is_no_bound_and_on_a_complete_graph_all_three_agree():
    gossip = Gossip.on(LINE)
    loss, guarantee = muffliato.observed(LINE, gossip)
    assert gossip.formula()[2] < 0.75
    np.testing.assert_allclose([loss[1], loss[2], guarantee], 1.0, rtol=1e-6)
    gossip = Gossip.on(all_pairs := jdfl.network.complete(6))
    loss, guarantee = muffliato.observed(all_pairs, gossip)
    np.testing.assert_allclose([*loss[1:], *gossip.formula()[1:], guarantee], 1.0, rtol=1e-6)
