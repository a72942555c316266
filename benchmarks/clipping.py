"""The cost of clipping every example's gradient: compared with plain gradients, and with forming them one by one.

Run `python -m benchmarks.clipping [--quick] [--out DIR]`. One call computes the gradients of all m nodes as in a round:
everything is an argument, and the norms of the features are given, since a run computes them once. Both variants read
the features twice, for the scores and for the sum; clipping adds work on [m, q] numbers only. The naive way writes and
reads [m, q, n]. The clip is the median norm, so half of the examples are clipped.

Axes: m nodes, q examples per node, n parameters.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse import csr_array, random_array

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from jdfl.algorithms.gradients import Ready
from jdfl.algorithms.round import Prepared, RoundContext
from jdfl.privacy import clipped
from jdfl.problems import Problem

RESULT = (
    "Clipped gradients of linear regression take {linear m=32 q=500 n=1000 -> clipped / plain} times the time of "
    "plain ones; forming them one by one takes {linear m=32 q=500 n=1000 -> one by one / clipped} times as long."
)
GOAL = "<= 1.3"
LR = 1e-3
BURST = 5  # calls in a row that are timed together: in a run, too, a call finds the caches as the last one left them


@jax.jit
def gradients_of(gradients: jdfl.Gradients, x: Array, problem: Problem, context: RoundContext, ready: Ready) -> Array:
    """The gradients [m, n] of one round."""
    return gradients(x, jdfl.Round(context=context, problem=problem, prepared=Prepared(ready)))


@jax.jit
def one_by_one(x: Array, problem: Problem, clip: Array) -> Array:
    """The same clipped gradients [m, n], every example's formed first (the regulariser left out)."""

    def node(x_i: Array, data: Any, weight: Array) -> Array:
        return weight @ clipped(problem.example_gradients(x_i, data), "l2", clip) / jnp.sum(weight)

    return jax.vmap(node)(x, problem.data, problem.weight)


@jax.jit
def median_length(x: Array, problem: Problem) -> Array:
    """The median l2 norm [] of the gradients of node 0's examples."""
    data, weight = problem.local(0)
    slopes = jnp.asarray(problem.slopes(x[0], data)).reshape(weight.shape[0], -1)
    return jnp.median(problem.feature_lengths(data, "l2") * jnp.linalg.norm(slopes, axis=1))


def problems(m: int, q: int, n: int, wide: int) -> dict[str, Problem]:
    """Problems of one size, features standard normal; rows of `sparse logistic` have about 50 of `wide` words."""
    draw = np.random.default_rng(0)
    A = draw.standard_normal((m, q, n), np.float32)
    labels, digits = draw.integers(0, 2, (m, q)), draw.integers(0, 10, (m, q))
    words = [csr_array(random_array((q, wide), density=50 / wide, format="csr", rng=draw)) for _ in range(m)]
    return {
        "linear": jdfl.problems.linear_regression(A, draw.standard_normal((m, q), np.float32)),
        "logistic": jdfl.problems.logistic_regression(list(zip(A, labels))),
        "softmax": jdfl.problems.softmax_regression(list(zip(A[:, :, : n // 10], digits)), classes=10),
        "sparse logistic": jdfl.problems.sparse_logistic_regression(list(zip(words, labels))),
    }


def burst(call: Callable[[], Any]) -> Callable[[], None]:
    """The call several times in sequence, each waited for."""

    def work() -> None:
        for _ in range(BURST):
            jax.block_until_ready(call())

    return work


def parameters(problem: Problem) -> Array:
    """Some point [m, n] at which scores are of size 1."""
    drawn = np.random.default_rng(1).standard_normal((problem.m, problem.n), np.float32)
    return jnp.asarray(drawn / np.sqrt(problem.n))


def of_gradients(name: str, problem: Problem, network: Any, repeats: int) -> list[Row]:
    """Clipped against plain, and against one by one, which would leave the caches cold for the others."""
    x = parameters(problem)
    context = RoundContext(jnp.int32(0), jax.random.key(0), network.graph, jnp.arange(problem.m, dtype=jnp.int32))
    clip = median_length(x, problem)
    both = jdfl.Gradients(), jdfl.Gradients(clip=clip)
    plain, private = (partial(gradients_of, one, x, problem, context, one.prepare(problem, context)) for one in both)
    case = f"{name} m={problem.m} q={problem.weight.shape[1]} n={problem.n}"
    lines = pair(case, {"clipped": private, "plain": plain}, repeats, GOAL if name in ("linear", "logistic") else "")
    if name != "sparse logistic":  # whose gradients, dense, are far larger than the data
        formed = partial(one_by_one, x, problem, clip)
        regulariser = jax.vmap(jax.grad(problem.regulariser))(x)
        np.testing.assert_allclose(private() - regulariser, formed(), rtol=2e-3, atol=1e-4)
        formed_lines = pair(case, {"one by one": formed, "clipped": private}, repeats)
        lines += [formed_lines[0], formed_lines[2]]  # clipped is listed already
    return lines


def pair(case: str, calls: dict[str, Callable[[], Any]], repeats: int, goal: str = "") -> list[Row]:
    """Milliseconds of two ways, interleaved, and the first over the second."""
    found = interleaved({way: burst(call) for way, call in calls.items()}, repeats)
    lines = [row(case, f"{way}, all nodes", [1e3 * s / BURST for s in times], "ms") for way, times in found.items()]
    over, under = calls
    return [*lines, row(case, f"{over} / {under}", ratios(found[over], found[under]), "x", goal)]


def of_rounds(name: str, problem: Problem, network: Any, rounds: int, repeats: int) -> list[Row]:
    """Rounds of D-PSGD between two records: plain, clipped, and clipped with noise."""
    clip = float(median_length(parameters(problem), problem))
    ways = {
        "plain": jdfl.Gradients(),
        "clipped": jdfl.Gradients(clip=clip),
        "clipped and noisy": jdfl.Gradients(clip=clip, mechanism=jdfl.Gaussian(1.0)),
    }
    calls = {
        way: rounds_of(jdfl.DPSGD(lr=LR, gradients=gradients), problem, network, rounds)
        for way, gradients in ways.items()
    }
    seconds = interleaved(calls, repeats)
    case = f"D-PSGD, {name} m={problem.m} q={problem.weight.shape[1]} n={problem.n}"
    lines = [row(case, way, [rounds / s for s in times], "rounds/s") for way, times in seconds.items()]
    lines.append(row(case, "a round, clipped / plain", ratios(seconds["clipped"], seconds["plain"]), "x", GOAL))
    lines.append(row(case, "a round, noisy / clipped", ratios(seconds["clipped and noisy"], seconds["clipped"]), "x"))
    return lines


@benchmark("Clipped gradients of single examples", goals=False)
def main(chosen: Options) -> list[Row]:
    """All figures."""
    m, q, n, wide, rounds, repeats = (4, 20, 50, 200, 3, 2) if chosen.quick else (32, 500, 1000, 20_000, 10, 15)
    network = jdfl.network.k_regular(m, min(8, m - 2), format="padded")
    given = problems(m, q, n, wide)
    rows = [line for name, problem in given.items() for line in of_gradients(name, problem, network, repeats)]
    rows += [line for name in ("linear", "logistic") for line in of_rounds(name, given[name], network, rounds, repeats)]
    return rows


if __name__ == "__main__":
    main()
