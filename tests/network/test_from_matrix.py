"""`from_matrix` keeps a mixing matrix, and refuses a wrong one in words before anything is compiled."""

from contextlib import nullcontext

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from jdfl import network as nw
from jdfl.testing import compilations

LAZY_RING = 0.5 * np.eye(5) + 0.25 * np.roll(np.eye(5), 1, axis=1) + 0.25 * np.roll(np.eye(5), -1, axis=1)
ONE_WAY = 0.5 * np.eye(4) + 0.5 * np.roll(np.eye(4), 1, axis=1)
ROWS = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.75, 0.25]])
NEGATIVE = np.full((3, 3), 0.6) - 0.8 * np.eye(3)  # eigenvalues 1, -0.8, -0.8
KINDS = {
    "doubly": (LAZY_RING, "doubly", True, False),
    "circle": (ONE_WAY, "doubly", False, True),
    "row": (ROWS, "row", False, False),
    "column": (ROWS.T, "column", False, False),
    "negative": (NEGATIVE, "doubly", True, False),
}


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.coo_matrix, pd.DataFrame, np.ndarray.tolist], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_matrix_is_kept_and_the_summary_says_what_it_is(kind, make):
    W, sums, symmetric, directed = KINDS[kind]
    network = nw.from_matrix(make(W), name="mine")
    np.testing.assert_allclose(nw.to_scipy(network).toarray(), W, atol=1e-7)
    nw.check_graph(network.graph, columns=sums == "column")
    found = nw.summary(network)
    assert (found.stochastic, found.symmetric, found.directed, found.rule) == (sums, symmetric, directed, "given")
    assert ("not symmetric" in str(found)) == (not symmetric)
    second = np.sort(np.abs(np.linalg.eigvals(W)))[-2]
    assert found.spectral_gap == pytest.approx(1 - second, abs=1e-5)


def bad(i: int, j: int, value: object, dtype: type = float) -> np.ndarray:
    W = LAZY_RING.astype(dtype)
    W[i, j] = value
    return W


def block(*parts: np.ndarray) -> np.ndarray:
    return sp.block_diag(parts).toarray()


def apart() -> np.ndarray:
    """Node 5 receives from the ring, and sends nothing to it."""
    W = block(LAZY_RING, np.eye(1))
    W[5, [0, 5]] = 0.5
    return W


def hub() -> np.ndarray:
    """Node 0 sends to all others and receives nothing."""
    W = 0.5 * np.eye(4)
    W[0, 0] = 1
    W[1:, 0] = 0.5
    return W


WRONG = {  # the matrix, and the words of the error: argument, value, remedy
    "text": ("half", r"W.*'?half|dtype.*Pass a matrix"),
    "nothing": (None, r"numbers in W, got dtype object\. Pass a matrix of real numbers"),
    "a number": (3.0, r"W of shape \(0, 0\), got \(\)\. Pass a square matrix"),
    "not square": (LAZY_RING[:4], r"W of shape \(4, 4\), got \(4, 5\)\. Pass a square matrix with one row per node"),
    "three axes": (LAZY_RING[None], r"W of shape \(1, 1\), got \(1, 5, 5\)"),
    "empty": (np.zeros((0, 0)), r"m >= 1, got m = 0\. Pass at least one node"),
    "ragged": ([[1.0], [0.5, 0.5]], r"W to be an array.*Pass a matrix of numbers"),
    "complex": (LAZY_RING * 1j, r"real numbers in W, got dtype complex128"),
    "objects": (bad(0, 0, "x", object), r"numbers in W, got dtype object"),
    "words": (LAZY_RING.astype(str), r"numbers in W, got dtype <U"),
    "dates": (LAZY_RING.astype("timedelta64[s]"), r"numbers in W, got dtype timedelta64"),
    "masked": (np.ma.masked_less(LAZY_RING, 0.1), r"without a mask for W.*10 masked entries"),
    "NaN": (bad(1, 2, np.nan), r"finite numbers in W, got W\[1, 2\] = nan \(1 such.*0 for no link"),
    "infinite": (bad(1, 2, np.inf), r"finite numbers in W, got W\[1, 2\] = inf"),
    "a graph": (nx.cycle_graph(4), r"W to be a matrix of numbers.*from_networkx"),
    "a network": (nw.ring(4), r"W to be a matrix of numbers.*to_scipy"),
    "rows of two": (2 * LAZY_RING, r"rows of the mixing matrix W that sum to 1, got 2 in row 0 \(5 such.*Divide every"),
    "one row": (bad(2, 2, 0.4), r"sum to 1, got 0\.9 in row 2 \(1 such rows\)\. Divide every row"),
    "an adjacency matrix": (LAZY_RING > 0, r"got 3 in row 0.*adjacency matrix use jdfl\.network\.from_scipy"),
    "a zero diagonal": (LAZY_RING - 0.5 * np.eye(5), r"got 0\.5 in row 0.*diagonal is zero: set W\[i, i\] to 1 minus"),
    "two parts": (block(LAZY_RING, LAZY_RING), r"nothing from node 0 ever reaches nodes 5, 6, 7, 8, 9 \(5 of 10"),
    "many parts": (np.eye(9), r"reaches nodes 1, 2, 3, 4, 5, \.\.\. \(8 of 9 nodes\)\. Add links to W, or pass conn"),
    "a node that nobody receives from": (apart(), r"strongly connected.*node 0 never receives from node 5 \(1 of 6"),
    "a node that receives nothing": (hub(), r"strongly connected.*node 0 never receives from nodes 1, 2, 3 \(3 of 4"),
    "expanding": (
        2 * np.eye(3) - np.full((3, 3), 1 / 3),
        r"\|lambda_2\| = 2: .*grow by.*-0\.333333: use weights >=",
    ),
    "just expanding": (1.01 * np.eye(2) - np.array([[0, 0.01], [0.01, 0]]), r"\|lambda_2\| = 1\.02.*lowest weight"),
    "swapping": (np.array([[0.0, 1.0], [1.0, 0.0]]), r"\|lambda_2\| = 1: .*never vanish.*\(W \+ identity\) / 2"),
    "a directed cycle without own weights": (np.roll(np.eye(5), 1, axis=1), r"\|lambda_2\| = 1: .*Mix lazily"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_matrix_is_refused_with_argument_value_and_remedy(kind):
    W, words = WRONG[kind]
    before = compilations()
    with pytest.raises(ValueError, match=words) as error:
        nw.from_matrix(W)
    assert str(error.value).startswith("Expected ")
    assert compilations() == before


@pytest.mark.parametrize(
    "kind", ["two parts", "many parts", "a node that receives nothing", "expanding", "just expanding", "swapping"]
)
def test_connected_false_keeps_the_matrix_as_it_is(kind):
    W, _ = WRONG[kind]
    np.testing.assert_allclose(nw.to_scipy(nw.from_matrix(W, connected=False)).toarray(), W, atol=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_accepted_brings_agreement_and_what_is_refused_does_not(seed):
    """Against the powers of W: the eigenvalue is no formality."""
    draw = np.random.default_rng(seed)
    W = draw.uniform(-0.6, 1.0, (5, 5))
    W[np.arange(5), np.arange(5)] += 1 - W.sum(axis=1)
    differences = np.linalg.matrix_power(W, 400) @ draw.standard_normal(5)
    agree = np.isfinite(differences).all() and np.ptp(differences) < 1e-6
    with nullcontext() if agree else pytest.raises(ValueError, match="lambda_2"):
        nw.from_matrix(W)


def test_a_matrix_with_negative_weights_runs_where_it_is_accepted():
    nw.check_weights(nw.from_matrix(NEGATIVE), "D-PSGD")


def test_from_networkx_keeps_weights_by_the_same_rules():
    graph = nx.Graph()
    graph.add_weighted_edges_from([("a", "b", 0.9), ("b", "c", 0.9)])
    with pytest.raises(ValueError, match=r"lambda_2.*lowest weight is -0\.8"):
        nw.from_networkx(graph)
    assert nw.summary(nw.from_networkx(graph, weights="metropolis")).rule == "metropolis"


@pytest.mark.parametrize(
    ("A", "words"),
    [
        (LAZY_RING, r"zeros and ones, got 0\.5 among its entries \(15 such.*from_matrix\(W\).*weights='metropolis'"),
        (2 * (LAZY_RING > 0), r"got 2 among its entries"),
    ],
)
def test_from_scipy_takes_adjacency_alone(A, words):
    with pytest.raises(ValueError, match=words):
        nw.from_scipy(A)
    assert nw.summary(nw.from_scipy(A, weights="metropolis")).edges == 5
