"""Many runs of one setting: seeds and values of float hyper-parameters as lanes of one compiled program."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdfl import checks, loop, programs, stepping
from jdfl.base import Algorithm
from jdfl.clock import Clock
from jdfl.keys import typed_key
from jdfl.metrics import Metric, default_metrics, resolve
from jdfl.network.graph import Network
from jdfl.outcome import as_chunk, assemble, key_data
from jdfl.problems import Problem
from jdfl.provenance import provenance
from jdfl.result import Result, Tally
from jdfl.runner import check_counters, check_run, planned
from jdfl.spending import guarantee_of
from jdfl.stopping import StopRule

MOST_NUMBERS = 2**26  # in the parameters of runs that go side by side: 256 MB in float32


def repeat(
    algorithm: Algorithm, problem: Problem, network: Network, *, keys: Sequence[int], steps: int, **options: Any
) -> list[Result]:
    """The same run with every seed of `keys`, compiled once; options as for `sweep`."""
    return sweep(algorithm, problem, network, over={}, keys=keys, steps=steps, **options)


def sweep(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    over: Mapping[str, Sequence[float]],
    keys: Sequence[int] = (0,),
    steps: int,
    every: int = 1,
    stop: StopRule | None = None,
    metrics: Sequence[str | Metric] | None = None,
    batch: int | None = None,
) -> list[Result]:
    """One run per value and seed, compiled once: floats of an algorithm are leaves, so new values compile nothing.

    `over` maps dotted fields of the algorithm ("mu", "codec.gamma") to values; several fields go side by side, one
    value of each per run (itertools.product makes a grid). Runs come out value by value, seed by seed, with their
    `labels`; their `state` is None and their `algorithm` is the given one with the point's values. `batch` runs go side
    by side by vmap, the batches in turn (None: all at once, as far as memory allows, but one at a time on CPU where
    loops of different lengths would wait for one another, in CEPS and in codecs that code some rows only); results
    depend on it by their rounding alone. `seconds` is the whole program's time divided by its runs, `compile_seconds`
    the whole program's. The number of records is part of the compiled program: other `steps` compile again.

    `every`, `stop` and `metrics` are as for `run`, `keys` are the seeds. Raises ValueError for a field that is unknown
    or not a float, for lists of different lengths, and as `run` does.
    """
    if not checks.is_a(keys, Iterable) or isinstance(keys, str | Mapping):
        raise ValueError(f"Expected a list of seeds, got keys = {keys!r}. For one seed give [{keys!r}].")
    points, keys = _points(algorithm, over), list(keys)
    labels = [{"seed": seed, **point} for point in points for seed in keys]
    if not labels:
        raise ValueError(f"Expected at least one seed and one value, got keys = {keys!r}, over = {dict(over)!r}.")
    made = [check_run(_at(algorithm, points[0]), problem, network, steps, every, stop)]
    for point in points[1:]:
        other = _at(algorithm, point)
        other.check(problem, network)
        made.append(planned(other, problem, network, steps))
    settings = [stepping.setting(one, problem, network, stop, typed_key(seed)) for one in made for seed in keys]
    check_counters(network, steps)
    steps, every = int(steps), int(every)
    chosen = default_metrics(problem) if metrics is None else resolve(metrics, problem)
    if batch is None:
        batch = len(settings) if _alike(algorithm) or jax.default_backend() != "cpu" else 1
        batch = max(1, min(batch, MOST_NUMBERS // (problem.m * problem.n)))
    checks.whole(1, batch=batch)
    programs.make_room()

    values = {path: jnp.asarray([label[path] for label in labels], problem.dtype) for path in over}
    values |= _plans(settings)
    keys_of_lanes = jax.tree.map(lambda *keys: jnp.stack(keys), *(setting.keys for setting in settings))
    records = -(-steps // every)
    clock = Clock()
    params, *rest = jax.block_until_ready(
        loop.lanes(
            settings[0], keys_of_lanes, values, jnp.int32(steps), every, records, chosen, min(batch, len(settings))
        )
    )
    spent = clock.read()
    spent = spent._replace(seconds=spent.seconds / len(settings))
    host = jax.device_get(rest)
    prepared = jax.eval_shape(lambda setting: loop.start(setting, ()), settings[0])[0]
    results: list[Result] = []
    for i, (setting, label) in enumerate(zip(settings, labels)):
        carry, first, later = jax.tree.map(lambda leaf: leaf[i], host)  # noqa: B023
        tally = Tally(prepared.message_bits(problem))
        tally.add(*as_chunk(first))
        tally.base = {}  # a lane's counters run on from the start
        tally.add(later.rounds, later.metrics, later.counts)
        # Of the settings: what was prepared from data is not told from them.
        guarantee = guarantee_of(setting.algorithm, problem)
        origin = provenance(key_data(setting.keys.run), algorithm=setting.algorithm, problem=problem, network=network)
        result = assemble(setting, params[i], carry, tally, spent, problem, network, steps, guarantee, origin)
        results.append(replace(result, labels=label))
    return results


def _alike(algorithm: Algorithm) -> bool:
    """Whether all runs do the same work in a round, so that vmap makes few large products of many small ones."""
    return not getattr(algorithm, "uneven", False) and getattr(getattr(algorithm, "codec", None), "free", True)


def _points(algorithm: Algorithm, over: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """The values of every run; one point without fields when nothing is swept."""
    for path, values in over.items():
        if not checks.is_a(values, Sequence | np.ndarray | jax.Array):
            raise ValueError(f"Expected a list of values for {path!r} in over, got {values!r}.")
    lengths = {path: len(values) for path, values in over.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Expected lists of one length in over, got {lengths}. They go side by side, not as a grid.")
    for path in over:
        target: Any = algorithm
        for name in path.split("."):
            if not hasattr(target, name):
                raise ValueError(f"Expected a field of {type(algorithm).__name__} in over, got {path!r}.")
            target = getattr(target, name)
        if isinstance(target, bool) or not isinstance(target, (float, np.floating)):
            raise ValueError(
                f"Expected a float field in over, got {path!r} = {target!r}. Write a number as a float (1.0, not 1); "
                "sizes and flags change the compiled program, so run them one by one."
            )
    if not over:
        return [{}]
    return [dict(zip(over, map(float, row))) for row in zip(*over.values())]


def _plans(settings: Sequence[stepping.Setting]) -> dict[str, Any]:
    """What the algorithms planned for themselves, path by path, a row for every lane."""
    found: dict[str, jax.Array] = {}
    for path in getattr(settings[0].algorithm, "planned", ()):
        rows = [attrgetter(path)(setting.algorithm) for setting in settings]
        if rows[0] is not None:
            found[path] = jnp.stack(rows)
    return found


def _at(algorithm: Algorithm, point: Mapping[str, float]) -> Algorithm:
    for path, value in point.items():
        algorithm = stepping.with_field(algorithm, path, value)
    return algorithm
