"""A whole comparison as one frozen value: what `jdfl compare` sets, what YAML stores, and what becomes arguments.

An algorithm may be any kind that a run may have. One that needs a label, a network, a grid or a number of rounds of its
own is inside an `Entry`.
"""

import dataclasses
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, get_args

import jax

from jdfl.algorithms.algorithm import sends_dense
from jdfl.base import checks
from jdfl.base.settings import defaults
from jdfl.config import ALGORITHMS, NETWORKS, PROBLEMS, STOPS, Kind, noise_for_now, yaml_text
from jdfl.engine.data_ledger import DataLedger
from jdfl.lab.entries import DEFAULT, By, Tuning
from jdfl.lab.entries import Entry as Compared
from jdfl.lab.experiment import Experiment

_MOST_DATA = 2**31  # bytes of the problems of all trials, up to which data are redrawn by default
_compare = defaults(Experiment)
_tuning = Tuning()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An algorithm with what it does not share with the others."""

    kind: ClassVar[str] = "entry"
    algorithm: Annotated[Kind, ALGORITHMS]
    """The algorithm."""
    label: str = ""
    """Its name in tables and figures; empty: its kind."""
    network: Annotated[Kind | None, NETWORKS] = None
    """The communication network; none: the network of the others."""
    grids: tuple[str, ...] | None = None
    """What tuning tries, field=value,value,...; none: the fields and values of its kind; an empty list: not tuned."""
    steps: int | None = None
    """Rounds; none: as for the others."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Everything that decides a comparison."""

    problem: Annotated[Kind, PROBLEMS] = PROBLEMS()  # noqa: RUF009 (frozen)
    """What the nodes learn."""
    network: Annotated[Kind, NETWORKS] = NETWORKS()  # noqa: RUF009 (frozen)
    """The communication network."""
    stop: Annotated[Kind | None, STOPS] = None
    """When a run ends early: one rule for all methods, for consensus with the largest s among them."""
    steps: int = 200
    """Number of rounds. A method that has not used up a budget goes on, up to `longer` times this number."""
    longer: int = _compare.longer
    """The multiple of `steps` that a method may do to use up a budget. With an epsilon or a ledger none does more."""
    every: int = _compare.every
    """Rounds between two records of the metrics."""
    seeds: int = 5
    """Reported runs of every algorithm, with the seeds `seed`, `seed` + 1, ..."""
    seed: int = 0
    """The first of these seeds (problem and network have their own)."""
    redraw: tuple[Literal["data", "network"], ...] | None = None
    """What every trial redraws: data, network or both, if their kinds have a seed. None: both, but nothing with a
    ledger, and no data of more than 2 GiB in all trials. An empty list: all trials share data and network."""
    measure: str | None = None
    """The metric by which tuning chooses and that the table shows. None: suboptimality if the minimum is known, and
    otherwise the objective."""
    metrics: tuple[str, ...] = ()
    """Names of the metrics to record; empty: all that the problem can give."""
    tune: bool = True
    """Tune every algorithm before it is compared."""
    by: By = "round"
    """The cost that is equal for all methods, in tuning and in the table. stop: rounds until the stop rule fires."""
    budget: float | None = None
    """The amount of this cost. None: the largest that all reach; except for rounds, at least that of ten rounds."""
    grids: tuple[str, ...] = ()
    """What tuning tries, field=value,value,... for every algorithm that tunes the field; others have default grids."""
    tuning_seeds: int = len(_tuning.keys)
    """Tuning runs of every point of a grid; their seeds are not those of the reported runs."""
    also: tuple[str, ...] = DEFAULT
    """Further amounts to compare at, each with its own tuning; amount=budget,budget,... says where."""
    extend: int = _tuning.extend
    """How often a grid is extended if its best point is on its edge."""
    batch: int | None = _compare.batch
    """Tuning runs side by side. None: all if they do the same work in a round, otherwise one at a time on a CPU."""
    epsilon: float | None = _compare.epsilon
    """What every reported run may spend. Algorithms with a mechanism get the least noise for it. None: as given."""
    delta: float | None = _compare.delta
    """Probability that the guarantee fails. None: the largest power of ten up to 1e-5 below 0.1 / records."""
    ledger: str | None = None
    """File of the data's ledger. All runs join it, also those of tuning, which then needs --extend 0. It is made by
    jdfl account --new-ledger. None: no ledger."""
    algorithms: tuple[Annotated[Kind, ALGORITHMS] | Entry, ...] = ()
    """The algorithms to compare; those that a flag names have default settings."""


def build(config: CompareConfig) -> tuple[dict[str, Compared], Any, Any, dict[str, Any]]:
    """The methods, the problem, the network and the options that `jdfl.compare` takes.

    Problem and networks are functions of a trial's seed where every trial redraws them.
    """
    if not config.algorithms:
        raise ValueError(
            f"Expected at least one algorithm, got algorithms = {config.algorithms!r}. "
            f"For example --algorithms ceps. Known: {', '.join(ALGORITHMS.sources)}."
        )
    checks.integer(1, seeds=config.seeds, tuning_seeds=config.tuning_seeds)
    checks.integer(0, seed=config.seed)
    _check_untuned(config)
    problem, redraw = config.problem.build(), config.redraw
    if redraw is None:
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(problem)) * (config.seeds + config.tuning_seeds)
        redraw = ("network",) if size > _MOST_DATA else ("data", "network")
        redraw = () if config.ledger is not None else redraw
    anew = "network" in redraw
    given = [one if isinstance(one, Entry) else Entry(algorithm=one) for one in config.algorithms]
    made = [(one.algorithm if config.epsilon is None else noise_for_now(one.algorithm)).build() for one in given]
    entries: dict[str, Compared] = {}
    for label, one, algorithm in zip(_labels(given, made), given, made):
        network = None if one.network is None else _sample(one.network, anew, m=problem.m)
        grids = None if one.grids is None else _lists(one.grids, "grids", "field=value,value", "lr=0.05,0.1,0.2")
        entries[label] = Compared(algorithm, network, grids, one.steps)
    first = _tuning.keys[0]
    tuning = Tuning(
        keys=tuple(range(first, first + config.tuning_seeds)),
        grids=_lists(config.grids, "grids", "field=value,value", "lr=0.05,0.1,0.2"),
        extend=config.extend,
    )
    sizes = [algorithm.s for algorithm in made if isinstance(getattr(algorithm, "s", None), int)]
    largest: Any = SimpleNamespace(s=max(sizes, default=1))  # one rule for all
    same = ("steps", "every", "measure", "batch", "longer", "epsilon", "delta")
    options: dict[str, Any] = {name: getattr(config, name) for name in same} | {
        "trials": range(config.seed, config.seed + config.seeds),
        "budget": _budgets(config) if config.tune else None,
        "tuning": tuning if config.tune else None,
        "metrics": config.metrics or None,
        "stop": None if config.stop is None else config.stop.build(algorithm=largest),
        "ledger": None if config.ledger is None else DataLedger(config.ledger),
    }
    data = _sample(config.problem, True) if "data" in redraw else problem
    return entries, data, _sample(config.network, anew, m=problem.m), options


def _check_untuned(config: CompareConfig) -> None:
    """Refuse settings of tuning without tuning."""
    if config.tune:
        return
    plain = CompareConfig(by="round" if config.stop is None else "stop")  # what a comparison without tuning is at
    for name in ("by", "budget", "also", "grids", "tuning_seeds", "extend"):
        value = getattr(config, name)
        if value not in (getattr(CompareConfig(), name), getattr(plain, name)):
            raise ValueError(
                f"Expected {name} with tuning only, got {name} = {value!r} and tune = False. Without tuning all are "
                "compared after their rounds, or at the stop rule; drop one of both."
            )


def _sample(kind: Kind, redraw: bool, **given: int) -> Any:
    """What a kind builds, or a function that builds another one with a trial's seed, if there is a seed in it."""
    if redraw and _with_seed(kind, 0) != _with_seed(kind, 1):
        return lambda seed: _with_seed(kind, seed).build(**given)
    return kind.build(**given)


def _with_seed(kind: Kind, seed: int) -> Kind:
    """The kind with this seed, its own and those of its parts."""
    parts = {field.name: getattr(kind, field.name) for field in dataclasses.fields(kind)}
    changed: dict[str, Any] = {name: _with_seed(part, seed) for name, part in parts.items() if isinstance(part, Kind)}
    return dataclasses.replace(kind, **changed, **({"seed": seed} if "seed" in parts else {}))


def _labels(entries: list[Entry], made: list[Any]) -> list[str]:
    """A label each: its own, or its kind, which says what is sent dense, numbered where a kind comes again."""
    own = [one.label for one in entries if one.label]
    repeated = [label for label, count in Counter(own).items() if count > 1]
    if repeated:
        raise ValueError(f"Expected different labels, got label = {repeated[0]!r} twice. Rename one.")
    labels: list[str] = []
    for one, algorithm in zip(entries, made):
        kind = f"{one.algorithm.kind}, dense" if sends_dense(algorithm) else one.algorithm.kind
        label, number = one.label or kind, 1
        while not one.label and label in (*labels, *own):
            number += 1
            label = f"{kind}-{number}"
        labels.append(label)
    return labels


def _budgets(config: CompareConfig) -> dict[str, Any]:
    """What is compared at: `budget` of `by` first, then the other amounts."""
    if config.by == "stop" and config.budget is not None:
        raise ValueError(f"Expected no budget with by = 'stop', got budget = {config.budget!r}. Leave it out.")
    found: dict[str, Any] = {config.by: config.budget if config.budget is None else [config.budget]}
    for x, amounts in _lists(config.also, "also", "amount=budget,budget", "bytes=1e6", alone=True).items():
        checks.one_of([one for one in get_args(By) if one != "stop"], also=x)
        if x in found and amounts:
            found[x] = [*(found[x] or [None]), *amounts]
        else:
            found.setdefault(x, amounts or None)
    return found


def _lists(lines: tuple[str, ...], where: str, form: str, example: str, alone: bool = False) -> dict[str, list[float]]:
    """Numbers by name from lines such as "lr=0.1,0.2"; a name `alone` has none."""
    found: dict[str, list[float]] = {}
    for line in lines:
        name, sign, values = line.partition("=")
        name = name.strip()
        try:
            numbers = [yaml_text.number(float, value) for value in values.split(",")] if sign else []
        except ValueError:
            numbers, name = [], ""
        if not name or not (numbers or alone):
            raise ValueError(f"Expected {form},... in {where}, got {line!r}. For example {example}.")
        if name in found:
            raise ValueError(f"Expected {name} once in {where}, got it twice. Give all its values in one place.")
        found[name] = numbers
    return found
