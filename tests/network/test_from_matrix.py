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


def block(*parts: np.ndarray) -> np.ndarray:
    return sp.block_diag(parts).toarray()


HUB = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0.5, 0, 0, 0.5]])  # sends, and receives nothing
HEARER = block(LAZY_RING, np.eye(1))
HEARER[5, [0, 5]] = 0.5  # receives from the ring, and sends nothing to it
APART = {  # kept with connected=False; the matrix, and what of its value is named
    "two parts": (block(LAZY_RING, LAZY_RING), "5 of 10 nodes"),
    "many parts": (np.eye(9), "9 components"),
    "a node that nobody receives from": (HEARER, "5 of 6 nodes"),
    "a node that receives nothing": (HUB, "4 components"),
    "expanding": (2 * np.eye(3) - np.full((3, 3), 1 / 3), "-0.333333"),
    "swapping": (np.array([[0.0, 1.0], [1.0, 0.0]]), "|lambda_2| = 1"),
    "a directed cycle without own weights": (np.roll(np.eye(5), 1, axis=1), "|lambda_2| = 1"),
}
WRONG = {
    "nothing": (None, "object"),
    "not square": (LAZY_RING[:4], "got (4, 5)"),
    "empty": (np.zeros((0, 0)), "m = 0"),
    "ragged": ([[1.0], [0.5, 0.5]], "W"),
    "complex": (LAZY_RING * 1j, "complex128"),
    "words": (LAZY_RING.astype(str), "W"),
    "masked": (np.ma.masked_less(LAZY_RING, 0.1), "10 masked entries"),
    "NaN": (np.where(LAZY_RING == 0.5, np.nan, LAZY_RING), "W[0, 0] = nan"),
    "a graph": (nx.cycle_graph(4), "jdfl.network.from_networkx"),
    "rows of two": (2 * LAZY_RING, "2 in row 0"),
    "without its diagonal": (LAZY_RING - 0.5 * np.eye(5), "W[i, i]"),
    "an adjacency matrix": (LAZY_RING > 0, "jdfl.network.from_scipy"),
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
