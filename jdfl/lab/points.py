"""The points of a study, the groups of points that one compiled program runs as lanes, and their results.

Points are all combinations of values of settings, or drawn at random. Those with the same problem, network and stop
rule whose algorithms differ only in floats are a group. A run with a budget of epsilon, or with a limit on the size of
parameters, is run alone, since lanes have neither.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import checks
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
from jdfl.privacy.report import worth
from jdfl.results.summary import privacy_of

_MOST = 100_000  # points
LANES = 64  # runs of a group at most; a study that is cut off loses at most these
REFUSED = "refused"  # the ending of a point that cannot be run


Draw = Callable[[np.random.Generator], float | int]  # a value of a distribution


def field_of(line: str) -> tuple[str, list[Any] | Draw]:
    """The dotted path and the values behind a line such as "algorithm.lr=0.1,0.2" or "algorithm.lr=log:1e-3:1"."""
    path, sign, text = line.partition("=")
    path, text = path.strip(), text.strip()
    if not sign or not path or not text:
        raise ValueError(
            f"Expected setting=value,value,... or setting=uniform:LOW:HIGH (or log, int), got {line!r}. "
            "For example algorithm.lr=0.05,0.1,0.2."
        )
    kind, *ends = text.split(":")
    if kind in ("uniform", "log", "int"):
        return path, _distribution(path, kind, ends)
    values = [yaml_text.scalar(part.strip()) for part in text.split(",")]
    if len({repr(value) for value in values}) < len(values):
        raise ValueError(f"Expected every value of {path} once, got {text!r}.")
    return path, values


def _distribution(path: str, kind: str, ends: Sequence[str]) -> Draw:
    """Uniform, log-uniform, or uniform over integers, both ends included."""
    try:
        low, high = (yaml_text.number(float, end) for end in ends)
    except ValueError:
        raise ValueError(f"Expected {kind}:LOW:HIGH for {path}, got {':'.join([kind, *ends])!r}.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"Expected finite ends LOW < HIGH for {path}, got {low:g} and {high:g}.")
    if kind == "log" and low <= 0:
        raise ValueError(f"Expected LOW > 0 for the logarithms of {path}, got {low:g}. Use uniform.")
    if kind == "int" and not (low.is_integer() and high.is_integer()):
        raise ValueError(f"Expected whole numbers for {path}, got {low:g} and {high:g}. Use uniform.")
    if kind == "int":
        return lambda rng: int(rng.integers(int(low), int(high) + 1))
    if kind == "log":
        return lambda rng: math.exp(rng.uniform(math.log(low), math.log(high)))
    return lambda rng: float(rng.uniform(low, high))


def points(lines: Sequence[str], random: int | None, seed: int) -> list[dict[str, Any]]:
    """The points of a study, each a mapping from dotted path to value."""
    fields: dict[str, Any] = {}
    for path, field in map(field_of, lines):
        if path in fields:
            raise ValueError(f"Expected every setting once, got {path} twice. Give all its values in one place.")
        fields[path] = field
    ranges = [path for path, field in fields.items() if not isinstance(field, list)]
    if random is None and ranges:
        raise ValueError(f"Expected random = N, the number of points to draw, for the distribution of {ranges[0]}.")
    if random is not None:
        checks.integer(1, random=random)
    count = math.prod(map(len, fields.values())) if random is None else random
    if count > _MOST:
        raise ValueError(f"Expected at most {_MOST} points, got {count}. Give fewer values, or draw some at random.")
    if random is None:
        return [dict(zip(fields, values)) for values in itertools.product(*fields.values())]
    rng = np.random.default_rng(seed)

    def drawn(field: Any) -> Any:
        return field[int(rng.integers(len(field)))] if isinstance(field, list) else field(rng)

    return [{path: drawn(field) for path, field in fields.items()} for _ in range(random)]


def config_at(base: RunConfig, point: Mapping[str, Any]) -> RunConfig:
    """The configuration with the values of a point."""
    plain = yaml_text.plain(base)
    for path, value in sorted(point.items(), key=lambda item: item[0].count(".")):
        target = plain
        *above, name = path.split(".")
        for i, step in enumerate(above):
            target = target.get(step)
            if not checks.is_a(target, dict):
                raise ValueError(f"Unknown setting {path}: {'.'.join(above[: i + 1])} has no settings of its own here.")
        here = target.get(name)
        if not (checks.is_a(here, dict) and here.get("kind") == value):  # the same kind keeps its settings
            target[name] = {"kind": value} if checks.is_a(here, dict) and isinstance(value, str) else value
    made = yaml_text.from_plain(RunConfig, plain)
    for path in point:
        _check_kept(path, base, made, point)
    return made


def _check_kept(path: str, base: RunConfig, made: RunConfig, point: Mapping[str, Any]) -> None:
    """Refuse another kind that would reset a setting of the same name to its default."""
    before, after = base, made
    for name in path.split("."):
        before, after = getattr(before, name, None), getattr(after, name, None)
    if not is_dataclass(before) or not is_dataclass(after) or type(before) is type(after):
        return
    for one in fields(before):
        value = getattr(before, one.name)
        if value != one.default and hasattr(after, one.name) and f"{path}.{one.name}" not in point:
            raise ValueError(
                f"Expected {path}.{one.name} among the tried settings together with {path}, got "
                f"{yaml_text.plain(value)!r} for one kind only: another kind has "
                f"{yaml_text.plain(getattr(after, one.name))!r}. Add it, even with a single value: "
                f"--over {path}.{one.name}=..."
            )


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
        work = [[point.index, yaml_text.plain(point.config)] for point in self.points]
        return hashlib.sha256(json.dumps([work, self.seeds], sort_keys=True).encode()).hexdigest()[:16]


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
            given = _built(config)
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
            algorithm, *others = _built(point.config, shared)
        except (ValueError, OSError) as error:
            yield point, str(error)
        else:
            shared = tuple(others)
            accepted.append((point, algorithm))
    if not accepted:
        return
    (first, algorithm), (problem, network, stop) = accepted[0], shared
    rows = [_floats(one)[0] for _, one in accepted]
    tried = [path for path in rows[0] if len({row[path] for row in rows}) > 1]
    over = [{path: row[path] for path in tried} for row in rows]
    trials = [Trial(seed, problem, network) for seed in group.seeds]
    names = [point.values for point, _ in accepted]
    results = across(algorithm, trials, over=over, stop=stop, names=names, token=token, **_options(first.config))
    yield from zip((point for point, _ in accepted for _ in group.seeds), results)


def _alone(group: Group, token: str) -> Iterator[tuple[Point, Result | str]]:
    """Every run, or the reason why a point has none, one after another."""
    for point in group.points:
        config = point.config
        try:
            algorithm, problem, network, stop = _built(config)
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
    shared = {"steps": config.steps, "every": config.every, "metrics": config.metrics or None}
    return shared | {"ledger": ledger_of(config)}


def _built(config: RunConfig, shared: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Algorithm, problem, network and stop rule, with the last three as given; ValueError where they cannot be run."""
    algorithm, problem, network, stop = (config.algorithm.build(), *shared) if shared else build(config)
    program = check_run(algorithm, problem, network, config.steps, config.every, stop)
    check_account(program, problem, delta=config.privacy.delta, accounting=config.privacy.accounting)
    return algorithm, problem, network, stop


def _row(point: Point, result: Result) -> dict[str, Any]:
    totals, spend = result.totals, point.config.privacy
    privacy = privacy_of(result, spend.delta, spend.accounting)
    report: dict[str, Any] = privacy["report"] or {}
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
        "epsilon": report.get("epsilon"),
        "delta": report.get("delta"),
        "promise": worth(report) if report else None,
        "ledger": None if privacy["ledger"] is None else json.dumps(privacy["ledger"]),
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "provenance": result.provenance.hash,
    }
