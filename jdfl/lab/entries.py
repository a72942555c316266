"""What is compared and how it is tuned: entries, grids, and everything that can be refused before a run."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, get_args

import numpy as np

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import planned
from jdfl.base import checks
from jdfl.engine.accountant import adjustable, calibrate, check_account, noise_place, planned_releases
from jdfl.engine.data_ledger import DataLedger
from jdfl.engine.metrics import REGISTRY, Metric
from jdfl.engine.start import check_counters, check_run, check_settings
from jdfl.engine.stopping import StopRule
from jdfl.lab.grids import Plan, Values, laid, quiet
from jdfl.network.graph import Network
from jdfl.problems import Problem

Announce = Callable[[str, str], object]  # (label, what is done with it)
MOST_EXTENSIONS = 100  # of a grid, by three values each
By = Literal["round", "communications", "bytes", "gradients", "examples", "network_seconds", "stop"]
ALSO = ("round", "bytes", "gradients")  # amounts that pages show, each with a tuning of its own


@dataclass(frozen=True)
class Entry:
    """An algorithm of a comparison, with what it does not share with the others.

    Give it to `jdfl.compare` in place of an algorithm. `tune` maps fields, "lr" or "codec.gamma", to the values that
    are tried, all combinations of them; without any field the algorithm is not tuned.
    """

    algorithm: Any
    network: Any = None  # None: that of the comparison
    tune: Values | None = None  # values by field; None: the algorithm's `tuned` fields on their default grids
    steps: int | None = None  # None: those of the comparison


@dataclass(frozen=True)
class Tuning:
    """How every algorithm finds its step: all points of a grid with every seed of `keys`, in one compiled program.

    Best is the point with the lowest mean of the comparison's measure (the highest, for accuracies) over the tuning
    seeds, which are not the reported ones; a point with a run that diverged is never chosen; of equally good points the
    middle one is, and a method whose points that work are all equally good is marked and never ranked.

    The measure is taken at the budget that is compared: `budget` of `by`, in the unit of that amount (rounds, bytes
    of all nodes, gradients of all nodes, simulated seconds); None: the largest that all algorithms reach in their
    rounds, but, of all amounts except rounds, at least what ten rounds of each cost. "stop" takes the rounds until
    the stop rule fires instead. `also` names further amounts and their budgets (none: found as for `by`): each has a
    choice and reported runs of its own, which tables and figures over that amount show; with a stop rule, the rounds
    to it are such an amount, too. A best point on the edge of its grid makes the grid go on there, with three more
    values in the same ratio, or one close to the end of what the algorithm takes where that ratio leads beyond it, up
    to `extend` times.

    `grids` holds values by field, for all algorithms that tune it. Default grids: lr is 1/64 to 2 times 1 / L in powers
    of 2, L the largest curvature of the nodes' losses, where there is a bound on it; gamma .05 to 1; step_scale 1/4 to
    8; others 1/8 to 8 times what they are.
    """

    keys: Sequence[int] = (1_000_001, 1_000_002)
    by: By = "round"
    budget: float | None = None
    also: Mapping[str, Sequence[float]] = field(default_factory=lambda: dict.fromkeys(ALSO, ()))
    grids: Values = field(default_factory=dict[str, Sequence[float]])
    extend: int = 2


@dataclass(frozen=True)
class Terms:
    """What all entries of a comparison share."""

    problem: Problem
    network: Network
    keys: Sequence[int]  # the seeds of the reported runs
    steps: int
    every: int = 1
    stop: StopRule | None = None
    tune: Tuning | None = None
    measure: Metric = REGISTRY["objective"]  # what tuning judges by
    batch: int | None = None  # tuning runs side by side
    epsilon: float | None = None
    delta: float | None = None
    announce: Announce = lambda label, what: None
    ledger: DataLedger | None = None  # that all runs join, those of tuning, too


def plans(entries: Mapping[str, Any], terms: Terms) -> dict[str, Plan]:
    """The entries with everything filled in, noise too, after all checks that need no run, of every given point.

    Args:
        entries: Algorithms by label, or an `Entry` with a network, a grid or a number of rounds of its own.
        terms: What all entries have in common, and how they are tuned.

    Returns:
        A plan for every label, in the order of the entries; one without a grid is not tuned.

    Raises:
        ValueError: For what cannot be run or tuned, naming the entry; for seeds that are not different whole numbers;
            where `terms` ask for an epsilon and nothing can be claimed.
    """
    if not entries:
        raise ValueError(f"Expected a mapping of labels to algorithms, got entries = {entries!r}. Name at least one.")
    check_seeds(keys=terms.keys)
    tune, problem = terms.tune, terms.problem
    if tune is not None:
        _check_tuning(tune, terms.keys, terms.stop)
    found: dict[str, Plan] = {}
    for label, given in entries.items():
        entry = given if isinstance(given, Entry) else Entry(given)
        if not checks.is_a(label, str) or not label:
            raise ValueError(f"Expected text as the label of an entry, got {label!r}. Give every algorithm a name.")
        if isinstance(entry.algorithm, type) or not all(hasattr(entry.algorithm, n) for n in ("step", "init", "check")):
            checks.refuse("an algorithm or an Entry", f"entries[{label!r}]", given, "For example jdfl.CEPS().")
        grid, derived = ({}, ()) if tune is None else laid(label, entry.algorithm, entry.tune, tune.grids, problem)
        network = terms.network if entry.network is None else entry.network
        steps = terms.steps if entry.steps is None else entry.steps
        chosen = entry.tune is not None or bool(tune and set(grid) & set(tune.grids))
        plan = found[label] = Plan(entry.algorithm, network, steps, grid, chosen, derived)
        with _told_of(label), quiet():  # the run itself warns again
            taken = plan.taken(problem)
            check_run(plan.at(taken[0]), problem, network, steps, terms.every, terms.stop)
            check_counters(network, steps)
            for point in taken[1:]:
                check_settings(plan.at(point), problem, network)
    fields = {path for plan in found.values() for path in plan.grid}
    for path in () if tune is None else tune.grids:
        checks.one_of(sorted(fields), "No algorithm tunes another field; give it as Entry(..., tune=...).", grids=path)
    for label, plan in found.items():
        with _told_of(label):
            found[label] = replace(plan, algorithm=calibrated(plan, terms))
            if terms.delta is not None:
                ready = planned(found[label].algorithm, problem, plan.network, plan.steps)
                check_account(ready, problem, delta=terms.delta, accounting="sound")
    return found


def calibrated(plan: Plan, terms: Terms) -> Algorithm:
    """The plan's algorithm with the least noise for (epsilon, delta) in a run with any of the seeds of the `terms`.

    Without an epsilon, or a multiplier of the noise: as it is. ValueError where nothing can be claimed.
    """
    problem = terms.problem
    if terms.epsilon is None or not adjustable(plan.algorithm):
        return plan.algorithm
    if hidden := [name for name in plan.derived if name not in problem.public]:
        public = (*problem.public, *hidden)
        unit, own = "", ""
        if "curvature" in hidden:
            unit = ", with an lr in units of one over the largest curvature of the nodes' records"
            own = " A grid of your own, tune={'lr': [...]} of its Entry or --grids lr=..., needs no curvature."
        raise ValueError(
            f"Expected values that were not chosen by looking at the same data with epsilon = {terms.epsilon!r}, got a "
            f"grid of {', '.join(plan.grid)}{unit}: nothing can be claimed then. Give values and tune=None, or take "
            f"{' and '.join(hidden)} as public: problem.declared({', '.join(map(repr, public))}), "
            f"--problem.public {','.join(public)}.{own}"
        )
    arguments = plan.algorithm, problem, plan.network
    how: Any = {"steps": plan.steps, "epsilon": terms.epsilon, "delta": terms.delta, "stop": terms.stop}
    counts = {planned_releases(*arguments, steps=plan.steps, key=key).tobytes(): key for key in terms.keys}
    found = [calibrate(*arguments, **how, key=key) for key in counts.values()]
    return max(found, key=attrgetter(f"{noise_place(plan.algorithm)}.multiplier"))


@contextmanager
def _told_of(label: str) -> Generator[None]:
    """A ValueError inside names the entry of this `label`."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"In entries[{label!r}]: {error}") from error


def check_seeds(**named: Any) -> None:
    """Every named value is a list of different seeds; raises ValueError."""
    for name, seeds in named.items():
        if not checks.is_a(seeds, Sequence | np.ndarray) or checks.is_a(seeds, str) or not len(seeds):
            raise ValueError(f"Expected a list of seeds, got {name} = {seeds!r}. For five seeds write range(5).")
        for seed in seeds:
            checks.whole(0, 2**32 - 1, f"It is one of the seeds {name}.", seed=seed)
        if len(set(seeds)) < len(list(seeds)):
            raise ValueError(f"Expected different seeds, got {name} = {list(seeds)!r}. A repeated run is no evidence.")


def _check_tuning(tune: Tuning, keys: Sequence[int], stop: StopRule | None) -> None:
    check_seeds(**{"tune.keys": tune.keys})
    shared = sorted(set(keys) & set(tune.keys))
    if shared:
        raise ValueError(
            f"Expected tuning seeds other than the reported ones, got {shared} in both keys and tune.keys. Values "
            "chosen on the reported runs would look better than they are; give others."
        )
    if tune.by == "stop" and stop is None:
        raise ValueError("Expected a stop rule to tune for, got by = 'stop' and stop = None. Give stop, or another by.")
    if tune.by == "stop" and tune.budget is not None:
        raise ValueError(
            f"Expected no budget with by = 'stop', got budget = {tune.budget!r}. A run to its stop rule has "
            "none; leave it out, or give another by."
        )
    if tune.budget is not None:
        checks.positive("It is an amount of `by`.", budget=tune.budget)
    for x, amounts in tune.also.items():
        checks.one_of([one for one in get_args(By) if one != "stop"], also=x)
        if isinstance(amounts, str) or not checks.is_a(amounts, Iterable):
            raise ValueError(f"Expected a list of budgets for {x!r} in also, got {amounts!r}. Empty: one is found.")
        for amount in amounts:
            checks.positive(f"It is a budget of {x!r} in also.", also=amount)
    checks.whole(0, MOST_EXTENSIONS, "It is how often a grid may be extended.", **{"tune.extend": tune.extend})
