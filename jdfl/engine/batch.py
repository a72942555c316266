"""Many runs of one setting: seeds and values of float hyper-parameters as lanes of one compiled program."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import is_dataclass, replace
from itertools import product
from typing import Any

import jax
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.algorithms.program import Program, planned
from jdfl.base import arguments, checks
from jdfl.base.backend import backend
from jdfl.base.run_keys import RunKey
from jdfl.engine import booking, compiling, stepping
from jdfl.engine.compiling import Clock, Spent
from jdfl.engine.data_ledger import DataLedger, Intent
from jdfl.engine.invariants import least, shared_by
from jdfl.engine.metrics import Metric, default_metrics, referenced, resolve
from jdfl.engine.provenance import checksums, computed, provenance, settings_of
from jdfl.engine.result import Result, Results, Tally, as_chunk, assemble
from jdfl.engine.spending import guarantee_of, planned_by_all, watched
from jdfl.engine.start import Options, Plan, check_counters, check_run, check_settings, made_of
from jdfl.engine.stepping import with_field
from jdfl.engine.stopping import StopRule
from jdfl.engine.trials import Trial, executed, kept_or_made, paired_trials
from jdfl.network.graph import Network
from jdfl.problems import Problem
from jdfl.store.jobs import Jobs

MOST_NUMBERS = 2**26  # in the parameters of runs that are computed side by side: 256 MB in float32
_IN_CACHES = 2**18  # the same for asynchronous methods on CPU, whose events touch few rows at a time


@arguments.checked
def repeat(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    keys: Iterable[int | Array | RunKey],
    steps: int,
    **options: Any,
) -> list[Result]:
    """The same run with every seed of `keys` [k], compiled once.

    The results are in the order of the seeds, each with its seed in `labels` and without a `state`. Use it for means
    and deviations over seeds, and `run` for callbacks, checkpoints or a budget. With `batch=1` they are those of `run`
    bit for bit on CPU. Runs side by side agree with these up to rounding, as matrix products of several runs at once
    add in another order; their graphs, faults, counts and clocks are the same.

    `algorithm`, `problem`, `network`, `keys`, `steps` and the `options` `every`, `stop`, `metrics`, `batch` and
    `ledger` are those of `sweep`, as are the ValueErrors.
    """
    return sweep(algorithm, problem, network, over={}, keys=keys, steps=steps, **options)


@arguments.checked
def sweep(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    over: Mapping[str, Sequence[float]] | Sequence[Mapping[str, float]],
    keys: Iterable[int | Array | RunKey] | None = None,
    steps: int,
    every: int = 1,
    stop: StopRule | None = None,
    metrics: Sequence[str | Metric] | None = None,
    batch: int | None = None,
    ledger: DataLedger | None = None,
) -> list[Result]:
    """One run per value and seed, compiled once: floats of an algorithm are leaves, so new values compile nothing.

    The results are ordered by point, then by seed, and have `labels`; their `state` is None and their `algorithm` is
    the given one with the point's values. `seconds` is the time of the whole program divided by the number of runs,
    `compile_seconds` that of the whole program. The number of records is part of the compiled program: other `steps`
    compile again.

    Args:
        algorithm: The settings of the method; `over` replaces some of them.
        problem: The nodes' data and losses, of m nodes.
        network: The communication network, with the same number of nodes.
        over: Dotted fields of the algorithm ("mu", "codec.gamma") with their values: the runs are all combinations, the
            last field changing fastest. A list of mappings from fields to single values gives exactly these points
            instead, each with the same fields. An empty mapping: the algorithm as it is.
        keys: Seeds or typed keys [k], at least one; None: public randomness is that of seed 0, and the private key of
            runs with noise comes from the operating system. Every run has a private key of its own, which follows from
            that of its seed and, in a sweep, from the values of its point.
        steps: Rounds of every run, at least 1.
        every: Rounds between two records, at least 1.
        stop: A rule that may end a run, evaluated after every round; None: all rounds are done.
        metrics: What is recorded, as for `run`; None: all that the problem can give.
        batch: The number of runs that are computed side by side by vmap, one batch after the other. None: all at once,
            as far as memory allows, but one at a time on CPU where loops of different lengths would wait for one
            another, in CEPS and in codecs that code some rows only, and of asynchronous methods what its caches hold.
            It changes results by rounding only.
        ledger: The ledger of the data, as for `run`: it takes all runs before the first one begins, or none.

    Raises:
        ValueError: For a field that is unknown or not a float, for points of different fields, and as `run` does.
    """
    if keys is None:
        keys = (RunKey.chosen(guarantee_of(algorithm, problem).event is not None),)
    if not checks.is_a(keys, Iterable) or checks.is_a(keys, str | Mapping) or getattr(keys, "shape", None) == ():
        raise ValueError(
            f"Expected a list of seeds, got keys = {checks.text(keys)}. For one seed give [{checks.text(keys)}]."
        )
    trials = [Trial(key, problem, network) for key in keys]
    options: Any = {"every": every, "stop": stop, "metrics": metrics, "batch": batch, "ledger": ledger}
    return Results(across(algorithm, trials, over=over, steps=steps, **options))


def across(
    algorithm: Algorithm,
    trials: Sequence[Trial],
    *,
    over: Mapping[str, Sequence[float]] | Sequence[Mapping[str, float]],
    steps: int,
    every: int = 1,
    stop: StopRule | None = None,
    metrics: Sequence[str | Metric] | None = None,
    batch: int | None = None,
    ledger: DataLedger | None = None,
    width: int = 1,
    jobs: Jobs | None = None,
    names: Sequence[Any] | None = None,
    token: str | None = None,
) -> list[Result]:
    """One run per point and trial, as `sweep`, with data, network and key of each trial; raises as `sweep` does.

    `over`, `every`, `stop`, `metrics`, `batch` and `ledger` are those of `sweep`. One program is compiled for all
    trials whose problems and networks have the same shapes after padding, and for `width` points, if these are more
    than there are. Runs are kept in `jobs`, so that the same call in another process does not repeat them. Private keys
    follow from that of the trial and from the point's `names`, plain data; None: from its values. `token` is that of
    all runs, if they go on with work that was cut off.
    """
    trials = paired_trials(trials)
    points = points_of(algorithm, over)
    try:
        roots = keys_of([trial.key for trial in trials], points if names is None else names, token)
    except ValueError as error:
        raise ValueError(f"In keys: {error}") from error
    labels = [{"seed": _seed(trial.key), **point} for point in points for trial in trials]
    if not labels:
        keys = [trial.key for trial in trials]
        raise ValueError(
            f"Expected at least one seed and one value, got keys = {checks.text(keys)}, over = {checks.text(over)}."
        )
    first = trials[0].problem
    chosen = default_metrics(first, algorithm.personal) if metrics is None else resolve(metrics, first)
    problems = {id(trial.problem): trial.problem for trial in trials}
    solved = {
        place: referenced(resolve(chosen, problem), problem, algorithm.attackers) for place, problem in problems.items()
    }
    trials = [trial._replace(problem=solved[id(trial.problem)]) for trial in trials]
    made = _checked(algorithm, points, trials, steps, every, stop)
    guarantees = [guarantee_of(one, trial.problem) for one, (_, trial) in zip(made, product(points, trials))]
    watch = least([watched(one, trial.problem) for one, (_, trial) in zip(guarantees, product(points, trials))])
    rules = shared_by([trial.network for trial in trials], algorithm)
    settings = [
        stepping.setting(one, trial.problem, trial.network, stop, root, watched=watch, weights=weights)
        for one, root, (_, (trial, weights)) in zip(made, roots, product(points, list(zip(trials, rules))))
    ]
    steps, every, width = int(steps), int(every), max(width, len(points))
    if batch is None:
        batch = width * len(trials) if _alike(algorithm) or backend() != "cpu" else 1
        waves = algorithm.asynchronous and backend() == "cpu"
        batch = max(1, min(batch, (_IN_CACHES if waves else MOST_NUMBERS) // (first.m * first.n)))
    checks.integer(1, batch=batch)
    compiling.make_room()

    runs: list[Intent] = []
    if ledger is not None:
        known: dict[Any, Any] = {}
        for one, root, (_, trial) in zip(made, roots, product(points, trials)):
            given = trial.problem, trial.network, stop
            runs += booking.intents(one, *given, keys=[root], steps=steps, execution=(batch,), known=known)
    most = planned_by_all(guarantees, [run.releases for run in runs], first.m)
    settings = [replace(one, planned=most) for one in settings]
    hold = None if ledger is None else ledger.reserve(runs)
    named: list[dict[str, Any]] = [
        {"algorithm": one.program.algorithm, "problem": trial.problem, "network": trial.network}
        for one, (_, trial) in zip(settings, product(points, trials))
    ]
    origins = [provenance(root, **given) for root, given in zip(roots, named)]

    def make() -> tuple[list[Any], Spent]:
        clock, given = Clock(), (settings, trials, points)
        made = executed(*given, steps=steps, every=every, metrics=chosen, batch=batch, width=width)
        return made, clock.read()

    def about() -> Any:
        how = settings_of(stop=stop, metrics=chosen, how=(steps, every, batch, width, watch))
        sums = {id(one): checksums(of=one) for trial in trials for one in (trial.problem, trial.network)}
        shapes = {jax.tree.structure(one[1:]): one for one in trials}
        code = [computed(made[0], one.problem, one.network, chosen) for one in shapes.values()]
        return how, list(sums.values()), code, [one.settings for one in origins]

    outcomes, spent = kept_or_made(jobs, about, make)
    spent = spent._replace(seconds=spent.seconds / len(settings))
    results, alike = list[Result](), dict[Any, str]()
    for place, (setting, label, root, outcome) in enumerate(zip(settings, labels, roots, outcomes)):
        params, carry, first_record, later = outcome
        trial = trials[place % len(trials)]
        tally = Tally(setting.program.message_bits(trial.problem), every)
        tally.add(*as_chunk(first_record))
        tally.base = {}  # a lane's counters run on from the start
        tally.add(later.rounds, later.metrics, later.counts)
        given = trial.problem, trial.network, stop, root, steps, every, chosen, guarantees[place], origins[place]
        plan = Plan(made[place], *given, Options(), None)
        plan = replace(plan, made=made_of(plan, alike))
        results.append(replace(assemble(plan, setting, params, carry, tally, spent), labels=label))
    return results if hold is None else booking.booked(hold, list(zip(runs, results)))


def keys_of(keys: Sequence[int | Array | RunKey], names: Sequence[Any], token: str | None = None) -> list[RunKey]:
    """The keys of every run, point by point and trial by trial: each has a private key of its own.

    It follows from those of the trials, `keys` [t], and of the point's among `names`, plain data, if that is not empty.
    `token` is that of all runs; None: that of their trials.
    """
    own = [RunKey.of(key) for key in keys]
    own = own if token is None else [replace(one, token=token) for one in own]
    return [one.derived(name) if name else one for name in names for one in own]


def _seed(key: int | Array | RunKey) -> Any:
    """The label of a run's key; "none" where none was given."""
    return key if not isinstance(key, RunKey) else "given" if key.source == "given" else "none"


def _checked(
    algorithm: Algorithm,
    points: Sequence[Mapping[str, float]],
    trials: Sequence[Trial],
    steps: int,
    every: int,
    stop: StopRule | None,
) -> list[Program]:
    """What every run begins with, point by point and trial by trial; ValueError for what cannot be run."""
    made: list[Program] = []
    planned_already: dict[tuple[int, int, int], Program] = {}  # by point, problem and network
    for place, point in enumerate(points):
        one = at(algorithm, point)
        for _, problem, network in trials:
            known = place, id(problem), id(network)
            if known not in planned_already:
                if place == 0:
                    planned_already[known] = check_run(one, problem, network, steps, every, stop)
                    check_counters(network, steps)
                else:
                    check_settings(one, problem, network, steps)
                    planned_already[known] = planned(one, problem, network, steps)
            made.append(planned_already[known])
    return made


def _alike(algorithm: Algorithm) -> bool:
    """Whether all runs do the same work in a round, so that vmap makes few large products of many small ones."""
    return not getattr(algorithm, "uneven", False) and getattr(getattr(algorithm, "codec", None), "free", True)


def points_of(
    algorithm: Algorithm, over: Mapping[str, Sequence[float]] | Sequence[Mapping[str, float]]
) -> list[dict[str, float]]:
    """The values of every run from what it is swept `over`; one point without fields when that is nothing."""
    points: list[dict[str, Any]]
    given: Any = over
    if checks.is_a(over, Mapping):
        lists: dict[str, Any] = dict(given)
        for path, values in lists.items():
            if not checks.is_a(values, Sequence | np.ndarray | jax.Array) or isinstance(values, str | bytes):
                raise ValueError(f"Expected a list of values for {path!r} in over, got {checks.text(values)}.")
        points = [dict(zip(lists, row)) for row in product(*lists.values())]
        fields = list(lists)
    else:
        if not checks.is_a(over, Sequence) or not all(checks.is_a(point, Mapping) for point in over):
            raise ValueError(
                f"Expected fields with their lists of values, or a list of points, got over = {checks.text(over)}. "
                "For example over={'lr': [0.1, 0.2]} or over=[{'lr': 0.1}, {'lr': 0.2}]."
            )
        points = [dict(point) for point in given]
        fields = list(points[0]) if points else []
        for place, point in enumerate(points):
            if point.keys() != set(fields):
                raise ValueError(
                    f"Expected the fields {fields} in every point of over, got {list(point)} in over[{place}]."
                )
    for path in fields:
        _check_field(algorithm, path)
    for point in points:
        for path, value in point.items():
            if np.ndim(value) or isinstance(value, bool) or not checks.is_a(value, _NUMBER):
                raise ValueError(f"Expected numbers for {path!r} in over, got {checks.text(value)}.")
    return [{path: float(point[path]) for path in fields} for point in points]


_NUMBER = int | float | np.integer | np.floating | np.ndarray | jax.Array


def _check_field(algorithm: Algorithm, path: object) -> None:
    target, static = algorithm, False
    for name in str(path).split("."):
        if not isinstance(path, str) or not hasattr(target, name):
            raise ValueError(f"Expected a field of {type(algorithm).__name__} in over, got {path!r}.")
        known = {one.name: one for one in fields_of(target)} if is_dataclass(target) else {}
        static = name in known and not known[name].metadata.get("pytree_node", True)
        target = getattr(target, name)
    if static or isinstance(target, bool) or not isinstance(target, (float, np.floating)):
        raise ValueError(
            f"Expected a float field in over, got {path!r} = {checks.text(target)}. Write a number as a float (1.0, "
            "not 1); sizes, flags and exact noise change the compiled program, so run them one by one."
        )


def at(algorithm: Algorithm, point: Mapping[str, float]) -> Algorithm:
    """The algorithm with the values of a point."""
    for path, value in point.items():
        algorithm = with_field(algorithm, path, value)
    return algorithm
