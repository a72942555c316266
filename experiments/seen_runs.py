"""Runs of a method with all that leaves its nodes, for attackers of any kind.

Nothing is written anew for a method: its own steps are run, and what they send and release is kept on the way.

Axes: m nodes, n parameters, T rounds, S rows of every node that leave it, the final ones too, P releases of a node.
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
    released: Array  # [P, m, n] what mechanisms have added noise to


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
        program: The method with what is planned for so many rounds.
        problem: The nodes' data and losses, of m nodes.
        network: Who hears whom.
        keys: Those of the run.
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
