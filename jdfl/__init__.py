"""jdfl: decentralized federated learning, all nodes at once.

result = jdfl.run(jdfl.CEPS.paper(s=10), jdfl.problems.example1(m=32), jdfl.network.erdos_renyi(32), steps=200,
stop=jdfl.consensus_below(5e-3, per=10))
"""

from jdfl import models, network, privacy, problems
from jdfl.accountant import account, account_plan, calibrate, planned_releases
from jdfl.algorithms import (
    CEPS,
    CHOCO,
    CPGT,
    DCD,
    DOADP,
    DPDDA,
    DPDO,
    DPPS,
    DPSGD,
    DSGT,
    EXTRA,
    IHT,
    MATCHA,
    NIDS,
    PEDFL,
    SGP,
    AverageConsensus,
    DFedAvgM,
    DFedSAM,
    ExactDiffusion,
    FedAvg,
    Gradients,
    LocalOnly,
    PartPSP,
    Updates,
)
from jdfl.audit import Audit, audit
from jdfl.base import Algorithm, Info, Round
from jdfl.batch import repeat, sweep
from jdfl.checkpoint import Checkpoint, read_checkpoint
from jdfl.codecs import QSGD, Dense, LowRank, OneBit, RandomK, Sign, Sparse
from jdfl.comparison import Comparison, Entry, Tuning, compare
from jdfl.privacy import Gaussian, Guarantee, Laplace, PrivacyReport, analytic_gaussian, classical_gaussian
from jdfl.result import Result, Snapshot, Totals
from jdfl.runner import run
from jdfl.stopping import all_of, consensus_below, gradient_below, objective_below

__version__ = "0.1.0"

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
    "NIDS",
    "PEDFL",
    "QSGD",
    "SGP",
    "Algorithm",
    "Audit",
    "AverageConsensus",
    "Checkpoint",
    "Comparison",
    "DFedAvgM",
    "DFedSAM",
    "Dense",
    "Entry",
    "ExactDiffusion",
    "FedAvg",
    "Gaussian",
    "Gradients",
    "Guarantee",
    "Info",
    "Laplace",
    "LocalOnly",
    "LowRank",
    "OneBit",
    "PartPSP",
    "PrivacyReport",
    "RandomK",
    "Result",
    "Round",
    "Sign",
    "Snapshot",
    "Sparse",
    "Totals",
    "Tuning",
    "Updates",
    "account",
    "account_plan",
    "all_of",
    "analytic_gaussian",
    "audit",
    "calibrate",
    "classical_gaussian",
    "compare",
    "consensus_below",
    "gradient_below",
    "models",
    "network",
    "objective_below",
    "planned_releases",
    "privacy",
    "problems",
    "read_checkpoint",
    "repeat",
    "run",
    "sweep",
]
