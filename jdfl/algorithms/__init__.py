"""The algorithms, one file per paper, and the registry that names them."""

from importlib import import_module
from pkgutil import iter_modules

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.book import MODEL, TRACKER, Channel
from jdfl.algorithms.ceps import CEPS
from jdfl.algorithms.choco import CHOCO
from jdfl.algorithms.consensus import AverageConsensus
from jdfl.algorithms.cpgt import CPGT
from jdfl.algorithms.dcd import DCD
from jdfl.algorithms.decor import DECOR
from jdfl.algorithms.dfedavgm import DFedAvgM
from jdfl.algorithms.dfedsam import DFedSAM
from jdfl.algorithms.diging import DIGing
from jdfl.algorithms.directed_ceps import DirectedCEPS
from jdfl.algorithms.doadp import DOADP
from jdfl.algorithms.doadp_theorems import Theorem1
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
from jdfl.algorithms.mafalda import MAFALDA
from jdfl.algorithms.matcha import MATCHA
from jdfl.algorithms.muffliato import Muffliato
from jdfl.algorithms.nids import NIDS
from jdfl.algorithms.partpsp import PartPSP
from jdfl.algorithms.pedfl import PEDFL
from jdfl.algorithms.robust import RobustDSGD
from jdfl.algorithms.round import Round
from jdfl.algorithms.sgp import SGP
from jdfl.algorithms.updates import Updates


def _registry() -> dict[str, type]:
    """Every algorithm class in this package by its `kind`; ValueError where two share one."""
    found: dict[str, type] = {}
    for module in iter_modules(__path__):
        name = f"{__name__}.{module.name}"
        for one in vars(import_module(name)).values():
            if isinstance(one, type) and one.__module__ == name and hasattr(one, "kind") and hasattr(one, "step"):
                kind: str = getattr(one, "kind")  # noqa: B009 (a type checker's view)
                if kind in found:
                    raise ValueError(f"Expected one algorithm of kind {kind!r}, got {found[kind]} and {one}.")
                found[kind] = one
    return dict(sorted(found.items()))


REGISTRY = _registry()

__all__ = [
    "CEPS",
    "CHOCO",
    "CPGT",
    "DCD",
    "DECOR",
    "DOADP",
    "DPDDA",
    "DPDO",
    "DPPS",
    "DPSGD",
    "DSGT",
    "EXTRA",
    "IHT",
    "MAFALDA",
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
    "DIGing",
    "DirectedCEPS",
    "ExactDiffusion",
    "FedAvg",
    "Gradients",
    "LocalOnly",
    "Muffliato",
    "PartPSP",
    "RobustDSGD",
    "Round",
    "Theorem1",
    "Updates",
]
