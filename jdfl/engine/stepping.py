"""The setting of a run, and one round of it.

Axes: m nodes.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jdfl.algorithms.program import Program
from jdfl.algorithms.round import RoundContext, StepCounts
from jdfl.base import struct
from jdfl.base.backend import Form, with_kernels
from jdfl.base.names import Names
from jdfl.base.run_keys import RunKey
from jdfl.base.streams import Keys
from jdfl.devices import nodes
from jdfl.engine import invariants
from jdfl.engine.stopping import StopRule
from jdfl.network import Graph, Network, in_run
from jdfl.network.links import Sizes
from jdfl.network.ordering import in_order_of
from jdfl.network.timing import Seconds, advanced
from jdfl.problems import Problem


def paired(problem: Problem, network: Network) -> Network:
    """The network with its nodes in the order of the problem's, by name where both have names, else as it is.

    Raises ValueError where both have names and these are not the same.
    """
    own, other = _names(problem), _names(network)
    for names, of, word in ((own, problem, "problem"), (other, network, "network")):
        if names is not None and len(names) != of.m:
            raise ValueError(
                f"Expected a name for each of the {of.m} nodes of the {word}, got {len(names)}. Use named()."
            )
    return network if own is None or other is None else in_order_of(network, own)


def _names(one: Any) -> Names | None:
    found = getattr(one, "node_names", None)
    return found if isinstance(found, tuple | range) else None


def pairing(problem: Problem, network: Network) -> str:
    """How the nodes of a problem and of its `paired` network were matched, in words."""
    own, other = _names(problem), _names(network)
    if own is not None and other is not None:
        return "by name"
    without = [word for word, names in (("problem", own), ("network", other)) if names is None]
    return f"by position ({'neither has' if len(without) == 2 else f'the {without[0]} has no'} names of nodes)"


def check_paired(problem: Problem, network: Network) -> None:
    """RuntimeError where nodes have names and were not `paired`."""
    if paired(problem, network) is not network:
        raise RuntimeError(
            "The nodes of problem and network are not paired; this is a mistake in jdfl, please report it."
        )


@struct.dataclass
class Setting:
    """The setting of a run; all its arrays and floats are traced, so that changing them does not recompile."""

    program: Program
    problem: Problem
    network: Network
    stop: StopRule | None
    keys: Keys
    node: Array  # [m] int32 global ids
    limit: Array | None = None  # [m] int32 maximum number of releases of every node
    largest: Array | None = None  # [] largest magnitude of a parameter
    planned: Array | None = None  # [m] int32 releases that every node makes at most; None: that is not known
    watched: invariants.Watched = struct.field(pytree_node=False, default="state")  # the values that may end it
    weights: invariants.Weights | None = struct.field(pytree_node=False, default=None)  # of W; None: nothing is checked
    kernels: Form | None = struct.field(pytree_node=False, default=None)  # of our own; None: none


def setting(
    program: Program,
    problem: Problem,
    network: Network,
    stop: StopRule | None,
    key: Array | Keys | RunKey,
    limit: Array | None = None,
    largest: Array | None = None,
    watched: invariants.Watched = "state",
    planned: Any = None,
    weights: invariants.Weights | None = None,
    kernels: Form | None = None,
) -> Setting:
    """A setting without the names of problem and network: they are static, and a name must not recompile."""
    check_paired(problem, network)
    node = jax.device_put(np.arange(problem.m, dtype=np.int32))
    if isinstance(key, RunKey):
        key = Keys.of(key.public, key.private)
    keys = key if isinstance(key, Keys) else Keys.of(key)
    weights = invariants.weights_of(program.algorithm, network) if weights is None else weights
    given = program, nameless(problem), nameless(network), stop, keys, node
    return Setting(*given, limit, largest, planned, watched, weights, kernels)


def nameless(named: Any) -> Any:
    """The same value with an empty `name`, where it has one."""
    return named.replace(name="") if hasattr(named, "name") else named


def with_field(algorithm: Any, path: str, value: Any) -> Any:
    """The algorithm, or a program, with another value in one field."""
    if isinstance(algorithm, Program) and path != "plan":
        return replace(algorithm, algorithm=with_field(algorithm.algorithm, path, value))
    name, _, rest = path.partition(".")
    return replace(algorithm, **{name: with_field(getattr(algorithm, name), rest, value) if rest else value})


def initial_round(setting: Setting) -> RoundContext:
    """The moment before the first round.

    Messages of the start take no time: they have no size here.
    """
    return _sample_round(setting, jnp.int32(0), setting.keys.at_start(), 0)


def sample_round(setting: Setting, k: Array) -> RoundContext:
    """Round k []: its network is drawn from the round's keys, and states that last many rounds from the run's."""
    bits = setting.program.round_bits(setting.problem)
    return _sample_round(setting, k, setting.keys.at_round(k), bits)


def _sample_round(setting: Setting, k: Array, now: Keys, bits: int | Sizes) -> RoundContext:
    graph = in_run(setting.network, setting.keys.network, bits).at(k, now.network)
    return RoundContext(k, now.run, graph, setting.node, now)


def step(setting: Setting, state: Any, round: RoundContext) -> tuple[Any, StepCounts]:
    """One round; absent nodes keep their state and count nothing."""
    with with_kernels(setting.kernels):
        new, info = setting.program.step(state, setting.problem, round)
    info, away = nodes.counted(info), round.graph.away
    if away is not None:
        info = jax.tree.map(lambda count: jnp.where(away, 0, count), info)
    return kept(state, new, round), info


def checked(
    setting: Setting,
    state: Any,
    graph: Graph | None,
    info: StepCounts,
    releases: Array,
    before: invariants.Known,
    after: invariants.Known,
) -> tuple[Array, Array]:
    """What ends a run that diverged or violated what holds in every round."""
    diverged = invariants.bad_nodes(setting.program, state, setting.largest, setting.watched)
    code, value, lost = jnp.zeros_like(releases), jnp.zeros(releases.shape, jnp.float32), jnp.bool_(False)
    if setting.weights is not None:
        code, value, lost = invariants.broken(setting.weights, graph, info, releases, before, after, setting.planned)
    return invariants.first(code, lost, diverged), value


def kept(state: Any, new: Any, round: RoundContext) -> Any:
    """The state `new` after a round, in which absent nodes keep their rows of the `state` before."""
    away = round.graph.away
    if away is None:
        return new

    def rows(old: Array, new: Array) -> Array:
        return (
            jnp.where(away.reshape(-1, *[1] * (new.ndim - 1)), old, new) if invariants.has_rows(new, round.m) else new
        )

    return jax.tree.map(rows, state, new)


def done_at(setting: Setting, done: Seconds | None, round: RoundContext, info: StepCounts) -> Seconds | None:
    """The simulated times [m] at which nodes finish a round."""
    if done is None:
        return None
    slots = setting.program.waits(round, setting.problem)
    return advanced(round.graph, done, info.grads, slots & (info.communications > 0)[:, None])
