"""Networks: who hears whom in a round, with which weights, and the sums over it."""

from jdfl.network.families import circulant, complete, erdos_renyi, k_regular, ring
from jdfl.network.graph import (
    Format,
    Graph,
    Network,
    Static,
    as_bcoo,
    as_dense,
    gather_sum,
    mix,
    sample_neighbours,
)
from jdfl.network.spectral import Summary, spectral_gap, summary
from jdfl.network.tables import check_graph, pad, relabel, to_scipy
from jdfl.network.weights import FormatChoice, Weights, from_edges, from_networkx, from_scipy, to_networkx

__all__ = [
    "Format",
    "FormatChoice",
    "Graph",
    "Network",
    "Static",
    "Summary",
    "Weights",
    "as_bcoo",
    "as_dense",
    "check_graph",
    "circulant",
    "complete",
    "erdos_renyi",
    "from_edges",
    "from_networkx",
    "from_scipy",
    "gather_sum",
    "k_regular",
    "mix",
    "pad",
    "relabel",
    "ring",
    "sample_neighbours",
    "spectral_gap",
    "summary",
    "to_networkx",
    "to_scipy",
]
