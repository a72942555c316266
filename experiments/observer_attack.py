"""An optimal attack on an observer's view of real runs, for comparison with what `jdfl.observe` derives.

Data are fixed: losses are linear, so gradients do not depend on parameters. Runs of two worlds have the same keys,
hence the same noise, and the difference of their views is known. With the covariance of the views in half of the runs
it gives the best linear score, which is tested on the other half. Nothing here uses the derived map.

Axes: m nodes, n parameters, T rounds, N runs, R vectors that an observer sees.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl.algorithms.program import Program, planned
from jdfl.base import struct
from jdfl.base.keys import typed_key
from jdfl.base.streams import Keys
from jdfl.engine import stepping
from jdfl.network import Network
from jdfl.observers import Observer
from jdfl.observers.observe import Observed
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
    begun = stepping.initial_round(setting)
    ready = algorithm.prepared(problem, begun, program.plan)

    def kept(rows: list[Array]) -> Array:
        return jnp.stack(rows) if rows else jnp.zeros((0, problem.m, problem.n), problem.dtype)

    def recorded(context: Any) -> tuple[Recorded, Log]:
        log = Log()
        return kind(context=context, problem=problem, prepared=ready, log=log), log

    def step(state: Any, k: Array) -> tuple[Any, tuple[Array, Array]]:
        context = stepping.sample_round(setting, k)
        round, log = recorded(context)
        new = algorithm.step(state, round)
        return stepping.kept(state, new, context), (kept([one.x for one in log.sent]), kept(log.released))

    round, log = recorded(begun)
    state, rest = lax.scan(step, algorithm.init(round), jnp.arange(steps, dtype=jnp.int32))
    first = kept([one.x for one in log.sent]), kept(log.released)
    sent, released = (jnp.concatenate([one, other.reshape(-1, *one.shape[1:])]) for one, other in zip(first, rest))
    return Seen(jnp.concatenate([sent, algorithm.params(state)[None]]), released)


@struct.dataclass
class Fixed(Problem):
    """Losses <example, w>, whose gradients are the examples [m, q, n] themselves."""

    @property
    def n(self) -> int:
        return self.data.shape[-1]

    def loss(self, w: Array, example: Array) -> Array:
        return jnp.vdot(w, example)


def world(m: int, node: int, sign: float, n: int = 1) -> Fixed:
    """Data in which only one node's are not zero: one example, whose norm reaches the clip of 1."""
    data = np.zeros((m, 1, n))
    data[node, 0, 0] = sign
    dtype = jnp.zeros(()).dtype
    return Fixed(jnp.asarray(data, dtype), jnp.ones((m, 1), dtype), jnp.zeros((m,), dtype))


Views = Callable[[Problem, int, int], tuple[np.ndarray, np.ndarray]]


def viewer(algorithm: Any, problem: Problem, network: Any, steps: int) -> Views:
    """A function of a problem, a number of runs and a seed, compiled once for all problems of one shape.

    It returns what leaves the nodes in runs, with the final parameters last [N, S, m], and their releases [N, P, m].
    Every run has its own key. Of each vector only the first number is kept.
    """
    program = planned(algorithm, problem, network, steps)

    @jax.jit
    def all_of(problem: Problem, keys: Array) -> tuple[Array, Array]:
        def one(key: Array) -> tuple[Array, Array]:
            run = seen(program, problem, network, Keys.of(key), steps=steps)
            return run.sent[:, :, 0], run.released[:, :, 0]

        return jax.vmap(one)(keys)

    def views(problem: Problem, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        sent, released = all_of(problem, jax.random.split(typed_key(seed), runs))
        return np.asarray(sent), np.asarray(released)

    return views


def reached(
    algorithm: Any,
    network: Any,
    observer: Observer,
    node: int,
    *,
    steps: int,
    runs: int = 20_000,
    seed: int = 0,
    views: Views | None = None,
) -> tuple[float, float]:
    """The mu that an optimal attack on a node reaches, and the derived mu for the same change of its data.

    All numbers are in float64. Only the places in the program that the observer sees are taken from the derivation.

    Args:
        algorithm: The settings, with gradients clipped to 1 and noisy.
        network: The communication network, the same in all runs.
        observer: The observer.
        node: The node whose gradient is -1 in one world and 1 in the other, in every round.
        steps: Rounds.
        runs: Runs of both worlds together.
        seed: Seed of the runs' keys.
        views: `viewer` of the same algorithm, network and rounds, which is compiled once for many calls.
    """
    with jax.enable_x64(True):
        worlds = [world(network.m, node, sign) for sign in (-1.0, 1.0)]
        run = Observed.of(algorithm, worlds[0], network, steps=steps, key=seed, delta=0.01)
        wanted, own = observer.rows(run.spread), list(observer.known(network.m))
        look, seen = views or viewer(algorithm, worlds[0], network, steps), []
        for problem in worlds:
            sent, released = look(problem, runs // 2, seed)
            rows = [sent[:, -1 if place == run.spread.final else place] @ weights for place, weights in wanted]
            seen.append(np.column_stack([*rows, released[:, :, own].reshape(len(sent), -1)]))
        return shift(*seen), derived(run, observer, node)


def derived(run: Observed, observer: Observer, node: int) -> float:
    """The mu of a node whose data change every release by the largest amount, always in the same direction."""
    unknown = np.ones(run.spread.m, bool)
    unknown[list(observer.known(run.spread.m))] = False
    return float(np.sqrt(run.blocks(run.spread.rows(observer.rows(run.spread)), unknown)[node].sum()))


def shift(first: np.ndarray, second: np.ndarray) -> float:
    """The separation of the best linear score of views [N, R] of two worlds, in standard deviations."""
    half = len(first) // 2
    difference = np.mean(second - first, axis=0)
    _, size, axes = np.linalg.svd(first[:half] - first[:half].mean(axis=0), full_matrices=False)
    axes = axes[size > 1e-11 * size[0]] / size[size > 1e-11 * size[0], None]  # squares would hide the faintest of them
    score = axes.T @ (axes @ difference)
    scores = [one[half:] @ score for one in (first, second)]
    size = np.sqrt((scores[0].var(ddof=1) + scores[1].var(ddof=1)) / 2)
    return float((scores[1].mean() - scores[0].mean()) / size) if size > 0 else 0.0
