"""The algorithms, a file for a paper or a family, and the registry that names them."""

from importlib import import_module
from pkgutil import iter_modules

from jdfl.algorithms.admm import ADMM as ADMM
from jdfl.algorithms.admm import LTADMM as LTADMM
from jdfl.algorithms.admm import LTADMMVR as LTADMMVR
from jdfl.algorithms.algorithm import Algorithm as Algorithm
from jdfl.algorithms.atg import ATG as ATG
from jdfl.algorithms.beer import BEER as BEER
from jdfl.algorithms.beer import PORTER as PORTER
from jdfl.algorithms.beer import MoTEF as MoTEF
from jdfl.algorithms.ceps import CEPS as CEPS
from jdfl.algorithms.choco import CHOCO as CHOCO
from jdfl.algorithms.consensus import AverageConsensus as AverageConsensus
from jdfl.algorithms.cpgt import CPGT as CPGT
from jdfl.algorithms.dadam import DADAM as DADAM
from jdfl.algorithms.dadam import DAMSGrad as DAMSGrad
from jdfl.algorithms.dadmm import DADMM as DADMM
from jdfl.algorithms.dadmm import DLM as DLM
from jdfl.algorithms.dadmm import DiNNO as DiNNO
from jdfl.algorithms.dcd import DCD as DCD
from jdfl.algorithms.dcd import ECD as ECD
from jdfl.algorithms.decor import DECOR as DECOR
from jdfl.algorithms.deepsqueeze import DeepSqueeze as DeepSqueeze
from jdfl.algorithms.destress import DESTRESS as DESTRESS
from jdfl.algorithms.dfedavgm import DFedAvgM as DFedAvgM
from jdfl.algorithms.dfedpgp import DFedPGP as DFedPGP
from jdfl.algorithms.dfedsam import DFedSAM as DFedSAM
from jdfl.algorithms.diging import DIGing as DIGing
from jdfl.algorithms.directed_ceps import DirectedCEPS as DirectedCEPS
from jdfl.algorithms.dispfl import DisPFL as DisPFL
from jdfl.algorithms.doadp import DOADP as DOADP
from jdfl.algorithms.doadp import Theorem1 as Theorem1
from jdfl.algorithms.dp_dda import DPDDA as DPDDA
from jdfl.algorithms.dpdo import DPDO as DPDO
from jdfl.algorithms.dpps import DPPS as DPPS
from jdfl.algorithms.dpsgd import DPSGD as DPSGD
from jdfl.algorithms.dsgt import DSGT as DSGT
from jdfl.algorithms.exact_diffusion import LED as LED
from jdfl.algorithms.exact_diffusion import ExactDiffusion as ExactDiffusion
from jdfl.algorithms.exact_diffusion import ProxSkip as ProxSkip
from jdfl.algorithms.extra import EXTRA as EXTRA
from jdfl.algorithms.extra import SimpleGT as SimpleGT
from jdfl.algorithms.fedavg import FedAvg as FedAvg
from jdfl.algorithms.fedfomo import FedFomo as FedFomo
from jdfl.algorithms.gossipfl import GossipFL as GossipFL
from jdfl.algorithms.gradients import Gradients as Gradients
from jdfl.algorithms.gut import GUT as GUT
from jdfl.algorithms.iht import IHT as IHT
from jdfl.algorithms.kgt import KGT as KGT
from jdfl.algorithms.lead import CEDAS as CEDAS
from jdfl.algorithms.lead import LEAD as LEAD
from jdfl.algorithms.local_only import LocalOnly as LocalOnly
from jdfl.algorithms.mafalda import MAFALDA as MAFALDA
from jdfl.algorithms.matcha import MATCHA as MATCHA
from jdfl.algorithms.momentum_tracking import DSGTHB as DSGTHB
from jdfl.algorithms.momentum_tracking import MomentumTracking as MomentumTracking
from jdfl.algorithms.muffliato import Muffliato as Muffliato
from jdfl.algorithms.newton import NetworkDANE as NetworkDANE
from jdfl.algorithms.newton import NetworkGIANT as NetworkGIANT
from jdfl.algorithms.newton import NetworkNewton as NetworkNewton
from jdfl.algorithms.ngc import NGC as NGC
from jdfl.algorithms.nids import NIDS as NIDS
from jdfl.algorithms.partpsp import PartPSP as PartPSP
from jdfl.algorithms.personal import L2C as L2C
from jdfl.algorithms.personal import PENS as PENS
from jdfl.algorithms.privsgp_vr import PrivSGPVR as PrivSGPVR
from jdfl.algorithms.push_pull import ADDOPT as ADDOPT
from jdfl.algorithms.push_pull import ABm as ABm
from jdfl.algorithms.push_pull import PushDIGing as PushDIGing
from jdfl.algorithms.push_pull import PushPull as PushPull
from jdfl.algorithms.quasi_global import QGAdam as QGAdam
from jdfl.algorithms.quasi_global import QGDSGDm as QGDSGDm
from jdfl.algorithms.relaysgd import RelaySGD as RelaySGD
from jdfl.algorithms.robust import RobustDSGD as RobustDSGD
from jdfl.algorithms.round import MODEL as MODEL
from jdfl.algorithms.round import TRACKER as TRACKER
from jdfl.algorithms.round import Channel as Channel
from jdfl.algorithms.round import Round as Round
from jdfl.algorithms.sgp import PEDFL as PEDFL
from jdfl.algorithms.sgp import SGP as SGP
from jdfl.algorithms.soft_dsgd import SoftDSGD as SoftDSGD
from jdfl.algorithms.updates import Updates as Updates
from jdfl.algorithms.variance_reduced import GTSAGA as GTSAGA
from jdfl.algorithms.variance_reduced import GTSARAH as GTSARAH
from jdfl.algorithms.variance_reduced import GTSVRG as GTSVRG
from jdfl.algorithms.wang_elia import WangElia as WangElia
from jdfl.algorithms.zip_dl import ZipDL as ZipDL


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
