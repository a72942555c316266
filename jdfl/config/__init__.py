"""A whole run as one frozen value, which the command line sets, YAML stores, and `build` turns into objects.

The range of a setting, its default and its documentation come from the library's class or function, from which
`jdfl.config.kinds` derives the kinds; `jdfl.config.families` lists them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Annotated, Any, Literal

import jax
from jax import Array
from typing_extensions import TypeVar

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.base.keys import key_in
from jdfl.base.run_keys import RunKey
from jdfl.base.settings import defaults
from jdfl.config import yaml_text
from jdfl.config.families import ALGORITHMS, NETWORKS, PROBLEMS, STOPS
from jdfl.config.kinds import Kind
from jdfl.engine import accountant, runner
from jdfl.engine.booking import intents
from jdfl.engine.callbacks import Budget
from jdfl.engine.data_ledger import DataLedger, Intent
from jdfl.engine.spending import release_limits
from jdfl.engine.stepping import paired
from jdfl.engine.stopping import StopRule
from jdfl.network import Network
from jdfl.problems import Problem

Config = TypeVar("Config", default="RunConfig")
_run = defaults(runner.run)


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Budget and accounting."""

    epsilon: float | None = None
    """Epsilon that all rounds together may spend. Noise without a multiplier gets the smallest one that suffices, and a
    run with a given multiplier ends before it would spend more. None: no budget. With accounting paper, epsilon only
    decides the noise, by the paper's formula, and ends no run."""
    delta: float | None = None
    """Probability with which the guarantee may fail; none: the largest power of ten up to 1e-5 below 0.1 divided by the
    number of records."""
    accounting: Literal["sound", "paper"] = "sound"
    """How privacy is accounted: sound relies only on what is enforced, paper also on assumptions, and is labelled as no
    guarantee."""
    ledger: str | None = None
    """File of the data's ledger. All runs on the data join it, and it refuses a run that could exceed its budget. It is
    made by jdfl account --new-ledger; none: no ledger."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides a run."""

    problem: Annotated[Kind, PROBLEMS] = PROBLEMS()  # noqa: RUF009 (frozen)
    """Problem that the nodes learn."""
    network: Annotated[Kind, NETWORKS] = NETWORKS()  # noqa: RUF009 (frozen)
    """Communication network."""
    algorithm: Annotated[Kind, ALGORITHMS] = ALGORITHMS()  # noqa: RUF009 (frozen)
    """Algorithm that the nodes run."""
    stop: Annotated[Kind | None, STOPS] = STOPS()  # noqa: RUF009 (frozen)
    """Rule that ends the run early."""
    privacy: Privacy = Privacy()
    """Privacy budget and how it is reported."""
    steps: int = 200
    """Maximum number of rounds."""
    every: int = _run.every
    """Number of rounds between two records of the metrics."""
    seed: int | None = _run.key
    """Seed of the algorithm's randomness, from which all noise follows: another run with it shares its noise, and they
    have no joint epsilon. None: seed 0, but the noise of a private run comes from the operating system, and its key is
    recorded in the run's folder. Problem and network have their own seeds."""
    key_file: str | None = None
    """File with a secret key that is combined with the seed. It is created if it does not exist. A seed alone can be
    found by trying all seeds. Results do not contain the key; resuming needs the file."""
    metrics: tuple[str, ...] = ()
    """Metrics to record; empty: all that the problem defines."""
    chunk: int | None = None
    """Number of rounds between two returns from the device. It decides how often progress is shown and nodes are
    watched, and never changes the results. None: about a sixtieth of all rounds, and at most 50."""
    diverged_above: float | None = None
    """End the run when a parameter exceeds this. Numbers that are not finite always end it."""


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """Everything that decides a study."""

    over: tuple[str, ...] = ()
    """Values to try: setting=value,value,... or, with --random, setting=uniform:LOW:HIGH, or log, or int."""
    random: int | None = None
    """Number of points to draw at random; none: all combinations of the values."""
    draw: int = 0
    """Seed of these points."""
    seeds: int = 1
    """Number of runs of every point, with the seeds `seed`, `seed` + 1, ..."""
    base: RunConfig = RunConfig()
    """All other settings."""


def to_yaml(config: Any) -> str:
    """The configuration as YAML that `from_yaml` reads back to an equal value."""
    return yaml_text.dump(config)


def from_yaml(text: str, kind: type[Config] = RunConfig) -> Config:
    """The configuration in a YAML text; missing keys take their defaults.

    ValueError for an unknown key, an unknown kind, a value of the wrong type or a key given twice, naming it.
    """
    return yaml_text.load(kind, text)


def key_of(config: RunConfig, seed: int | None = None) -> int | Array:
    """The key of a run, from the configuration's seed or another one and from its key file, which has to exist."""
    seed = (config.seed or 0) if seed is None else seed
    return seed if config.key_file is None else jax.random.fold_in(key_in(config.key_file), seed)


def run_key_of(config: RunConfig, seed: int, noisy: bool) -> RunKey:
    """The keys of a run with one of the configuration's seeds; the private one is new for a `noisy` run without any."""
    if config.seed is None and config.key_file is None:
        return RunKey.chosen(noisy, seed)
    return RunKey.of(key_of(config, seed))


def build(config: RunConfig) -> tuple[Algorithm, Problem, Network, StopRule | None]:
    """The objects that `jdfl.run` takes; the network has as many nodes as the problem.

    ValueError for invalid values, FileNotFoundError for missing files.
    """
    problem = config.problem.build()
    network, algorithm, spend = paired(problem, config.network.build(m=problem.m)), config.algorithm, config.privacy
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
            f"Expected no privacy.epsilon with accounting = 'paper' and {type(built).__name__}, whose paper has no "
            f"formula for its noise, got privacy.epsilon = {spend.epsilon:g}. It would decide nothing: drop "
            "it, or take accounting = 'sound', where it is a budget."
        )
    return built, problem, network, stop


def settled(config: RunConfig, algorithm: Algorithm) -> RunConfig:
    """The configuration with the noise multiplier of the algorithm that `build` made from it, if it has none."""
    unknown = _unknown_noise(config.algorithm)
    if not unknown:
        return config
    found = attrgetter(f"{accountant.noise_place(algorithm)}.multiplier")(algorithm)
    return replace(config, algorithm=_with_noise(config.algorithm, unknown[0], float(found)))


def budget_of(config: RunConfig) -> list[Budget]:
    """The budget that may end a run of the configuration; with the accounting of a paper there is none."""
    spend = config.privacy
    return [] if spend.accounting == "paper" or spend.epsilon is None else [Budget(spend.epsilon, spend.delta)]


def ledger_of(config: RunConfig) -> DataLedger | None:
    """The ledger that runs of the configuration join; None without a ledger."""
    return None if config.privacy.ledger is None else DataLedger(config.privacy.ledger)


def intended(
    config: RunConfig, built: tuple[Algorithm, Problem, Network, StopRule | None], keys: Sequence[RunKey], *others: Any
) -> list[Intent]:
    """The runs of a configuration before they begin, for a ledger, of the objects that `build` made.

    `others` are further settings that may end them or change their floats, as `execution` of `engine.booking.intents`.
    """
    algorithm, problem, network, stop = built
    program = planned(algorithm, problem, network, config.steps)
    most = None
    for one in budget_of(config):
        most = release_limits(program, problem, stop, epsilon=float(one.epsilon), delta=one.delta)
    return intents(program, *built[1:], keys=keys, steps=config.steps, most=most, execution=others)


def noise_for_now(algorithm: Any) -> Any:
    """An algorithm's settings with a placeholder for every missing multiplier, which calibration replaces."""
    for path in _unknown_noise(algorithm):
        algorithm = _with_noise(algorithm, path, 1.0)
    return algorithm


def _unknown_noise(config: Any) -> list[str]:
    """The dotted paths of an algorithm's mechanisms that have no multiplier."""
    places = {"mechanism": config, "updates.mechanism": getattr(config, "updates", None)}
    mechanisms = {path: getattr(place, "mechanism", None) for path, place in places.items()}
    return [path for path, one in mechanisms.items() if one is not None and one.multiplier is None]


def _with_noise(config: Any, path: str, multiplier: float) -> Any:
    """The configuration with the multiplier of the mechanism at a dotted path."""
    name, _, rest = path.partition(".")
    inner = getattr(config, name)
    new = _with_noise(inner, rest, multiplier) if rest else replace(inner, multiplier=multiplier)
    return replace(config, **{name: new})
