"""Privacy of whole runs: the guarantee of a finished or planned run, and the noise that a target needs.

Axes: m nodes.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, check_kinds
from jdfl.algorithms.program import Program, planned
from jdfl.algorithms.statement import outputs, traced, values
from jdfl.base import checks
from jdfl.base.arguments import checked
from jdfl.base.run_keys import RunKey
from jdfl.engine import metrics as metrics_module
from jdfl.engine import stepping
from jdfl.engine.metrics import Metric
from jdfl.engine.result import Result
from jdfl.engine.spending import guarantee_of, records_of, unspent
from jdfl.engine.start import check_run, check_settings, own_key, releases
from jdfl.engine.stepping import paired
from jdfl.engine.stopping import StopRule
from jdfl.network.graph import Network
from jdfl.privacy import Accounting, GaussianSchedule, Ledger, PrivacyReport, noise_multiplier, report
from jdfl.privacy.accounting import delta_for_noise, least_enough
from jdfl.privacy.flow import WHY, Flow, Label, Value
from jdfl.privacy.ledger import compact, total_epsilon
from jdfl.privacy.report import KEYS
from jdfl.problems import Problem

_DATA = ("problem.data", "problem.weight")  # settings that are about the records
_FARTHEST = 40.0  # from where the search for a multiplier begins, in logarithms
_PLACES = ("mechanism", "gradients.mechanism", "updates.mechanism")  # where an algorithm may have its noise


@checked
def planned_releases(
    algorithm: Algorithm, problem: Problem, network: Network, *, steps: int, key: int | Array | RunKey | None = None
) -> np.ndarray:
    """How many releases every node [m] makes in `steps` rounds of this run; only the counts are computed.

    Whole numbers, including the releases before the first round. A stop rule may leave a run with fewer. `algorithm`,
    `problem`, `network`, `steps` and `key` are those of `jdfl.run`, as are the ValueErrors; the counts depend on the
    key where participation is random.
    """
    network = stepping.paired(problem, network)
    program = check_run(algorithm, problem, network, steps, 1, None)
    setting = stepping.setting(program, problem, network, None, own_key(key, None, noisy=False))
    return releases(setting, steps).astype(np.int64)


@checked
def account(
    result: Result, *, delta: float | None = None, accounting: Accounting = "sound", warnings: tuple[str, ...] = ()
) -> PrivacyReport:
    """The privacy guarantee of a finished run, computed from the releases that it made.

    Args:
        result: The finished run, complete or interrupted.
        delta: The chance that the epsilon may fail, in (0, 1); None: the largest power of ten up to 1e-5 that is below
            a tenth of 1 / records, or of 1 / nodes where whole nodes are protected.
        accounting: "sound", or "paper", which also reports claims that are not enforced, and labels them.
        warnings: Warnings in words, in addition to those of the run.

    Raises:
        ValueError: Where no epsilon can be given: no noise, no clipping, noise that does not stay, delta >= 1 /
            records.
    """
    found = report(
        result.guarantee,
        result.releases,
        result.records,
        delta=delta,
        accounting=accounting,
        warnings=(*result.privacy_warnings, *warnings),
    )
    return replace(found, key=KEYS.get(result.key_source, ""))


@checked
def spent_together(results: Sequence[Result], *, delta: float | None = None) -> tuple[float, float]:
    """The (epsilon, delta) of publishing all of these `results` of runs on the same data.

    Runs on different data, such as another split of the same records, count as if every record were at the most
    exposed node, and so do runs on data that were made twice. `jdfl.privacy.ledger` describes how runs compose: their
    noise has to be independent, so that each needs a private key of its own, and their settings fixed beforehand. A run
    that is given several times, or together with the one that it continues, releases nothing new and counts once.

    Args:
        results: The finished runs, at least one, each with a guarantee.
        delta: The delta of all runs together, in (0, 1); None: the smallest that `account` uses for one of them.

    Raises:
        ValueError: If a run has no guarantee, if runs have different units or neighbouring datasets, if they protect
            whole nodes whose data may differ between runs, and for runs that share a private key and have released
            different things: the difference of what they released may have no noise.
    """
    deltas = [account(run, delta=delta).delta for run in results]
    if not deltas:
        raise ValueError("Expected at least one run, got results = [].")
    runs: dict[str, Result] = {}  # by private key, the longest one
    for run in results:
        other = runs.setdefault(run.private_digest, run)
        check_shared(other, run)
        if run.rounds > other.rounds:
            runs[run.private_digest] = run
    ledgers = [ledger_of_run(run) for run in runs.values()]
    if not all(_same_data(results[0], run) for run in results):
        if any(ledger.unit != "record" for ledger in ledgers):
            raise ValueError(
                "Expected runs on the same data, as they protect whole nodes, got runs on several problems: what one "
                "node has in one of them, many may have in another. Add up the runs of each problem."
            )
        ledgers = [compact(ledger) for ledger in ledgers]
    return total_epsilon(ledgers, min(deltas)), min(deltas)


def check_shared(one: Result, other: Result) -> None:
    """Refuse two runs that share a private key, unless they are one run, or one continues the other: ValueError."""
    if one.private_digest != other.private_digest:
        return
    changed = one.provenance.differences(other.provenance)[1]
    if changed or not (one.released[-1] in other.released or other.released[-1] in one.released):
        why = f" ({'; '.join(changed[:3])})" if changed else ""
        raise ValueError(
            f"Expected runs with a private key of their own each, got two with the one whose digest is "
            f"{one.private_digest}, which have released different things{why}: they share their noise, and have no "
            "joint epsilon. Give one of them another key, or none for a new one, and run it again."
        )


def _same_data(one: Result, other: Result) -> bool:
    """Whether two runs had the same arrays of data, or arrays with the same checksums."""
    sums, others = (
        {name: text for name, text in run.provenance.settings.items() if name.startswith(_DATA) and "checksum" in name}
        for run in (one, other)
    )
    return (bool(one.data) and one.data == other.data) or (bool(sums) and sums == others)


def ledger_of_run(result: Result) -> Ledger:
    """The releases of a run, as a ledger."""
    return Ledger.of(result.guarantee, result.releases, result.records)


def check_account(
    algorithm: Algorithm | Program, problem: Problem, *, delta: float | None, accounting: Accounting
) -> None:
    """Raise ValueError before a run where `account` would raise it afterwards, if anything is claimed at all."""
    guarantee = guarantee_of(algorithm, problem)
    if guarantee.claimed or (guarantee.event is not None and accounting == "paper"):
        ledger = unspent(guarantee, problem)
        report(guarantee, ledger.releases, ledger.records, delta=delta, accounting=accounting)


@checked
def account_plan(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int,
    key: int | Array | RunKey | None = None,
    delta: float | None = None,
    accounting: Accounting = "sound",
    stop: StopRule | None = None,
) -> PrivacyReport:
    """The privacy guarantee of a planned run of `steps` rounds, without running it; raises as `account` does.

    `calibrate` is the inverse, from an epsilon to the noise. `algorithm`, `problem`, `network`, `steps` and `key` are
    those of `jdfl.run`, with the noise; `delta` and `accounting` are those of `account`. Nothing is claimed with a rule
    `stop` that reads more than is released, unless the problem declares "stop" public; None: there is no rule.
    """
    network = stepping.paired(problem, network)
    releases = planned_releases(algorithm, problem, network, steps=steps, key=key)
    guarantee = guarantee_of(planned(algorithm, problem, network, steps), problem, stop)
    found = report(guarantee, releases, records_of(problem), delta=delta, accounting=accounting)
    return replace(found, key=KEYS.get(own_key(key, None, noisy=True).source, ""))


@checked
def calibrate(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int,
    epsilon: float,
    delta: float | None = None,
    key: int | Array | RunKey | None = None,
    accounting: Accounting = "sound",
    stop: StopRule | None = None,
) -> Any:
    """The algorithm with the least noise that makes `steps` rounds (epsilon, delta)-differentially private.

    The multiplier of its mechanism is replaced, whatever it was; sampling is taken into account where it is performed.
    `epsilon` > 0 is what all rounds together may spend. `algorithm`, `problem`, `network`, `steps`, `key` and `stop`
    are those of `account_plan`, and `delta` is that of `account`, not used with `accounting` = "paper", for the noise
    that the algorithm's paper prescribes, which may not be sound.

    Raises:
        ValueError: Where nothing may be claimed, for noise that follows a schedule, with accounting = "paper" for an
            algorithm whose paper says nothing of it, and for targets that make no sense.
    """
    network = stepping.paired(problem, network)
    checks.positive("It is what all rounds together may spend.", epsilon=epsilon)
    checks.one_of(("sound", "paper"), accounting=accounting)
    if accounting == "paper":
        method: Any = check_run(algorithm, problem, network, steps, 1, None).algorithm
        if (published := getattr(method, "published_multiplier", None)) is None:
            raise ValueError(
                f"Expected an algorithm whose paper says how much noise an epsilon needs, got "
                f"{type(algorithm).__name__}. Use accounting='sound'."
            )
        found = published(problem, epsilon, steps)
        return stepping.with_field(method, f"{noise_place(algorithm)}.multiplier", found)
    check_kinds(algorithm)
    if remedy := _scheduled(algorithm):
        raise ValueError(
            f"Expected an algorithm with one multiplier of its noise, got {type(algorithm).__name__}, whose noise "
            f"follows a schedule. {remedy}"
        )
    place = noise_place(algorithm)
    counts, records = planned_releases(algorithm, problem, network, steps=steps, key=key), records_of(problem)
    guarantee = guarantee_of(planned(algorithm, problem, network, steps), problem, stop)
    reported = report(guarantee, counts, records, delta=delta)  # refuses what cannot be claimed
    ledger = Ledger.of(guarantee, counts, records)
    event = guarantee.event
    assert event is not None
    released = [(node, int(counts[node])) for node in ledger.candidates() if counts[node]]

    def least(node: int, count: int) -> float:
        delta, scale = delta_for_noise(event, count, reported.delta, epsilon), 1.0
        if isinstance(event, GaussianSchedule):  # its releases are as one, whose noise grows with the multiplier
            count, scale = 1, float(event.shift(count)) * event.noise_multiplier
        return noise_multiplier(event.kind, epsilon, delta, count, **ledger.terms(node)) * scale

    needed = max((least(node, count) for node, count in released), default=0.0)
    if not needed:
        raise ValueError(f"Expected steps in which something is released, got steps = {steps}: no noise is needed.")
    # An observer may be able to subtract a part of the noise, whose event then has less than the mechanism adds.
    mechanism: Any = _field(algorithm, place)
    needed *= float(mechanism.multiplier) / event.noise_multiplier

    def enough(x: float) -> bool:  # of the multiplier's logarithm
        if abs(x - math.log(needed)) > _FARTHEST:
            raise ValueError(
                f"Expected an algorithm whose epsilon follows the multiplier of its noise, got "
                f"{type(algorithm).__name__}. Look for its noise with jdfl.account_plan."
            )
        made = planned(stepping.with_field(algorithm, f"{place}.multiplier", math.exp(x)), problem, network, steps)
        return Ledger.of(guarantee_of(made, problem, stop), counts, records).worst(reported.delta)[1] <= epsilon

    if type(algorithm).plan is not Algorithm.plan:  # there may be noise besides, which stays
        needed = math.exp(least_enough(enough, math.log(needed)))
    needed = float(np.nextafter(np.float32(needed), np.float32(np.inf)))  # what a float32 run makes of it is no less
    return stepping.with_field(algorithm, f"{place}.multiplier", needed)


def noise_place(algorithm: Any) -> str:
    """The dotted path of the algorithm's noise mechanism; ValueError where it has none."""
    if (place := _place(algorithm)) is None:
        raise ValueError(
            f"Expected an algorithm with noise, got {type(algorithm).__name__} without. Give it a mechanism, for "
            "example Gaussian(1.0), and a clip."
        )
    return place


def adjustable(algorithm: Any) -> bool:
    """Whether an algorithm has noise whose one multiplier `calibrate` can replace."""
    return not _scheduled(algorithm) and _place(algorithm) is not None


def _place(algorithm: Any) -> str | None:
    return next((place for place in _PLACES if _field(algorithm, place) is not None), None)


def _field(algorithm: Any, path: str) -> Any:
    for name in path.split("."):
        algorithm = getattr(algorithm, name, None)
    return algorithm


def _scheduled(algorithm: Any) -> str:
    """How to set the noise of an algorithm that has a schedule of it; empty for all others."""
    if hasattr(algorithm, "dpps"):
        return "Look for its b with jdfl.account_plan."
    return getattr(algorithm, "noise_by", "")


@checked
def paths(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    steps: int = 1,
    metrics: Sequence[str | Metric] | None = None,
) -> dict[str, str]:
    """Every output of a run, with the reason where records enter it other than through a mechanism's noise.

    Keys are "message NAME" for every channel, "parameters", "metric NAME", "state PLACE" for every array of the state,
    which checkpoints hold, and the tables of nodes. An empty reason means that all of the output is computed from noisy
    releases of bounded values, and from what is public: it is covered by the guarantee of these, which `account_plan`
    gives. Nothing is run. Where a message has a reason, there is no guarantee.

    `algorithm`, `problem`, `network`, `steps` and `metrics` are those of `jdfl.run`, as are the ValueErrors; values
    that the problem declares public count as public.
    """
    network = paired(problem, network)
    check_settings(algorithm, problem, network, steps)
    program = planned(algorithm, problem, network, steps)
    chosen = metrics_module.default_metrics(problem) if metrics is None else metrics_module.resolve(metrics, problem)
    programs = traced(algorithm, problem, program.plan)
    flows, params, state = outputs(programs, problem)
    leaks = flows[0].leaks | flows[1].leaks
    found = {f"message {name}": leaks.get(name, "") for name in (*(one.name for one in algorithm.channels), *leaks)}
    found["parameters"] = WHY[params]
    guarantee = guarantee_of(program, problem)
    if not guarantee.claimed and (
        guarantee.event is not None or flows[0].noises or flows[1].noises
    ):  # what noise does not hide
        found = {name: why or guarantee.reason for name, why in found.items()}
    shape = jax.eval_shape(algorithm.params, programs.state)
    for metric in chosen:
        closed = jax.make_jaxpr(metric)(shape, problem)
        found[f"metric {metric.__name__}"] = WHY[
            max(one.label for one in Flow().walk(closed, [Value(params), *values(problem)]))
        ]
    for place, label in jax.tree.leaves_with_path(state):
        found[f"state {jax.tree_util.keystr(place)}"] = WHY[label]
    return found | dict.fromkeys(("nodes.csv", "split.csv"), WHY[Label.RAW])
