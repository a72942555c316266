"""Groups of points of a study that one compiled program can run as lanes, and their results.

Points with the same problem, network and stop rule whose algorithms differ only in floats are a group. A run with a
budget of epsilon, or with a limit on the size of parameters, is run alone, since lanes have neither.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import pandas as pd

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base.run_keys import RunKey
from jdfl.config import RunConfig, budget_of, build, intended, ledger_of, yaml_text
from jdfl.engine.accountant import check_account
from jdfl.engine.batch import across
from jdfl.engine.data_ledger import Intent
from jdfl.engine.metrics import COUNTS
from jdfl.engine.result import CUTS, Result
from jdfl.engine.runner import run
from jdfl.engine.start import Options, check_run, execution
from jdfl.engine.trials import Trial
from jdfl.lab.summary import privacy_of
from jdfl.privacy.report import worth

LANES = 64  # runs of a group at most; a study that is cut off loses at most these
REFUSED = "refused"  # the ending of a point that cannot be run


@dataclass(frozen=True)
class Point:
    """A point of a study."""

    index: int
    values: dict[str, Any]  # by dotted path
    config: RunConfig


@dataclass(frozen=True)
class Group:
    """Points that are run together with the same seeds."""

    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    side_by_side: bool

    @property
    def name(self) -> str:
        """A name that identifies the work of the group."""
        told = [[point.index, yaml_text.plain(point.config)] for point in self.points]
        return hashlib.sha256(json.dumps([told, self.seeds], sort_keys=True).encode()).hexdigest()[:16]


def groups(points: Sequence[Point], seeds: Sequence[int]) -> list[Group]:
    """The points in groups of at most LANES runs, or of one point, in the order of their first points."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(_key(point.config) or f"alone {point.index}", []).append(point)
    size = max(1, LANES // len(seeds))
    return [
        Group(tuple(one[i : i + size]), tuple(seeds), _free(one[0].config))
        for one in found.values()
        for i in range(0, len(one), size)
    ]


def run_group(group: Group, token: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A table of runs (point, its values, seed, ending, metrics, totals) and one of records (point, seed, history).

    A point whose settings are refused has one row with the reason. A ledger knows the runs by their `token`.
    """
    rows: list[dict[str, Any]] = []
    curves: list[pd.DataFrame] = []
    for point, result in (_side_by_side if group.side_by_side else _alone)(group, token):
        if isinstance(result, str):
            rows.append({"point": point.index, **point.values, "ending": REFUSED, "reason": result})
            continue
        rows.append(_row(point, result))
        curves.append(result.history.assign(point=point.index, seed=result.labels["seed"]))
    return pd.DataFrame(rows), pd.concat(curves, ignore_index=True) if curves else pd.DataFrame()


def intents(group: Group, token: str) -> Iterator[Intent]:
    """The planned runs of a group with their releases, without points that are refused."""
    for point in group.points:
        config = point.config
        try:
            given = build(config)
            _check(config, *given)
        except (ValueError, OSError):  # it is reported when its turn comes
            continue
        others = () if group.side_by_side else execution(Options(diverged_above=config.diverged_above))
        yield from intended(config, given, _keys(group, point, token), *others)


def _keys(group: Group, point: Point, token: str) -> list[RunKey]:
    """The keys of the runs of a point: the private ones follow from the seed and from the values of the point."""
    return [replace(RunKey.of(seed).derived(point.values), token=token) for seed in group.seeds]


def _free(config: RunConfig) -> bool:
    return config.privacy.epsilon is None and config.diverged_above is None


def _key(config: RunConfig) -> str:
    """A key that configurations share if their runs can be lanes; "" for a run that has to be alone."""
    if not _free(config):
        return ""
    try:
        algorithm = config.algorithm.build()
    except ValueError:  # it is reported when its turn comes
        return ""
    rest = yaml_text.dump(replace(config, algorithm=RunConfig().algorithm))
    stop = None if config.stop is None else config.stop.build(algorithm=algorithm)
    return f"{rest}\n{stop!r}\n{_floats(algorithm)[1]}"


def _floats(algorithm: Algorithm) -> tuple[dict[str, float], str]:
    """The floats of an algorithm by dotted path, and everything else as text."""
    leaves, structure = jax.tree.flatten_with_path(algorithm)
    named = {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
    found = {path: leaf for path, leaf in named.items() if type(leaf) is float}
    return found, f"{structure} { ({path: leaf for path, leaf in named.items() if path not in found}) }"


def _side_by_side(group: Group, token: str) -> Iterator[tuple[Point, Result | str]]:
    """Every run, or the reason why a point has none, as lanes of one program."""
    accepted: list[tuple[Point, Algorithm]] = []
    shared: tuple[Any, ...] = ()  # problem, network, stop rule
    for point in group.points:
        try:
            shared = shared or build(point.config)[1:]
            algorithm = point.config.algorithm.build()
            _check(point.config, algorithm, *shared)
        except (ValueError, OSError) as error:
            yield point, str(error)
        else:
            accepted.append((point, algorithm))
    if not accepted:
        return
    problem, network, stop = shared
    rows = [_floats(algorithm)[0] for _, algorithm in accepted]
    tried = [path for path in rows[0] if len({row[path] for row in rows}) > 1]
    over: Any = [{path: row[path] for path in tried} for row in rows]
    how = _options(accepted[0][0].config)
    trials = [Trial(seed, problem, network) for seed in group.seeds]
    how |= {"names": [point.values for point, _ in accepted], "token": token}
    results = across(accepted[0][1], trials, over=over, stop=stop, **how)
    for i, (point, _) in enumerate(accepted):
        first = i * len(group.seeds)
        yield from ((point, result) for result in results[first : first + len(group.seeds)])


def _alone(group: Group, token: str) -> Iterator[tuple[Point, Result | str]]:
    """Every run, or the reason why a point has none, one after another."""
    for point in group.points:
        config = point.config
        try:
            algorithm, problem, network, stop = build(config)
            _check(config, algorithm, problem, network, stop)
            how: dict[str, Any] = _options(config) | {"stop": stop, "callbacks": budget_of(config)}
            how["options"] = Options(diverged_above=config.diverged_above)
            for seed, key in zip(group.seeds, _keys(group, point, token)):
                result = run(algorithm, problem, network, key=key, **how)
                if result.ending in CUTS:  # a part of a run is none of its points
                    raise KeyboardInterrupt
                yield point, replace(result, labels={"seed": seed})
        except (ValueError, OSError) as error:
            yield point, str(error)


def _options(config: RunConfig) -> dict[str, Any]:
    told = {"steps": config.steps, "every": config.every, "metrics": config.metrics or None}
    return told | {"ledger": ledger_of(config)}


def _check(config: RunConfig, algorithm: Any, problem: Any, network: Any, stop: Any) -> None:
    """Refuse settings that cannot be run or accounted for."""
    program = check_run(algorithm, problem, network, config.steps, config.every, stop)
    check_account(program, problem, delta=config.privacy.delta, accounting=config.privacy.accounting)


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
