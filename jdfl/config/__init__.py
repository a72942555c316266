"""A whole run as one frozen value: what the command line sets, what YAML stores, and what `build` turns into objects.

What a setting may hold, its default and its documentation are those of the library's class or function, from which
`jdfl.config.kinds` derives the kinds; `jdfl.config.families` lists them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Annotated, Any, Literal

import jax
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.base.keys import key_in
from jdfl.base.settings import defaults
from jdfl.config import yaml_text
from jdfl.config.families import (
    ALGORITHMS,
    CODECS,
    MECHANISMS,
    NETWORKS,
    PROBLEMS,
    STOPS,
    TIMES,
    UPDATES,
)
from jdfl.config.kinds import Family, Kind, members
from jdfl.engine import accountant, runner
from jdfl.engine.booking import intents
from jdfl.engine.callbacks import Budget
from jdfl.engine.data_ledger import DataLedger, Intent
from jdfl.engine.spending import release_limits
from jdfl.engine.stopping import StopRule
from jdfl.network import Network
from jdfl.problems import Problem

__all__ = [
    "ALGORITHMS",
    "CODECS",
    "MECHANISMS",
    "NETWORKS",
    "PROBLEMS",
    "STOPS",
    "TIMES",
    "UPDATES",
    "Family",
    "Kind",
    "Privacy",
    "RunConfig",
    "budget_of",
    "build",
    "from_yaml",
    "intended",
    "key_of",
    "ledger_of",
    "members",
    "noise_for_now",
    "settled",
    "to_yaml",
]

_run = defaults(runner.run)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Budget and accounting."""

    epsilon: float | None = None
    """What all rounds together may spend: noise without a multiplier gets the least that does, and a run with a given
    multiplier ends before it would spend more. None: no budget. With accounting paper it decides the noise alone, by
    the paper's formula, and ends no run."""
    delta: float | None = None
    """The chance that the guarantee fails; none: the largest power of ten up to 1e-5 below a tenth of 1 / records."""
    accounting: Literal["sound", "paper"] = "sound"
    """sound: only what is enforced; paper: also what is merely assumed, labelled as no guarantee."""
    ledger: str | None = None
    """The file of the data's ledger, which all runs on the data join: it refuses what could exceed its budget. Made by
    jdfl account --new-ledger; none: there is none."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a run."""

    problem: Annotated[Kind, PROBLEMS] = PROBLEMS()  # noqa: RUF009 (frozen)
    """What the nodes learn."""
    network: Annotated[Kind, NETWORKS] = NETWORKS()  # noqa: RUF009 (frozen)
    """Who hears whom."""
    algorithm: Annotated[Kind, ALGORITHMS] = ALGORITHMS()  # noqa: RUF009 (frozen)
    """What the nodes do in a round."""
    stop: Annotated[Kind | None, STOPS] = STOPS()  # noqa: RUF009 (frozen)
    """When the run ends before its last round."""
    privacy: Privacy = Privacy()
    """What may be spent, and how it is reported."""
    steps: int = 200
    """Most rounds."""
    every: int = _run.every
    """Rounds between two records of the metrics."""
    seed: int = _run.key
    """Seed of the algorithm's randomness (problem and network have their own)."""
    key_file: str | None = None
    """File of a secret key that the seed is taken together with, made where it is not there: a seed alone can be found
    by trying all. Results do not hold the key; resuming needs the file."""
    metrics: tuple[str, ...] = ()
    """Names of the metrics to record; empty: all that the problem can give."""
    chunk: int | None = None
    """Rounds between two returns from the device, which decide how often progress is shown and nodes are looked at,
    never the results; none: about a sixtieth of all, 50 at most."""
    diverged_above: float | None = None
    """End the run when a parameter is larger than this; numbers that are not finite always end it."""


def to_yaml(config: RunConfig) -> str:
    """The configuration as YAML that `from_yaml` reads back to an equal value."""
    return yaml_text.dump(config)


def from_yaml(text: str) -> RunConfig:
    """The configuration behind YAML; keys that are not there take their defaults.

    ValueError for an unknown key, an unknown kind, a value of the wrong type or a key given twice, naming it.
    """
    return yaml_text.load(RunConfig, text)


def key_of(config: RunConfig, seed: int | None = None) -> int | Array:
    """The key of a run, of the configuration's seed or another one, and of its key file, which has to be there."""
    seed = config.seed if seed is None else seed
    return seed if config.key_file is None else jax.random.fold_in(key_in(config.key_file), seed)


def build(config: RunConfig) -> tuple[Algorithm, Problem, Network, StopRule | None]:
    """The objects that `jdfl.run` takes; the network has as many nodes as the problem.

    ValueError for values that make no sense, FileNotFoundError for files that are not there.
    """
    problem = config.problem.build()
    network, algorithm, spend = config.network.build(m=problem.m), config.algorithm, config.privacy
    target = spend.epsilon if _unknown_noise(algorithm) else None
    built = (algorithm if target is None else noise_for_now(algorithm)).build()
    stop = None if config.stop is None else config.stop.build(algorithm=built)
    if target is not None:
        built = accountant.calibrate(
            built,
            problem,
            network,
            steps=config.steps,
            key=key_of(config),
            epsilon=target,
            delta=spend.delta,
            accounting=spend.accounting,
            stop=stop,
        )
    elif spend.accounting == "paper" and spend.epsilon is not None and not hasattr(built, "published_multiplier"):
        raise ValueError(
            f"Expected no privacy.epsilon beside accounting = 'paper' and {type(built).__name__}, whose noise no "
            f"formula of a paper finds from it, got privacy.epsilon = {spend.epsilon:g}. It would decide nothing: drop "
            "it, or take accounting = 'sound', where it is a budget."
        )
    return built, problem, network, stop


def settled(config: RunConfig, algorithm: Algorithm) -> RunConfig:
    """The configuration with the multiplier of the noise that `build` found where it has none.

    Args:
        config: The configuration; one whose noise has a multiplier, or that has no noise, stays as it is.
        algorithm: The algorithm that `build` has made of it.
    """
    unknown = _unknown_noise(config.algorithm)
    if not unknown:
        return config
    found = attrgetter(f"{accountant.noise_place(algorithm)}.multiplier")(algorithm)
    return replace(config, algorithm=_with_noise(config.algorithm, unknown[0], float(found)))


def budget_of(config: RunConfig) -> list[Budget]:
    """What may end a run of the configuration because of its privacy; an epsilon of a paper's accounting is none."""
    spend = config.privacy
    return [] if spend.accounting == "paper" or spend.epsilon is None else [Budget(spend.epsilon, spend.delta)]


def ledger_of(config: RunConfig) -> DataLedger | None:
    """The ledger that runs of the configuration join; None where they join none."""
    return None if config.privacy.ledger is None else DataLedger(config.privacy.ledger)


def intended(
    config: RunConfig, built: tuple[Algorithm, Problem, Network, StopRule | None], seeds: Sequence[int], *others: Any
) -> list[Intent]:
    """The runs of a configuration before they begin, for a ledger.

    Args:
        config: The configuration.
        built: What `build` has made of it.
        seeds: Those of the runs, taken together with the configuration's key file.
        others: What else may end them, or change their floats, as `execution` of `jdfl.engine.booking.intents`.
    """
    algorithm, problem, network, stop = built
    program = planned(algorithm, problem, network, config.steps)
    most = None
    for one in budget_of(config):
        most = release_limits(program, problem, stop, epsilon=float(one.epsilon), delta=one.delta)
    keys = [key_of(config, seed) for seed in seeds]
    return intents(program, *built[1:], keys=keys, steps=config.steps, most=most, execution=others)


def noise_for_now(algorithm: Any) -> Any:
    """An algorithm's settings with some multiplier where there is none; it is to be replaced by calibration."""
    for path in _unknown_noise(algorithm):
        algorithm = _with_noise(algorithm, path, 1.0)
    return algorithm


def _unknown_noise(config: Any) -> list[str]:
    """The dotted paths of an algorithm's mechanisms that are without their multiplier."""
    places = {"mechanism": config, "updates.mechanism": getattr(config, "updates", None)}
    mechanisms = {path: getattr(place, "mechanism", None) for path, place in places.items()}
    return [path for path, one in mechanisms.items() if one is not None and one.multiplier is None]


def _with_noise(config: Any, path: str, multiplier: float) -> Any:
    """The configuration with the multiplier of the mechanism at a dotted path."""
    name, _, rest = path.partition(".")
    inner = getattr(config, name)
    new = _with_noise(inner, rest, multiplier) if rest else replace(inner, multiplier=multiplier)
    return replace(config, **{name: new})
