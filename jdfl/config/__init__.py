"""A whole run as one frozen value: what the command line sets, what YAML stores, and what `build` turns into objects.

Every class mirrors the arguments of the function or class of the library that its own `build` calls, and takes its
defaults from there. Arrays (one period per node, say) are for Python only. A new member of a family is one class here
and one name in the annotation of the field that may hold it.
"""

from dataclasses import dataclass, replace
from typing import Any

from jdfl import accountant, runner
from jdfl.base import Algorithm
from jdfl.config import yaml_text
from jdfl.config.algorithm import CEPS, CEPSPaper, Gaussian, Laplace
from jdfl.config.codec import QSGD, Codecs, Dense, LowRank, OneBit, RandomK, Sign, Sparse
from jdfl.config.defaults import defaults
from jdfl.config.family import (
    CHOCO,
    DCD,
    DPSGD,
    DSGT,
    EXTRA,
    IHT,
    MATCHA,
    NIDS,
    DFedAvgM,
    DFedSAM,
    ExactDiffusion,
    Family,
    FedAvg,
    LocalOnly,
    Updates,
)
from jdfl.config.network import (
    BarabasiAlbert,
    Circulant,
    Complete,
    EdgeListFile,
    ErdosRenyi,
    Exponential,
    KIn,
    KRegular,
    RandomGeometric,
    Ring,
    Star,
    Torus,
    WattsStrogatz,
)
from jdfl.config.privacy import Privacy
from jdfl.config.problem import Classification, Example1
from jdfl.config.sequences import (
    Changing,
    ErdosRenyiRounds,
    Fixed,
    Matcha,
    OnePeerExponential,
    Periodic,
    RandomChoice,
    RandomLinks,
    RandomMatching,
    RandomNeighbours,
)
from jdfl.config.stop import AutoStop, ConsensusStop, GradientStop, ObjectiveStop
from jdfl.config.wrappers import LinkLoss, NodeParticipation, PartialCommunication, Wrapped
from jdfl.config.yaml_text import members
from jdfl.network import Network
from jdfl.problems import Problem
from jdfl.stopping import StopRule

__all__ = [
    "CEPS",
    "CHOCO",
    "DCD",
    "DPSGD",
    "DSGT",
    "EXTRA",
    "IHT",
    "MATCHA",
    "NIDS",
    "QSGD",
    "AutoStop",
    "BarabasiAlbert",
    "CEPSPaper",
    "Circulant",
    "Classification",
    "Codecs",
    "Complete",
    "ConsensusStop",
    "DFedAvgM",
    "DFedSAM",
    "Dense",
    "EdgeListFile",
    "ErdosRenyi",
    "ErdosRenyiRounds",
    "ExactDiffusion",
    "Example1",
    "Exponential",
    "FedAvg",
    "Gaussian",
    "GradientStop",
    "KIn",
    "KRegular",
    "Laplace",
    "LinkLoss",
    "LocalOnly",
    "LowRank",
    "Matcha",
    "NodeParticipation",
    "ObjectiveStop",
    "OneBit",
    "OnePeerExponential",
    "PartialCommunication",
    "Periodic",
    "Privacy",
    "RandomChoice",
    "RandomGeometric",
    "RandomK",
    "RandomLinks",
    "RandomMatching",
    "RandomNeighbours",
    "Ring",
    "RunConfig",
    "Sign",
    "Sparse",
    "Star",
    "Torus",
    "Updates",
    "WattsStrogatz",
    "build",
    "from_yaml",
    "members",
    "settled",
    "to_yaml",
]

_run = defaults(runner.run)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a run."""

    problem: Example1 | Classification = Example1()  # noqa: RUF009 (frozen)
    """What the nodes learn."""
    network: Fixed | Changing | Wrapped = ErdosRenyi()  # noqa: RUF009 (frozen)
    """Who hears whom."""
    algorithm: CEPS | CEPSPaper | Family = CEPS()  # noqa: RUF009 (frozen)
    """What the nodes do in a round."""
    stop: AutoStop | ConsensusStop | ObjectiveStop | GradientStop | None = AutoStop()  # noqa: RUF009 (frozen)
    """When the run ends before its last round."""
    privacy: Privacy = Privacy()  # noqa: RUF009 (frozen)
    """What may be spent, and how it is reported."""
    steps: int = 200
    """Most rounds."""
    every: int = _run.every
    """Rounds between two records of the metrics."""
    seed: int = _run.key
    """Seed of the algorithm's randomness (problem and network have their own)."""
    metrics: tuple[str, ...] = ()
    """Names of the metrics to record; empty: all that the problem can give."""
    chunk: int = _run.chunk
    """Rounds between two returns from the device; decides how often progress is shown, never the results."""


def to_yaml(config: RunConfig) -> str:
    """The configuration as YAML that `from_yaml` reads back to an equal value."""
    return yaml_text.dump(config)


def from_yaml(text: str) -> RunConfig:
    """The configuration behind YAML; keys that are not there take their defaults.

    ValueError for an unknown key, an unknown kind, a value of the wrong type or a key given twice, naming it.
    """
    return yaml_text.load(RunConfig, text)


def build(config: RunConfig) -> tuple[Algorithm, Problem, Network, StopRule | None]:
    """The objects that `jdfl.run` takes; the network has as many nodes as the problem.

    ValueError for values that make no sense, FileNotFoundError for files that are not there.
    """
    problem = config.problem.build()
    algorithm, network = config.algorithm.build(), config.network.build(problem.m)
    if _unknown_noise(config.algorithm):
        spend = config.privacy
        if spend.epsilon is None:
            raise ValueError(
                "Expected a multiplier of the noise, got none. Give the mechanism's multiplier, or privacy.epsilon, to "
                "which it is then calibrated."
            )
        algorithm = accountant.calibrate(
            algorithm, problem, network, steps=config.steps, key=config.seed, epsilon=spend.epsilon, delta=spend.delta
        )
    stop = None if config.stop is None else config.stop.build(algorithm)
    return algorithm, problem, network, stop


def settled(config: RunConfig, algorithm: Algorithm) -> RunConfig:
    """The configuration with the multiplier of the noise that `build` found where it has none."""
    if not _unknown_noise(config.algorithm):
        return config
    path = accountant.noise_place(algorithm).removeprefix("gradients.").split(".")
    mechanism: Any = algorithm
    for name in accountant.noise_place(algorithm).split("."):
        mechanism = getattr(mechanism, name)
    place: Any = config.algorithm if len(path) == 1 else getattr(config.algorithm, path[0])
    found = replace(place, mechanism=replace(place.mechanism, multiplier=float(mechanism.multiplier)))
    return replace(config, algorithm=found if len(path) == 1 else replace(config.algorithm, **{path[0]: found}))


def _unknown_noise(config: object) -> bool:
    """Whether a mechanism is without its multiplier."""
    mechanisms = (getattr(config, "mechanism", None), getattr(getattr(config, "updates", None), "mechanism", None))
    return any(one is not None and one.multiplier is None for one in mechanisms)
