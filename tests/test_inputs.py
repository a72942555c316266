"""Nothing that a person gives is replaced or dropped without a word: it is kept, or refused by name."""

import warnings

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import csr_array

import jdfl
from jdfl.engine.start import check_settings
from jdfl.problems import partition
from tests.later import Later
from tests.refused import refused

nw = jdfl.network
W = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
M, N = 3, 8
problem = Later(jdfl.problems.example1, m=M, n=N, s=2, rows=(4, 6), seed=1)
FINE = Later(nw.from_matrix, W)


def said(algorithm, network=None):
    with pytest.raises((ValueError, TypeError)) as error:
        jdfl.run(algorithm, problem(), FINE() if network is None else network, steps=3)
    return str(error.value)


def test_given_weights_are_kept_and_named():
    np.testing.assert_allclose(nw.to_scipy(FINE()).toarray(), W, atol=1e-7)
    assert nw.summary(FINE()).rule == "given"
    links = nx.cycle_graph(4)
    nx.set_edge_attributes(links, 0.2, "weight")
    kept = nw.from_networkx(links)
    found = nw.to_scipy(kept).toarray()
    np.testing.assert_allclose(found[0], [0.6, 0.2, 0, 0.2], atol=1e-6)
    assert nw.summary(kept).rule == "given"
    assert nw.summary(nw.from_networkx(links, weights="metropolis")).rule == "metropolis"
    assert nw.summary(nw.from_scipy(W > 0)).rule == "metropolis"
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, 0.3), (1, 2, 0.4), (2, 0, 0.5)])
    found = nw.to_scipy(nw.from_networkx(graph)).toarray()  # the weight of an arrow belongs to its hearer
    np.testing.assert_allclose(found, [[0.5, 0, 0.5], [0.3, 0.7, 0], [0, 0.4, 0.6]], atol=1e-6)


def test_a_given_diagonal_is_kept_or_refused():
    """Whatever the other entries are: an adjacency matrix consists of zeros and ones."""
    ones = np.ones((3, 3))
    swinging = ones - 2 * np.eye(3)
    assert nw.summary(nw.from_matrix(swinging, connected=False)).rule == "given"
    for make, own in ((csr_array, 2), (np.array, [0.5, 1, 1])):
        given = make(ones - np.eye(3) + np.diag(np.broadcast_to(own, 3)))
        with refused("sum to 1"):
            nw.from_matrix(given)
        with refused("from_matrix"):
            nw.from_scipy(given)
        assert nw.summary(nw.from_scipy(given, weights="metropolis")).rule == "metropolis"
    for plain in (ones, ones - np.eye(3)):
        assert nw.summary(nw.from_scipy(csr_array(plain))).rule in ("metropolis", "uniform")


def test_weights_that_cannot_be_kept_are_refused():
    with refused("sum to 1"):
        nw.from_matrix(2 * W)
    with refused("graph"):
        nw.from_networkx(W)
    graph = nx.cycle_graph(4)
    graph[1][2]["weight"] = 0.5
    with refused("`weight`", "(0, 1)"):
        nw.from_networkx(graph)
    for value in (True, "1"):
        nx.set_edge_attributes(graph, value, "weight")
        with refused("`weight`"):
            nw.from_networkx(graph)


def test_every_graph_of_a_sequence_is_checked():
    graph = FINE().graph
    wrong = graph.replace(self_weight=graph.self_weight.at[1].add(1 / 3))
    assert "1.33333" in said(jdfl.DPSGD(), nw.periodic([graph] * 5 + [wrong]))
    assert "1.33333" in said(jdfl.DPSGD(), nw.random_choice([graph, wrong], [0.99, 0.01]))
    row = nw.from_matrix([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.25, 0.25, 0.5]])
    assert "doubly stochastic" in said(jdfl.DSGT(), nw.periodic([FINE()] * 5 + [row]))
    assert "doubly stochastic" in said(jdfl.DSGT(), nw.random_choice([FINE(), row], [0.99, 0.01]))


def test_sparse_needs_a_size_where_nothing_else_gives_it_and_codecs_that_change_models_are_warned_of(recwarn):
    assert "Sparse(share=0.1)" in said(jdfl.DPSGD(codec=jdfl.Sparse()))
    jdfl.Sparse().check(N, M, 2)  # CEPS and IHT know how many entries are not zero
    for kind in (jdfl.DPSGD, jdfl.DSGT, jdfl.MATCHA):
        check_settings(kind(codec=jdfl.Dense()), problem(), FINE())
        check_settings(kind(codec=jdfl.Sparse(share=1.0)), problem(), FINE())
        assert not recwarn.list
        with pytest.warns(UserWarning, match=r"codec = Sign\(\)"):
            check_settings(kind(codec=jdfl.Sign()), problem(), FINE())


def test_wrong_objects_are_refused_by_name():
    for kind in (jdfl.DPSGD, jdfl.EXTRA, jdfl.CHOCO, jdfl.DOADP):
        for field in {"gradients", "codec"} & kind.__dataclass_fields__.keys():
            for value in ("x", {}, jdfl.Dense, None, float("nan")):
                assert f"{field} = {value!r}" in said(kind(**{field: value}))
    assert "gradients.mechanism = 0.5" in said(jdfl.DPSGD(gradients=jdfl.Gradients(mechanism=0.5)))


def test_labels_that_would_lose_examples_are_refused():
    for array, word in (
        (np.ma.masked_array([0, 1, 1, 0], [0, 1, 0, 0]), "masked"),
        (np.array(["2020-01-01"] * 4, "datetime64[D]"), "datetime64"),
        (np.array([0, np.nan, 1, 0]), "labels[1]"),
        (np.array(["a", None, "b", "a"], object), "labels[1] = None"),
    ):
        for door in (lambda one: partition.dirichlet(one, 2, alpha=1.0), lambda one: partition.shards(one, 2)):
            with refused("labels", word):
                door(array)


def test_features_that_are_no_plain_numbers_are_refused():
    y, build = np.array([0, 1, 0, 1]), jdfl.problems
    doors = lambda x: build.logistic_regression([(x, y)] * 2), build.averaging, lambda x: nw.from_matrix(x[:2])
    for features, word in (
        (np.ma.masked_array(np.ones((4, 2)), np.eye(4, 2)), "masked"),
        (np.zeros((4, 2), "timedelta64[s]"), "timedelta64"),
        (np.zeros((4, 2), complex), "complex128"),
        (np.full((4, 2), "1"), "<U1"),
    ):
        for door in doors:
            with refused(word):
                door(features)


_ROWS = [np.random.default_rng(i).normal(size=(6, 3)) for i in range(3)]
_CLASSES = [np.arange(6) % 2] * 3
ROUNDED = {  # doors that take numbers of nodes, each with rows [3][6, 3]
    "averaging": lambda rows: jdfl.problems.averaging(np.concatenate(rows)),
    "features": lambda rows: jdfl.problems.linear_regression(rows, [np.arange(6.0)] * 3),
    "targets": lambda rows: jdfl.problems.linear_regression(_ROWS, [one[:, 1] for one in rows]),
    "test": lambda rows: jdfl.problems.linear_regression(_ROWS, [np.ones(6)] * 3, test=(rows[0], np.ones(6))),
    "two classes": lambda rows: jdfl.problems.logistic_regression(list(zip(rows, _CLASSES))),
    "sparse": lambda rows: jdfl.problems.sparse_logistic_regression(
        [(csr_array(one), y) for one, y in zip(rows, _CLASSES)]
    ),
    "from_arrays": lambda rows: jdfl.from_arrays(
        np.concatenate(_ROWS), np.concatenate(rows)[:, 1], nodes=3, test_fraction=0.0
    ),
}


def test_numbers_that_vanish_or_lose_their_differences_are_told_once_at_every_door():
    lost = [[one + 1e9 for one in _ROWS], [one * np.array([1, 1e-46, 1]) for one in _ROWS]]
    for door, made in ROUNDED.items():
        for rows in lost:
            with pytest.warns(UserWarning, match="float32") as told:
                made(rows)
            assert len([one for one in told if "lose their meaning" in str(one.message)]) == 1, door
            assert told[0].filename == __file__
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Numbers in ")
            made([np.float64(np.float16(one)) for one in _ROWS])
