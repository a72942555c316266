"""Runs an algorithm: checks, a jitted start, chunks of rounds on the device, totals and words on the host."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.algorithm import Algorithm, check_protocol
from jdfl.algorithms.program import Program, planned
from jdfl.base import arguments, checks
from jdfl.base.keys import typed_key
from jdfl.devices import processes
from jdfl.devices.layout import Devices, Layout, mesh_of
from jdfl.engine import guard, loop, programs, stepping
from jdfl.engine.checkpoint import Checkpoint
from jdfl.engine.clock import Alarm, Clock, Deadline, Spent
from jdfl.engine.interruption import Interruption
from jdfl.engine.keeper import Keeper
from jdfl.engine.metrics import Metric, default_metrics, resolve
from jdfl.engine.moments import Moments, Returns
from jdfl.engine.outcome import READS_DATA, Cut, as_chunk, assemble, key_data
from jdfl.engine.placement import placed, require_memory
from jdfl.engine.progress import Progress
from jdfl.engine.provenance import provenance
from jdfl.engine.result import Callback, Result, Snapshot, Tally
from jdfl.engine.spending import check_unspent, guarantee_of, ledger_of, release_limits, watched
from jdfl.engine.stopping import StopRule
from jdfl.network import check_weights
from jdfl.network.graph import Network
from jdfl.privacy import LaplaceSchedule
from jdfl.problems import Problem, check_problem

_WISHES: tuple[Literal["keep"] | Cut | None, ...] = (None, "keep", "time limit", "interrupted", "terminated")
MOST_CHUNK = 2**20  # rounds between two returns, for whose records the device has room
MOST_ROUNDS = 2**30  # rounds are counted in int32, and the next record is looked for ahead of them


def check_settings(algorithm: Algorithm, problem: Problem, network: Network) -> None:
    """Hold an algorithm's settings against their annotations, one another, the problem and the network: ValueError.

    Args:
        algorithm: The settings, with their codec, mechanism and gradients.
        problem: What the nodes are to learn.
        network: Who hears whom, of as many nodes.
    """
    arguments.settings(algorithm)
    algorithm.check(problem, network)


def check_run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    steps: int,
    every: int,
    stop: StopRule | None,
    devices: int = 1,
) -> Program:
    """Everything that can be refused before anything is compiled; raises ValueError.

    Returns the algorithm with what it plans for this network and so many rounds. `every`, `stop` and `devices` are as
    for `run`.
    """
    checks.whole(1, MOST_ROUNDS, steps=steps, every=every)
    check_protocol(algorithm)
    checks.able(("data", "weight", "value"), "a problem", "jdfl.problems builds one.", problem=problem)
    remedy = "jdfl.network builds one, also from_networkx, from_scipy and from_edges."
    checks.able(("at", "m"), "a network", remedy, network=network)
    if stop is not None:
        checks.able(("check", "reason"), "a stop rule", "For example jdfl.consensus_below(5e-3).", stop=stop)
    check_problem(problem)
    if network.m != problem.m:
        raise ValueError(
            f"Expected a network and a problem of the same size, got network.m = {network.m} and "
            f"problem.m = {problem.m}. Build both for the same number of nodes m."
        )
    check_weights(
        network,
        type(algorithm).__name__,
        columns=algorithm.columns,
        mixes=getattr(algorithm, "mixes", True),
    )
    graph = network.at(jnp.int32(0), jax.random.key(0))
    if graph.late is not None and not algorithm.late:
        raise ValueError(
            f"Expected a network for {type(algorithm).__name__} whose messages are not late, got "
            f"{getattr(network, 'name', 'a network')}: it has no use for messages of earlier rounds. Use bursty_loss, "
            "where what does not come in its round is missing, or an algorithm that takes late messages, such as "
            "jdfl.DPSGD or jdfl.SGP."
        )
    arguments.settings(algorithm)  # as check_settings, but warnings name the caller of `run`
    algorithm.check(problem, network)
    if stop is not None:
        arguments.settings(stop)
        stop.check()
    require_memory(algorithm, problem, network, devices)
    program = planned(algorithm, problem, network, steps)
    if graph.away is not None and isinstance(guarantee_of(program, problem).event, LaplaceSchedule):
        raise ValueError(
            f"Expected a network for {type(algorithm).__name__} whose nodes are there in every round, got "
            f"{getattr(network, 'name', 'a network')}: its noise is meant for the step of the same round, and a node "
            "that comes back would send an old one with less. Use node_participation, whose silent nodes go on alone, "
            "or an algorithm with the same noise in every round, such as jdfl.PEDFL."
        )
    return program


@arguments.checked
def run(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    *,
    key: int | Array = 0,
    steps: int,
    every: int = 1,
    stop: StopRule | None = None,
    metrics: Sequence[str | Metric] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = False,
    chunk: int = 50,
    resume: Result | Checkpoint | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mesh: Devices | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    checkpoint_minutes: float | None = None,
    max_seconds: float | None = None,
    diverged_above: float | None = None,
) -> Result:
    """Run `algorithm` on `problem` over `network` for up to `steps` rounds.

    `key` is a seed or a typed JAX key and decides all randomness. Every `every` rounds, and where the run ends, the
    `metrics` (names or functions; None: all that the problem can give) are recorded. `stop` is evaluated after every
    round. The device returns to Python at multiples of about `chunk` rounds and where the run ends, to call `callbacks`
    if there was a round since; results do not depend on it.
    `progress` shows a bar where stderr is a terminal.

    `resume` goes on from a finished run, or from what `read_checkpoint` gives, with the same key: the outcome is that
    of a run that was never interrupted. `steps` counts all rounds; with as many as are done, it is that run's result.

    `epsilon` is a budget: the run ends before the round whose releases would take some node beyond (epsilon, delta);
    what went before is kept. `delta` is as for `account`, and goes with `epsilon` only.

    `mesh` spreads the nodes over several devices: a mesh of JAX, a list of devices, or how many. Draws, choices,
    counts and ledgers are the same on any number of devices, floats within rounding, bits on one number of devices;
    what the network, metrics and stop rules need of other devices' nodes is all that is exchanged. Metrics and stop
    rules of your own get all nodes' rows on every device, unless they are marked by `jdfl.nodes.on_every_device`. The
    result's arrays lie on the host then.

    `checkpoint` is a folder for what the run needs to go on, written where it ends, unless it diverged, and while it
    goes on at multiples of about `checkpoint_every` rounds and after about every `checkpoint_minutes`; the two newest
    are kept, each whole; one that cannot be written is warned of. `read_checkpoint` reads them, for another number of
    devices or processes also. Of several processes, which all have to give it, the first writes.

    Ctrl-C or SIGTERM ends the run after the chunk under way and keeps what it has (a second one ends it at once, with
    nothing), `max_seconds` after the last chunk that ends in time. A number in a node's state that is not finite, or a
    parameter whose size is above `diverged_above`, ends it in that round.

    Raises ValueError for settings that make no sense, before anything is compiled (every graph of a periodic network or
    a random choice is looked at, of others that change that of round 0), for a delta without epsilon, for a budget
    where nothing can be claimed or that the first release would exceed, and for a resumed run with other noise or
    records of other rounds. FileExistsError where a run from the start would write over checkpoints, FileNotFoundError
    where there is no folder for theirs.
    """
    deadline = Deadline(max_seconds)
    checks.whole(1, MOST_CHUNK, chunk=chunk)
    for name, limit in (
        ("max_seconds", max_seconds),
        ("checkpoint_minutes", checkpoint_minutes),
        ("diverged_above", diverged_above),
    ):
        if limit is not None:
            checks.positive("None means without.", **{name: limit})
    if checkpoint is None and checkpoint_minutes is not None:
        raise ValueError(
            f"Expected checkpoint, a folder, beside checkpoint_minutes = {checkpoint_minutes!r}, got None."
        )
    if delta is not None and epsilon is None:
        raise ValueError(
            f"Expected epsilon beside delta = {delta!r}, got epsilon = None: without a budget, delta would do nothing. "
            "Give epsilon, or give delta to `account` when the run is done."
        )
    if mesh is None:
        processes.check_whole(problem)
    spread = None if mesh is None else mesh_of(mesh, problem.m)
    devices = 1 if spread is None else spread.size
    origin = provenance(key_data(typed_key(key)), algorithm=algorithm, problem=problem, network=network)
    program = check_run(algorithm, problem, network, steps, every, stop, devices)
    programs.make_room()
    chosen = default_metrics(problem) if metrics is None else resolve(metrics, problem)
    guarantee = guarantee_of(program, problem)
    limit = None if epsilon is None else release_limits(program, problem, stop, epsilon=epsilon, delta=delta)
    before = Checkpoint.of(resume) if isinstance(resume, Result) else resume
    most = None if limit is None else jnp.asarray(np.minimum(limit, 2**31 - 1), jnp.int32)
    largest = None if diverged_above is None else jnp.asarray(diverged_above, problem.dtype)
    watch = watched(guarantee, problem)
    if largest is not None and watch == "nothing":
        raise ValueError(
            f"Expected no diverged_above for {type(algorithm).__name__} with noise, got diverged_above = "
            f"{diverged_above!r}: the run would end because of parameters that the guarantee does not cover "
            f"({guarantee.local}). Leave it out, or declare that this is public: public = 'stop' of the problem."
        )
    setting = stepping.setting(program, problem, network, stop, typed_key(key), most, largest, watch)
    steps, every = int(steps), int(every)
    if before is not None:
        names = [metric.__name__ for metric in chosen]
        before.check(ledger_of(program, problem), key_data(setting.keys.run), steps, names, origin)
    keeper = Keeper(checkpoint, checkpoint_every, resumed=before is not None)
    alarm = Alarm(None if checkpoint is None or checkpoint_minutes is None else 60 * checkpoint_minutes)
    returns = Returns(every, int(chunk), keeper.every)
    check_counters(network, min(returns.records * every, steps))
    last = steps if before is None or not before.over else before.rounds
    moments = Moments(returns.chunk, {} if before is None else before.moments)
    shown = Progress() if progress and processes.leads() else nullcontext()
    clock = Clock(None if before is None else Spent(before.seconds, before.compile_seconds))
    warned = () if before is None else before.warnings
    with processes.watched(), shown as bar, keeper:
        callbacks = [*callbacks, bar] if bar else callbacks
        whole = setting
        setting, layout = (setting, None) if spread is None else placed(setting, spread)
        program, carry, first = loop.start(setting, chosen, layout)
        setting = replace(setting, algorithm=program)
        tally = Tally(program.message_bits(problem))
        if before is None:
            tally.add(*as_chunk(first))
        else:
            carry, tally = _resumed(before, carry, layout), before.tally(program.message_bits(problem), every)
        if limit is not None and epsilon is not None:
            released = carry.releases if layout is None else layout.nodes(carry.releases)
            check_unspent(np.asarray(released), limit, epsilon)
        done, over = int(carry.rounds), int(carry.bad_node) != guard.NOWHERE

        def outcome(carry: loop.Carry, cut: Cut | None) -> Result:
            """Where the run is now, with all nodes' rows on the host."""
            here = setting
            if layout is not None:
                carry = layout.whole(layout.carry, carry)
                here = replace(setting, algorithm=layout.whole(layout.algorithm, setting.algorithm))
            params = here.algorithm.params(carry.state)
            spent = clock.read()
            told = cut, warned, moments.until(int(carry.rounds))
            return assemble(here, params, carry, tally, spent, problem, network, steps, guarantee, origin, *told)

        def tell() -> None:
            """Let callbacks and the moments know of the rounds since they were told last, where there are any."""
            nonlocal seen, warned
            if done <= max(seen, 0):
                return
            views = _views(program, carry, layout, whole, done - 1)
            if guarantee.event is not None:
                moments.add(done, views[2])
            rows, seen = tally.since(seen), done
            try:
                _call(callbacks, Snapshot(done, steps, tally.rows[-1], rows, *views, chunk=returns.chunk))
            except KeyboardInterrupt:  # of a callback that has seen the metrics
                interruption.asked, warned = "interrupted", (*warned, READS_DATA)

        keeper.start(done)
        seen = -1 if before is None else done
        cut: Cut | None = None
        deadline.start()
        with Interruption() as interruption:
            while done < last and not over and cut is None:
                until = returns.after(done, last)
                end = np.int32(until) if layout else jnp.int32(until)
                carry, rows = loop.advance(carry, setting, end, every, returns.records, chosen, layout)
                tally.add(rows.rounds, rows.metrics, rows.counts)
                flags = (carry.rounds, carry.stopped, carry.spent, carry.bad_node)
                done, stopped, spent, bad = map(int, jax.device_get(flags))
                over = bool(stopped or spent) or bad != guard.NOWHERE
                if over or done == last or done % returns.chunk == 0:
                    tell()
                wish = interruption.asked or ("time limit" if deadline.too_late() else None)
                wish = _WISHES[processes.highest(_WISHES.index(wish or ("keep" if alarm.rings() else None)))]
                cut = None if wish == "keep" else wish
                if cut is not None:
                    tell()
                if (keeper.due(done) or wish == "keep") and bad == guard.NOWHERE and done < steps:
                    keeper.keep(outcome(carry, "interrupted"))
        result = outcome(jax.block_until_ready(carry), cut)
        if before is not None and last == before.rounds:  # there was nothing to do
            result = replace(result, ending=before.ending, reason=before.reason)
        if result.diverged is None:
            keeper.keep(result)
    return result


def _resumed(before: Checkpoint, carry: loop.Carry, layout: Layout | None) -> loop.Carry:
    """What a checkpoint goes on from, in the form and the places of the run's own carry."""
    if layout is None:
        return before.carry(carry)
    return layout.spread(layout.carry, before.carry(layout.whole(layout.carry, carry)))


def _views(
    program: Program, carry: loop.Carry, layout: Layout | None, whole: stepping.Setting, k: int
) -> tuple[Callable[[], Any], ...]:
    """What a snapshot gives of all nodes after round k, made when it is asked for."""

    def rows(x: Array) -> Array:
        return x if layout is None else layout.nodes(x)

    return (
        lambda: jnp.array(rows(program.params(carry.state)), copy=True),  # the next chunk takes the state's place
        lambda: np.array(rows(carry.communications)),
        lambda: np.array(rows(carry.releases)),
        lambda: stepping.graph_of(replace(whole, algorithm=program), k),
    )


def _call(callbacks: Sequence[Callback], now: Snapshot) -> None:
    for callback in callbacks:  # each has rows of its own
        callback(replace(now, row=dict(now.row), rows=[dict(row) for row in now.rows]))


def check_counters(network: Network, rounds: int) -> None:
    """ValueError for stretches so long that a node's int32 message counter could overflow."""
    largest = getattr(network, "largest_out_degree", None)  # a network of one's own need not say it
    if largest is None:
        largest = np.max(np.asarray(network.at(jnp.int32(0), jax.random.key(0)).out_degree), initial=1)
    busiest = max(1, int(largest)) * max(1, rounds)
    if busiest >= 2**31:
        raise ValueError(
            f"Expected fewer than 2^31 messages of one node between two records, got {busiest} in {rounds} rounds. "
            "Record more often (every=...), or use `run`, which adds up on the host after every chunk."
        )
