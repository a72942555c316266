"""Privacy accounting: noise mechanisms, clipping, guarantees, and the composition of releases."""

from jdfl.privacy.accounting import (
    Sampled,
    epsilon,
    epsilon_pure,
    epsilon_rdp,
    epsilons,
    most_releases,
    noise_multiplier,
)
from jdfl.privacy.analytic import (
    analytic_gaussian,
    central_multiplier,
    classical_gaussian,
    gaussian_delta,
    gaussian_epsilon,
)
from jdfl.privacy.clipping import Clip, clipped, factor, stretch
from jdfl.privacy.exact import ExactGaussian
from jdfl.privacy.guarantee import DERIVED, NO_NOISE, NOTHING_SENT, Guarantee, Published, Sampling, exposing
from jdfl.privacy.ledger import Ledger
from jdfl.privacy.mechanisms import (
    Event,
    Gaussian,
    GaussianEvent,
    GaussianSchedule,
    Laplace,
    LaplaceEvent,
    LaplaceSchedule,
    Mechanism,
    Norm,
    check_mechanism,
)
from jdfl.privacy.report import Accounting, PrivacyReport, report

__all__ = [
    "DERIVED",
    "NOTHING_SENT",
    "NO_NOISE",
    "Accounting",
    "Clip",
    "Event",
    "ExactGaussian",
    "Gaussian",
    "GaussianEvent",
    "GaussianSchedule",
    "Guarantee",
    "Laplace",
    "LaplaceEvent",
    "LaplaceSchedule",
    "Ledger",
    "Mechanism",
    "Norm",
    "PrivacyReport",
    "Published",
    "Sampled",
    "Sampling",
    "analytic_gaussian",
    "central_multiplier",
    "check_mechanism",
    "classical_gaussian",
    "clipped",
    "epsilon",
    "epsilon_pure",
    "epsilon_rdp",
    "epsilons",
    "exposing",
    "factor",
    "gaussian_delta",
    "gaussian_epsilon",
    "most_releases",
    "noise_multiplier",
    "report",
    "stretch",
]
