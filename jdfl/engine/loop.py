"""The device part of a run: jitted start, and chunks of rounds whose state is donated.

The stop rule is a condition of the inner loop, so the state after the loop is the state of the round that stopped. A
round that would exceed a limit is computed and discarded. Metrics are evaluated where records are made.

Axes: m nodes, n parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import layout as layouts

from jdfl.algorithms.program import Program
from jdfl.algorithms.round import StepCounts
from jdfl.arrays import ops
from jdfl.base import struct
from jdfl.base.backend import backend
from jdfl.base.streams import Keys
from jdfl.devices import nodes
from jdfl.devices.layout import Layout
from jdfl.engine import invariants
from jdfl.engine import metrics as metrics_module
from jdfl.engine.stepping import Setting, checked, done_at, initial_round, sample_round, step, with_field
from jdfl.engine.stopping import StopRule, View
from jdfl.network.timing import Seconds
from jdfl.problems import Problem

SECONDS = ("network_seconds", "network_seconds_last")


@struct.dataclass
class RunState:
    """Everything that goes from one round to the next."""

    state: Any
    rounds: Array  # int32 [] rounds done
    stopped: Array  # bool [] the stop rule fired
    bad: Array  # int32 [] what diverged or violated an invariant, as `invariants.found` reads it, or NOTHING
    measured: Array  # [m] float32 what was measured there
    spent: Array  # bool [] the next round would release more than is allowed
    counts: StepCounts  # sums over the rounds of this chunk; before the first chunk, those of the start
    communications: Array  # [m] int32 how often nodes have `combined` rows since the start
    releases: Array  # [m] int32 since the start
    clock: Seconds | None  # [m] simulated seconds after which every node was done; None: the network has no times


@struct.dataclass
class Record:
    """What is reported of one moment; the counts are exact sums over nodes (`ops.limbs`)."""

    rounds: Array
    metrics: dict[str, Array]
    counts: dict[str, Array]


def evaluate(carry: RunState, setting: Setting, metrics: tuple[metrics_module.Metric, ...]) -> dict[str, Array]:
    """The metrics [] of a record by their names, and the simulated seconds."""
    problem, w = setting.program.judged(setting.problem, setting.program.params(carry.state))
    values: dict[str, Array] = {}
    for metric in metrics:
        known = (w, problem) if _enough(metric) else (nodes.gather(w), _gathered(problem))
        values[metric.__name__] = jnp.asarray(metric(*known), w.dtype)
    if carry.clock is not None:
        first = -nodes.largest(-carry.clock[0])  # clocks that are equal have exactly this mean
        values |= dict(zip(SECONDS, (first + nodes.mean(carry.clock[0] - first), nodes.largest(carry.clock[0]))))
    for name, value in values.items():  # shapes are known while tracing, before anything is compiled
        if value.shape:
            raise ValueError(f"Expected one number from the metric {name!r}, got an array of shape {value.shape}.")
    return values


def concluded(
    carry: RunState, setting: Setting, values: dict[str, Array], metrics: tuple[metrics_module.Metric, ...]
) -> tuple[RunState, dict[str, Array]]:
    """The end of a run whose metrics overflow, and of every bad run a record without finite metrics.

    Where parameters must not end a run, metrics do not either.
    """
    if setting.watched == "state":
        known = enumerate(metrics)
        looked = {place: values[one.__name__] for place, one in known if one in metrics_module.FINITE}
        carry = replace(carry, bad=invariants.unbounded(carry.bad, looked))
    lost = carry.bad != invariants.NOTHING
    worst = {metric.__name__: metrics_module.worst(metric) for metric in metrics}
    return carry, values | {name: jnp.where(lost, bad, values[name]) for name, bad in worst.items()}


def _record(carry: RunState, setting: Setting, values: dict[str, Array]) -> Record:
    # What is known to be the same for all nodes is not for XLA to add up at compile time, which takes it minutes.
    info, examples = lax.optimization_barrier((carry.counts, setting.program.examples(setting.problem)))
    named = {f"sent_{channel}": count for channel, count in info.sent.items()}
    named |= {name: getattr(info, name) for name in ("grads", "releases", "communications")}
    counts = dict(zip(named, ops.limbs(jnp.stack(list(named.values()))).T))
    counts["examples"] = ops.product_limbs(info.grads, examples)
    return Record(carry.rounds, values, counts)


def _enough(function: Any) -> bool:
    """Whether a metric or stop rule is content with this device's rows."""
    return nodes.share() is None or getattr(function, "on_every_device", False)


def _gathered(problem: Problem) -> Problem:
    return jax.tree.map(lambda x, row: nodes.gather(x) if row else x, problem, nodes.with_rows(problem.nodes))


def stops(stop: StopRule | None, view: View) -> Array:
    """Whether a stop rule fires []."""
    if stop is None:
        return jnp.bool_(False)
    if not _enough(stop):
        w, communications = nodes.gather(view.w), nodes.gather(view.communications)
        view = View(view.rounds, w, communications, _gathered(view.problem))
    return stop(view)


def _start(setting: Setting, metrics: tuple[metrics_module.Metric, ...]) -> tuple[Setting, RunState, Record]:
    k = jnp.int32(0)
    begin = initial_round(setting)
    algorithm = setting.program.prepare(setting.problem, begin)
    state, info = algorithm.init(setting.problem, begin)
    info = nodes.counted(info)
    state = lax.optimization_barrier(state)  # or XLA computes with its constant zeros at compile time
    setting = replace(setting, program=algorithm)
    no, timing = jnp.bool_(False), begin.graph.timing
    dtype = setting.problem.dtype
    computed = None if timing is None else timing.compute.astype(dtype) * info.grads.astype(dtype)
    clock = None if computed is None else (computed, jnp.zeros_like(computed))
    first = invariants.Known(algorithm.mass(state), clock)
    bad = checked(setting, state, None, info, info.releases, invariants.unit(first), first)
    carry = RunState(state, k, no, *bad, no, info, info.combined, info.releases, clock)
    values = evaluate(carry, setting, metrics)
    _, values = concluded(carry, replace(setting, watched="nothing"), values, metrics)
    return setting, carry, _record(carry, setting, values)


def _advance(
    carry: RunState, setting: Setting, end: Array, every: int, records: int, metrics: tuple[metrics_module.Metric, ...]
) -> tuple[RunState, Record]:
    """Up to `records` times `every` rounds, to round `end` at most; a record after each stretch."""
    algorithm, problem, stop = setting.program, setting.problem, setting.stop

    def goes_on(carry: RunState, until: Array) -> Array:
        return (carry.rounds < until) & ~carry.stopped & ~carry.spent & (carry.bad == invariants.NOTHING)

    def one_round(carry: RunState) -> RunState:
        here = replace(setting, problem=in_rows(problem))
        round = sample_round(here, carry.rounds)
        state, info = step(here, carry.state, round)
        clock = done_at(setting, carry.clock, round, info)
        info = lax.optimization_barrier(info)  # or XLA counts twice, for the sums and for the rules
        w = algorithm.params(state)
        communications = carry.communications + info.combined
        rounds = carry.rounds + 1
        judged, *seen = algorithm.judged(problem, w, communications)
        stopped = stops(stop, View(rounds, seen[0], seen[1], judged))
        counts = jax.tree.map(jnp.add, carry.counts, info)
        releases = carry.releases + info.releases
        compared = [
            invariants.Known(algorithm.mass(one), at) for one, at in ((carry.state, carry.clock), (state, clock))
        ]
        bad = checked(setting, state, round.graph, info, releases, *compared)
        new = RunState(state, rounds, stopped, *bad, carry.spent, counts, communications, releases, clock)
        if setting.limit is None:
            return new
        # What the round would release has not been sent yet: nothing of it is kept where it is too much.
        spent = nodes.some(releases > setting.limit)
        kept = jax.tree.map(lambda one, other: jnp.where(spent, one, other), carry, new)
        return kept.replace(spent=spent)

    def turn(carry: RunState, until: Array) -> RunState:
        carry = one_round(carry)
        if rounds_per_turn(carry.state) == 1:
            return carry
        return lax.cond(goes_on(carry, until), one_round, lambda carry: carry, carry)

    def stretch(carry: RunState, _: None) -> tuple[RunState, Record]:
        # Records fall on multiples of `every`, wherever a chunk begins.
        until = jnp.minimum((carry.rounds // every + 1) * every, end)
        before = carry.rounds
        carry = lax.while_loop(lambda c: goes_on(c, until), lambda c: turn(c, until), carry)
        names = [*(metric.__name__ for metric in metrics), *(() if carry.clock is None else SECONDS)]
        nothing = {name: jnp.zeros((), algorithm.params(carry.state).dtype) for name in names}
        values = ops.skipped_unless(
            carry.rounds > before,
            partial(evaluate, metrics=metrics),
            nothing,
            carry,
            setting,
        )
        carry, values = concluded(carry, setting, values, metrics)
        return carry, _record(carry, setting, values)

    return lax.scan(stretch, carry, length=records)


def progress(carry: RunState) -> tuple[int, bool, bool]:
    """The rounds that are done, whether the run is over, and whether it diverged or violated an invariant."""
    rounds, stopped, spent, first = jax.device_get((carry.rounds, carry.stopped, carry.spent, carry.bad))
    bad = int(first) != invariants.NOTHING
    return int(rounds), bool(stopped or spent) or bad, bad


@partial(jax.jit, static_argnames=("metrics", "layout"))
def start(
    setting: Setting, metrics: tuple[metrics_module.Metric, ...], layout: Layout | None = None
) -> tuple[Program, RunState, Record]:
    """The algorithm with its per-node constants, the carry before round 0, and the record of the start.

    What a jitted function gives back is a copy, so the problem stays out of it: its data is the largest thing there is.
    """

    def begin(setting: Setting) -> tuple[Program, RunState, Record]:
        setting, carry, record = _start(setting, metrics)
        return setting.program, carry, record

    if layout is None:
        return begin(setting)
    return layout.each_device(begin, (layout.begin,), (layout.program, layout.carry, None))(setting)


@partial(jax.jit, static_argnames=("every", "records", "metrics", "layout"), donate_argnames=("carry",))
def advance(
    carry: RunState,
    setting: Setting,
    end: Array,
    every: int,
    records: int,
    metrics: tuple[metrics_module.Metric, ...],
    layout: Layout | None = None,
) -> tuple[RunState, Record]:
    """Rounds of a run, with the counters from zero: a chunk's counts fit int32, a run's need not."""
    fresh = replace(carry, counts=jax.tree.map(jnp.zeros_like, carry.counts))

    def rounds(carry: RunState, setting: Setting, end: Array) -> tuple[RunState, Record]:
        return _advance(carry, setting, end, every, records, metrics)

    if layout is None:
        return rounds(fresh, setting, end)
    arguments = (layout.carry, layout.ready, None)
    return layout.each_device(rounds, arguments, (layout.carry, None))(fresh, setting, end)


@partial(jax.jit, static_argnames=("every", "records", "metrics", "batch"))
def lanes(
    setting: Setting,
    trials: dict[str, Any],
    keys: Keys,
    values: dict[str, Array],
    end: Array,
    every: int,
    records: int,
    metrics: tuple[metrics_module.Metric, ...],
    batch: int,
) -> tuple[Array, RunState, Record, Record]:
    """Whole runs of a setting: lane [t, p] has the problem and network of trial t, keys[t, p], values[path][t, p]."""
    t, p = jax.tree.leaves(keys)[0].shape[:2]

    def one(setting: Setting, lane: tuple[Keys, dict[str, Array], Array]) -> tuple[Array, RunState, Record, Record]:
        keys, fields, last = lane
        algorithm = setting.program
        for path, value in fields.items():
            algorithm = with_field(algorithm, path, value)
        here, carry, first = _start(replace(setting, program=algorithm, keys=keys), metrics)
        carry, rest = _advance(carry, here, last, every, records, metrics)
        return here.program.params(carry.state), replace(carry, state=None), first, rest

    def trial(given: tuple[dict[str, Any], Any]) -> Any:
        drawn, lanes = given
        return _map(partial(one, replace(setting, **drawn)), lanes, min(batch, p))

    return _map(trial, (trials, (keys, values, end)), max(1, min(batch // p, t)))


def _map(function: Callable[[Any], Any], rows: Any, batch: int) -> Any:
    """`function` of every row: `batch` of them side by side, or one after another."""
    return lax.map(function, rows, batch_size=None if batch == 1 else batch)


@jax.jit
def releases(setting: Setting, steps: Array) -> Array:
    """How many releases every node [m] makes at the start and in `steps` rounds, whatever a stop rule would say.

    What the counts do not depend on, and that is all of the work, is left out by the compiler.
    """
    setting, carry, _ = _start(setting, ())

    def one(k: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
        state, info = step(setting, carry[0], sample_round(setting, k))
        return state, carry[1] + info.releases

    return ops.in_turn(steps, one, (carry.state, carry.releases))[1]


_LANES = 128  # of a TPU


def in_rows(problem: Problem) -> Problem:
    """The problem with its arrays as they lie in memory: for a GPU the compiler would make a transposed copy of all."""
    if backend() != "gpu":
        return problem

    def constrained(x: Array) -> Array:
        return layouts.with_layout_constraint(x, layouts.Layout(tuple(range(x.ndim)))) if x.ndim > 2 else x

    return jax.tree.map(constrained, problem)


def put_in_rows(problem: Problem) -> Problem:
    """The problem with its data [m, q, n] row by row in a TPU's memory; where that is so already, the same arrays.

    A TPU has another order of its own, from which the compiler would make a copy in every round. Rows are filled up to
    a multiple of 128 numbers there: data for which that takes half as much again stays as it is.
    """
    if backend() != "tpu":
        return problem

    def put(x: Any) -> Any:
        if x.ndim != 3 or -(-x.shape[-1] // _LANES) * _LANES > 1.5 * x.shape[-1]:
            return x
        rows = layouts.Format(layouts.Layout((0, 1, 2)), x.sharding)
        if isinstance(x, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows)
        return jax.device_put(x, rows)

    return jax.tree.map(put, problem)


def rounds_per_turn(state: Any) -> int:
    """How many rounds one turn of the compiled loop over rounds has at most.

    A round reads the rows of neighbours while it writes new ones, so the compiler copies the state in every turn. The
    second of two rounds writes where the first one read: on a GPU, whose memory is the limit, and for a state of one
    array, which needs no more memory for it.
    """
    return 2 if backend() == "gpu" and len(jax.tree.leaves(state)) == 1 else 1
