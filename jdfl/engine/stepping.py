"""What a run is about, and one round of it.

Axes: m nodes.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jdfl.algorithms.moment import Info, Moment
from jdfl.algorithms.program import Program
from jdfl.base import struct
from jdfl.base.streams import Keys
from jdfl.devices import nodes
from jdfl.engine import guard
from jdfl.engine.provenance import fingerprint
from jdfl.engine.stopping import StopRule
from jdfl.network import Graph, Network, advanced, in_run
from jdfl.network.timing import Seconds
from jdfl.problems import Problem


def run_words(program: Program, problem: Problem, network: Network) -> tuple[int, ...]:
    """What algorithm, data and network are, in the words that enter the key of private randomness."""
    return fingerprint(problem.dtype, algorithm=program.algorithm, problem=problem, network=network)


def run_keys(key: Array, program: Program, problem: Problem, network: Network) -> Keys:
    """The keys of a run with this key []."""
    return Keys.of(key, run_words(program, problem, network))


@struct.dataclass
class Setting:
    """What a run is about; every array and every float of it is traced, so none of them recompiles."""

    algorithm: Program
    problem: Problem
    network: Network
    stop: StopRule | None
    keys: Keys
    node: Array  # [m] int32 global ids
    limit: Array | None = None  # [m] int32 releases that every node may make in all
    largest: Array | None = None  # [] the most that a parameter may be in size
    watched: guard.Watched = struct.field(pytree_node=False, default="state")  # what may end it


def setting(
    program: Program,
    problem: Problem,
    network: Network,
    stop: StopRule | None,
    key: Array | Keys,
    limit: Array | None = None,
    largest: Array | None = None,
    watched: guard.Watched = "state",
) -> Setting:
    """A setting without the names of problem and network: they are static, and a name must not recompile.

    Args:
        program: The algorithm with what is planned for a number of rounds.
        problem: The nodes' data and losses, of m nodes.
        network: Who hears whom.
        stop: The rule that may end the run; None: there is none.
        key: The run's key [], or all of its keys.
        limit: Releases that every node may make in all, limit [m] int32; None: any number.
        largest: The most that a parameter may be in size, largest [], beyond which the run ends; None: any finite size.
        watched: What may end the run when it is no longer finite: "state", "parameters" or "nothing".
    """
    node = jnp.arange(problem.m, dtype=jnp.int32)
    keys = key if isinstance(key, Keys) else run_keys(key, program, problem, network)
    return Setting(program, nameless(problem), nameless(network), stop, keys, node, limit, largest, watched)


def nameless(named: Any) -> Any:
    """The same value with an empty `name`, where it has one."""
    return named.replace(name="") if hasattr(named, "name") else named


def with_field(algorithm: Any, path: str, value: Any) -> Any:
    """The algorithm, or a program with one, with another value in one field.

    Args:
        algorithm: The settings, or a program, which keeps its plan.
        path: The dotted name of the field, such as "codec.gamma"; "plan" is a program's own.
        value: What the field has then; it is not checked here.
    """
    if isinstance(algorithm, Program) and path != "plan":
        return replace(algorithm, algorithm=with_field(algorithm.algorithm, path, value))
    name, _, rest = path.partition(".")
    return replace(algorithm, **{name: with_field(getattr(algorithm, name), rest, value) if rest else value})


def begun(setting: Setting) -> Moment:
    """The moment before the first round.

    Nothing is sent yet: messages have no size.
    """
    return _drawn(setting, jnp.int32(0), setting.keys.at_start(), 0)


def drawn(setting: Setting, k: Array) -> Moment:
    """Round k []: its network is drawn from keys of its own, and what lasts many rounds in it from the run's."""
    bits = sum(setting.algorithm.message_bits(setting.problem).values())
    return _drawn(setting, k, setting.keys.at_round(k), bits)


def _drawn(setting: Setting, k: Array, now: Keys, bits: int) -> Moment:
    graph = in_run(setting.network, setting.keys.network, bits).at(k, now.network)
    return Moment(k, now.run, graph, setting.node, now)


def graph_of(setting: Setting, k: int) -> Graph:
    """The graph of round k once more, with the rows of all nodes."""
    return drawn(setting, jnp.int32(k)).graph


def step(setting: Setting, state: Any, round: Moment) -> tuple[Any, Info]:
    """One round; nodes that are away stay as they are, and did nothing."""
    new, info = setting.algorithm.step(state, setting.problem, round)
    info, away = nodes.counted(info), round.graph.away
    if away is not None:
        info = jax.tree.map(lambda count: jnp.where(away, 0, count), info)
    return kept(state, new, round), info


def kept(state: Any, new: Any, round: Moment) -> Any:
    """The state `new` after a round, in which nodes that are away have the rows of the `state` before."""
    away = round.graph.away
    if away is None:
        return new

    def rows(old: Array, new: Array) -> Array:
        return jnp.where(away.reshape(-1, *[1] * (new.ndim - 1)), old, new) if guard.has_rows(new, round.m) else new

    return jax.tree.map(rows, state, new)


def done_at(setting: Setting, done: Seconds | None, round: Moment, info: Info) -> Seconds | None:
    """When nodes are done with a round [m]."""
    if done is None:
        return None
    slots = setting.algorithm.waits(round, setting.problem)
    return advanced(round.graph, done, info.grads, slots & (info.communications > 0)[:, None])
