"""The scheduler of asynchronous methods: a round is a period of simulated time, whose events run in waves.

It offers what `jdfl.engine.loop` offers for rounds: a start, an advance by some rounds, the releases of a whole run.
What happens when is known before the first event; so are all counts, and where a budget ends the run.

Axes: m nodes.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.program import Program
from jdfl.arrays.ops import from_limbs
from jdfl.devices import memory
from jdfl.engine import guard, invariants, loop
from jdfl.engine.loop import Carry, Record
from jdfl.engine.metrics import Metric
from jdfl.engine.stepping import Setting, begun
from jdfl.engine.stopping import View
from jdfl.events.counting import counted, within
from jdfl.events.event import Note
from jdfl.events.execution import Given, execute
from jdfl.events.faults import with_times
from jdfl.events.method import HAPPENED, AsyncMethod, noted
from jdfl.events.partners import links
from jdfl.events.plan import planned
from jdfl.events.timeline import Events
from jdfl.events.touches import check_rows
from jdfl.network import in_run
from jdfl.network.timing import Seconds

_BLOCK = 2**17  # events that are planned at a time
_FEWEST = 16  # rows of a table of messages
_MOST = 256  # settings that are remembered
_known: dict[Any, list[list[Note]]] = {}


def scheduler(program: Program, steps: int) -> Any:
    """What executes a number of rounds of a program: `jdfl.engine.loop`, or `Waves`, with `start` and `advance`."""
    return Waves(steps) if isinstance(program.algorithm, AsyncMethod) else loop


def releases(setting: Setting, steps: int) -> Array:
    """How many releases every node [m] makes at the start and in all rounds, whatever a stop rule would say."""
    if isinstance(setting.algorithm.algorithm, AsyncMethod):
        return Waves(steps).releases(setting)
    return loop.releases(setting, jnp.int32(steps))


class Waves:
    """A run of an asynchronous method, whose events are drawn once.

    Args:
        steps: The number of periods of the whole run.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._notes: list[list[Note]] = []

    def start(self, setting: Setting, metrics: tuple[Metric, ...], layout: Any = None) -> tuple[Program, Carry, Record]:
        """As `loop.start`, with all events of the run drawn; ValueError for several devices."""
        if layout is not None:
            raise ValueError("Expected devices = None for an asynchronous method, whose events run on one device.")
        method: Any = setting.algorithm.algorithm
        network = in_run(setting.network, setting.keys.network, setting.algorithm.round_bits(setting.problem))
        network = with_times(network, method.title)
        self.events: Events = method.events(network, setting.keys.network, self._steps * float(method.period))
        check_rows(self.events, method.kinds)
        step = max(_FEWEST, len(setting.node) // 4)  # few sizes, so that runs alike share their programs
        for name, size in self.events.sizes.items():
            need, room, m = size * setting.problem.n * setting.problem.dtype.itemsize, memory.available(), network.m
            what = {f"{size:,} messages in the table {name!r}": need}
            memory.require(what, m * (room or 0) // max(need, 1), m, "Use fewer nodes, or shorter latencies.", room)
        sizes = {name: np.zeros(-(-size // step) * step, bool) for name, size in self.events.sizes.items()}
        setting = replace(setting, algorithm=replace(setting.algorithm, plan=sizes))
        program, carry, record = loop.start(setting, metrics)
        self._notes = _noted(replace(setting, algorithm=program), carry.state)
        zero = {name: jnp.zeros_like(value) for name, value in record.metrics.items() if name in loop.SECONDS}
        carry = replace(carry, clock=jax.tree.map(jnp.zeros_like, carry.clock))
        return program, carry, replace(record, metrics=record.metrics | zero)

    def releases(self, setting: Setting) -> Array:
        """How many releases every node [m] makes at the start and in all periods."""
        _, carry, _ = self.start(setting, ())
        counts = counted(self.events, self._notes, ["releases"], np.zeros(len(setting.node), np.int64))
        return jnp.asarray(np.asarray(carry.releases) + counts["releases"], jnp.int32)

    def advance(
        self,
        carry: Carry,
        setting: Setting,
        end: Any,
        every: int,
        records: int,
        metrics: tuple[Metric, ...],
        layout: Any = None,
    ) -> tuple[Carry, Record]:
        """As `loop.advance`: the events of all periods up to number `end`, and a record after every `every`."""
        names = [f"sent_{name}" for name in carry.counts.sent] + ["grads", "releases", "communications"]
        sums, found = dict.fromkeys([*names, "examples"], 0), list[Record]()
        examples = np.asarray(setting.algorithm.examples(setting.problem), np.int64)
        rounds, last, over = int(carry.rounds), int(end), False
        while rounds < last and not over:
            # Without a stop rule nothing is looked at between two records, so that more events run together.
            until = rounds + 1 if setting.stop is not None else min(last, (rounds // every + 1) * every)
            carry, counts = self._periods(carry, setting, until, names, until % every == 0 or until == self._steps)
            rounds = int(carry.rounds)
            for name in names:
                sums[name] += int(counts[name].sum())
            sums["examples"] += int(counts["grads"] @ examples)
            over = loop.standing(carry)[1]
            if over or rounds == last or rounds % every == 0:
                values = _measured(carry, setting, metrics=metrics)
                totals: Any = {name: np.array([sum]) for name, sum in sums.items()}
                found.append(Record(carry.rounds, values, totals))
        stacked: Any = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(found))
        return carry, stacked

    def _periods(
        self, carry: Carry, setting: Setting, round: int, names: list[str], recorded: bool
    ) -> tuple[Carry, dict[str, np.ndarray]]:
        """The carry after more periods, whose number is then `round`, and what every node [m] did in them.

        Divergence is looked at where there is a record, whatever the chunks are.
        """
        method: Any = setting.algorithm.algorithm
        graph = links(with_times(setting.network, method.title))
        first, second = int(carry.state[HAPPENED]), round * float(method.period)
        window = self.events[first : self.events.until(second)]
        spent = False
        if setting.limit is not None:
            whole = len(window)
            window = window[: within(window, self._notes, np.asarray(setting.limit) - np.asarray(carry.releases))]
            spent = len(window) < whole
            if spent:
                second = self.events.time[first + len(window)]
                round = min(round, math.ceil(second / float(method.period)))
        counts = counted(window, self._notes, names, np.asarray(graph.out_degree))
        given = Given(setting.problem, setting.algorithm.prepared, setting.keys.at_round(0), graph.weight)
        tables = carry.state
        for start in range(0, len(window), _BLOCK):  # while the device works on one the next is planned
            some = window[start : start + _BLOCK]
            tables = execute(method, tables, given, planned(some, method.kinds), some)
        state = {**tables, HAPPENED: jnp.int32(first + len(window))}
        more = {name: np.asarray(getattr(carry, name)) + counts[name] for name in ("communications", "releases")}
        known = {name: jnp.asarray(value, jnp.int32) for name, value in more.items()}
        stopped, bad = _ended(setting, state, jnp.int32(round), known["communications"])
        bad = bad if recorded or setting.stop is not None else carry.bad
        ended = {"rounds": jnp.int32(round), "stopped": stopped, "bad": bad, "spent": np.bool_(spent)}
        return replace(carry, state=state, clock=_clock(carry, second), **ended, **known), counts


def _clock(carry: Carry, second: float) -> Seconds:
    """The clocks of all nodes at a time, in the form of `jdfl.network.timing.added`."""
    assert carry.clock is not None
    whole = np.asarray(second, carry.clock[0].dtype)
    return jnp.full_like(carry.clock[0], whole), jnp.full_like(carry.clock[0], second - float(whole))


def fitted(program: Program, state: Any, like: Any) -> Any:
    """The state of an asynchronous method with tables of messages as long as those of another; others as they are.

    Messages keep their rows in runs of any length, so that only free rows are added or left out.

    Args:
        program: The method's program.
        state: Its state, of a run with more or fewer periods.
        like: A state of the other run, or its shapes.
    """
    method = program.algorithm
    if not isinstance(method, AsyncMethod) or jax.tree.structure(state) != jax.tree.structure(like):
        return state

    def resized(table: Any, other: Any) -> Any:
        kept = jnp.asarray(table)[: other.shape[0]]
        return jnp.concatenate([kept, jnp.zeros((other.shape[0] - len(kept), *kept.shape[1:]), kept.dtype)])

    return {
        name: jax.tree.map(resized, table, like[name]) if name in method.message_tables else table
        for name, table in state.items()
    }


def whole(setting: Setting, steps: int, every: int, metrics: tuple[Metric, ...]) -> tuple[Array, Carry, Record, Record]:
    """A run from its start to its end: parameters [m, n], counters, the record of the start, and the other records.

    The counts of the records run on from the start.
    """
    waves = Waves(steps)
    program, carry, first = waves.start(setting, metrics)
    first = jax.device_get(first)
    here = replace(setting, algorithm=program)
    carry, later = waves.advance(carry, here, steps, every, -(-steps // every), metrics)
    begun = {name: from_limbs(part) for name, part in first.counts.items()}
    later = replace(later, counts={name: part + begun[name] for name, part in later.counts.items()})
    return program.params(carry.state), jax.device_get(replace(carry, state=None)), first, later


def _noted(setting: Setting, state: Any) -> list[list[Note]]:
    """What events of every kind do; they are traced once for settings and states of the same shapes."""
    leaves, structure = jax.tree.flatten((setting, state))
    key = structure, tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    if key not in _known:

        def trace(setting: Setting, state: Any) -> None:
            algorithm: Any = setting.algorithm.algorithm
            found.extend(noted(algorithm, state, setting.algorithm.round(setting.problem, begun(setting))))

        found = list[list[Note]]()
        jax.eval_shape(trace, setting, state)
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = found
    return _known[key]


@jax.jit
def _ended(setting: Setting, state: Any, rounds: Array, communications: Array) -> tuple[Array, Array]:
    """Whether the stop rule fires after a period [], and what has diverged [] as `invariants.found` reads it."""
    judged, *seen = setting.algorithm.judged(setting.problem, setting.algorithm.params(state), communications)
    stopped = loop.stops(setting.stop, View(rounds, seen[0], seen[1], judged))
    diverged = guard.bad_nodes(setting.algorithm, state, setting.largest, setting.watched)
    return stopped, invariants.first(jnp.zeros_like(setting.node), jnp.bool_(False), diverged)


@partial(jax.jit, static_argnames=("metrics",))
def _measured(carry: Carry, setting: Setting, *, metrics: tuple[Metric, ...]) -> dict[str, Array]:
    return loop.evaluate(carry, setting, metrics)
