"""Networks: who hears whom in a round, with which weights, and the sums over it."""

from jdfl.network.arcs import refuse_synchronised
from jdfl.network.families import circulant, complete, d_out, exponential, ring, star, torus
from jdfl.network.faults import LinkLoss, Missing, NodeParticipation, link_loss, node_participation
from jdfl.network.gossip import (
    NeighbourWeights,
    RandomMatching,
    RandomNeighbours,
    random_matching,
    random_neighbours,
)
from jdfl.network.graph import (
    Format,
    Graph,
    Network,
    Static,
    as_bcoo,
    as_dense,
    mix,
    sample_neighbours,
)
from jdfl.network.laplacian import laplacian
from jdfl.network.matcha import Matchings, Schedule, matcha, matchings
from jdfl.network.partial import PartialCommunication, partial_communication
from jdfl.network.period import matrices, period_of
from jdfl.network.random_families import (
    barabasi_albert,
    erdos_renyi,
    k_in,
    k_regular,
    random_geometric,
    watts_strogatz,
)
from jdfl.network.requirements import require
from jdfl.network.sequences import (
    Hops,
    Periodic,
    RandomChoice,
    RandomLinks,
    erdos_renyi_rounds,
    one_peer_exponential,
    periodic,
    random_choice,
    random_links,
)
from jdfl.network.spectral import Summary, spectral_gap, summary
from jdfl.network.sums import Buckets, gather_sum
from jdfl.network.synchronised import Synchronised, synchronised
from jdfl.network.tables import bucketed, check_graph, pad, relabel, to_scipy
from jdfl.network.weights import FormatChoice, Weights, from_edges, from_networkx, from_scipy, to_networkx

__all__ = [
    "Buckets",
    "Format",
    "FormatChoice",
    "Graph",
    "Hops",
    "LinkLoss",
    "Matchings",
    "Missing",
    "NeighbourWeights",
    "Network",
    "NodeParticipation",
    "PartialCommunication",
    "Periodic",
    "RandomChoice",
    "RandomLinks",
    "RandomMatching",
    "RandomNeighbours",
    "Schedule",
    "Static",
    "Summary",
    "Synchronised",
    "Weights",
    "as_bcoo",
    "as_dense",
    "barabasi_albert",
    "bucketed",
    "check_graph",
    "circulant",
    "complete",
    "d_out",
    "erdos_renyi",
    "erdos_renyi_rounds",
    "exponential",
    "from_edges",
    "from_networkx",
    "from_scipy",
    "gather_sum",
    "k_in",
    "k_regular",
    "laplacian",
    "link_loss",
    "matcha",
    "matchings",
    "matrices",
    "mix",
    "node_participation",
    "one_peer_exponential",
    "pad",
    "partial_communication",
    "period_of",
    "periodic",
    "random_choice",
    "random_geometric",
    "random_links",
    "random_matching",
    "random_neighbours",
    "refuse_synchronised",
    "relabel",
    "require",
    "ring",
    "sample_neighbours",
    "spectral_gap",
    "star",
    "summary",
    "synchronised",
    "to_networkx",
    "to_scipy",
    "torus",
    "watts_strogatz",
]
