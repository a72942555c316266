"""The scheduler of asynchronous methods: a round is a period of simulated time, whose events run in waves.

It offers what `jdfl.engine.loop` offers for rounds: a start, an advance by some rounds, the releases of a whole run.
What happens when is known before the first event; so are all counts, and where a budget ends the run. Runs that differ
in their keys alone go side by side. Events are computed in pieces of at most w, which need

    bytes = state + prepared constants + max(w (2 touches + 2) n + examples + activations of w nodes, m n),

whose last term is that of `params`.

Axes: m nodes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.program import Program
from jdfl.arrays.ops import from_limbs
from jdfl.devices import memory
from jdfl.engine import invariants, loop, placement
from jdfl.engine.loop import Record, RunState
from jdfl.engine.metrics import Metric
from jdfl.engine.stepping import Setting, initial_round
from jdfl.engine.stopping import View
from jdfl.events.event import Note, counted, within
from jdfl.events.execution import Given, apart, execute, merged, stacked
from jdfl.events.faults import links, with_times
from jdfl.events.method import HAPPENED, AsyncMethod, noted
from jdfl.events.plan import WIDTHS, planned
from jdfl.events.timeline import Events, check_rows
from jdfl.events.times import decimal
from jdfl.network import in_run
from jdfl.network.timing import Seconds

_BLOCK = 2**17  # events that are planned at a time
_FEWEST = 16  # rows of a table of messages
_MOST = 256  # settings that are remembered
_known: dict[Any, list[list[Note]]] = {}


class Waves:
    """A run of an asynchronous method, whose events are drawn once.

    Args:
        steps: The number of periods of the whole run.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.notes: list[list[Note]] = []

    def start(
        self, setting: Setting, metrics: tuple[Metric, ...], layout: Any = None
    ) -> tuple[Program, RunState, Record]:
        """As `loop.start`, with all events of the run drawn; ValueError for several devices."""
        if layout is not None:
            raise ValueError("Expected devices = None for an asynchronous method, whose events run on one device.")
        method: Any = setting.program.algorithm
        network = in_run(setting.network, setting.keys.network, setting.program.round_bits(setting.problem))
        network = with_times(network, method.title)
        self.events: Events = method.events(network, setting.keys.network, float(self.steps * decimal(method.period)))
        check_rows(self.events, method.kinds)
        step = max(_FEWEST, len(setting.node) // 4)  # few sizes, so that runs alike share their programs
        sizes = {name: np.zeros(max(1, -(-size // step)) * step, bool) for name, size in self.events.sizes.items()}
        setting = replace(setting, program=replace(setting.program, plan=sizes))
        require_events(setting, self.events)
        program, carry, record = loop.start(setting, metrics)
        self.notes = _noted(replace(setting, program=program), carry.state)
        zero = {name: jnp.zeros_like(value) for name, value in record.metrics.items() if name in loop.SECONDS}
        carry = replace(carry, clock=jax.tree.map(jnp.zeros_like, carry.clock))
        return program, carry, replace(record, metrics=record.metrics | zero)

    def releases(self, setting: Setting) -> Array:
        """How many releases every node [m] makes at the start and in all periods."""
        _, carry, _ = self.start(setting, ())
        counts = counted(self.events, self.notes, ["releases"], np.zeros(len(setting.node), np.int64))
        return jnp.asarray(np.asarray(carry.releases) + counts["releases"], jnp.int32)

    def advance(
        self,
        carry: RunState,
        setting: Setting,
        end: Any,
        every: int,
        records: int,
        metrics: tuple[Metric, ...],
        layout: Any = None,
    ) -> tuple[RunState, Record]:
        """As `loop.advance`: the events of all periods up to number `end`, and a record after every `every`."""
        return advance([Run(self, carry, setting)], int(end), every, metrics)[0]

    def window(self, carry: RunState, setting: Setting, round: int) -> tuple[Events, float, int, bool]:
        """The events until the end of a period, or until the budget is spent.

        Also when that is, in seconds, the number of the period then, and whether the budget is spent.
        """
        method: Any = setting.program.algorithm
        period = decimal(method.period)
        first, second = int(carry.state[HAPPENED]), float(round * period)
        found = self.events[first : self.events.until(second)]
        if setting.limit is None:
            return found, second, round, False
        left = np.asarray(setting.limit) - np.asarray(carry.releases)
        some = found[: within(found, self.notes, left)]
        if len(some) == len(found):
            return found, second, round, False
        second = float(self.events.time[first + len(some)])
        return some, second, min(round, math.ceil(decimal(second) / period)), True


@dataclass
class Run:
    """A run on its way, which several may be side by side."""

    waves: Waves
    carry: RunState
    setting: Setting
    over: bool = False
    sums: dict[str, int] = field(default_factory=dict)
    found: list[Record] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of what is counted."""
        return [f"sent_{name}" for name in self.carry.counts.sent] + ["grads", "releases", "communications"]

    def after(self, state: Any, until: float, round: int, spent: bool, window: Events, recorded: bool) -> None:
        """Go on to the end of a window, whose events have been executed.

        Divergence is looked at where there is a record, whatever the chunks are.
        """
        carry, setting, method = self.carry, self.setting, self.setting.program.algorithm
        degree = np.asarray(links(with_times(setting.network, method.title)).out_degree)
        counts = counted(window, self.waves.notes, self.names, degree)
        for name in self.names:
            self.sums[name] = self.sums.get(name, 0) + int(counts[name].sum())
        examples = np.asarray(setting.program.examples(setting.problem), np.int64)
        self.sums["examples"] = self.sums.get("examples", 0) + int(counts["grads"] @ examples)
        more = {name: np.asarray(getattr(carry, name)) + counts[name] for name in ("communications", "releases")}
        known = {name: jnp.asarray(value, jnp.int32) for name, value in more.items()}
        stopped, bad = _ended(setting, state, jnp.int32(round), known["communications"])
        bad = bad if recorded or setting.stop is not None else carry.bad
        ended = {"rounds": jnp.int32(round), "stopped": stopped, "bad": bad, "spent": np.bool_(spent)}
        self.carry = replace(carry, state=state, clock=_clock(carry, until), **ended, **known)
        self.over = loop.progress(self.carry)[1]

    def record(self, metrics: tuple[Metric, ...]) -> None:
        """Add a record of this moment."""
        self.carry, values = _measured(self.carry, self.setting, metrics=metrics)
        self.over = loop.progress(self.carry)[1]
        totals: Any = {name: np.array([sum]) for name, sum in self.sums.items()}
        self.found.append(Record(self.carry.rounds, values, totals))


def advance(runs: list[Run], last: int, every: int, metrics: tuple[Metric, ...]) -> list[tuple[RunState, Record]]:
    """The carries and records of runs up to a number of rounds, side by side."""
    stop = runs[0].setting.stop is not None
    while going := [run for run in runs if not run.over and int(run.carry.rounds) < last]:
        now = int(going[0].carry.rounds)
        # Without a stop rule nothing is looked at between two records, so that more events run together.
        until = now + 1 if stop else min(last, (now // every + 1) * every)
        windows = [run.waves.window(run.carry, run.setting, until) for run in going]
        states = _executed(going, [window[0] for window in windows])
        for run, state, (window, second, round, spent) in zip(going, states, windows):
            recorded = until % every == 0 or until == run.waves.steps
            run.after(state, second, round, spent, window, recorded)
            rounds = int(run.carry.rounds)
            if run.over or rounds == last or rounds % every == 0:
                run.record(metrics)
    stacked: Any = [jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(run.found)) for run in runs]
    return [(run.carry, found) for run, found in zip(runs, stacked)]


def _executed(runs: list[Run], windows: list[Events]) -> list[Any]:
    """The states of runs after the events of their windows; those before are given up."""
    setting = runs[0].setting
    method: Any = setting.program.algorithm
    tables: Any = [dict(run.carry.state) for run in runs]
    happened = [int(state.pop(HAPPENED)) + len(window) for state, window in zip(tables, windows)]
    weight = links(with_times(setting.network, method.title)).weight
    keys: Any = [run.setting.keys.at_round(0) for run in runs]
    events, lane = windows[0], None
    if len(runs) > 1:
        keys = [jax.tree.map(lambda *roots: jnp.stack(roots), *keys)]
        table, heights = stacked(tables, setting.problem.m)
        events, lane = merged(windows, method.kinds, heights)
        tables = [table]
    given, table = Given(setting.problem, setting.program.prepared, keys[0], weight), tables[0]
    for start in range(0, len(events), _BLOCK):  # while the device works on one the next is planned
        some = events[start : start + _BLOCK]
        own = None if lane is None else lane[start : start + _BLOCK]
        table = execute(method, table, given, planned(some, method.kinds), some, own)
    parts = [table] if lane is None else apart(table, len(runs))
    return [{**part, HAPPENED: jnp.int32(count)} for part, count in zip(parts, happened)]


def _clock(carry: RunState, second: float) -> Seconds:
    """The clocks of all nodes at a time, in the form of `jdfl.network.timing.added`."""
    assert carry.clock is not None
    whole = np.asarray(second, carry.clock[0].dtype)
    return jnp.full_like(carry.clock[0], whole), jnp.full_like(carry.clock[0], second - float(whole))


def require_events(setting: Setting, events: Events) -> None:
    """Refuse a run of events whose tables and pieces would not fit into the memory of the device: ValueError."""
    problem, room, m = setting.problem, memory.available(), setting.problem.m
    rows = (placement.COPIES * m + sum(events.sizes.values())) * placement.array_bytes(problem) // m
    at_work = memory.size_of(problem.data) + placement.activation_bytes(setting.program.algorithm, problem, m)
    if room is None or rows + min(WIDTHS) * at_work <= room:  # no piece has more than 8 m events
        return
    needed = estimate_of_events(setting, events)
    memory.require(needed, m * room // sum(needed.values()), m, "Use fewer nodes, or shorter latencies.", room)


def estimate_of_events(setting: Setting, events: Events) -> dict[str, int]:
    """Bytes of a run of events by their purpose, in words, from shapes and from the plan of the first events."""
    problem = setting.problem
    method: Any = setting.program.algorithm
    prepared, carry, _ = jax.eval_shape(loop.start, setting, ())
    row = placement.array_bytes(problem) // problem.m
    work = max(
        (
            width * ((2 * len(method.kinds[kind].touches) + 2) * row + memory.size_of(problem.data) // problem.m)
            + placement.activation_bytes(method, problem, width)
            for kind, width, _, _ in planned(events[:_BLOCK], method.kinds).runs()
        ),
        default=0,
    )
    shown = 0 if type(method).params is AsyncMethod.params else placement.array_bytes(problem)
    state = dict(carry.state)
    sent = {f"messages in the table {name!r}": memory.size_of(state.pop(name)) for name in events.sizes}
    return placement.held_bytes(prepared, state) | sent | {"events that are computed together": max(work, shown)}


def _noted(setting: Setting, state: Any) -> list[list[Note]]:
    """What events of every kind do; they are traced once for settings and states of the same shapes."""
    leaves, structure = jax.tree.flatten((setting, state))
    key = structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    if key not in _known:

        def trace(setting: Setting, state: Any) -> None:
            algorithm: Any = setting.program.algorithm
            found.extend(noted(algorithm, state, setting.program.round(setting.problem, initial_round(setting))))

        found = list[list[Note]]()
        jax.eval_shape(trace, setting, state)
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = found
    return _known[key]


@jax.jit
def _ended(setting: Setting, state: Any, rounds: Array, communications: Array) -> tuple[Array, Array]:
    """Whether the stop rule fires after a period [], and what has diverged [] as `invariants.found` reads it."""
    judged, *seen = setting.program.judged(setting.problem, setting.program.params(state), communications)
    stopped = loop.stops(setting.stop, View(rounds, seen[0], seen[1], judged))
    diverged = invariants.bad_nodes(setting.program, state, setting.largest, setting.watched)
    return stopped, invariants.first(jnp.zeros_like(setting.node), jnp.bool_(False), diverged)


@partial(jax.jit, static_argnames=("metrics",))
def _measured(carry: RunState, setting: Setting, *, metrics: tuple[Metric, ...]) -> tuple[RunState, dict[str, Array]]:
    return loop.concluded(carry, setting, loop.evaluate(carry, setting, metrics), metrics)


def entire_run(
    settings: Sequence[Setting], steps: int, every: int, metrics: tuple[Metric, ...], batch: int
) -> list[tuple[Array, RunState, Record, Record]]:
    """Runs from start to end: parameters [m, n], counters, the record of the start, and the other records.

    Runs that differ in their keys alone go side by side, up to `batch` of them; those with codecs, which have constants
    of their runs, one after another. The counts of the records run on from the start.
    """
    found = list[tuple[Array, RunState, Record, Record]]()
    for some in _alike(settings, steps, metrics, batch):
        ends = advance([run for run, _ in some], steps, every, metrics)
        for (carry, later), (run, first) in zip(ends, some):
            at_start = {name: from_limbs(np.asarray(part)) for name, part in first.counts.items()}
            later = replace(later, counts={name: part + at_start[name] for name, part in later.counts.items()})
            params = run.setting.program.params(carry.state)
            found.append((params, jax.device_get(replace(carry, state=None)), first, later))
    return found


def _alike(
    settings: Sequence[Setting], steps: int, metrics: tuple[Metric, ...], batch: int
) -> Iterator[list[tuple[Run, Record]]]:
    """Begun runs in groups that go side by side, with their records of the start."""
    group, common = list[tuple[Run, Record]](), None
    for setting in settings:
        waves = Waves(steps)
        program, carry, first = waves.start(setting, metrics)
        run = Run(waves, carry, replace(setting, program=program))
        same = replace(program, plan=None, prepared=replace(program.prepared, own=None))  # these are table sizes
        shared = same, setting.problem, links(with_times(setting.network, program.algorithm.title))
        if group and (len(group) == batch or not _same(common, shared)):
            yield group
            group = []
        group, common = [*group, (run, jax.device_get(first))], shared
    yield group


def _same(one: Any, other: Any) -> bool:
    leaves, structure = jax.tree.flatten(one)
    others, structure_too = jax.tree.flatten(other)
    return structure == structure_too and all(
        mine is theirs or (np.shape(mine) == np.shape(theirs) and np.array_equal(np.asarray(mine), np.asarray(theirs)))
        for mine, theirs in zip(leaves, others)
    )
