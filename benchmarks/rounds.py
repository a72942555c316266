"""Rounds of CEPS, PartPSP and DO-ADP compared with D-PSGD's, and all nodes in one step with a loop over the nodes.

Run `python -m benchmarks.rounds [--quick] [--out DIR]`; three minutes on two cores.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jdfl
from benchmarks.common import Options, Row, benchmark, interleaved, ratios, rounds_of, row
from jdfl.algorithms.program import planned

RESULT = (
    "A loop over 256 nodes with 20 parameters takes {D-PSGD m=256 n=20 q=10 -> per node / at once} times as long as "
    "one step of all nodes."
)
LIMIT = (
    "With 32 examples of 1000 numbers a node's data are 128 kB, and both are limited by memory, 33 MB read twice per "
    "round; vectorization can save only the calls. A device per core gives 1.4 times as many rounds (`python -m "
    "benchmarks.cores`)."
)
PERIOD = 60  # rounds per timing, several of CEPS's periods of 10 to 15
DEGREE, LR = 8, 1e-3
MOST = 500  # rounds that noise is planned for


def least_squares(m: int, n: int, q: int) -> Any:
    """Features of every node, and targets from sparse true parameters."""
    truth = jnp.zeros((n,)).at[: n // 100 + 1].set(1.0)
    features = jax.random.normal(jax.random.key(0), (m, q, n))
    return jdfl.problems.linear_regression(features, jnp.dot(features, truth), truth=truth)


def logistic(m: int, n: int, q: int) -> Any:
    """The same features with the signs of the targets as labels."""
    truth = jnp.zeros((n,)).at[: n // 100 + 1].set(1.0)
    features = jax.random.normal(jax.random.key(0), (m, q, n))
    labels = np.asarray(jnp.dot(features, truth) > 0)
    return jdfl.problems.logistic_regression(list(zip(np.asarray(features), labels.astype(np.int32))))


def beside_dpsgd(m: int, n: int, q: int, repeats: int) -> list[Row]:
    """A round of every method over that of D-PSGD on the same problem, network and gradients."""
    s, batch = max(1, n // 100), max(1, q // 16)
    some = jdfl.Gradients(batch=batch)
    plain, directed = jdfl.network.k_regular(m, DEGREE), jdfl.network.exponential(m)
    ceps = partial(jdfl.CEPS, s=s, rate=0.5, sigma_rule="safe")
    noise, codec = jdfl.DPPS(b=1.0, noise_rate=1e-6), jdfl.Sparse(share=0.3)
    clipped = jdfl.Gradients(clip=1.0, norm="l1", per="batch")
    methods: dict[str, list[tuple[str, Any, Any]]] = {
        "least squares, all examples": [
            ("D-PSGD", jdfl.DPSGD(lr=LR), plain),
            ("CEPS, one-bit messages", ceps(codec=jdfl.OneBit()), plain),
            ("CEPS, whole vectors", ceps(), plain),
            ("DO-ADP", jdfl.DOADP(lr=LR, gamma=0.3, codec=codec, gradients=jdfl.Gradients()), plain),
        ],
        f"least squares, batches of {batch}": [
            ("D-PSGD", jdfl.DPSGD(lr=LR, gradients=some), plain),
            ("DO-ADP", jdfl.DOADP(lr=LR, gamma=0.3, codec=codec, gradients=some), plain),
        ],
        "logistic, all examples": [
            ("D-PSGD", jdfl.DPSGD(lr=LR), plain),
            ("PartPSP", jdfl.PartPSP(lr_shared=LR, gradients=clipped, dpps=noise), directed),
        ],
        f"logistic, batches of {batch}": [
            ("D-PSGD", jdfl.DPSGD(lr=LR, gradients=some), plain),
            ("PartPSP", jdfl.PartPSP(lr_shared=LR, gradients=replace(clipped, batch=batch), dpps=noise), directed),
        ],
    }
    rows: list[Row] = []
    for task, chosen in methods.items():
        problem = (least_squares if task.startswith("least") else logistic)(m, n, q)
        works = {
            name: rounds_of(planned(algorithm, problem, network, MOST), problem, network, PERIOD)
            for name, algorithm, network in chosen
        }
        seconds = interleaved(works, repeats)
        case, base = f"{task}, m={m} n={n} q={q}", seconds["D-PSGD"]
        rows += [row(case, f"{name}, a round", [1e3 * one / PERIOD for one in s], "ms") for name, s in seconds.items()]
        for name, found in seconds.items():
            if name != "D-PSGD":
                goal = "<= 2" if task.endswith("all examples") else ""
                rows.append(row(case, f"{name} / D-PSGD", ratios(found, base), "x", goal))
    return rows


@jax.jit
def one_node(x: Array, heard: Array, weight: Array, own: Array, A: Array, b: Array) -> Array:
    """D-PSGD's step of one node: its row x [n], its neighbours' rows [d, n], its data."""
    r = jnp.dot(A, x) - b
    return own * x + jnp.dot(weight, heard) - LR * jnp.dot(r, A) / A.shape[0]


def beside_a_loop(m: int, n: int, q: int, rounds: int, repeats: int) -> list[Row]:
    """A round of all nodes at once compared with a jitted step per node, called in a loop as in other simulators."""
    problem, network = least_squares(m, n, q), jdfl.network.k_regular(m, DEGREE)
    graph = network.graph
    senders = np.asarray(graph.senders)
    A, b = ([leaf[i] for i in range(m)] for leaf in problem.data)
    weight, own = ([leaf[i] for i in range(m)] for leaf in (graph.weight, graph.self_weight))
    held = [[jnp.zeros((n,))] * m]

    def node_by_node() -> Any:
        for _ in range(rounds):
            x = held[0]
            heard = [jnp.stack([x[j] for j in senders[i]]) for i in range(m)]
            held[0] = [one_node(x[i], heard[i], weight[i], own[i], A[i], b[i]) for i in range(m)]
        return held[0]

    together = rounds_of(jdfl.DPSGD(lr=LR), problem, network, rounds)
    seconds = interleaved({"together": together, "one by one": node_by_node}, repeats)
    case = f"D-PSGD m={m} n={n} q={q}"
    return [
        row(case, "all nodes at once, a round", [1e3 * one / rounds for one in seconds["together"]], "ms"),
        row(case, "a jitted step per node, a round", [1e3 * one / rounds for one in seconds["one by one"]], "ms"),
        row(case, "per node / at once", ratios(seconds["one by one"], seconds["together"]), "x", ">= 40"),
    ]


@benchmark("Rounds", goals=False)
def main(chosen: Options) -> list[Row]:
    if chosen.quick:
        rows = [*beside_dpsgd(12, 40, 16, 2), *beside_a_loop(12, 10, 5, 2, 2)]
    else:
        rows = [
            *beside_dpsgd(32, 1000, 500, 5),
            *beside_dpsgd(128, 1000, 500, 5),
            *beside_a_loop(256, 20, 10, 5, 7),
            *beside_a_loop(256, 1000, 32, 5, 7),
        ]
    return rows


if __name__ == "__main__":
    main()
