from . import models, network, observers, privacy, problems, robust
from .algorithms import (
    CEPS,
    CHOCO,
    CPGT,
    DCD,
    DECOR,
    DOADP,
    DPDDA,
    DPDO,
    DPPS,
    DPSGD,
    DSGT,
    EXTRA,
    IHT,
    MAFALDA,
    MATCHA,
    NIDS,
    PEDFL,
    SGP,
    Algorithm,
    AverageConsensus,
    DFedAvgM,
    DFedSAM,
    DIGing,
    DirectedCEPS,
    ExactDiffusion,
    FedAvg,
    Gradients,
    LocalOnly,
    Muffliato,
    PartPSP,
    RobustDSGD,
    Round,
    Updates,
)
from .algorithms.around import attacked, combined_by
from .algorithms.moment import Info
from .auditing import Audit, BitAudit, OneRun, audit, audit_bits, audit_one_run
from .base.keys import key_file
from .base.streams import Stream
from .codecs import QSGD, Dense, LowRank, OneBit, RandomK, Sign, Sparse
from .devices import nodes
from .engine.accountant import account, account_plan, calibrate, planned_releases, spent_together
from .engine.batch import repeat, sweep
from .engine.callbacks import Budget, Callback, Deadline
from .engine.checkpoint import Checkpoint
from .engine.checkpoints import Checkpoints
from .engine.data_ledger import DataLedger
from .engine.floors import Floor, floor
from .engine.paths import paths
from .engine.progress import Progress
from .engine.rates import Rate, linear_rate
from .engine.reading import read_checkpoint
from .engine.result import Result, Snapshot, Totals
from .engine.runner import run
from .engine.start import Options
from .engine.stopping import all_of, consensus_below, gradient_below, objective_below
from .engine.theories import Theory, theory
from .lab import results
from .lab.comparison import Comparison
from .lab.entries import Entry, Tuning
from .lab.experiment import Experiment, compare
from .lab.stored import load
from .observers import Exposure, Pairs, observe, observe_pairs
from .privacy import ExactGaussian, Gaussian, Guarantee, Laplace, PrivacyReport, analytic_gaussian, classical_gaussian
from .problems import from_arrays, from_loss, from_model

__version__: str

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
    "NIDS",
    "PEDFL",
    "QSGD",
    "SGP",
    "Algorithm",
    "Audit",
    "AverageConsensus",
    "BitAudit",
    "Budget",
    "Callback",
    "Checkpoint",
    "Checkpoints",
    "Comparison",
    "DFedAvgM",
    "DFedSAM",
    "DIGing",
    "DataLedger",
    "Deadline",
    "Dense",
    "DirectedCEPS",
    "Entry",
    "ExactDiffusion",
    "ExactGaussian",
    "Experiment",
    "Exposure",
    "FedAvg",
    "Floor",
    "Gaussian",
    "Gradients",
    "Guarantee",
    "Info",
    "Laplace",
    "LocalOnly",
    "LowRank",
    "Muffliato",
    "OneBit",
    "OneRun",
    "Options",
    "Pairs",
    "PartPSP",
    "PrivacyReport",
    "Progress",
    "RandomK",
    "Rate",
    "Result",
    "RobustDSGD",
    "Round",
    "Sign",
    "Snapshot",
    "Sparse",
    "Stream",
    "Theory",
    "Totals",
    "Tuning",
    "Updates",
    "account",
    "account_plan",
    "all_of",
    "analytic_gaussian",
    "attacked",
    "audit",
    "audit_bits",
    "audit_one_run",
    "calibrate",
    "classical_gaussian",
    "combined_by",
    "compare",
    "consensus_below",
    "floor",
    "from_arrays",
    "from_loss",
    "from_model",
    "gradient_below",
    "key_file",
    "linear_rate",
    "load",
    "models",
    "network",
    "nodes",
    "objective_below",
    "observe",
    "observe_pairs",
    "observers",
    "paths",
    "planned_releases",
    "privacy",
    "problems",
    "read_checkpoint",
    "repeat",
    "results",
    "robust",
    "run",
    "spent_together",
    "sweep",
    "theory",
]
