"""Networks: who hears whom in a round, with which weights, and the sums over it."""

from jdfl.network.absence import (
    Membership,
    NodeParticipation,
    Outages,
    membership,
    node_participation,
    outages,
)
from jdfl.network.arcs import refuse_synchronised
from jdfl.network.contraction import check_weights
from jdfl.network.delays import Delays, Mail, Past, delays, known
from jdfl.network.families import circulant, complete, d_out, exponential, ring, star, torus
from jdfl.network.faults import BurstyLoss, LinkLoss, bursty_loss, link_loss
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
    Late,
    Network,
    Static,
    Timing,
    as_bcoo,
    as_dense,
    mix,
    sample_neighbours,
)
from jdfl.network.laplacian import laplacian
from jdfl.network.links import Missing
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
from jdfl.network.timing import ExponentialTime, FixedTime, LogNormalTime, ParetoTime, Timed, Times, advanced, timed
from jdfl.network.weights import FormatChoice, Weights, from_edges, from_networkx, from_scipy, to_networkx
from jdfl.network.wrapping import in_run

__all__ = [
    "Buckets",
    "BurstyLoss",
    "Delays",
    "ExponentialTime",
    "FixedTime",
    "Format",
    "FormatChoice",
    "Graph",
    "Hops",
    "Late",
    "LinkLoss",
    "LogNormalTime",
    "Mail",
    "Matchings",
    "Membership",
    "Missing",
    "NeighbourWeights",
    "Network",
    "NodeParticipation",
    "Outages",
    "ParetoTime",
    "PartialCommunication",
    "Past",
    "Periodic",
    "RandomChoice",
    "RandomLinks",
    "RandomMatching",
    "RandomNeighbours",
    "Schedule",
    "Static",
    "Summary",
    "Synchronised",
    "Timed",
    "Times",
    "Timing",
    "Weights",
    "advanced",
    "as_bcoo",
    "as_dense",
    "barabasi_albert",
    "bucketed",
    "bursty_loss",
    "check_graph",
    "check_weights",
    "circulant",
    "complete",
    "d_out",
    "delays",
    "erdos_renyi",
    "erdos_renyi_rounds",
    "exponential",
    "from_edges",
    "from_networkx",
    "from_scipy",
    "gather_sum",
    "in_run",
    "k_in",
    "k_regular",
    "known",
    "laplacian",
    "link_loss",
    "matcha",
    "matchings",
    "matrices",
    "membership",
    "mix",
    "node_participation",
    "one_peer_exponential",
    "outages",
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
    "timed",
    "to_networkx",
    "to_scipy",
    "torus",
    "watts_strogatz",
]
