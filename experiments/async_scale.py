"""AD-PSGD with ten thousand to a million nodes: events a second, waves, memory, and how far the objective falls.

Least squares like Example 1 of the CEPS paper, with 20 parameters and two examples a node, on a ring and on a network
of 8 neighbours; a gradient takes an exponential time of one second on average, and every run has 10 s. The table has

- events, which are as many gradients, and the thousands of them a second from the drawing of clocks to the last model,
  without compilation: measured on the machine that recorded the table;
- waves for every m events, if all events of the run are planned at once; events of one wave are computed together;
- the mebibytes of the tables of the run, and the peak memory of the process so far, sizes in rising order;
- the share of the gap between the objective at the start and the least one that is left, at the mean of the nodes'
  models, and the consensus error over the squared length of the solution.

--quick has a thousand and ten thousand nodes.
"""

import resource
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

import jdfl
from experiments.common import Made, Options, Row, bars, experiment, row
from jdfl import events
from jdfl import network as nw
from jdfl.engine.compiling import Clock
from jdfl.events import plan

FULL, SMALL = (10_000, 100_000, 1_000_000), (1_000, 10_000)
N, EXAMPLES, SECONDS, RECORDS = 20, 2, 10, 5
METHOD = events.ADPSGD(lr=0.06, period=SECONDS / RECORDS)
GRAPHS = {"ring": nw.ring, "8 neighbours": lambda m: nw.k_regular(m, 8)}


def problem_of(m: int, seed: int) -> jdfl.problems.LinearRegression:
    """Least squares with a truth that all nodes share, and its optimum."""
    draw = np.random.default_rng(seed)
    A = draw.standard_normal((m, EXAMPLES, N), np.float32)
    b = A @ draw.standard_normal(N).astype(np.float32) + 0.5 * draw.standard_normal((m, EXAMPLES), np.float32)
    return jdfl.problems.solved(jdfl.problems.linear_regression(A, b))


def waves(network: nw.Timed, seed: int) -> float:
    """Waves for every m events, over all events of a run."""
    key = jax.random.key(seed)
    found = METHOD.events(network.in_run(key, 0), key, float(SECONDS))
    return plan.planned(found, METHOD.kinds).waves * network.m / len(found)


def measured(graph: str, m: int, seeds: int) -> Iterator[Row]:
    """The rows of a network."""
    network = nw.timed(GRAPHS[graph](m), nw.ExponentialTime(1.0))
    found: dict[str, list[float]] = {}
    metrics = ["suboptimality", "consensus_error"]
    for seed in range(seeds):
        problem = problem_of(m, seed)
        clock = Clock()
        result = jdfl.run(METHOD, problem, network, key=seed, steps=RECORDS, metrics=metrics)
        taken, history = clock.read().seconds, result.history
        assert problem.optimum is not None
        length = float(np.sum(np.asarray(problem.optimum.w) ** 2))
        number = result.totals.gradients
        tables: Any = {name: table for name, table in result.state.items() if np.ndim(table) > 0}
        gaps = history["suboptimality"].to_numpy()
        for column, value in (
            ("events", number),
            ("thousand events a second", number / taken / 1e3),
            ("waves for m events", waves(network, seed)),
            ("tables, MiB", sum(leaf.nbytes for leaf in jax.tree.leaves(tables)) / 2**20),
            ("gap left", gaps[-1] / gaps[0]),
            ("consensus error", result.final["consensus_error"] / length),
        ):
            found.setdefault(column, []).append(float(value))
    yield from (row(f"{graph}, {m:,} nodes", column, None, values) for column, values in found.items())


def compared(rows: Sequence[Row], sizes: Sequence[int]) -> Iterator[Row]:
    """What an event costs with the most nodes over what it costs with the fewest."""
    speed = {one.case: one.mean for one in rows if one.column == "thousand events a second"}
    for graph in GRAPHS:
        few, many = (speed[f"{graph}, {m:,} nodes"] for m in (sizes[0], sizes[-1]))
        yield row(f"{graph}, most / fewest nodes", "cost of an event", None, [few / many])


@experiment(seeds=2)
def main(chosen: Options) -> Made:
    sizes = SMALL if chosen.quick else FULL
    rows: list[Row] = []
    for m in sizes:
        for graph in GRAPHS:
            rows += measured(graph, m, chosen.seeds)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        rows.append(row(f"{m:,} nodes", "peak memory so far, GiB", None, [peak]))
    rows += compared(rows, sizes)
    return Made({"AD-PSGD with many nodes": rows}, bars(rows, ["gap left"], "share of the gap that is left"))
