"""Runs an algorithm: checks, a jitted start, chunks of rounds on the device, totals and words on the host."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl import checks, loop
from jdfl.base import Algorithm
from jdfl.metrics import Metric, default_metrics, resolve
from jdfl.network import check_graph
from jdfl.network.graph import Network
from jdfl.problems import Problem, check_problem
from jdfl.result import Ending, Result, Tally
from jdfl.stopping import StopRule

_compile_seconds = 0.0


def _listen(event: str, duration: float, **_: Any) -> None:
    global _compile_seconds
    if event.startswith("/jax/core/compile/"):
        _compile_seconds += duration


jax.monitoring.register_event_duration_secs_listener(_listen)


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees after a chunk of rounds."""

    rounds: int
    steps: int
    row: dict[str, Any]  # the last record
    params: Callable[[], Array]  # [m, n]; call it during the callback, the state is donated afterwards


Callback = Callable[[Snapshot], None]


def check_run(
    algorithm: Algorithm, problem: Problem, network: Network, steps: int, every: int, stop: StopRule | None
) -> None:
    """Everything that can be refused before anything is compiled; raises ValueError."""
    checks.whole(1, steps=steps, every=every)
    check_problem(problem)
    if network.m != problem.m:
        raise ValueError(
            f"Expected a network and a problem of the same size, got network.m = {network.m} and "
            f"problem.m = {problem.m}. Build both for the same number of nodes m."
        )
    check_graph(network.at(jnp.int32(0), jax.random.key(0)))
    algorithm.check(problem, network)
    if stop is not None:
        stop.check()


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
    chunk: int = 50,
) -> Result:
    """Run `algorithm` on `problem` over `network` for up to `steps` rounds.

    `key` is a seed or a typed JAX key and decides all randomness. Every `every` rounds, and where the run ends, the
    `metrics` (names or functions; None: all that the problem can give) are recorded. `stop` is evaluated after every
    round. The device returns to Python about every `chunk` rounds, to call `callbacks`; results do not depend on it.
    Ctrl-C ends the run at the next chunk and keeps what it has; so does a non-finite parameter, with its round and node.

    Raises ValueError for settings that make no sense, before anything is compiled.
    """
    checks.whole(1, chunk=chunk)
    check_run(algorithm, problem, network, steps, every, stop)
    chosen = default_metrics(problem) if metrics is None else resolve(metrics, problem)
    setting = loop.setting(algorithm, problem, network, stop, typed_key(key))
    records = max(1, chunk // every)
    check_counters(network, records * every)
    interrupted = False
    with Clock() as clock:
        setting, carry, first = loop.start(setting, chosen)
        tally = Tally(setting.algorithm.message_bits(problem))
        tally.add(*as_chunk(first))
        carry = carry.replace(counts=loop.fresh_counts(carry.counts))  # pyright: ignore[reportAttributeAccessIssue]
        done, over = 0, int(carry.bad_node) != loop.NOWHERE
        try:
            while done < steps and not over:
                carry, rows = loop.advance(carry, setting, jnp.int32(steps), every, records, chosen)
                tally.add(rows.rounds, rows.metrics, rows.counts)
                carry = carry.replace(counts=loop.fresh_counts(carry.counts))  # pyright: ignore[reportAttributeAccessIssue]
                done = int(carry.rounds)
                over = bool(carry.stopped) or int(carry.bad_node) != loop.NOWHERE
                state = carry.state
                for callback in callbacks:
                    callback(Snapshot(done, steps, tally.rows[-1], lambda: setting.algorithm.params(state)))  # noqa: B023
        except KeyboardInterrupt:
            interrupted = True
        jax.block_until_ready(carry)
    return assemble(
        setting, setting.algorithm.params(carry.state), carry, tally, clock, problem, network, steps, interrupted
    )


def as_chunk(record: loop.Record) -> tuple[Array, dict[str, Array], dict[str, Array]]:
    """One record as a chunk of one, for `Tally.add`."""
    rounds, metrics, counts = jax.tree.map(lambda leaf: leaf[None], (record.rounds, record.metrics, record.counts))
    return rounds, metrics, counts


def assemble(
    setting: loop.Setting,
    params: Array,
    carry: loop.Carry,
    tally: Tally,
    clock: "Clock",
    problem: Problem,
    network: Network,
    steps: int,
    interrupted: bool = False,
) -> Result:
    """Everything about a finished run, on the host."""
    rounds, bad_node = int(carry.rounds), int(carry.bad_node)
    ending, reason = _ending(rounds, steps, bad_node, bool(carry.stopped), setting.stop, interrupted)
    return Result(
        algorithm=setting.algorithm,
        problem_name=problem.name,
        network_name=getattr(network, "name", type(network).__name__),
        params=params,
        state=carry.state,
        history=tally.history(),
        rounds=rounds,
        ending=ending,
        reason=reason,
        diverged=None if bad_node == loop.NOWHERE else (rounds, bad_node),
        totals=tally.totals(),
        communication_rounds=np.asarray(carry.communications),
        guarantee=setting.algorithm.privacy(problem),
        seconds=clock.seconds,
        compile_seconds=clock.compile_seconds,
    )


def _ending(
    rounds: int, steps: int, bad_node: int, stopped: bool, stop: StopRule | None, interrupted: bool
) -> tuple[Ending, str]:
    if bad_node != loop.NOWHERE:
        return "diverged", (
            f"node {bad_node} has a non-finite parameter after round {rounds}; "
            "lower the learning rate or the noise, or look at that node's data"
        )
    if stopped and stop is not None:
        return "stop rule", stop.reason
    if interrupted and rounds < steps:
        return "interrupted", f"interrupted after round {rounds}; everything up to there is kept"
    return "steps", f"all {steps} rounds are done" + (", the stop rule never fired" if stop is not None else "")


def check_counters(network: Network, rounds: int) -> None:
    """Refuse stretches so long that a node's int32 message counter could overflow."""
    graph = network.at(jnp.int32(0), jax.random.key(0))
    busiest = int(np.max(np.asarray(graph.out_degree), initial=1)) * max(1, rounds)
    if busiest >= 2**31:
        raise ValueError(
            f"Expected fewer than 2^31 messages of one node between two records, got up to {busiest} in {rounds} rounds. "
            "Record more often (every=...), or use `run`, which adds up on the host after every chunk."
        )


def typed_key(key: int | Array) -> Array:
    """A seed as a typed key; a typed key as it is."""
    if isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    checks.whole(0, key=key, remedy="Give a seed, or a typed key from jax.random.key.")
    return jax.random.key(int(key))  # pyright: ignore[reportArgumentType]


class Clock:
    """Wall time of a block, with tracing and compilation apart."""

    def __enter__(self) -> "Clock":
        self._began, self._compiled = time.perf_counter(), _compile_seconds
        return self

    def __exit__(self, *_: object) -> None:
        self.compile_seconds = _compile_seconds - self._compiled
        self.seconds = max(0.0, time.perf_counter() - self._began - self.compile_seconds)
