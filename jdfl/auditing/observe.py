"""Many runs of an algorithm at once, seen through what one node shows.

What is looked at after the start and after every round is `algorithm.visible(state)`, an array [m, k] with k a multiple
of n, where the algorithm has such a method, else its parameters. Of that, three rows are kept, as inner products with
the directions in which the two worlds differ: the node's own, the one that mixing makes of it and of those it hears,
and the plain mean of those it hears. A linear score can so take away what came from others.

Constants that `prepare` draws (periods, the matrices of codecs) are public, and the same in all runs.

Axes: N runs, m nodes, n parameters, c = k / n blocks, p directions, R = looks + 1 moments, T points.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jdfl import ops
from jdfl.base import Algorithm, Round
from jdfl.network.graph import Graph, Network
from jdfl.problems import Problem
from jdfl.streams import Keys


def visible(algorithm: Any, state: Any) -> Array:
    """What others may see of a state [m, k]."""
    return algorithm.visible(state) if hasattr(algorithm, "visible") else algorithm.params(state)


def watched(algorithm: Any) -> Any:
    """The algorithm with a state that keeps the messages themselves, where it can: those of noisy push-sum."""
    dpps = getattr(algorithm, "dpps", None)
    return algorithm if dpps is None else algorithm.replace(dpps=dpps.replace(watch=True))


def check_visible(algorithm: Algorithm, problem: Problem, network: Network) -> None:
    """Refuse what an algorithm shows unless it is [m, k] with k a multiple of n."""

    def look(problem: Problem, network: Network, key: Array) -> Array:
        prepared, state, _ = started(algorithm, problem, network, key, key)
        return visible(prepared, state)

    shape = jax.eval_shape(look, problem, network, jax.random.key(0)).shape
    if len(shape) != 2 or shape[0] != problem.m or shape[1] % problem.n:
        raise ValueError(
            f"Expected {type(algorithm).__name__}.visible(state) of shape (m, k) with m = {problem.m} and k a multiple "
            f"of n = {problem.n}, got {shape}. Stack what a node shows as blocks of n numbers."
        )


@partial(jax.jit, static_argnames=("steps", "batch", "looks"))
def observe(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    directions: Array,
    node: Array,
    public: Array,
    keys: Array,
    *,
    steps: int,
    batch: int,
    looks: int | None = None,
) -> tuple[Array, Array]:
    """Features [N, R, 3 c p] of runs with these keys [N], and how often the node released something [N].

    `directions` [p, n], `node` int32 [], `public` the key of what `prepare` draws; `batch` runs go side by side. Looked
    at are the end and the beginnings of `looks` stretches of rounds, as long as one another up to a round (None: of all
    rounds).
    """
    stretches = steps if looks is None else looks

    def one(key: Array) -> tuple[Array, Array]:
        prepared, state, info = started(algorithm, problem, network, public, key)

        def look(state: Any, graph: Graph) -> Array:
            shown = visible(prepared, state)
            blocks = shown.reshape(shown.shape[0], -1, directions.shape[1])
            rows = jnp.einsum("mcn,pn->mcp", blocks, directions, precision=ops.HIGHEST).reshape(shown.shape[0], -1)
            return _three(rows, graph, node)

        def step(k: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
            state, info = prepared.step(carry[0], problem, round_at(network, key, k, problem.m))
            return state, carry[1] + info.releases[node]

        def stretch(carry: tuple[Any, Array], ends: Array) -> tuple[tuple[Any, Array], Array]:
            seen = look(carry[0], round_at(network, key, ends[0], problem.m).graph)
            if stretches == steps:
                return step(ends[0], carry), seen
            return lax.fori_loop(ends[0], ends[1], step, carry), seen

        ends = jnp.asarray(np.linspace(0, steps, stretches + 1).round(), jnp.int32)
        pairs = jnp.stack([ends[:-1], ends[1:]], axis=1)
        (state, releases), seen = lax.scan(stretch, (state, info.releases[node]), pairs)
        last = look(state, round_at(network, key, jnp.int32(steps - 1), problem.m).graph)
        return jnp.concatenate([seen, last[None]]), releases

    count = keys.shape[0]
    batches = -(-count // batch)
    size = -(-count // batches)  # a last batch of another size would be compiled on its own
    rows = jnp.arange(batches * size, dtype=jnp.int32).reshape(batches, size) % count
    features, releases = lax.map(jax.vmap(one) if size > 1 else lambda k: _lone(one, k), keys[rows])
    return features.reshape(-1, *features.shape[2:])[:count], releases.reshape(-1)[:count]


def _lone(function: Any, keys: Array) -> Any:
    """`function` of the one key in `keys` [1], without vmap: its loops keep their own lengths."""
    return jax.tree.map(lambda leaf: leaf[None], function(keys[0]))


@partial(jax.jit, static_argnames=("steps", "points"))
def pilot(
    algorithm: Algorithm,
    problem: Problem,
    network: Network,
    node: Array,
    public: Array,
    keys: Array,
    *,
    steps: int,
    points: int,
) -> tuple[Array, Array]:
    """The node's parameters: their mean [n] over all rounds of the runs, and at `points` moments of each run [N, T, n].

    The moments are the start and the ends of stretches of equal length.
    """

    def one(key: Array) -> tuple[Array, Array]:
        prepared, state, _ = started(algorithm, problem, network, public, key)

        def step(carry: tuple[Any, Array, Array], k: Array) -> tuple[tuple[Any, Array, Array], None]:
            state, total, kept = carry
            state, _ = prepared.step(state, problem, round_at(network, key, k, problem.m))
            w = prepared.params(state)[node]
            return (state, total + w, kept.at[1 + k * (points - 1) // steps].set(w)), None

        w = prepared.params(state)[node]
        start = state, jnp.zeros_like(w), jnp.broadcast_to(w, (points, *w.shape))
        (_, total, kept), _ = lax.scan(step, start, jnp.arange(steps, dtype=jnp.int32))
        return total / steps, kept

    means, kept = lax.map(one, keys)
    return jnp.mean(means, axis=0), kept


def started(algorithm: Any, problem: Problem, network: Network, public: Array, key: Array) -> tuple[Any, Any, Any]:
    """The prepared algorithm, the state before round 0, and what that cost."""
    m, k = problem.m, jnp.int32(0)
    prepared = algorithm.prepare(problem, _begin(network, public, k, m))
    state, info = prepared.init(problem, _begin(network, key, k, m))
    return prepared, state, info


def _begin(network: Network, key: Array, k: Array, m: int) -> Round:
    return _at(network, Keys.of(key).at_start(), k, m)


def round_at(network: Network, key: Array, k: Array, m: int) -> Round:
    """Round k [] of a run with this key []."""
    return _at(network, Keys.of(key).at_round(k), k, m)


def _at(network: Network, now: Keys, k: Array, m: int) -> Round:
    return Round(k, now.run, network.at(k, now.network), jnp.arange(m, dtype=jnp.int32), now)


def _three(rows: Array, graph: Graph, node: Array) -> Array:
    """Of rows [m, f]: the node's own, W times rows there, and the mean of those it hears (0 for nobody) [3 f]."""
    own, heard = rows[node], rows[graph.senders[node]]
    mixed = graph.self_weight[node].astype(rows.dtype) * own + graph.weight[node].astype(rows.dtype) @ heard
    if graph.synchronised is not None:
        mixed = jnp.where(graph.synchronised, jnp.mean(rows, axis=0), mixed)
    mask = graph.mask[node].astype(rows.dtype)
    return jnp.concatenate([own, mixed, mask @ heard / jnp.maximum(jnp.sum(mask), 1.0)])
