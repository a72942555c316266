"""Orders of the nodes in which neighbours lie close together. SciPy on the host."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from jdfl.base.arguments import checked
from jdfl.network.graph import Graph, Static
from jdfl.network.tables import arcs_of, graph_of


@checked
def narrow_order(network: Graph | Static) -> np.ndarray:
    """An order of the nodes [m] in which neighbours have close ids, so that W has a small bandwidth.

    E. Cuthill, J. McKee, "Reducing the bandwidth of sparse symmetric matrices", 1969, reversed, by SciPy. Gathers of
    neighbours' rows then read memory that lies close together, and nodes that are split over devices have fewer
    neighbours on other devices. Use it with `relabel(graph, order)` and the same order of the nodes' data.

    Args:
        network: A fixed network, or the graph of one round; of one-way links the direction plays no part.
    """
    links = arcs_of(graph_of(network))
    ends = np.r_[links.receiver, links.sender], np.r_[links.sender, links.receiver]
    matrix = sp.csr_matrix((np.ones(len(ends[0]), np.int8), ends), shape=(links.m, links.m))
    return np.asarray(csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True), np.int64)
