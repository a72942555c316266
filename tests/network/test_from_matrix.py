"""`from_matrix` keeps a mixing matrix, and refuses a wrong one in words before anything is compiled."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from jdfl import network as nw
from jdfl.testing import compilations
from tests.refused import refused

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


@pytest.mark.parametrize("kind", KINDS)
def test_the_matrix_is_kept_and_the_summary_says_what_it_is(kind):
    W, sums, symmetric, directed = KINDS[kind]
    second = np.sort(np.abs(np.linalg.eigvals(W)))[-2]
    for make in (np.asarray, sp.csr_array, sp.coo_matrix, pd.DataFrame, np.ndarray.tolist):
        network = nw.from_matrix(make(W), name="mine")
        np.testing.assert_allclose(nw.to_scipy(network).toarray(), W, atol=1e-7)
        nw.check_graph(network.graph, columns=sums == "column")
        found = nw.summary(network)
        assert (found.stochastic, found.symmetric, found.directed, found.rule) == (sums, symmetric, directed, "given")
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


APART = {  # kept with connected=False; the matrix, and what of its value is named
    "two parts": (block(LAZY_RING, LAZY_RING), "nodes 5, 6, 7, 8, 9"),
    "many parts": (np.eye(9), "8 of 9 nodes"),
    "a node that nobody receives from": (apart(), "node 0 never receives from node 5"),
    "a node that receives nothing": (hub(), "nodes 1, 2, 3"),
    "expanding": (2 * np.eye(3) - np.full((3, 3), 1 / 3), "-0.333333"),
    "just expanding": (1.01 * np.eye(2) - np.array([[0, 0.01], [0.01, 0]]), "1.02"),
    "swapping": (np.array([[0.0, 1.0], [1.0, 0.0]]), "|lambda_2| = 1"),
    "a directed cycle without own weights": (np.roll(np.eye(5), 1, axis=1), "|lambda_2| = 1"),
}
WRONG = {
    "text": ("half", "W"),
    "nothing": (None, "object"),
    "a number": (3.0, "got ()"),
    "not square": (LAZY_RING[:4], "got (4, 5)"),
    "three axes": (LAZY_RING[None], "got (1, 5, 5)"),
    "empty": (np.zeros((0, 0)), "m = 0"),
    "ragged": ([[1.0], [0.5, 0.5]], "W"),
    "complex": (LAZY_RING * 1j, "complex128"),
    "objects": (bad(0, 0, "x", object), "object"),
    "words": (LAZY_RING.astype(str), "W"),
    "dates": (LAZY_RING.astype("timedelta64[s]"), "W"),
    "masked": (np.ma.masked_less(LAZY_RING, 0.1), "10 masked entries"),
    "NaN": (bad(1, 2, np.nan), "W[1, 2] = nan"),
    "infinite": (bad(1, 2, np.inf), "W[1, 2] = inf"),
    "a graph": (nx.cycle_graph(4), "jdfl.network.from_networkx"),
    "rows of two": (2 * LAZY_RING, "2 in row 0"),
    "one row": (bad(2, 2, 0.4), "0.9 in row 2"),
    "an adjacency matrix": (LAZY_RING > 0, "jdfl.network.from_scipy"),
    "a zero diagonal": (LAZY_RING - 0.5 * np.eye(5), "0.5 in row 0"),
}


@pytest.mark.parametrize("kind", WRONG | APART)
def test_a_wrong_matrix_is_refused_before_anything_is_compiled(kind):
    W, named = (WRONG | APART)[kind]
    before = compilations()
    with refused(named):
        nw.from_matrix(W)
    assert compilations() == before
    if kind in APART:
        np.testing.assert_allclose(nw.to_scipy(nw.from_matrix(W, connected=False)).toarray(), W, atol=1e-7)


def test_what_is_accepted_brings_agreement_and_what_is_refused_does_not():
    """Against the powers of W: the eigenvalue is no formality."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        W = draw.uniform(-0.6, 1.0, (5, 5))
        W[np.arange(5), np.arange(5)] += 1 - W.sum(axis=1)
        differences = np.linalg.matrix_power(W, 400) @ draw.standard_normal(5)
        if np.isfinite(differences).all() and np.ptp(differences) < 1e-6:
            nw.check_weights(nw.from_matrix(W), "D-PSGD")
        else:
            with refused("|lambda_2|"):
                nw.from_matrix(W)
