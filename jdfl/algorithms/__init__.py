"""The algorithms, one paper in one file, and the table of them."""

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import Channel
from jdfl.algorithms.ceps import CEPS
from jdfl.algorithms.choco import CHOCO
from jdfl.algorithms.consensus import AverageConsensus
from jdfl.algorithms.cpgt import CPGT
from jdfl.algorithms.dcd import DCD
from jdfl.algorithms.dfedavgm import DFedAvgM
from jdfl.algorithms.dfedsam import DFedSAM
from jdfl.algorithms.doadp import DOADP
from jdfl.algorithms.dp_dda import DPDDA
from jdfl.algorithms.dpdo import DPDO
from jdfl.algorithms.dpps import DPPS
from jdfl.algorithms.dpsgd import DPSGD
from jdfl.algorithms.dsgt import DSGT
from jdfl.algorithms.exact_diffusion import ExactDiffusion
from jdfl.algorithms.extra import EXTRA
from jdfl.algorithms.fedavg import FedAvg
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.iht import IHT
from jdfl.algorithms.local_only import LocalOnly
from jdfl.algorithms.matcha import MATCHA
from jdfl.algorithms.nids import NIDS
from jdfl.algorithms.partpsp import PartPSP
from jdfl.algorithms.pedfl import PEDFL
from jdfl.algorithms.round import MODEL, TRACKER, Round
from jdfl.algorithms.sgp import SGP
from jdfl.algorithms.theorem1 import Theorem1
from jdfl.algorithms.updates import Updates

REGISTRY = {
    "average-consensus": AverageConsensus,
    "ceps": CEPS,
    "choco-sgd": CHOCO,
    "cpgt": CPGT,
    "d-psgd": DPSGD,
    "dcd-psgd": DCD,
    "dfedavgm": DFedAvgM,
    "dfedsam": DFedSAM,
    "do-adp": DOADP,
    "dp-dda": DPDDA,
    "dpdo": DPDO,
    "dsgt": DSGT,
    "exact-diffusion": ExactDiffusion,
    "extra": EXTRA,
    "fedavg": FedAvg,
    "iht-d-psgd": IHT,
    "local-only": LocalOnly,
    "matcha": MATCHA,
    "nids": NIDS,
    "partpsp": PartPSP,
    "pedfl": PEDFL,
    "sgp": SGP,
}

__all__ = [
    "CEPS",
    "CHOCO",
    "CPGT",
    "DCD",
    "DOADP",
    "DPDDA",
    "DPDO",
    "DPPS",
    "DPSGD",
    "DSGT",
    "EXTRA",
    "IHT",
    "MATCHA",
    "MODEL",
    "NIDS",
    "PEDFL",
    "REGISTRY",
    "SGP",
    "TRACKER",
    "Algorithm",
    "AverageConsensus",
    "Channel",
    "DFedAvgM",
    "DFedSAM",
    "ExactDiffusion",
    "FedAvg",
    "Gradients",
    "LocalOnly",
    "PartPSP",
    "Round",
    "Theorem1",
    "Updates",
]
