"""Runs an algorithm: a jitted start, chunks of rounds on the device, and totals and callbacks on the host."""

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm
from jdfl.base import arguments, checks
from jdfl.base.run_keys import RunKey
from jdfl.devices import processes
from jdfl.devices.layout import Layout, mesh_of
from jdfl.engine import booking, compiling, loop, stepping
from jdfl.engine.callbacks import NEVER, Callback, FunctionCallback
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.compiling import Clock, Spent
from jdfl.engine.data_ledger import DataLedger
from jdfl.engine.loop import put_in_rows
from jdfl.engine.metrics import Metric
from jdfl.engine.placement import placed
from jdfl.engine.result import CUTS, READS_DATA, Cut, Result, Snapshot, Tally, as_chunk, assemble
from jdfl.engine.spending import check_unspent, planned_at_most, watched
from jdfl.engine.start import Options, Plan, check_counters, execution, fitted, form_of, scheduler, started
from jdfl.engine.stopping import StopRule
from jdfl.network.graph import Graph, Network
from jdfl.problems import Problem

_SIGNALS = {  # and who handles them usually; put back in the reverse order, since the first may raise an exception
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # the terminal was closed
}


class Interruption:
    """Notes a signal in `asked` instead of acting on it while a chunk is under way, whose donated state would be lost.

    A signal that ended nothing (`settle`) is raised again at the end, for its usual handler. A second signal raises
    KeyboardInterrupt. Python handles signals in its main thread only; in other threads, and where another handler is
    installed, such as that of a run around this one, nothing is changed.
    """

    def __init__(self) -> None:
        self._noted: int | None = None
        self._replaced: list[signal.Signals] = []

    @property
    def asked(self) -> Literal["interrupted", "terminated"] | None:
        """What a signal asks for."""
        return None if self._noted is None else "interrupted" if self._noted == signal.SIGINT else "terminated"

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            self._replaced = [number for number, usual in _SIGNALS.items() if signal.getsignal(number) is usual]
        for number in self._replaced:
            signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        if self._noted is not None:
            self._noted = None
            signal.default_int_handler(number, frame)
        self._noted = number

    def note(self) -> None:
        """Note a KeyboardInterrupt that was caught."""
        self._noted = signal.SIGINT

    def settle(self, ending: str) -> None:
        """Forget the signal if work has ended by it, as an `ending` of a run says."""
        if ending in ("interrupted", "terminated"):
            self._noted = None

    def __exit__(self, *_: object) -> None:
        for number in reversed(self._replaced):
            signal.signal(number, _SIGNALS[number])
        if self._noted in self._replaced:
            signal.raise_signal(signal.Signals(self._noted))
        elif self._noted is not None:
            raise KeyboardInterrupt


MOST = 20  # moments whose releases are kept; a long run has at least half as many


class ReturnSchedule:
    """The rounds after which the device returns: of every chunk, and of every checkpoint.

    `chunk` and `checkpoint` are rounds between two of either, rounded to multiples of `every`: the device returns after
    a record.
    """

    def __init__(self, every: int, chunk: int, checkpoint: int) -> None:
        self.chunk = max(1, chunk // every) * every
        self._checkpoint = -(-checkpoint // every) * every
        self.records = min(self.chunk, self._checkpoint) // every  # between two returns, at most

    def after(self, done: int, last: int) -> int:
        """The next return after `done` rounds, no later than the `last` round."""
        return min(last, *((done // rounds + 1) * rounds for rounds in (self.chunk, self._checkpoint)))


class ReleaseHistory:
    """Every node's releases [m] at up to MOST moments, which lie the same number of chunks apart, and at the last."""

    def __init__(self, chunk: int, before: Mapping[int, np.ndarray]) -> None:
        self._chunk, self._kept = chunk, dict(before)

    def add(self, rounds: int, releases: Callable[[], np.ndarray]) -> None:
        """Record the releases after a number of rounds."""
        self._kept = self.until(rounds) | {rounds: np.asarray(releases())}

    def until(self, rounds: int) -> dict[int, np.ndarray]:
        """The releases [m] at the recorded moments up to a number of rounds."""
        apart = self._chunk
        while rounds // apart >= MOST:
            apart *= 2
        return {k: released for k, released in self._kept.items() if k == rounds or k % apart == 0}


@arguments.checked
def run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    key: int | Array | RunKey | None = None,
    steps: int,
    every: int = 1,
    stop: StopRule | None = None,
    metrics: Sequence[str | Metric] | None = None,
    callbacks: Sequence[Callback | Callable[[Snapshot], Any]] = (),
    resume: Result | Checkpoint | None = None,
    ledger: DataLedger | None = None,
    options: Options = Options(),  # noqa: B008 (it is frozen)
) -> Result:
    """Run `algorithm` on `problem` over `network` for up to `steps` rounds.

    Args:
        algorithm: The settings of the method, such as `jdfl.CEPS.paper(s=10)`.
        problem: The nodes' data and losses, of m nodes.
        network: The communication network of every round, with the same number of nodes.
        key: A seed or a typed JAX key, from which all randomness follows: another run with it shares its noise, and
            they have no joint epsilon. None: public randomness is that of seed 0, and so is all of a run without noise;
            the private key of a run with noise comes from the operating system, and is recorded with the result, so
            that `resume` needs none. A `RunKey`: that of another run, which is made again.
        steps: Maximum number of rounds, including those before a `resume`.
        every: Rounds between two records; the end of the run is recorded, too.
        stop: A rule that may end the run, evaluated after every round.
        metrics: Metrics that are recorded, names or functions of (w [m, n], problem); None: all that the problem has,
            except those of an optimum, which is computed where they are asked for by name.
        callbacks: Callbacks that are called about every `options.chunk` rounds and may end the run: `Progress`,
            `Checkpoints`, `Deadline`, `Budget`, other subclasses of `Callback`, or functions of a `Snapshot`. Results
            do not depend on how often they are called.
        resume: A finished run to continue, or a checkpoint of `read_checkpoint`, with the same key if one was given:
            the result is that of a run that was never interrupted. If `steps` rounds are done already, it is that run's
            result.
        ledger: The ledger of the data, which records before the first round how much the run may release, and
            refuses a run that could exceed its budget. A resumed run continues its own entry.
        options: Chunks, devices, kernels, and the size of a parameter that ends the run.

    Ctrl-C, SIGTERM or SIGHUP ends the run after the current chunk and keeps its results (a second one ends it at once,
    without any). One that comes too late to end it takes its usual effect when the run returns. A number in a node's
    state that is not finite ends it in that round.

    Raises ValueError, before the run is compiled, for invalid settings, for a budget without a guarantee or that the
    first release would exceed, for a run that its ledger refuses, and for a resumed run with other noise or records of
    other rounds. All graphs of a periodic network or of a random choice are checked, the graph of round 0 of other
    changing networks, and the weights of 1000 rounds of your own. Exceptions of callbacks are passed on.
    """
    receivers = [_callback(one) for one in callbacks]
    before = Checkpoint.of(resume) if isinstance(resume, Result) else resume
    plan = started(
        algorithm,
        problem,
        network,
        key=key,
        steps=steps,
        every=every,
        stop=stop,
        metrics=metrics,
        before=before,
        options=options,
        kept=any(one.keeps for one in receivers),
    )
    compiling.make_room()
    with Interruption() as interruption, processes.watched(), ExitStack() as closing:
        limits: list[tuple[Callback, np.ndarray]] = []
        for callback in receivers:
            closing.callback(callback.close)
            limit = callback.on_start(plan)
            limits += [] if limit is None else [(callback, limit)]
        most = np.min([limit for _, limit in limits], axis=0) if limits else None
        intents, hold = [], None
        if ledger is not None:
            how: Any = {"keys": [plan.key], "steps": plan.steps, "execution": execution(plan.options), "most": most}
            intents = booking.intents(plan.program, plan.problem, plan.network, plan.stop, **how)
            hold = ledger.reserve(intents)
        try:
            under_way = _Run(plan, receivers, most, interruption, intents[0].releases if intents else None)
            under_way.check_limits(limits)
        except BaseException:  # nothing is released yet
            if hold is not None:
                hold.end({})
            raise
        result = under_way.to_the_end()
        if hold is not None:
            (result,) = booking.booked(hold, [(intents[0], result)])
        for callback in receivers:
            callback.on_end(result)
        interruption.settle(result.ending)
    return result


def _callback(given: Any) -> Callback:
    if isinstance(given, Callback):
        names = [name for name in dir(type(given)) if name.startswith("on_") or name == "__call__"]
        if unknown := sorted({*names} - {*dir(Callback)}):
            raise ValueError(
                "Expected a Callback whose methods are among on_start, on_return, on_chunk, on_end and close, got "
                f"{type(given).__name__}.{unknown[0]}, which nothing calls. Rename it."
            )
        return given
    checks.able(("__call__",), "a Callback or a function of a Snapshot", callbacks=given)
    return FunctionCallback(given)


class _Run:
    """A run in progress, as seen from the host between two chunks of rounds on the device."""

    def __init__(
        self,
        plan: Plan,
        receivers: Sequence[Callback],
        most: np.ndarray | None,
        interruption: Interruption,
        reserved: np.ndarray | None,
    ) -> None:
        problem, before, options = plan.problem, plan.before, plan.options
        self._plan, self._receivers, self._interruption = plan, receivers, interruption
        self._returns = ReturnSchedule(plan.every, options.chunk, min([one.every for one in receivers], default=NEVER))
        check_counters(plan.network, min(self._returns.records * plan.every, plan.steps))
        self._moments = ReleaseHistory(self._returns.chunk, {} if before is None else before.moments)
        self._clock = Clock(None if before is None else Spent(before.seconds, before.compile_seconds))
        self._warned = () if before is None else before.warnings
        self._cut: tuple[Cut, str] | None = None

        largest = options.diverged_above
        self._all = stepping.setting(  # with the rows of all nodes
            plan.program,
            problem,
            plan.network,
            plan.stop,
            plan.key,
            None if most is None else jnp.asarray(np.minimum(most, 2**31 - 1), jnp.int32),
            None if largest is None else jnp.asarray(largest, problem.dtype),
            watched(plan.guarantee, problem),
            planned_at_most(plan.guarantee, problem.m, reserved),
            kernels=form_of(options.kernels),
        )
        setting, self._layout = self._all, None
        if options.devices is not None:
            setting, self._layout = placed(setting, mesh_of(options.devices, problem.m))
        self._scheduler = scheduler(plan.program, plan.steps)  # the module `loop`, or `Waves` for events
        program, self._carry, first = self._scheduler.start(setting, plan.metrics, self._layout)
        self._setting = replace(setting, program=program, problem=put_in_rows(setting.problem))
        self._tally = Tally(program.message_bits(problem), plan.every)
        if before is None:
            self._tally.add(*as_chunk(first))
        else:
            self._carry = self._resumed(before)
            self._tally = before.tally(program.message_bits(problem), plan.every)
        self._done, self._over, _ = loop.progress(self._carry)
        self._seen = -1 if before is None else self._done

    def check_limits(self, limits: Sequence[tuple[Callback, np.ndarray]]) -> None:
        """Refuse a callback whose limit of releases [m] the start exceeds."""
        for callback, limit in limits:
            check_unspent(np.asarray(self._rows(self._carry.releases)), limit, callback)

    def to_the_end(self) -> Result:
        """Run all remaining rounds."""
        plan, returns, layout = self._plan, self._returns, self._layout
        before = plan.before
        last = plan.steps if before is None or not before.over else before.rounds
        self._between()
        while self._done < last and not self._over and self._cut is None:
            until = returns.after(self._done, last)
            end = np.int32(until) if layout else jnp.int32(until)
            self._carry, rows = self._scheduler.advance(
                self._carry, self._setting, end, plan.every, returns.records, plan.metrics, layout
            )
            self._tally.add(rows.rounds, rows.metrics, rows.counts)
            self._done, self._over, bad = loop.progress(self._carry)
            if self._over or self._done == last or self._done % returns.chunk == 0:
                self._notify()
            self._obey_signals()
            if self._cut is None and not bad and self._done < plan.steps:
                self._between()
        self._carry = jax.block_until_ready(self._carry)
        result = self._result(self._cut)
        if before is not None and last == before.rounds:  # there was nothing to do
            result = replace(result, ending=before.ending, reason=before.reason)
        return result

    def _between(self) -> None:
        now = self._snapshot([])
        for callback in self._receivers:
            callback.on_return(now)

    def _notify(self) -> None:
        """Report the rounds since the last call to the callbacks and the moments, if there are any."""
        if self._done <= max(self._seen, 0):
            return
        now = self._snapshot(self._tally.since(self._seen))
        if self._plan.guarantee.event is not None:
            self._moments.add(self._done, now.releases)
        self._seen = self._done
        asked: dict[tuple[int, bool], str] = {}
        for callback in self._receivers:  # each gets a copy of the rows
            own = replace(now, row=dict(now.row), rows=[dict(row) for row in now.rows])
            try:
                reason = callback.on_chunk(own)
            except KeyboardInterrupt:
                self._interruption.note()
                reason = "interrupted"
            if reason is not None:
                asked[CUTS.index(callback.ending), callback.reads_data] = reason
        # A callback of any process may end the run.
        highest = processes.highest(max((1 + 2 * place + reads for place, reads in asked), default=0))
        if highest:
            place, reads = divmod(highest - 1, 2)
            self._cut = CUTS[place], asked.get((place, bool(reads)), "another process has ended it")
            self._warned = (*self._warned, *((READS_DATA,) if reads else ()))

    def _obey_signals(self) -> None:
        """End the run if a signal to any process asks for it."""
        signals: tuple[Any, ...] = (None, "interrupted", "terminated")
        asked = signals[processes.highest(signals.index(self._interruption.asked))]
        if asked is not None:
            self._notify()
            self._cut = asked, asked

    def _snapshot(self, rows: list[dict[str, Any]]) -> Snapshot:
        plan, carry, setting = self._plan, self._carry, self._setting
        return Snapshot(
            rounds=self._done,
            steps=plan.steps,
            row=self._tally.rows[-1],
            rows=rows,
            params=lambda: jnp.array(self._rows(setting.program.params(carry.state)), copy=True),
            communications=lambda: np.array(self._rows(carry.communications)),
            releases=lambda: np.array(self._rows(carry.releases)),
            graph=self._graph,
            result=lambda: self._result(("interrupted", "interrupted")),
            chunk=self._returns.chunk,
        )

    def _graph(self) -> Graph:
        """The graph of the last round, drawn again, with the rows of all nodes."""
        setting = replace(self._all, program=self._setting.program)
        return stepping.sample_round(setting, jnp.int32(max(self._done - 1, 0))).graph

    def _result(self, cut: tuple[Cut, str] | None) -> Result:
        """The result so far, with the rows of all nodes on the host."""
        here, carry, layout = self._setting, self._carry, self._layout
        if layout is not None:
            carry = layout.gather(layout.carry, carry)
            here = replace(here, program=layout.gather(layout.program, here.program), planned=self._all.planned)
        params, spent = here.program.params(carry.state), self._clock.read()
        more = cut, self._warned, self._moments.until(int(carry.rounds))
        return assemble(self._plan, here, params, carry, self._tally, spent, *more)

    def _rows(self, x: Array) -> Array:
        """The rows of all nodes, of an array of the carry."""
        return x if self._layout is None else self._layout.nodes(x)

    def _resumed(self, before: Checkpoint) -> loop.RunState:
        """The carry of a checkpoint, in the layout of the run's own carry."""
        layout: Layout | None = self._layout
        if layout is None:
            state = fitted(self._plan.program, before.state, self._carry.state)
            return replace(before, state=state).carry(self._carry)
        return layout.spread(layout.carry, before.carry(layout.gather(layout.carry, self._carry)))
