"""The runs of a group, as rows of two tables: one of what runs have come to, one of their curves."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

import jdfl
from jdfl.accountant import check_account
from jdfl.base import Algorithm
from jdfl.config import build
from jdfl.lab.groups import Group, Point, floats
from jdfl.lab.summary import privacy_of
from jdfl.metrics import COUNTS
from jdfl.privacy.relation import worth
from jdfl.result import Result
from jdfl.runner import check_run, planned

REFUSED = "refused"  # the ending of what cannot be run


def run_group(group: Group) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row per run: point, its values, seed, ending, metrics and totals; and a row per record: point, seed, history.

    A point whose settings are refused has one row, with the reason.
    """
    rows: list[dict[str, Any]] = []
    curves: list[pd.DataFrame] = []
    for point, result in _results(group):
        if isinstance(result, str):
            rows.append({"point": point.index, **point.values, "ending": REFUSED, "reason": result})
            continue
        rows.append(_row(point, result))
        curves.append(result.history.assign(point=point.index, seed=result.labels["seed"]))
    return pd.DataFrame(rows), pd.concat(curves, ignore_index=True) if curves else pd.DataFrame()


def _results(group: Group) -> Iterator[tuple[Point, Result | str]]:
    """Every run, or why a point has none."""
    if not group.side_by_side:
        for point in group.points:
            yield from ((point, result) for result in _alone(point, group.seeds))
        return
    accepted: list[tuple[Point, Algorithm]] = []
    shared: tuple[Any, ...] = ()  # problem, network, stop rule
    for point in group.points:
        try:
            shared = shared or build(point.config)[1:]
            algorithm = point.config.algorithm.build()
            _check(point, algorithm, *shared)
        except (ValueError, OSError) as error:
            yield point, str(error)
        else:
            accepted.append((point, algorithm))
    if not accepted:
        return
    problem, network, stop = shared
    config, algorithms = accepted[0][0].config, [algorithm for _, algorithm in accepted]
    over = floats(algorithms) if len(algorithms) > 1 else {}
    results = jdfl.sweep(
        algorithms[0],
        problem,
        network,
        over=[dict(zip(over, row)) for row in zip(*over.values())] if over else {},
        keys=group.seeds,
        steps=config.steps,
        every=config.every,
        stop=stop,
        metrics=config.metrics or None,
    )
    count = len(group.seeds)
    if not over and len(accepted) > 1:  # the same values twice
        results = results * len(accepted)
    for i, (point, _) in enumerate(accepted):
        yield from ((point, result) for result in results[i * count : (i + 1) * count])


def _alone(point: Point, seeds: Sequence[int]) -> Iterator[Result | str]:
    """The runs of a point, one after another."""
    config = point.config
    try:
        algorithm, problem, network, stop = build(config)
        _check(point, algorithm, problem, network, stop)
        spend = config.privacy
        budget = spend.epsilon if spend.accounting == "sound" else None
        for seed in seeds:
            result = jdfl.run(
                algorithm,
                problem,
                network,
                key=seed,
                steps=config.steps,
                every=config.every,
                stop=stop,
                metrics=config.metrics or None,
                epsilon=budget,
                delta=None if budget is None else spend.delta,
                diverged_above=config.diverged_above,
            )
            yield replace(result, labels={"seed": seed})
    except (ValueError, OSError) as error:
        yield str(error)


def _check(point: Point, algorithm: Any, problem: Any, network: Any, stop: Any) -> None:
    """Refuse what cannot be run, or not be told of."""
    config = point.config
    check_run(algorithm, problem, network, config.steps, config.every, stop)
    ready = planned(algorithm, problem, network, config.steps)
    check_account(ready, problem, delta=config.privacy.delta, accounting=config.privacy.accounting)


def _row(point: Point, result: Result) -> dict[str, Any]:
    totals, spend = result.totals, point.config.privacy
    privacy = privacy_of(result, spend.delta, spend.accounting)
    told: dict[str, Any] = privacy["report"] or {}
    return {
        "point": point.index,
        **point.values,
        "seed": result.labels["seed"],
        "rounds": result.rounds,
        "ending": result.ending,
        "reason": result.reason,
        **{name: value for name, value in result.final.items() if name not in COUNTS},
        "messages": sum(totals.messages.values()),
        "bytes": totals.bytes,
        "gradients": totals.gradients,
        "examples": totals.examples,
        "communications": float(result.communication_rounds.mean()),
        "releases": totals.releases,
        "epsilon": told.get("epsilon"),
        "delta": told.get("delta"),
        "promise": worth(told) if told else None,
        "ledger": None if privacy["ledger"] is None else json.dumps(privacy["ledger"]),
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "provenance": result.provenance.hash,
    }
