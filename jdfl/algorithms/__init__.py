"""The algorithms, a file for a paper or a family, and the registry that names them."""

from importlib import import_module
from pkgutil import iter_modules

from jdfl.algorithms.admm import ADMM, LTADMM, LTADMMVR
from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.atg import ATG
from jdfl.algorithms.beer import BEER, PORTER, MoTEF
from jdfl.algorithms.ceps import CEPS
from jdfl.algorithms.choco import CHOCO
from jdfl.algorithms.consensus import AverageConsensus
from jdfl.algorithms.cpgt import CPGT
from jdfl.algorithms.dadam import DADAM, DAMSGrad
from jdfl.algorithms.dadmm import DADMM, DLM, DiNNO
from jdfl.algorithms.dcd import DCD, ECD
from jdfl.algorithms.decor import DECOR
from jdfl.algorithms.deepsqueeze import DeepSqueeze
from jdfl.algorithms.destress import DESTRESS
from jdfl.algorithms.dfedavgm import DFedAvgM
from jdfl.algorithms.dfedpgp import DFedPGP
from jdfl.algorithms.dfedsam import DFedSAM
from jdfl.algorithms.diging import DIGing
from jdfl.algorithms.directed_ceps import DirectedCEPS
from jdfl.algorithms.dispfl import DisPFL
from jdfl.algorithms.doadp import DOADP, Theorem1
from jdfl.algorithms.dp_dda import DPDDA
from jdfl.algorithms.dpdo import DPDO
from jdfl.algorithms.dpps import DPPS
from jdfl.algorithms.dpsgd import DPSGD
from jdfl.algorithms.dsgt import DSGT
from jdfl.algorithms.exact_diffusion import LED, ExactDiffusion, ProxSkip
from jdfl.algorithms.extra import EXTRA, SimpleGT
from jdfl.algorithms.fedavg import FedAvg
from jdfl.algorithms.fedfomo import FedFomo
from jdfl.algorithms.gossipfl import GossipFL
from jdfl.algorithms.gradients import Gradients
from jdfl.algorithms.gut import GUT
from jdfl.algorithms.iht import IHT
from jdfl.algorithms.kgt import KGT
from jdfl.algorithms.lead import CEDAS, LEAD
from jdfl.algorithms.local_only import LocalOnly
from jdfl.algorithms.mafalda import MAFALDA
from jdfl.algorithms.matcha import MATCHA
from jdfl.algorithms.momentum_tracking import DSGTHB, MomentumTracking
from jdfl.algorithms.muffliato import Muffliato
from jdfl.algorithms.newton import NetworkDANE, NetworkGIANT, NetworkNewton
from jdfl.algorithms.ngc import NGC
from jdfl.algorithms.nids import NIDS
from jdfl.algorithms.partpsp import PartPSP
from jdfl.algorithms.personal import L2C, PENS
from jdfl.algorithms.privsgp_vr import PrivSGPVR
from jdfl.algorithms.push_pull import ADDOPT, ABm, PushDIGing, PushPull
from jdfl.algorithms.quasi_global import QGAdam, QGDSGDm
from jdfl.algorithms.relaysgd import RelaySGD
from jdfl.algorithms.robust import RobustDSGD
from jdfl.algorithms.round import MODEL, TRACKER, Channel, Round
from jdfl.algorithms.sgp import PEDFL, SGP
from jdfl.algorithms.soft_dsgd import SoftDSGD
from jdfl.algorithms.updates import Updates
from jdfl.algorithms.variance_reduced import GTSAGA, GTSARAH, GTSVRG
from jdfl.algorithms.wang_elia import WangElia
from jdfl.algorithms.zip_dl import ZipDL


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
GROUPS: dict[str, str] = {
    "sparse models, few messages": "ceps iht-d-psgd directed-ceps",
    "gradient descent, local steps, momentum": "d-psgd dfedavgm dfedsam matcha qg-dsgdm qg-adam dadam d-amsgrad "
    "relaysgd ngc local-only fedavg",
    "gradient tracking and primal-dual": "extra nids exact-diffusion dsgt diging k-gt led proxskip "
    "momentum-tracking dsgt-hb gut wang-elia simple-gt",
    "ADMM": "admm dadmm dlm dinno lt-admm lt-admm-vr atg",
    "variance reduction, second order": "gt-saga gt-svrg gt-sarah destress network-giant network-dane network-newton",
    "compressed messages": "choco-sgd dcd-psgd ecd-psgd deepsqueeze beer motef porter lead cedas soft-dsgd gossipfl",
    "directed networks": "push-pull abm push-diging add-opt sgp partpsp average-consensus",
    "private": "do-adp dp-dda dpdo cpgt pedfl privsgp-vr zip-dl muffliato decor mafalda",
    "personal models": "pens fedfomo l2c dfedpgp dispfl",
    "robust to nodes that lie": "robust-d-psgd",
}
"""The methods by what they are made for: groups, and the kinds of each. Others stand by themselves."""

__all__ = [
    "ADDOPT",
    "ADMM",
    "ATG",
    "BEER",
    "CEDAS",
    "CEPS",
    "CHOCO",
    "CPGT",
    "DADAM",
    "DADMM",
    "DCD",
    "DECOR",
    "DESTRESS",
    "DLM",
    "DOADP",
    "DPDDA",
    "DPDO",
    "DPPS",
    "DPSGD",
    "DSGT",
    "DSGTHB",
    "ECD",
    "EXTRA",
    "GTSAGA",
    "GTSARAH",
    "GTSVRG",
    "GUT",
    "IHT",
    "KGT",
    "L2C",
    "LEAD",
    "LED",
    "LTADMM",
    "LTADMMVR",
    "MAFALDA",
    "MATCHA",
    "MODEL",
    "NGC",
    "NIDS",
    "PEDFL",
    "PENS",
    "PORTER",
    "REGISTRY",
    "SGP",
    "TRACKER",
    "ABm",
    "Algorithm",
    "AverageConsensus",
    "Channel",
    "DAMSGrad",
    "DFedAvgM",
    "DFedPGP",
    "DFedSAM",
    "DIGing",
    "DeepSqueeze",
    "DiNNO",
    "DirectedCEPS",
    "DisPFL",
    "ExactDiffusion",
    "FedAvg",
    "FedFomo",
    "GossipFL",
    "Gradients",
    "LocalOnly",
    "MoTEF",
    "MomentumTracking",
    "Muffliato",
    "NetworkDANE",
    "NetworkGIANT",
    "NetworkNewton",
    "PartPSP",
    "PrivSGPVR",
    "ProxSkip",
    "PushDIGing",
    "PushPull",
    "QGAdam",
    "QGDSGDm",
    "RelaySGD",
    "RobustDSGD",
    "Round",
    "SimpleGT",
    "SoftDSGD",
    "Theorem1",
    "Updates",
    "WangElia",
    "ZipDL",
]
