"""Runs of a method with everything that leaves its nodes, for attackers of any kind.

No method is re-implemented: its own steps are run, and what they send and release is recorded.

Axes: m nodes, n parameters, T rounds, S rows per node that leave it, the final ones included, P releases per node.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jdfl.algorithms.program import Program
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from jdfl.network import Network
from jdfl.observers.watched import Log, Recorded
from jdfl.problems import Problem


class Seen(NamedTuple):
    """What leaves the nodes of a run, in the order of the program."""

    sent: Array  # [S, m, n] the messages, and the final parameters as the last
    released: Array  # [P, m, n] the values that mechanisms have added noise to


def seen(
    program: Program,
    problem: Problem,
    network: Network,
    keys: Keys,
    *,
    steps: int,
    kind: Callable[..., Recorded] = Recorded,
) -> Seen:
    """The run of a planned method with these keys; a pure function, to be batched by `jax.vmap`.

    Args:
        program: The method with its plan for `steps` rounds.
        problem: The nodes' data and losses, for m nodes.
        network: The communication network.
        keys: The keys of the run.
        steps: Rounds T, at least 1.
        kind: Makes the recorded rounds.
    """
    algorithm, setting = program.algorithm, stepping.setting(program, problem, network, None, keys)
    begun = stepping.begun(setting)
    ready = algorithm.prepared(problem, begun, program.plan)

    def kept(rows: list[Array]) -> Array:
        return jnp.stack(rows) if rows else jnp.zeros((0, problem.m, problem.n), problem.dtype)

    def recorded(moment: Any) -> tuple[Recorded, Log]:
        log = Log()
        return kind(moment=moment, problem=problem, prepared=ready, log=log), log

    def step(state: Any, k: Array) -> tuple[Any, tuple[Array, Array]]:
        moment = stepping.drawn(setting, k)
        round, log = recorded(moment)
        new = algorithm.step(state, round)
        return stepping.kept(state, new, moment), (kept([one.x for one in log.sent]), kept(log.released))

    round, log = recorded(begun)
    state, rest = lax.scan(step, algorithm.init(round), jnp.arange(steps, dtype=jnp.int32))
    first = kept([one.x for one in log.sent]), kept(log.released)
    sent, released = (jnp.concatenate([one, other.reshape(-1, *one.shape[1:])]) for one, other in zip(first, rest))
    return Seen(jnp.concatenate([sent, algorithm.params(state)[None]]), released)
